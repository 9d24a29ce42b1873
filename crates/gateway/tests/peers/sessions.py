"""A server over streamable HTTP that keeps sessions, and forgets them when it is told to.

usage: sessions.py TOKEN     prints its port; answers only those who send the token
"""

import itertools
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

numbers = itertools.count(1)
sessions = {}
TOOL = {"name": "where", "inputSchema": {"type": "object", "properties": {"n": {"type": "number"}}}}


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.answer(204 if sessions.pop(self.headers.get("Mcp-Session-Id"), None) else 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/forget":
            count = len(sessions)
            sessions.clear()
            return self.answer(200, json.dumps(count).encode())
        if self.headers.get("Authorization") != "Bearer " + sys.argv[1]:
            return self.answer(401)
        message = json.loads(body)
        session, more = self.headers.get("Mcp-Session-Id"), {}
        reply = {"jsonrpc": "2.0", "id": message.get("id")}
        if message["method"] == "initialize":
            session = f"session-{next(numbers)}"
            sessions[session] = True
            more = {"Mcp_Session_Id": session}
            reply["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        elif session is None:
            return self.answer(400)
        elif session not in sessions:
            return self.answer(404)
        elif "id" not in message:
            return self.answer(202)
        elif message["method"] == "tools/list":
            reply["result"] = {"tools": [TOOL]}
        elif message["method"] == "tools/call":
            reply["result"] = {"content": [{"type": "text", "text": session}]}
        else:
            reply["error"] = {"code": -32601, "message": "unknown"}
        self.answer(200, json.dumps(reply).encode(), **more)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
print(server.server_port, flush=True)
server.serve_forever()
