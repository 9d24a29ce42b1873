//! What the backend `podman` refuses by name; everything else it holds as the native one does, by the same cases.

use conformance::case::PODMAN;
use conformance::{Case, Cell};
use policy::ClauseId;

const fn refused(clause: ClauseId, values: &'static [&'static str], id: &'static str) -> Case {
    Case {
        clause,
        backends: PODMAN,
        sentence: "what an engine was not shown to hold is refused",
        cell: Cell::Refused(values, id),
    }
}

pub(crate) const CASES: &[Case] = &[
    refused(ClauseId::Threat, &["tier=auto", "threat=multi-tenant"], "backend/other-tier"),
    refused(ClauseId::ProcessLabel, &["process.label=apparmor:fumehood"], "process.label/podman"),
    refused(ClauseId::ProcessDevices, &["process.devices=[\"kvm\"]"], "process.devices/podman"),
];
