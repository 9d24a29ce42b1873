#!/usr/bin/env python3
"""The cases of `scripts/clients`: clients inside that are told only names and placeholders; their servers are `clients_servers.py`."""
import json, os, shutil, socket, subprocess, sys, tempfile, threading, tomllib

sys.dont_write_bytecode = True
from clients_servers import BODY, CA, HOME, KEY, PROPER, certificate, web  # noqa: E402: no file is left beside it

PROGRAM, VENV, MODULES = sys.argv[1:4]
COMPLETE = "--complete" in sys.argv[4:]
PYTHON = f"{VENV}/bin/python"
# Where agents are: those that `scripts/clients` installs, and those of this machine.
AGENTS = f"{MODULES}/.bin:{MODULES}/opencode-linux-x64-baseline/bin:{os.environ['PATH']}"
# Those that it installs when it is asked to: they are large.
LARGE = {"claude": "235 MB", "codex": "424 MB", "aider": "686 MB with what it needs"}
# Nothing is left with whoever runs this.
os.environ.setdefault("FUMEHOOD_STATE", f"{HOME}/state")
counts = {"passed": 0, "failed": 0, "skipped": 0}


class Skip(Exception):
    """The client is not here."""


class Chosen(Skip):
    """It is installed only where someone wants it, or needs what this machine does not give."""


def need(*names):
    for name in names:
        if not any(os.access(f"{folder}/{name}", os.X_OK) for folder in ("/usr/local/bin", "/usr/bin", "/bin")):
            raise Skip(f"`{name}` is not installed")


def module(name):
    if subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True).returncode:
        raise Skip(f"the Python package `{name}` is not installed")


def rule(host, port, at, **more):
    return {"host": host, "ports": [port], "address": f"127.0.0.1:{at}", **more}


