//! Engines that cannot be used: each is refused by a name of its own and with what helps, before anything starts.

use crate::Fixture;

/// Answers as Docker's daemon does to who asks for its version and description.
const STAND_IN: &str = "import http.server as h, json, os, socketserver, sys
most, option, runtime, uid = sys.argv[1:]
class Daemon(h.BaseHTTPRequestHandler):
    def do_GET(self):
        said = {'MinAPIVersion': '1.12', 'ApiVersion': most}
        if self.path.endswith('/info'):
            said = {'ServerVersion': '20.10.24', 'SecurityOptions': [option], 'DefaultRuntime': 'it', 'Runtimes': {'it': {'path': runtime}}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())
    def log_message(self, *_): pass
class Server(socketserver.ThreadingUnixStreamServer):
    # Who serves it is who listens.
    def server_activate(self):
        os.setuid(int(uid))
        super().server_activate()
Server('/run/docker.sock', Daemon).serve_forever()";

/// In a mount namespace of its own, so that no daemon of this host is seen. The folder of the second runtime is everybody's.
const BESIDE: &str = "unshare --mount --propagation private sh -c '
  mount -t tmpfs -o mode=755 tmpfs /run && mkdir -m 777 /run/open || exit 77
  for one in /run/runc /run/open/runc; do printf \"#!/bin/sh\\necho runc version 1.1.5\\n\" >$one; chmod 755 $one; done
  server=
  if [ \"$#\" = 6 ]; then
    python3 -c \"$2\" \"$3\" \"$4\" \"$5\" \"$6\" & server=$!
    for _ in 1 2 3 4 5 6 7 8 9 10; do [ -S /run/docker.sock ] && break; sleep 0.3; done
    sleep 0.3
  fi
  \"$1\" run --tier container --set backend=docker -- true
  code=$?
  [ -z \"$server\" ] || kill $server
  exit $code' sh \"$@\"";

#[test]
fn a_daemon_that_cannot_be_used_is_refused_with_its_remedy() {
    if !rustix::process::geteuid().is_root() {
        return println!("skip: who is not root is refused whatever there is");
    }
    let old = ["1.40", "name=seccomp", "/run/runc", "0"];
    let known = ["1.41", "name=seccomp", "/run/runc", "0"];
    let says_rootless = ["1.41", "name=rootless", "/run/runc", "0"];
    let of_a_user = ["1.41", "name=seccomp", "/run/runc", "1000"];
    let anybodys = ["1.41", "name=seccomp", "/run/open/runc", "0"];
    let cases: [(&str, &str, &str, &[&str]); 8] = [
        ("docker/not-here", "", "apt-get install docker.io", &[]),
        ("docker/elsewhere", "tcp://192.0.2.1:2375", "unset DOCKER_HOST", &known),
        ("docker/elsewhere", "unix:///run/user/1000/docker.sock", "unset DOCKER_HOST", &known),
        ("docker/other-version", "", "a release of Docker from 20.10 on", &old),
        ("docker/rootless", "", "use root's own daemon", &says_rootless),
        ("docker/rootless", "", "use root's own daemon", &of_a_user),
        ("docker/no-runtime", "", "/etc/docker/daemon.json", &anybodys),
        ("docker/known-faults", "", "give the daemon a newer one", &known),
    ];
    for (id, host, fix, daemon) in cases {
        let fixture = Fixture::new();
        let mut script = crate::script(BESIDE, &fixture);
        if !daemon.is_empty() {
            script.arg(STAND_IN).args(daemon);
        }
        let said = fixture.said(&script.env("DOCKER_HOST", host).output().unwrap());
        if said.code == 77 {
            return println!("skip: nobody here mounts");
        }
        assert!(said.code == 126 && said.err.contains(&format!("explain {id}")), "{id}: {said:?}");
        assert!(said.err.contains(fix), "{id}: {said:?}");
    }
}

#[test]
fn a_context_of_dockers_client_leads_to_roots_own_daemon_or_is_refused_and_no_other_is_asked() {
    if !rustix::process::geteuid().is_root() {
        return println!("skip: who is not root is refused whatever there is");
    }
    let cases = [
        ("far", "", "docker/elsewhere", "`ssh://person@192.0.2.1`"),
        ("own", "far", "docker/elsewhere", "`docker context use default`"),
        ("users", "", "docker/elsewhere", "`unix:///run/user/1000/docker.sock`"),
        ("gone", "", "docker/elsewhere", "`gone`"),
        // These are asked: it is the daemon that has what is told then.
        ("own", "", "docker/known-faults", "give the daemon a newer one"),
        ("far", "own", "docker/known-faults", "give the daemon a newer one"),
        ("far", "default", "docker/known-faults", "give the daemon a newer one"),
    ];
    for (current, variable, id, words) in cases {
        let fixture = Fixture::new();
        for (name, host) in [
            ("far", "ssh://person@192.0.2.1"),
            ("own", "unix:///var/run/docker.sock"),
            ("users", "unix:///run/user/1000/docker.sock"),
        ] {
            let folder = fixture.path(".docker/contexts/meta").join(policy::json::sha256_hex(name.as_bytes()));
            std::fs::create_dir_all(&folder).unwrap();
            let about = format!(r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#);
            std::fs::write(folder.join("meta.json"), about).unwrap();
        }
        std::fs::write(fixture.path(".docker/config.json"), format!(r#"{{"currentContext":"{current}"}}"#)).unwrap();
        let mut script = crate::script(BESIDE, &fixture);
        script.arg(STAND_IN).args(["1.41", "name=seccomp", "/run/runc", "0"]).env("DOCKER_CONTEXT", variable);
        let said = fixture.said(&script.output().unwrap());
        if said.code == 77 {
            return println!("skip: nobody here mounts");
        }
        let err = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.code == 126 && err.contains(&format!("explain {id}")), "{current}, {variable}: {err}");
        assert!(err.contains(words), "{current}, {variable}: {err}");
    }
}
