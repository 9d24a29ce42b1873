//! What the backend `docker` refuses by name; everything else it holds as the native one does, by the same cases.

use conformance::case::DOCKER;
use conformance::{Case, Cell};
use policy::ClauseId;

const fn refused(clause: ClauseId, values: &'static [&'static str], id: &'static str) -> Case {
    Case {
        clause,
        backends: DOCKER,
        sentence: "what an engine was not shown to hold is refused",
        cell: Cell::Refused(values, id),
    }
}

pub(crate) const CASES: &[Case] = &[
    refused(ClauseId::Threat, &["tier=auto", "threat=multi-tenant"], "backend/other-tier"),
    refused(ClauseId::ProcessLabel, &["process.label=apparmor:fumehood"], "process.label/docker"),
    refused(ClauseId::ProcessDevices, &["process.devices=[\"kvm\"]"], "process.devices/docker"),
];
