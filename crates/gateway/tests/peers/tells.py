"""A server over streamable HTTP that says everywhere with what header it was asked.

usage: tells.py     prints its port
"""

import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EMPTY = {"type": "object", "properties": {}}


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.answer(204)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        header = self.headers.get("Authorization", "nothing")
        token = header.rpartition(" ")[2]
        # Backwards nobody searches for it: that much comes through shows that it was said.
        told = f"you came with {header}, which is {token[::-1]}"
        reply = {"jsonrpc": "2.0", "id": message.get("id")}
        before = []
        if "id" not in message:
            return self.answer(202)
        elif message["method"] == "initialize":
            reply["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": {"name": "s", "version": "1"},
                "instructions": told,
            }
        elif message["method"] == "tools/list":
            tools = [{"name": name, "description": told, "inputSchema": EMPTY} for name in ("result", "error", "broken")]
            reply["result"] = {"tools": tools}
        elif message["method"] != "tools/call":
            reply["error"] = {"code": -32601, "message": "unknown"}
        elif message["params"]["name"] == "broken":
            # Our own reader of HTTP says which type it did not expect.
            return self.answer(200, b"?", f"text/plain; {told}")
        elif message["params"]["name"] == "error":
            reply["error"] = {"code": -32000, "message": told, "data": {"token": token}}
        else:
            progress = {"progressToken": message["params"].get("_meta", {}).get("progressToken"), "progress": 1, "message": told}
            before.append({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            log = {"level": "error", "data": {"unknown key": token}}
            before.append({"jsonrpc": "2.0", "method": "notifications/message", "params": log})
            blob = base64.b64encode(told.encode()).decode()
            embedded = {"type": "resource", "resource": {"uri": "x://y", "mimeType": "a/b", "blob": blob}}
            reply["result"] = {
                "content": [{"type": "text", "text": json.dumps({"token": token})}, embedded],
                "structuredContent": {"asked": told, token: "a key"},
            }
        if before:
            frames = [f"data: {json.dumps(frame)}\n\n" for frame in [*before, reply]]
            return self.answer(200, "".join(frames).encode(), "text/event-stream")
        self.answer(200, json.dumps(reply).encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
print(server.server_port, flush=True)
server.serve_forever()
