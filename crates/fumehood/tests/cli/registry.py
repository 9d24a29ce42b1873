"""A registry of pip and npm at the loopback, with one package each; its port is the first line that it says, then each path that is asked for."""

import base64, hashlib, http.server, io, json, tarfile, zipfile

# An MCP server with one tool.
SERVER = """
def main():
    import json, sys
    tool = {"name": "look", "description": "looks", "inputSchema": {"type": "object"}}
    info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}}
    answers = {"initialize": info, "tools/list": {"tools": [tool]}, "tools/call": {"content": [{"type": "text", "text": word}]}}
    for line in sys.stdin:
        message = json.loads(line)
        found = answers.get(message["method"])
        answer = {"result": found} if found else {"error": {"code": -32601, "message": "no"}}
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""

wheel, package = io.BytesIO(), io.BytesIO()
with zipfile.ZipFile(wheel, "w") as archive:
    archive.writestr("mirrored/__init__.py", "word = 'mirrored'\n" + SERVER)
    archive.writestr("mirrored-1.0.dist-info/entry_points.txt", "[console_scripts]\nmirrored = mirrored:main\n")
    archive.writestr("mirrored-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mirrored\nVersion: 1.0\n")
    archive.writestr("mirrored-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr("mirrored-1.0.dist-info/RECORD", "mirrored/__init__.py,,\n")
with tarfile.open(fileobj=package, mode="w:gz") as archive:
    text = json.dumps({"name": "mirrored", "version": "1.0.0", "scripts": {"install": "touch installed"}}).encode()
    member = tarfile.TarInfo("package/package.json")
    member.size = len(text)
    archive.addfile(member, io.BytesIO(text))


class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers.get("Authorization"), flush=True)
        sum_of = "sha512-" + base64.b64encode(hashlib.sha512(package.getvalue()).digest()).decode()
        dist = {"tarball": "http://%s/package.tgz" % self.headers["Host"], "integrity": sum_of}
        versions = {"1.0.0": {"name": "mirrored", "version": "1.0.0", "dist": dist}}
        found = {
            "/simple/mirrored/": b'<a href="/mirrored-1.0-py3-none-any.whl">one</a>',
            "/simple/elsewhere/": b'<a href="http://elsewhere.invalid/elsewhere-1.0-py3-none-any.whl">one</a>',
            "/mirrored-1.0-py3-none-any.whl": wheel.getvalue(),
            "/mirrored": json.dumps({"name": "mirrored", "dist-tags": {"latest": "1.0.0"}, "versions": versions}).encode(),
            "/package.tgz": package.getvalue(),
        }.get(self.path)
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "application/json")
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
print(server.server_port, flush=True)
server.serve_forever()
