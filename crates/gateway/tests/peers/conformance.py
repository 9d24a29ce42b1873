"""A server with everything that the official conformance suite asks servers for, in plain lines of JSON.

usage: conformance.py            the server, on stdin and stdout
       conformance.py URL TOKEN  a door before a gateway for a client that has no token: prints its port; adds the token, and
                                 takes the server's name `s` off and on again, because the suite knows its tools by their own names
"""

import http.client
import itertools
import json
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
FILE = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": '{"test":"data","value":123}'}
ANSWERS = {
    "test_simple_text": [{"type": "text", "text": "This is a simple text response for testing."}],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}],
    "test_embedded_resource": [{"type": "resource", "resource": {**FILE, "uri": "test://embedded-resource"}}],
    "test_multiple_content_types": [{"type": "text", "text": "Multiple content types test:"}, IMAGE, {"type": "resource", "resource": FILE}],
}
NOTHING = {"type": "object", "properties": {}}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
PLAIN = ["option1", "option2", "option3"]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": PLAIN},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}
ASKED = {
    "test_elicitation": {"username": {"type": "string"}, "email": {"type": "string"}},
    "test_elicitation_sep1034_defaults": DEFAULTS,
    "test_elicitation_sep1330_enums": ENUMS,
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
TOOLS = {name: NOTHING for name in [*ANSWERS, "test_error_handling", "test_tool_with_logging", "test_tool_with_progress", *ASKED]} | {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "json_schema_2020_12_tool": SCHEMA,
}
RESOURCES = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PIXEL},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
    "test://template/123/data": {"mimeType": "application/json", "text": '{"id":"123","templateTest":true,"data":"Data for ID: 123"}'},
}


def words(text):
    return {"type": "text", "text": text}


def said(*content):
    return {"messages": [{"role": "user", "content": part} for part in content]}


PROMPTS = {
    "test_simple_prompt": ([], lambda _: said(words("This is a simple prompt for testing."))),
    "test_prompt_with_arguments": (["arg1", "arg2"], lambda a: said(words(f"Prompt with arguments: arg1='{a['arg1']}', arg2='{a['arg2']}'"))),
    "test_prompt_with_embedded_resource": (
        ["resourceUri"],
        lambda a: said({"type": "resource", "resource": {"uri": a["resourceUri"], "mimeType": "text/plain", "text": "Embedded."}}, words("Process it.")),
    ),
    "test_prompt_with_image": ([], lambda _: said(IMAGE, words("Please analyze the image above."))),
}


class Server:
    def __init__(self):
        self.lock, self.numbers, self.waiting = threading.Lock(), itertools.count(1), {}

    def send(self, message):
        with self.lock:
            print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def ask(self, method, params):
        number = next(self.numbers)
        answered = self.waiting[number] = [threading.Event(), None]
        self.send({"id": number, "method": method, "params": params})
        answered[0].wait(30)
        return answered[1]

    def call(self, params):
        name, arguments = params["name"], params.get("arguments") or {}
        if name in ANSWERS:
            return {"content": ANSWERS[name]}
        if name == "test_tool_with_logging":
            for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                self.send({"method": "notifications/message", "params": {"level": "info", "data": text}})
                time.sleep(0.05)
        elif name == "test_tool_with_progress":
            for number in (0, 50, 100):
                told = {"progressToken": params["_meta"]["progressToken"], "progress": number, "total": 100}
                self.send({"method": "notifications/progress", "params": told})
                time.sleep(0.05)
        elif name == "test_sampling":
            message = {"role": "user", "content": words(arguments["prompt"])}
            got = self.ask("sampling/createMessage", {"messages": [message], "maxTokens": 100})
            return {"content": [words(f"LLM response: {got['content']['text']}")]}
        elif name in ASKED:
            schema = {"type": "object", "properties": ASKED[name], "required": sorted(ASKED[name])[:2]}
            got = self.ask("elicitation/create", {"message": arguments.get("message", "fill in"), "requestedSchema": schema})
            return {"content": [words(f"Elicitation completed: action={got['action']}, content={json.dumps(got.get('content'))}")]}
        else:
            return {"isError": True, "content": [words("This tool intentionally returns an error for testing")]}
        return {"content": [words("done")]}

    def result(self, method, params):
        if method == "initialize":
            can = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "logging": {}, "completions": {}}
            return {"protocolVersion": params["protocolVersion"], "capabilities": can, "serverInfo": {"name": "s", "version": "1"}}
        if method == "tools/list":
            return {"tools": [{"name": name, "description": name, "inputSchema": schema} for name, schema in TOOLS.items()]}
        if method == "tools/call":
            return self.call(params)
        if method == "resources/list":
            return {"resources": [{"uri": uri, "name": uri, "mimeType": content["mimeType"]} for uri, content in RESOURCES.items() if "template" not in uri]}
        if method == "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "t", "mimeType": "application/json"}]}
        if method == "resources/read":
            return {"contents": [{"uri": params["uri"], **RESOURCES[params["uri"]]}]}
        if method == "prompts/list":
            arguments = lambda names: [{"name": name, "description": name, "required": True} for name in names]
            return {"prompts": [{"name": name, "description": name, "arguments": arguments(names)} for name, (names, _) in PROMPTS.items()]}
        if method == "prompts/get":
            return PROMPTS[params["name"]][1](params.get("arguments") or {})
        if method == "completion/complete":
            return {"completion": {"values": ["paris", "park"], "total": 2, "hasMore": False}}
        if method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel", "ping"):
            return {}
        return None

    def serve(self, message):
        result = self.result(message["method"], message.get("params") or {})
        outcome = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        self.send({"id": message["id"], **outcome})

    def run(self):
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                answered = self.waiting[message["id"]]
                answered[1] = message.get("result")
                answered[0].set()
            elif "id" in message:
                threading.Thread(target=self.serve, args=(message,), daemon=True).start()


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        gateway, token = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        message = json.loads(body) if body else {}
        if isinstance(message, dict) and message.get("method") in ("tools/call", "prompts/get"):
            message["params"]["name"] = "s__" + message["params"]["name"]
        if isinstance(message, dict) and "ref" in (message.get("params") or {}) and "name" in message["params"]["ref"]:
            message["params"]["ref"]["name"] = "s__" + message["params"]["ref"]["name"]
        body = json.dumps(message).encode() if body else b""
        there = http.client.HTTPConnection(gateway.hostname, gateway.port, timeout=60)
        there.putrequest(self.command, gateway.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            # Our own name becomes the gateway's, a page of ours the one that it lets in; whatever else somebody calls us,
            # or calls itself, is passed on as it is.
            own = f":{self.server.server_port}"
            if name.lower() == "host":
                value = value.replace(own, f":{gateway.port}")
            if name.lower() == "origin" and value in (f"http://localhost{own}", f"http://127.0.0.1{own}"):
                value = "http://localhost:9"
            if name.lower() not in ("content-length", "connection", "accept-encoding"):
                there.putheader(name, value)
        there.putheader("Authorization", "Bearer " + token)
        there.putheader("Content-Length", str(len(body)))
        there.endheaders(body)
        answer = there.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for line in iter(answer.readline, b""):
                self.wfile.write(line.replace(b'"s__', b'"'))
                self.wfile.flush()
        except OSError:
            pass
        there.close()
        self.close_connection = True

    do_GET = do_POST = do_DELETE = pass_on

    def log_message(self, *_):
        pass


if len(sys.argv) == 1:
    Server().run()
else:
    door = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    door.daemon_threads = True
    print(door.server_port, flush=True)
    door.serve_forever()