def inside(words, rules, secrets=None, read=(), env=None, **net):
    """Runs a client; its report."""
    policy = {
        "version": 1, "extends": "coding-agent", "limits": {"wall": "90s"}, "workspace": {"mode": "none"},
        "net": {"mode": "allow", "allow": rules, "ca": [CA], **net}, "env": {"set": {"CI": "1", **(env or {})}}, **({"secrets": secrets} if secrets else {}),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=HOME, delete=False) as file:
        json.dump(policy, file)
    line = [PROGRAM, "run", "--json", "-p", file.name]
    for path in read:
        line += ["--read", path]
    done = subprocess.run([*line, "--", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, env={**os.environ, "CANARY": KEY, "CANARY_ID": "AKIDKEPT"})
    report = json.loads(done.stdout)
    assert "refused" not in report, report["refused"]
    assert KEY not in done.stdout + done.stderr, "the key is told"
    return report


def wants(report, text, code=0):
    said = report.get("stdout", "") + report.get("stderr", "")
    assert text in said and report["outcome"]["code"] == code, f"{report['outcome']} {said[-700:]}"


def secret(host, put, **more):
    return {"key": {"from": "env:CANARY", "hosts": [host], "as": put, **more}}


def fetches(words, read=(), scheme="https", more=None):
    """A client that prints the body of /public/x, and fails for /private."""
    tls = scheme == "https"
    rules = [rule("web.test", 443 if tls else 80, HTTPS if tls else HTTP, **(more if more is not None else {"methods": ["GET", "HEAD"], "paths": ["/public/**"]}))]
    wants(inside([*words, f"{scheme}://web.test/public/x"], rules, read=read), BODY)
    if more is None:
        report = inside([*words, f"{scheme}://web.test/private"], rules, read=read)
        assert BODY not in report.get("stdout", ""), "another path was let through"
        assert "net.allow/path" in json.dumps(report["violations"]), report


def python(code, package=None):
    if package:
        module(package)
    return [PYTHON, "-c", code]


def case_curl():
    need("curl")
    fetches(["curl", "-sS"])
    fetches(["curl", "-sS"], scheme="http")


def case_wget():
    need("wget")
    fetches(["wget", "-qO-"])


def case_urllib():
    fetches(python("import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode())"), read=[VENV])


def case_requests():
    fetches(python("import sys, requests; r = requests.get(sys.argv[1], timeout=20); print(r.text); r.raise_for_status()", "requests"), read=[VENV])


def case_httpx():
    for two in ("False", "True"):
        # Its roots are its own package's unless it is told.
        code = f"import os, ssl, sys, httpx; c = httpx.Client(http2={two}, verify=ssl.create_default_context(cafile=os.environ['SSL_CERT_FILE'])); r = c.get(sys.argv[1]); print(r.text, r.http_version)"
        fetches(python(code, "httpx"), read=[VENV])


def case_aiohttp():
    code = "import asyncio, sys, aiohttp\nasync def main():\n async with aiohttp.ClientSession() as s, s.get(sys.argv[1]) as r: print(await r.text())\nasyncio.run(main())"
    fetches(python(code, "aiohttp"), read=[VENV])


def case_node():
    need("node")
    fetches(["node", "-e", "fetch(process.argv[1]).then(r => r.text()).then(console.log)"])


def case_go():
    need("go")
    source = f"{HOME}/go/main.go"
    os.makedirs(os.path.dirname(source), exist_ok=True)
    with open(source, "w") as file:
        file.write('package main\nimport ("fmt"; "io"; "net/http"; "os")\nfunc main() { r, e := http.Get(os.Args[1]); if e != nil { panic(e) }; b, _ := io.ReadAll(r.Body); fmt.Println(string(b)) }\n')
    subprocess.run(["go", "build", "-o", f"{HOME}/go/get", source], check=True, capture_output=True, env={**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off"})
    fetches([f"{HOME}/go/get"], read=[f"{HOME}/go"])


def case_java():
    need("java", "javac")
    with open(f"{HOME}/Get.java", "w") as file:
        file.write("import java.net.*; import java.net.http.*; public class Get { public static void main(String[] a) throws Exception { System.out.println(HttpClient.newHttpClient().send("
                   "HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body()); } }")
    os.makedirs(f"{HOME}/java", exist_ok=True)
    subprocess.run(["javac", "-d", f"{HOME}/java", f"{HOME}/Get.java"], check=True, capture_output=True)
    fetches(["java", "-cp", f"{HOME}/java", "Get"], read=[f"{HOME}/java"])


def repository():
    """`kept.git` with one commit, to which is pushed as well."""
    root, work = f"{HOME}/git/kept.git", f"{HOME}/work"
    if os.path.exists(root):
        return
    quiet = {"check": True, "capture_output": True}
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", root], **quiet)
    subprocess.run(["git", "-C", root, "config", "http.receivepack", "true"], **quiet)
    subprocess.run(["git", "init", "-q", "-b", "main", work], **quiet)
    subprocess.run(["git", "-C", work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"], **quiet)
    subprocess.run(["git", "-C", work, "push", "-q", root, "main"], **quiet)


def case_git():
    need("git")
    repository()
    read = {"methods": ["GET"]}, {"methods": ["POST"], "paths": ["/*/git-upload-pack"]}
    key = secret("git.test", {"basic": "x-access-token"})
    clone = "cd /tmp && git clone -q https://git.test/kept.git k && git -C k log --oneline | grep first"
    narrow = [rule("git.test", 443, HTTPS, **more) for more in read]
    wants(inside(["sh", "-c", clone], narrow, key), "first")
    push = clone + " && cd k && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m second && git push -q origin main && echo pushed"
    report = inside(["sh", "-c", push], narrow, key)
    assert "pushed" not in report["stdout"] and "net.allow/path" in json.dumps(report["violations"]), report
    wants(inside(["sh", "-c", push], [rule("git.test", 443, HTTPS)], key), "pushed")


def case_pip():
    command = f"{PYTHON} -m pip install -q --disable-pip-version-check --no-cache-dir --target /tmp/t --index-url https://pip.test/simple kept && PYTHONPATH=/tmp/t {PYTHON} -c 'import kept; print(kept.said)'"
    wants(inside(["sh", "-c", command], [rule("pip.test", 443, HTTPS)], secret("pip.test", {"basic": "reader"}), read=[VENV]), "from the private index")


def case_npm():
    need("npm", "node")
    command = ("mkdir /tmp/n && cd /tmp/n && echo '{}' >package.json && echo 'registry=https://npm.test/\n//npm.test/:_authToken=${NPM_TOKEN}' >.npmrc && "
               "npm install --no-audit --no-fund --loglevel=error kept && node -e \"console.log(require('kept'))\"")
    key = secret("npm.test", {"header": "Authorization", "format": "Bearer {}"}, env="NPM_TOKEN")
    wants(inside(["sh", "-c", command], [rule("npm.test", 443, HTTPS)], key), "from the private registry")
    scoped = ["sh", "-c", command.replace("error kept", "error @own/kept").replace("require('kept')", "require('@own/kept')")]
    own = {"methods": ["GET"], "paths": ["/@own/**", "/@own*"]}
    wants(inside(scoped, [rule("npm.test", 443, HTTPS, **own, encoded_slashes=True)], key), "from the private registry")
    report = inside(scoped, [rule("npm.test", 443, HTTPS, **own)], key)
    assert "from the private" not in report["stdout"] and "net.allow/path" in json.dumps(report["violations"]), report
    # As the preset `npm` has it: installed and asked about faults, also with a scope, and not published. A rule for the host as a whole publishes.
    with open("resources/net/npm.toml", "rb") as file:
        preset = [rule("npm.test", 443, HTTPS, **{name: value for name, value in one.items() if name not in ("host", "ports")}) for one in tomllib.load(file)["allow"]]
    audited = ["sh", "-c", command.replace("--no-audit ", "").replace("error kept", "error @own/kept").replace("'kept'", "'@own/kept'") + " && npm audit"]
    wants(inside(audited, preset, key), "found 0 vulnerabilities")
    publish = ["sh", "-c", command.split("npm install")[0] + 'echo \'{"name": "@own/new", "version": "2.0.0"}\' >package.json && npm publish --loglevel=error']
    report = inside(publish, preset, key)
    assert report["outcome"]["code"] != 0 and "published" not in PROPER and "net.allow/method" in json.dumps(report["violations"]), report
    wants(inside(publish, [rule("npm.test", 443, HTTPS, methods=["GET", "PUT"])], key), "@own/new")
    assert "published" in PROPER


def case_cargo():
    found = subprocess.run(["sh", "-c", "rustup which cargo 2>/dev/null || command -v cargo"], capture_output=True, text=True).stdout.strip()
    if not found:
        raise Skip("`cargo` is not installed")
    found = os.path.realpath(found)
    chain = os.path.dirname(os.path.dirname(found))
    config = "[registries.kept]\nindex = \"sparse+https://crates.test/index/\"\ncredential-provider = \"cargo:token\"\n[registry]\nglobal-credential-providers = [\"cargo:token\"]\n"
    manifest = "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nkept = { version = \"1\", registry = \"kept\" }\n"
    command = (f"mkdir -p /tmp/c/src /tmp/c/.cargo && cd /tmp/c && printf '{config}' >.cargo/config.toml && printf '{manifest}' >Cargo.toml && echo 'fn main() {{}}' >src/main.rs && "
               f"{found} fetch -q && grep -r 'from the private' $CARGO_HOME/registry/src").replace("\n", "\\n")
    key = secret("crates.test", {"header": "Authorization"}, env="CARGO_REGISTRIES_KEPT_TOKEN")
    env = {"CARGO_HOME": "/tmp/cargo", "PATH": f"{chain}/bin:/usr/local/bin:/usr/bin:/bin"}
    wants(inside(["sh", "-c", command], [rule("crates.test", 443, HTTPS)], key, read=[chain], env=env), "from the private registry")


def vendor(host, path, put, header, name):
    code = (f"import json, os, urllib.request as u; k = os.environ['{name}']; assert k.startswith('fumehood-')\n"
            f"r = u.Request('https://{host}{path}', data=b'{{}}', headers={{'content-type': 'application/json', {header}}})\nprint(u.urlopen(r, timeout=20).read().decode())")
    rules = [rule(host, 443, HTTPS, methods=["POST"], paths=["/v1/**"])]
    wants(inside(python(code), rules, secret(host, put, env=name), read=[VENV]), "paid for")


def case_openai_key():
    vendor("api.openai.com", "/v1/chat/completions", {"header": "Authorization", "format": "Bearer {}"}, "'authorization': 'Bearer ' + k", "OPENAI_API_KEY")


def case_anthropic_key():
    vendor("api.anthropic.com", "/v1/messages", {"header": "x-api-key"}, "'x-api-key': k", "ANTHROPIC_API_KEY")


def case_image_registry():
    """The password goes to who gives tokens, and to nobody else; the token, which is for a pull, comes inside."""
    code = ("import json, re, urllib.error as e, urllib.request as u\n"
            "def get(url, **h): return u.urlopen(u.Request(url, headers=h), timeout=20).read().decode()\n"
            "where = 'https://registry.test/v2/kept/manifests/1'\n"
            "try: get(where)\nexcept e.HTTPError as asked: said = dict(re.findall('([a-z]+)=\"([^\"]*)\"', asked.headers['WWW-Authenticate']))\n"
            "token = json.loads(get(said['realm'] + '?service=' + said['service'] + '&scope=' + said['scope']))['token']\n"
            "print(get(where, Authorization='Bearer ' + token))")
    rules = [rule(host, 443, HTTPS, methods=["GET"]) for host in ("registry.test", "auth.test")]
    report = inside(python(code), rules, secret("auth.test", {"basic": "reader"}, paths=["/token"]), read=[VENV])
    wants(report, '{"layers": ["kept"]}')
    assert report["secrets"] == {"key": 1}, report


def case_aws_key():
    """curl signs with the placeholder; what arrives is signed with the key."""
    need("curl")
    key = lambda host: {"key": {"kind": "aws-sigv4", "from": "env:CANARY", "key_id": "env:CANARY_ID", "hosts": [host], "env": "AWS_SECRET_ACCESS_KEY"}}
    for service, asked in (("queue", ["-d", "Action=Send&Body=a+b"]), ("queue", ["-G", "-d", "b=2", "-d", "a=1"]), ("s3", ["-X", "PUT", "-d", "kept", "-H", "x-amz-acl: private"])):
        host = f"{'kept.' if service == 's3' else ''}{service}.eu-central-1.amazonaws.com"
        line = f'exec curl -sS --aws-sigv4 aws:amz:eu-central-1:{service} --user "AKIDFORGED:$AWS_SECRET_ACCESS_KEY" "$@" https://{host}/a'
        report = inside(["sh", "-c", line, "sh", *asked], [rule(host, 443, HTTPS)], key(host))
        wants(report, "signed for")
        assert report["secrets"] == {"key": 1}, report


def agent(name, variable, host, *words):
    """A real agent as it is started by `fumehood agent`: its API is asked with the key, and the key is nowhere inside."""
    if not shutil.which(name, path=AGENTS):
        if name in LARGE:
            raise Chosen(f"`{name}` is not installed ({LARGE[name]}: FUMEHOOD_LARGE_AGENTS=1 installs it)")
        raise Skip(f"`{name}` is not installed")
    done = as_agent(name, variable, host, AGENTS, [], words)
    assert host in PROPER, f"{host} was not asked with the key: {done.stdout[-1500:]} {done.stderr[-500:]}"


def as_agent(name, variable, host, path, flags, words, hosts=(), home=None):
    """Starts an agent that is found in `path`, with its API and these hosts on this machine."""
    PROPER.discard(host)
    pins = [f'{{ host = "{one}", ports = [443], address = "127.0.0.1:{HTTPS}"{more} }}' for one, more in [(host, ""), *hosts]]
    work, home = tempfile.mkdtemp(dir=HOME), home or tempfile.mkdtemp(dir=HOME)
    flags = ["--json", "--timeout", "45s", "--set", f"net.allow=[{', '.join(pins)}]", "--set", "net.presets=[]", "--set", f'net.ca=["{CA}"]', *flags]
    done = subprocess.run([PROGRAM, "agent", *flags, name, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, cwd=work,
                          env={**os.environ, "PATH": path, "HOME": home, variable: KEY})
    assert KEY not in done.stdout + done.stderr, "the key is told"
    return done


STAND_IN = """#!/bin/sh
grep -q dark ~/.claude/settings.json && echo settings
test -e ~/.claude/.credentials.json || echo no login
case $ANTHROPIC_API_KEY in fumehood-*) echo placeholder;; esac
curl -sS -H "x-api-key: $ANTHROPIC_API_KEY" -d '{}' https://api.anthropic.com/v1/messages; echo
mkdir /tmp/n && cd /tmp/n && echo '{}' >package.json && npm install --no-audit --no-fund --loglevel=error kept >&2 && node -e "console.log(require('kept'))"
@python -m pip install -q --disable-pip-version-check --no-cache-dir --target /tmp/t kept >&2 && PYTHONPATH=/tmp/t @python -c 'import kept; print(kept.said)'
git clone -q https://github.com/kept.git /tmp/k && cd /tmp/k && git log --max-parents=0 --format=%s
git -c user.name=a -c user.email=a@b commit -q --allow-empty -m second && git push -q origin main && echo pushed
exit 0
"""


def case_agent_stand_in():
    """What a coding agent does in a day, by the real npm, pip and git with no setting of theirs: one file of settings, no login, a key that is not inside."""
    need("npm", "node", "git", "curl")
    repository()
    home, tools = tempfile.mkdtemp(dir=HOME), tempfile.mkdtemp(dir=HOME)
    os.makedirs(f"{home}/.claude")
    for name, text in ((f"{home}/.claude/settings.json", '{"theme": "dark"}'), (f"{home}/.claude/.credentials.json", KEY), (f"{tools}/claude", STAND_IN.replace("@python", PYTHON))):
        with open(name, "w") as file:
            file.write(text)
    os.chmod(f"{tools}/claude", 0o755)
    get = ', methods = ["GET", "HEAD"]'
    hosts = [("registry.npmjs.org", get), ("pypi.org", get), ("files.pythonhosted.org", get), ("github.com", get), ("github.com", ', methods = ["POST"], paths = ["/*/git-upload-pack"]')]
    run = lambda hosts: json.loads(as_agent("claude", "ANTHROPIC_API_KEY", "api.anthropic.com", f"{tools}:/usr/local/bin:/usr/bin:/bin", ["--read", VENV], [], hosts, home).stdout)
    first = ["settings", "no login", "placeholder", '{"content": [{"text": "paid for"}]}']
    report = run(hosts)
    assert report["stdout"].splitlines() == [*first, "from the private registry", "from the private index", "first"], report
    assert "api.anthropic.com" in PROPER and "net.allow/path" in json.dumps(report["violations"]), report
    # The rules are what lets it have them.
    report = run([])
    assert report["stdout"].splitlines() == first, report


def case_agent_claude():
    agent("claude", "ANTHROPIC_API_KEY", "api.anthropic.com", "-p", "say hello")


def case_agent_codex():
    agent("codex", "OPENAI_API_KEY", "api.openai.com", "exec", "--skip-git-repo-check", "-s", "danger-full-access", "say hello")


def case_agent_gemini():
    need("node")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < 20:
        raise Chosen(f"it wants node 20, and this is {version}")
    agent("gemini", "GEMINI_API_KEY", "generativelanguage.googleapis.com", "-p", "say hello")


def case_agent_aider():
    agent("aider", "OPENAI_API_KEY", "api.openai.com", "--model", "openai/gpt-4o", "--yes-always", "--no-git", "--no-show-model-warnings", "--message", "say hello")


def case_agent_opencode():
    agent("opencode", "ANTHROPIC_API_KEY", "api.anthropic.com", "run", "--model", "anthropic/claude-sonnet-4-5", "say hello")


def case_websocket():
    module("websockets")
    server = ("import asyncio, ssl, sys, websockets\nc = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain(sys.argv[1], sys.argv[2])\n"
              "async def echo(s):\n async for m in s: await s.send('back ' + m)\n"
              "async def main():\n async with websockets.serve(echo, '127.0.0.1', 0, ssl=c) as s:\n  print(s.sockets[0].getsockname()[1], flush=True); await asyncio.Future()\nasyncio.run(main())")
    client = "import asyncio, os, ssl, websockets\nasync def main():\n async with websockets.connect('wss://ws.test/v1/x') as s:\n  await s.send('hello'); print(await s.recv())\nasyncio.run(main())"
    with serving([PYTHON, "-c", server, f"{HOME}/leaf.pem", f"{HOME}/leaf.key"]) as port:
        wants(inside(python(client), [rule("ws.test", 443, port, methods=["GET"], paths=["/v1/**"], websocket=True)], read=[VENV]), "back hello")


def case_grpc():
    module("grpc")
    server = ("import grpc, sys, threading; from concurrent.futures import ThreadPoolExecutor as P\n"
              "class H(grpc.GenericRpcHandler):\n def service(self, d): return grpc.unary_unary_rpc_method_handler(lambda r, c: b'back ' + r)\n"
              "s = grpc.server(P(4), handlers=[H()]); k = grpc.ssl_server_credentials([(open(sys.argv[2], 'rb').read(), open(sys.argv[1], 'rb').read())])\n"
              "print(s.add_secure_port('127.0.0.1:0', k), flush=True); s.start(); threading.Event().wait()")
    client = ("import grpc, os, sys\nk = grpc.ssl_channel_credentials(open(os.environ['SSL_CERT_FILE'], 'rb').read())\n"
              "c = grpc.secure_channel('grpc.test:443', k); print(c.unary_unary(sys.argv[1])(b'hello', timeout=20))")
    rules = lambda port: [rule("grpc.test", 443, port, methods=["POST"], paths=["/kept.S/*"])]
    with serving([PYTHON, "-c", server, f"{HOME}/leaf.pem", f"{HOME}/leaf.key"]) as port:
        wants(inside([*python(client), "/kept.S/Do"], rules(port), read=[VENV]), "back hello")
        report = inside([*python(client), "/other.S/Do"], rules(port), read=[VENV])
        assert "back" not in report["stdout"] and "net.allow/path" in json.dumps(report["violations"]), report


class serving:
    """A server that says its port."""

    def __init__(self, words, **more):
        self.words, self.more = words, more

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **self.more)
        return int(self.process.stdout.readline())

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def free():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(port, process):
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, "the server ended"
            threading.Event().wait(0.1)
    raise AssertionError("the server does not listen")


def case_redis():
    need("redis-server", "redis-cli")
    port = free()
    server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", HOME], stdout=subprocess.DEVNULL)
    try:
        until(port, server)
        wants(inside(["redis-cli", "-h", "redis.test", "ping"], [rule("redis.test", 6379, port)]), "PONG")
    finally:
        server.kill()
        server.wait()


def case_psql():
    need("psql")
    found = next((shutil.which("initdb", path=f"{folder}") for folder in ("/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin", "/usr/local/bin") if shutil.which("initdb", path=folder)), None)
    if not found:
        raise Skip("`initdb` is not installed")
    folder, port = f"{HOME}/pg", free()
    os.makedirs(folder)
    user = {}
    if os.getuid() == 0:
        os.chown(folder, 65534, 65534)
        user = {"user": 65534, "group": 65534, "extra_groups": []}
    subprocess.run([found, "-D", f"{folder}/d", "-U", "kept", "-A", "trust", "-N"], check=True, capture_output=True, cwd=folder, **user)
    server = subprocess.Popen([os.path.join(os.path.dirname(os.path.realpath(found)), "postgres"), "-D", f"{folder}/d", "-p", str(port), "-k", folder, "-h", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **user)
    try:
        until(port, server)
        wants(inside(["psql", "-h", "db.test", "-U", "kept", "-d", "postgres", "-tAc", "select 6 * 7"], [rule("db.test", 5432, port)]), "42")
    finally:
        server.terminate()
        server.wait()


def case_ssh():
    need("ssh", "ssh-keygen")
    sshd = "/usr/sbin/sshd"
    if os.getuid() != 0:
        raise Chosen("only root starts `sshd`")
    if not os.access(sshd, os.X_OK):
        raise Skip("`sshd` is not installed")
    folder, port = f"{HOME}/ssh", free()
    os.makedirs(folder)
    os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host", "own"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
    shutil.copy(f"{folder}/own.pub", f"{folder}/keys")
    with open(f"{folder}/config", "w") as file:
        file.write(f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/keys\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n")
    server = subprocess.Popen([sshd, "-D", "-f", f"{folder}/config"], stderr=subprocess.DEVNULL)
    try:
        until(port, server)
        shutil.copytree(folder, f"{HOME}/given")
        # The program inside is nobody's; it makes a copy of its own.
        os.chmod(f"{HOME}/given/own", 0o644)
        line = "cp /opt/given/own /tmp/own && chmod 600 /tmp/own && ssh -i /tmp/own -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@ssh.test echo arrived"
        wants(inside(["sh", "-c", line], [rule("ssh.test", 22, port)], read=[f"{HOME}/given:/opt/given"]), "arrived")
    finally:
        server.kill()
        server.wait()


def main():
    cases = {name[5:]: case for name, case in globals().items() if name.startswith("case_")}
    chosen = os.environ.get("CLIENTS", "").split() or cases
    for name in chosen:
        try:
            cases[name]()
            word, why = "passed", ""
        except Skip as skip:
            word, why = "skipped", f"skip: client {name}: {skip}"
            if COMPLETE and not isinstance(skip, Chosen):
                word, why = "failed", f"FAILED: {name}: {skip}"
        except Exception as error:  # noqa: BLE001: each case is told, and the next one tried
            word, why = "failed", f"{name}: {type(error).__name__}: {error}"
        counts[word] += 1
        print(why or f"{name}: ok", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return counts["failed"] != 0 or counts["passed"] == 0


certificate()
HTTP, HTTPS = web(False), web(True)
try:
    code = main()
finally:
    shutil.rmtree(HOME, ignore_errors=True)
sys.exit(code)
