"""An MCP server over its pipe: it describes its tools by the file `words` beside it, reads a file or an address, and counts the calls of its own life."""

import json, os, sys, urllib.request

words = open("/opt/server/words").read()
schema = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}
calls = 0

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        info = {"name": "s", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        tools = [{"name": name, "description": words, "inputSchema": schema} for name in ("look", "count", "other")]
        answer["result"] = {"tools": tools}
    elif message["method"] == "tools/call" and message["params"]["name"] == "look":
        try:
            path = message["params"]["arguments"]["path"]
            seen = urllib.request.urlopen(path, timeout=9).read().decode() if path.startswith("http:") else open(path).read()
        except OSError as error:
            seen = str(error)
        answer["result"] = {"content": [{"type": "text", "text": seen + " " + str(sorted(os.environ))}]}
    elif message["method"] == "tools/call":
        calls += 1
        answer["result"] = {"content": [{"type": "text", "text": "call %d" % calls}]}
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(answer), flush=True)
