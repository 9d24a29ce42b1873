//! Rules of `[net]` that ship inside the binary, by name.

use crate::presets::Preset;

/// Every preset of rules; the text of each is a document with `allow`.
pub const NET_PRESETS: &[Preset] = &[
    Preset {
        name: "pypi",
        summary: "Python packages: `pip install`",
        text: include_str!("../../../resources/net/pypi.toml"),
    },
    Preset {
        name: "npm",
        summary: "Node packages: `npm install`, `npm audit`, and no publishing",
        text: include_str!("../../../resources/net/npm.toml"),
    },
    Preset {
        name: "crates",
        summary: "Rust packages: `cargo build`",
        text: include_str!("../../../resources/net/crates.toml"),
    },
    Preset {
        name: "debian",
        summary: "Debian packages: `apt-get install`",
        text: include_str!("../../../resources/net/debian.toml"),
    },
    Preset { name: "go", summary: "Go modules: `go build`", text: include_str!("../../../resources/net/go.toml") },
    Preset {
        name: "github-read",
        summary: "GitHub for reading: `git clone`, archives and raw files, and no push",
        text: include_str!("../../../resources/net/github-read.toml"),
    },
    Preset {
        name: "github-push",
        summary: "GitHub: `git push`, each when a person agreed",
        text: include_str!("../../../resources/net/github-push.toml"),
    },
];
