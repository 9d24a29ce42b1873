//! Rules of `[net]` that ship inside the binary, by name.

/// One preset of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetPreset {
    /// Its name, as in `net.presets`.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// Its rules, as a document with `allow`.
    pub text: &'static str,
}

/// Every preset.
pub const NET_PRESETS: &[NetPreset] = &[
    NetPreset {
        name: "pypi",
        summary: "Python packages: `pip install`",
        text: include_str!("../../../resources/net/pypi.toml"),
    },
    NetPreset {
        name: "npm",
        summary: "Node packages: `npm install`",
        text: include_str!("../../../resources/net/npm.toml"),
    },
    NetPreset {
        name: "crates",
        summary: "Rust packages: `cargo build`",
        text: include_str!("../../../resources/net/crates.toml"),
    },
    NetPreset {
        name: "debian",
        summary: "Debian packages: `apt-get install`",
        text: include_str!("../../../resources/net/debian.toml"),
    },
    NetPreset { name: "go", summary: "Go modules: `go build`", text: include_str!("../../../resources/net/go.toml") },
    NetPreset {
        name: "github-read",
        summary: "GitHub for reading: `git clone`, archives and raw files, and no push",
        text: include_str!("../../../resources/net/github-read.toml"),
    },
];
