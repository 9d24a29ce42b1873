//! The policies whose plans are mutated.

/// A policy that reaches some of the controls, and who starts it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) root: bool,
    pub(crate) terminal: bool,
    pub(crate) text: &'static str,
}

/// Together they have every control but those of [`super::variants::ELSEWHERE`]. The first word of a name says what it needs.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "container, overlay, every limit",
        root: true,
        terminal: false,
        // Control groups v1 hold writes against mistakes alone.
        text: r#"
            prefer = ["limits.io_write"]
            workspace = { path = "@/work", mode = "overlay" }
            [fs]
            read = ["@/read"]
            hide = ["**/.env"]
            [limits]
            wall = "20s"
            cpu_time = "10s"
            cpus = 1.0
            cpuset = "0"
            memory = "128M"
            pids = 16
            open_files = 64
            file_size = "8M"
            disk = "40M"
            files = 4000
            output = "1M"
            io_read = "50M/s"
            io_write = "50M/s"
            warn = { cpu_percent = 80, for = "2s" }
            kill = { cpu_percent = 95, for = "10s" }
            [env]
            set = { A = "b" }
            [syscalls]
            allow = ["ptrace"]
            deny = ["fchmod"]
        "#,
    },
    Case {
        name: "container, copy, only executables, terminal",
        root: true,
        terminal: true,
        text: r#"
            workspace = { path = "@/work", mode = "copy" }
            fs.exec = ["/bin/true"]
            process = { tty = true, hostname = "elsewhere", umask = "0027" }
            net.mode = "loopback"
        "#,
    },
    Case {
        name: "container, hosts by name",
        root: true,
        terminal: false,
        text: r#"
            fs.sockets = false
            net = { mode = "allow", allow = ["a.test", "b.test:8443"], proxy = "http://127.0.0.1:3128" }
            secrets = { api = { from = "env:KEY", hosts = ["a.test"], env = "TOKEN" } }
            commands = { presets = ["inspect"], exec = false }
        "#,
    },
    Case {
        name: "container, commands",
        root: true,
        terminal: false,
        text: r#"
            workspace = { path = "@/work", mode = "overlay" }
            fs.read = [{ from = "@/read", to = "/opt/read" }]
            commands = { programs = [{ name = "git", args = "workspace" }], write = ["build"], read = ["build"] }
        "#,
    },
    Case {
        name: "process, commands",
        root: false,
        terminal: false,
        text: r#"
            tier = "process"
            workspace = { path = "@/work", mode = "rw" }
            prefer = ["limits.disk", "limits.files"]
            fs = { protect = false, write = ["@/write"] }
            commands = { presets = ["inspect"], write = ["build"], read = ["build"] }
        "#,
    },
    Case {
        name: "container, written directly",
        root: true,
        terminal: false,
        text: r#"
            prefer = ["limits.disk", "limits.files"]
            workspace = { path = "@/work", mode = "rw" }
            fs = { write = ["@/write"], sockets = "own" }
            limits.file_size = "8M"
            tools = { default = "deny" }
        "#,
    },
    Case {
        name: "container, ordinary user",
        root: false,
        terminal: false,
        text: r#"
            prefer = ["limits.memory", "limits.pids"]
            workspace = { path = "@/work", mode = "overlay" }
            fs.read = ["@/read"]
            net = { mode = "allow", allow = [{ host = "a.test", ports = [443], methods = ["GET"] }] }
        "#,
    },
    Case { name: "device, given", root: true, terminal: false, text: r#"process.devices = ["kvm"]"# },
    Case {
        name: "gvisor, copy",
        root: true,
        terminal: false,
        text: r#"
            tier = "gvisor"
            workspace = { path = "@/work", mode = "copy" }
            fs.read = ["@/read"]
            limits = { cpu_time = "10s", cpus = 1.0, memory = "256M" }
            syscalls = { allow = ["ptrace"], deny = ["fchmod"] }
        "#,
    },
    Case {
        name: "gvisor, hosts by name",
        root: true,
        terminal: false,
        text: r#"
            tier = "gvisor"
            net = { mode = "allow", allow = ["a.test", "b.test:8443"], proxy = "http://127.0.0.1:3128" }
            secrets = { api = { from = "env:KEY", hosts = ["a.test"], env = "TOKEN" } }
        "#,
    },
    Case {
        name: "crun, copy, every limit",
        root: true,
        terminal: true,
        text: r#"
            backend = "crun"
            workspace = { path = "@/work", mode = "copy" }
            process = { tty = true, hostname = "elsewhere", umask = "0027" }
            fs.read = ["@/read"]
            limits = { cpu_time = "10s", cpus = 1.0, cpuset = "0", memory = "128M", pids = 16, open_files = 64 }
            syscalls = { allow = ["ptrace"], deny = ["fchmod"] }
        "#,
    },
    Case {
        name: "crun, overlay",
        root: true,
        terminal: false,
        text: r#"
            backend = "crun"
            workspace = { path = "@/work", mode = "overlay" }
            fs.hide = ["**/.env"]
        "#,
    },
    Case {
        name: "crun, hosts by name",
        root: true,
        terminal: false,
        text: r#"
            backend = "crun"
            workspace = { path = "@/work", mode = "ro" }
            fs.exec = ["/bin/true"]
            net = { mode = "allow", allow = [{ host = "a.test", ports = [443], methods = ["GET"] }, "b.test:8443"] }
        "#,
    },
    Case {
        name: "podman, copy, every limit",
        root: true,
        terminal: true,
        text: r#"
            backend = "podman"
            workspace = { path = "@/work", mode = "copy" }
            process = { tty = true, hostname = "elsewhere", umask = "0027" }
            fs.read = ["@/read"]
            limits = { cpu_time = "10s", cpus = 1.0, cpuset = "0", memory = "128M", pids = 16, open_files = 64 }
            syscalls = { allow = ["ptrace"], deny = ["fchmod"] }
        "#,
    },
    Case {
        name: "podman, overlay, hosts by name",
        root: true,
        terminal: false,
        text: r#"
            backend = "podman"
            workspace = { path = "@/work", mode = "overlay" }
            fs.hide = ["**/.env"]
            net = { mode = "allow", allow = [{ host = "a.test", ports = [443], methods = ["GET"] }, "b.test:8443"] }
        "#,
    },
    Case {
        name: "docker, copy, every limit",
        root: true,
        terminal: true,
        text: r#"
            backend = "docker"
            workspace = { path = "@/work", mode = "copy" }
            process = { tty = true, hostname = "elsewhere", umask = "0027" }
            fs.read = ["@/read"]
            limits = { cpu_time = "10s", cpus = 1.0, cpuset = "0", memory = "128M", pids = 16, open_files = 64 }
            syscalls = { allow = ["ptrace"], deny = ["fchmod"] }
        "#,
    },
    Case {
        name: "docker, overlay, hosts by name",
        root: true,
        terminal: false,
        text: r#"
            backend = "docker"
            workspace = { path = "@/work", mode = "overlay" }
            fs.hide = ["**/.env"]
            net = { mode = "allow", allow = [{ host = "a.test", ports = [443], methods = ["GET"] }, "b.test:8443"] }
        "#,
    },
    Case {
        name: "process, copy",
        root: true,
        terminal: false,
        text: r#"
            tier = "process"
            workspace = { path = "@/work", mode = "copy" }
            fs.read = ["@/read"]
            limits.cpu_time = "10s"
        "#,
    },
    Case {
        name: "process, ordinary user, terminal",
        root: false,
        terminal: true,
        text: r#"
            tier = "process"
            workspace = { path = "@/work", mode = "ro" }
            prefer = ["limits.disk", "limits.files"]
            fs = { noexec = true, exec = ["/bin/true"], write = ["@/write"] }
            process.tty = true
        "#,
    },
    Case { name: "process, the network of the host", root: true, terminal: false, text: "tier = \"process\"" },
    Case {
        name: "language, an interpreter",
        root: true,
        terminal: false,
        text: r#"
            tier = "language"
            limits.cpu_time = "10s"
        "#,
    },
];

/// A machine's, each of whose starts boots one.
pub(crate) const MACHINE: Case = Case {
    name: "vm, copy, every limit",
    root: true,
    terminal: false,
    text: r#"
        tier = "vm"
        fs.root = "dir:@/read"
        fs.noexec = true
        workspace = { path = "@/work", mode = "copy" }
        limits = { cpu_time = "10s", cpus = 1.0, memory = "256M", pids = 16, open_files = 256, file_size = "8M", output = "1M" }
        env.set = { A = "b" }
        syscalls = { allow = ["ptrace"], deny = ["fchmod"] }
    "#,
};

/// One with hosts by name.
pub(crate) const MACHINE_WITH_NETWORK: Case = Case {
    name: "vm, hosts by name",
    root: true,
    terminal: false,
    text: r#"
        tier = "vm"
        fs.root = "dir:@/read"
        net = { mode = "allow", allow = ["a.test", "b.test:8443"], proxy = "http://127.0.0.1:3128" }
        secrets = { api = { from = "env:KEY", hosts = ["a.test"], env = "TOKEN" } }
    "#,
};
