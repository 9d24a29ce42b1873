"""The servers of `scripts/clients`, on this machine: registries, APIs and repositories, each of which refuses whoever comes without the key."""
import base64, hashlib, hmac, io, json, os, ssl, subprocess, tarfile, tempfile, threading, zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-canary-0123456789abcdef0123456789"
NAMES = ["web.test", "git.test", "pip.test", "npm.test", "crates.test", "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "queue.eu-central-1.amazonaws.com", "kept.s3.eu-central-1.amazonaws.com", "registry.test", "auth.test", "grpc.test", "ws.test",
         "registry.npmjs.org", "pypi.org", "files.pythonhosted.org", "github.com"]
HOME = tempfile.mkdtemp(prefix="fumehood-clients-")
os.chmod(HOME, 0o755)
CA = f"{HOME}/corp.pem"
BODY = "served by name"
# Hosts that were asked with the key.
PROPER = set()


def certificate():
    names = ",".join(f"DNS:{name}" for name in NAMES)
    quiet = {"check": True, "capture_output": True}
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=a company's own",
                    "-addext", "keyUsage=critical,keyCertSign", "-keyout", f"{HOME}/ca.key", "-out", CA], **quiet)
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=web.test", "-keyout", f"{HOME}/leaf.key", "-out", f"{HOME}/leaf.csr"], **quiet)
    with open(f"{HOME}/ext", "w") as file:
        file.write(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n")
    subprocess.run(["openssl", "x509", "-req", "-in", f"{HOME}/leaf.csr", "-CA", CA, "-CAkey", f"{HOME}/ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{HOME}/ext", "-out", f"{HOME}/leaf.pem"], **quiet)


def wheel():
    out, name = io.BytesIO(), "kept-1.0.dist-info"
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("kept.py", "said = 'from the private index'\n")
        file.writestr(f"{name}/METADATA", "Metadata-Version: 2.1\nName: kept\nVersion: 1.0\n")
        file.writestr(f"{name}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}/RECORD", f"kept.py,,\n{name}/METADATA,,\n{name}/WHEEL,,\n{name}/RECORD,,\n")
    return out.getvalue()


def package(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


WHEEL = wheel()
NPM = package({"package/package.json": '{"name":"kept","version":"1.0.0","main":"i.js"}', "package/i.js": "module.exports='from the private registry'"})
CRATE = package({"kept-1.0.0/Cargo.toml": '[package]\nname = "kept"\nversion = "1.0.0"\nedition = "2021"\n', "kept-1.0.0/src/lib.rs": "pub fn said() -> &'static str { \"from the private registry\" }\n"})


class Served(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, code, body, **headers):
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def proper(self, wanted):
        if self.headers.get("Authorization") == wanted:
            return True
        self.say(401, "who are you", WWW_Authenticate='Basic realm="x"')
        return False

    def any(self):
        host = self.headers.get("Host", "").split(":")[0]
        length = int(self.headers.get("Content-Length") or 0)
        self.sent = self.rfile.read(length) if length else b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                self.sent += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        getattr(self, host.replace(".", "_").replace("-", "_"), self.web_test)()

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = any

    def web_test(self):
        self.say(200, BODY)

    def api_openai_com(self):
        if self.proper(f"Bearer {KEY}"):
            PROPER.add("api.openai.com")
            self.say(200, json.dumps({"choices": [{"message": {"content": "paid for"}}]}), Content_Type="application/json")

    def api_anthropic_com(self):
        proper = self.headers.get("x-api-key") == KEY
        if proper:
            PROPER.add("api.anthropic.com")
        self.say(200 if proper else 401, json.dumps({"content": [{"text": "paid for" if proper else "no"}]}), Content_Type="application/json")

    def generativelanguage_googleapis_com(self):
        if self.headers.get("x-goog-api-key") == KEY:
            PROPER.add("generativelanguage.googleapis.com")
        self.say(400, json.dumps({"error": {"code": 400, "message": "no model", "status": "INVALID_ARGUMENT"}}), Content_Type="application/json")

    def amazonaws(self, region, service):
        """Verifies the signature as a server of AWS does, from what came and nothing else."""
        said = self.headers.get("Authorization", "")
        fields = dict(part.strip().split("=", 1) for part in said.removeprefix("AWS4-HMAC-SHA256").split(",") if "=" in part)
        date, names = self.headers.get("X-Amz-Date", ""), fields.get("SignedHeaders", "")
        scope = f"{date[:8]}/{region}/{service}/aws4_request"
        payload = hashlib.sha256(self.sent).hexdigest()
        if service == "s3":
            payload = self.headers.get("X-Amz-Content-Sha256", "")
        path, _, query = self.path.partition("?")
        query = "&".join(sorted(pair if "=" in pair else pair + "=" for pair in query.split("&") if pair))
        lines = "".join(f"{name}:{self.headers.get(name, '').strip()}\n" for name in names.split(";"))
        request = "\n".join([self.command, path, query, lines, names, payload])
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = b"AWS4" + KEY.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        proper = fields.get("Credential") == f"AKIDKEPT/{scope}" and hmac.digest(key, text.encode(), "sha256").hex() == fields.get("Signature")
        proper = proper and "host" in names.split(";") and self.headers.get("X-Amz-Security-Token") is None
        self.say(200 if proper else 403, "signed for" if proper else "SignatureDoesNotMatch")

    def queue_eu_central_1_amazonaws_com(self):
        self.amazonaws("eu-central-1", "queue")

    def kept_s3_eu_central_1_amazonaws_com(self):
        self.amazonaws("eu-central-1", "s3")

    def registry_test(self):
        """A registry of images: it names who gives a token for it, and takes that."""
        if self.headers.get("Authorization") == "Bearer given-for-pull":
            return self.say(200, json.dumps({"layers": ["kept"]}), Content_Type="application/json")
        self.say(401, "", WWW_Authenticate='Bearer realm="https://auth.test/token",service="registry.test",scope="repository:kept:pull"')

    def auth_test(self):
        if self.proper("Basic " + base64.b64encode(f"reader:{KEY}".encode()).decode()):
            proper = self.path == "/token?service=registry.test&scope=repository:kept:pull"
            self.say(200 if proper else 400, json.dumps({"token": "given-for-pull"}), Content_Type="application/json")

    def pip_test(self):
        if self.proper("Basic " + base64.b64encode(f"reader:{KEY}".encode()).decode()):
            self.index("")

    def pypi_org(self):
        self.index("https://files.pythonhosted.org")

    def files_pythonhosted_org(self):
        self.index("")

    def index(self, files):
        """An index of Python packages with one wheel, which is at `files`."""
        if self.path.endswith(".whl"):
            return self.say(200, WHEEL)
        name = "kept-1.0-py3-none-any.whl"
        self.say(200, f'<a href="{files}/files/{name}#sha256={hashlib.sha256(WHEEL).hexdigest()}">{name}</a>', Content_Type="text/html")

    def npm_test(self):
        if self.proper(f"Bearer {KEY}"):
            self.packages("npm.test")

    def registry_npmjs_org(self):
        self.packages("registry.npmjs.org")

    def packages(self, host):
        """A registry of npm, with every package that is asked for."""
        if self.path.endswith(".tgz"):
            return self.say(200, NPM)
        # Asked with names and versions, it tells faults: there are none.
        if self.command == "POST" and self.path == "/-/npm/v1/security/advisories/bulk":
            return self.say(200, "{}", Content_Type="application/json")
        if self.command == "PUT":
            PROPER.add("published")
            return self.say(201, "{}", Content_Type="application/json")
        digest = "sha512-" + base64.b64encode(hashlib.sha512(NPM).digest()).decode()
        # npm asks for a package with a scope as `/@own%2fkept`.
        name = self.path[1:].lower().replace("%2f", "/")
        dist = {"tarball": f"https://{host}/{name}/-/kept-1.0.0.tgz", "integrity": digest}
        version = {"name": name, "version": "1.0.0", "dist": dist}
        self.say(200, json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}), Content_Type="application/json")

    def crates_test(self):
        if not self.proper(KEY):
            return
        if self.path.endswith("config.json"):
            return self.say(200, json.dumps({"dl": "https://crates.test/dl/{crate}-{version}.crate", "auth-required": True}))
        if self.path.endswith(".crate"):
            return self.say(200, CRATE)
        entry = {"name": "kept", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(CRATE).hexdigest(), "features": {}, "yanked": False}
        self.say(200, json.dumps(entry) + "\n") if self.path == "/index/ke/pt/kept" else self.say(404, "")

    def git_test(self):
        if self.proper("Basic " + base64.b64encode(f"x-access-token:{KEY}".encode()).decode()):
            self.repositories()

    def github_com(self):
        self.repositories()

    def repositories(self):
        path, _, query = self.path.partition("?")
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_PROJECT_ROOT": f"{HOME}/git", "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command, "PATH_INFO": path,
               "QUERY_STRING": query, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(self.sent)), "REMOTE_USER": "x", "REMOTE_ADDR": "127.0.0.1",
               "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        said = subprocess.run(["git", "http-backend"], input=self.sent, env=env, capture_output=True).stdout
        head, _, body = said.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((int(value.split()[0]) for name, value in lines if name == "Status"), 200)
        self.say(status, body, **{name.replace("-", "_"): value for name, value in lines if name != "Status"})

    def log_message(self, *_):
        pass


def web(tls):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    server.daemon_threads = True
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{HOME}/leaf.pem", f"{HOME}/leaf.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
