//! What the backend `crun` refuses by name; everything else it holds as the native one does, by the same cases.

use conformance::case::CRUN;
use conformance::{Case, Cell};
use policy::ClauseId;

const fn refused(clause: ClauseId, values: &'static [&'static str], id: &'static str) -> Case {
    Case {
        clause,
        backends: CRUN,
        sentence: "what a bundle cannot say yet is refused",
        cell: Cell::Refused(values, id),
    }
}

pub(crate) const CASES: &[Case] = &[
    refused(ClauseId::FsWrite, &["fs.write=[\".\"]"], "fs.write/crun"),
    refused(
        ClauseId::FsHide,
        &["fs.hide=[\"**/.env\"]", "fs.read=[\"/opt\"]", COPY, "workspace.path=."],
        "fs.hide/crun",
    ),
    refused(ClauseId::Workspace, &["workspace.path=.", "workspace.mode=rw"], "workspace/crun"),
    refused(ClauseId::Threat, &["tier=auto", "threat=multi-tenant"], "backend/other-tier"),
    refused(ClauseId::LimitsIoRead, &["limits.io_read=4M/s"], "limits.io/crun"),
    refused(ClauseId::LimitsIoWrite, &["limits.io_write=4M/s", "threat=mistakes"], "limits.io/crun"),
    refused(ClauseId::ProcessLabel, &["process.label=apparmor:fumehood"], "process.label/crun"),
    refused(ClauseId::ProcessDevices, &["process.devices=[\"kvm\"]"], "process.devices/crun"),
];

const COPY: &str = "workspace.mode=copy";
