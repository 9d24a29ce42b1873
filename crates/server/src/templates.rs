//! What a sandbox is made from: E2B's stock names and our presets, as layers of a policy.

use axum::http::StatusCode;
use sandbox::PolicyLayer;

use crate::answer::Problem;

/// The template of E2B's clients when none is named.
pub(crate) const BASE: &str = "base";

/// What `base` says over the preset `python`: a home and a `/workspace` that can be written and executed in, an own loopback
/// network, and room for tools.
const BASE_CLAUSES: &[&str] = &[
    "limits.memory=2G",
    "limits.pids=512",
    "limits.open_files=8192",
    "limits.file_size=1G",
    "limits.disk=2G",
    "limits.files=200000",
    "limits.output=64M",
    "fs.tmp=512M",
    "fs.shm=64M",
    "fs.run=16M",
    "syscalls.profile=default",
];

/// The layers of a template; `empty` is an empty folder that `/workspace` is a copy of.
///
/// # Errors
/// There is no such template.
pub(crate) fn layers(template: &str, empty: &std::path::Path) -> Result<Vec<PolicyLayer>, Problem> {
    let name = template.split_once(':').map_or(template, |(name, _tag)| name);
    let mut layers = match name {
        BASE => {
            let mut layers = vec![PolicyLayer::Document("python".to_owned())];
            layers.extend(BASE_CLAUSES.iter().map(|clause| PolicyLayer::Set((*clause).to_owned())));
            layers
        }
        "code-interpreter-v1" | "code-interpreter" => return Err(not_yet(template)),
        _ if policy::presets::preset(name).is_some() => vec![PolicyLayer::Document(name.to_owned())],
        _ => return Err(unknown(template)),
    };
    if let Some(empty) = empty.to_str() {
        layers.extend(workspace(empty));
    }
    Ok(layers)
}

/// A `/workspace` of its own.
fn workspace(empty: &str) -> [PolicyLayer; 3] {
    // The folder is one of ours, and shown inside as it is: empty.
    [
        PolicyLayer::Flag { name: "--dangerous-read".to_owned(), value: format!("{empty}:/mnt") },
        PolicyLayer::Flag { name: "--workspace".to_owned(), value: format!("{empty}:copy") },
        PolicyLayer::Set("workspace.at=/workspace".to_owned()),
    ]
}

/// The names of all.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(BASE).chain(policy::presets::PRESETS.iter().map(|preset| preset.name))
}

fn unknown(template: &str) -> Problem {
    let all: Vec<_> = names().collect();
    let what = format!("there is no template {}", policy::diagnostic::quote(template));
    let why = "a template is one of our own or a preset";
    Problem::new(StatusCode::BAD_REQUEST, "serve/no-such-template", what, why, &format!("one of {}", all.join(", ")))
        .about("templateID")
}

fn not_yet(template: &str) -> Problem {
    let what = format!("the template {} is not there", policy::diagnostic::quote(template));
    let why = "it needs kernels that are not installed in any sandbox of this server";
    Problem::cannot(StatusCode::BAD_REQUEST, "templateID", &what, why, "use `base` and run code with commands")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_template_is_ours_or_a_preset_and_nothing_else_is_one() {
        let empty = Path::new("/srv/empty");
        for name in names() {
            assert!(layers(name, empty).is_ok(), "{name}");
        }
        assert!(layers("base:default", empty).is_ok());
        for bad in ["", "/etc/passwd", "./a.toml", "code-interpreter-v1", "Base"] {
            let problem = layers(bad, empty).unwrap_err();
            assert_eq!((problem.status, &*problem.clause), (StatusCode::BAD_REQUEST, "templateID"), "{bad}");
        }
    }
}
