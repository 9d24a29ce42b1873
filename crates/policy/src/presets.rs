//! The policies that ship inside the binary.

/// One preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name, as in `extends` and `--policy`; that of rules as in `net.presets`.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// Its document.
    pub text: &'static str,
}

/// Every preset; the first is the default.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "strict",
        summary: "nothing but the interpreter: no workspace, network or environment; 30 s, 256M, 32 processes",
        text: include_str!("../../../resources/presets/strict.toml"),
    },
    Preset {
        name: "python",
        summary: "a Python project: 5 min, 1G, loopback network",
        text: include_str!("../../../resources/presets/python.toml"),
    },
    Preset {
        name: "node",
        summary: "a Node project: 5 min, 2G, loopback network",
        text: include_str!("../../../resources/presets/node.toml"),
    },
    Preset {
        name: "data-analysis",
        summary: "numpy, pandas, matplotlib on files: 2 min, 1G, large shared memory",
        text: include_str!("../../../resources/presets/data-analysis.toml"),
    },
    Preset {
        name: "coding-agent",
        summary: "an agent on a tree: its changes are kept aside until applied; 30 min, 4G",
        text: include_str!("../../../resources/presets/coding-agent.toml"),
    },
];

/// The preset of a name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
