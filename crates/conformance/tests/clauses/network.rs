//! The network: none at all, an own loopback, or what only a broker could allow.

use std::net::TcpListener;

use conformance::case::{BOTH, CONTAINER, PROCESS};
use conformance::{Case, Cell, Fixture, Held, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::NetMode,
        tiers: BOTH,
        sentence: "none: no socket of any internet family can be made, and a listener of the host hears nobody",
        cell: Cell::Enforced(none),
    },
    Case {
        clause: ClauseId::NetMode,
        tiers: CONTAINER,
        sentence: "loopback: its own works, the host's hears nobody",
        cell: Cell::Enforced(loopback),
    },
    Case {
        clause: ClauseId::NetMode,
        tiers: PROCESS,
        sentence: "loopback is refused: it would be the host's",
        cell: Cell::Refused(&["net.mode=loopback"], "net.mode/loopback-needs-container"),
    },
    Case {
        clause: ClauseId::NetMode,
        tiers: BOTH,
        sentence: "allow is refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.allow=[\"example.org:443\"]"], "net.allow/no-broker"),
    },
    Case {
        clause: ClauseId::NetAllow,
        tiers: BOTH,
        sentence: "a destination is refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.allow=[\"example.org:443\"]"], "net.allow/no-broker"),
    },
    Case {
        clause: ClauseId::NetDns,
        tiers: BOTH,
        sentence: "no name is resolved, and no question leaves",
        cell: Cell::Enforced(dns),
    },
    Case {
        clause: ClauseId::NetBandwidth,
        tiers: BOTH,
        sentence: "a rate is refused without a broker",
        cell: Cell::Refused(
            &["net.mode=allow", "net.allow=[\"example.org:443\"]", "net.bandwidth=1M/s"],
            "net.bandwidth/no-broker",
        ),
    },
    Case {
        clause: ClauseId::NetPresets,
        tiers: BOTH,
        sentence: "rules by name are refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.presets=[\"pypi\"]"], "net.allow/no-broker"),
    },
    Case {
        clause: ClauseId::NetDeny,
        tiers: BOTH,
        sentence: "a denial of what would be allowed is refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.deny=[\"upload.example.org\"]"], "net.allow/no-broker"),
    },
    Case {
        clause: ClauseId::NetUnknown,
        tiers: BOTH,
        sentence: "asking about what no rule has is refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.unknown=ask"], "net.allow/no-broker"),
    },
    Case {
        clause: ClauseId::NetPrograms,
        tiers: BOTH,
        sentence: "rules for one program are refused without a broker",
        cell: Cell::Refused(
            &["net.mode=allow", "net.programs={\"/usr/bin/git\" = [\"example.org\"]}"],
            "net.allow/no-broker",
        ),
    },
    Case {
        clause: ClauseId::NetCa,
        tiers: BOTH,
        sentence: "more roots are refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.ca=[\"/etc/corp.pem\"]"], "net.allow/no-broker"),
    },
    Case {
        clause: ClauseId::NetProxy,
        tiers: BOTH,
        sentence: "a way out is refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.proxy=http://proxy.example.org:3128"], "net.allow/no-broker"),
    },
    Case {
        clause: ClauseId::NetBytes,
        tiers: BOTH,
        sentence: "a volume is refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.bytes=1G"], "net.bandwidth/no-broker"),
    },
    Case {
        clause: ClauseId::NetConnections,
        tiers: BOTH,
        sentence: "a number of connections is refused without a broker",
        cell: Cell::Refused(&["net.mode=allow", "net.connections=64"], "net.bandwidth/no-broker"),
    },
];

fn listener() -> Result<(TcpListener, String), conformance::Wrong> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let code = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 3).sendall(b'x')");
    Ok((listener, code))
}

fn none(scene: &Fixture) -> Held {
    let (listener, code) = listener()?;
    let ended = scene.python(&["syscalls.profile=default"], &code)?;
    check(ended.code == Some(1) && listener.accept().is_err(), || ended.said())?;
    scene.control_python(&code)?;
    check(listener.accept().is_ok(), || "the control was not heard".to_owned())?;
    // Families that lead out: IPv4, IPv6, MPTCP, packet, netlink, vsock, SMC.
    let families = "
import socket
made = []
for family, kind, protocol in [(2,1,0), (2,2,0), (2,1,262), (10,1,0), (10,2,0), (17,3,0), (16,3,0), (40,1,0), (43,1,0)]:
    try: socket.socket(family, kind, protocol); made.append(family)
    except OSError: pass
print(made)";
    let control = scene.control_python(families)?;
    check(control.out().starts_with("[2, 2"), || control.said())?;
    let ended = scene.python(&["syscalls.profile=default"], families)?;
    check(ended.out() == "[]", || ended.said())
}

fn loopback(scene: &Fixture) -> Held {
    let (listener, code) = listener()?;
    let values = ["syscalls.profile=default", "net.mode=loopback"];
    let ended = scene.python(&values, &code)?;
    check(ended.code == Some(1) && listener.accept().is_err(), || ended.said())?;
    scene.control_python(&code)?;
    check(listener.accept().is_ok(), || "the control was not heard".to_owned())?;
    let own = "
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname(), 3)
peer, _ = server.accept()
client.sendall(b'own'); print(peer.recv(9).decode())";
    let ended = scene.python(&values, own)?;
    check(ended.out() == "own", || ended.said())
}

fn dns(scene: &Fixture) -> Held {
    // A server for names, as a program would ask it; the host's own configuration is not touched.
    let server = std::net::UdpSocket::bind("127.0.0.1:0")?;
    server.set_nonblocking(true)?;
    let port = server.local_addr()?.port();
    let code = format!("import socket; socket.socket(2, 2).sendto(b'question', ('127.0.0.1', {port}))");
    let ended = scene.python(&["syscalls.profile=default"], &code)?;
    let mut bytes = [0; 64];
    check(ended.code == Some(1) && server.recv(&mut bytes).is_err(), || ended.said())?;
    scene.control_python(&code)?;
    check(conformance::live::until(std::time::Duration::from_secs(30), || server.recv(&mut bytes).is_ok()), || {
        "the control was not heard".to_owned()
    })?;
    let lookup =
        scene.python(&["syscalls.profile=default"], "import socket; socket.getaddrinfo('example.org', 443)")?;
    check(lookup.code == Some(1), || lookup.said())
}
