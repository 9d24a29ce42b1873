"""Cases of our own for Jupyter's released clients of kernel gateways against a running `fumehood serve`.

usage: gateway.py URL KEY OTHER_KEY     (a Python that has what requirements-jupyter.txt names; the server has the template)
Prints one line for each case that failed, and at the end `N passed, N failed, N skipped`.
"""

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request

import websocket
from harness import case, main
from jupyter_client.session import Session

URL, KEY, OTHER = sys.argv[1:4]
V1 = "v1.kernel.websocket.jupyter.org"


def rest(method, path, body=None, status=None, **headers):
    """An answer as (status, JSON), or its JSON where a status is expected."""
    headers = {"Authorization": f"token {KEY}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if path.startswith("/v1/sandboxes") and "/jupyter" not in path:
        headers = {"X-API-KEY": KEY}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {name: value for name, value in headers.items() if value}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            got, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        got, text = error.code, error.read()
    value = json.loads(text) if text else None
    if status is None:
        return got, value
    assert got == status, (got, value)
    return value


class Kernel:
    """A kernel, and a WebSocket to it."""

    def __init__(self, name="python3", base="", v1=False, **more):
        self.base, self.v1 = base, v1
        self.model = rest("POST", f"{base}/api/kernels", {"name": name, **more}, status=201)
        self.path = f"{base}/api/kernels/{self.model['id']}"
        self.session = Session()
        self.socket = self.connect()

    def connect(self, **more):
        protocols = [V1] if self.v1 else None
        address = URL.replace("http", "ws", 1) + self.path + f"/channels?session_id={self.session.session}"
        return websocket.create_connection(
            address, header=[f"Authorization: token {KEY}"], subprotocols=protocols, timeout=60, **more
        )

    def send(self, kind, content, channel="shell", parent=None, buffers=()):
        from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1

        message = self.session.msg(kind, content, parent=parent)
        if self.v1:
            idents, parts = self.session.feed_identities(self.session.serialize(message))
            self.socket.send_binary(serialize_msg_to_ws_v1([*parts[1:], *buffers], channel))
        else:
            text = {**message, "channel": channel, "buffers": []}
            self.socket.send(json.dumps(text, default=str))
        return message["header"]["msg_id"]

    def receive(self):
        from jupyter_server.services.kernels.connection.base import (
            deserialize_binary_message,
            deserialize_msg_from_ws_v1,
        )

        code, data = self.socket.recv_data()
        assert code in (websocket.ABNF.OPCODE_TEXT, websocket.ABNF.OPCODE_BINARY), (code, data)
        if self.v1:
            channel, parts = deserialize_msg_from_ws_v1(data)
            names = ["header", "parent_header", "metadata", "content"]
            message = {name: json.loads(part) for name, part in zip(names, parts)}
            return {**message, "channel": channel, "buffers": parts[4:]}
        return json.loads(data) if code == websocket.ABNF.OPCODE_TEXT else deserialize_binary_message(data)

    def until(self, ends):
        """What came until something that ends it."""
        got = []
        while True:
            got.append(self.receive())
            if ends(got[-1]):
                return got

    def execute(self, code, **more):
        """Messages of an execution, its reply last."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, **more}
        asked = self.send("execute_request", content)
        seen = {"reply": None, "idle": False}

        def ends(message):
            if message["parent_header"].get("msg_id") == asked:
                if message["header"]["msg_type"] == "execute_reply":
                    seen["reply"] = message
                seen["idle"] |= message["content"].get("execution_state") == "idle"
            return seen["idle"] and seen["reply"]

        got = self.until(ends)
        got = [one for one in got if one["parent_header"].get("msg_id") == asked and one is not seen["reply"]]
        return [*got, seen["reply"]]

    def kill(self):
        self.socket.close()
        rest("DELETE", self.path, status=204)


def create(timeout=None):
    return Kernel()


def kinds(messages):
    return [message["header"]["msg_type"] for message in messages]


def one(messages, kind):
    found = [message["content"] for message in messages if message["header"]["msg_type"] == kind]
    assert len(found) == 1, (kind, messages)
    return found[0]


@case
def the_specs_are_those_of_the_template(_):
    specs = rest("GET", "/api/kernelspecs", status=200)
    assert specs["default"] == "python3", specs
    assert sorted(specs["kernelspecs"]) == ["bash", "javascript", "python3", "typescript"], specs
    assert rest("GET", "/api/kernelspecs/bash", status=200)["spec"]["language"] == "bash"
    assert rest("GET", "/api/kernelspecs/cobol")[0] == 404
    assert rest("GET", "/api", status=200)["version"]


@case
def a_kernel_executes_and_keeps_its_variables(kernel):
    got = kernel.execute("x = 6\nprint('out')\nx * 7")
    assert one(got, "stream") == {"name": "stdout", "text": "out\n"}, got
    assert one(got, "execute_result")["data"]["text/plain"] == "42", got
    assert got[-1]["content"]["status"] == "ok" and got[-1]["channel"] == "shell", got[-1]
    assert got[-1]["msg_type"] == "execute_reply" and got[-1]["msg_id"], got[-1]
    assert kinds(got)[0] == "status" and kinds(got)[-2] == "status", kinds(got)
    failed = kernel.execute("1 / x / 0")
    assert one(failed, "error")["ename"] == "ZeroDivisionError" and failed[-1]["content"]["status"] == "error"


@case
def what_other_requests_answer(kernel):
    kernel.execute("value = 'abc'")
    asked = kernel.send("complete_request", {"code": "value.upp", "cursor_pos": 9})
    reply = kernel.until(lambda m: m["parent_header"].get("msg_id") == asked and m["channel"] == "shell")[-1]
    assert "upper" in "".join(reply["content"]["matches"]), reply
    asked = kernel.send("kernel_info_request", {}, channel="control")
    reply = kernel.until(lambda m: m["parent_header"].get("msg_id") == asked and m["channel"] == "control")[-1]
    assert reply["content"]["language_info"]["name"] == "python", reply


@case
def a_program_asks_for_input(kernel):
    content = {"code": "name = input('who? '); name", "silent": False, "allow_stdin": True, "store_history": True}
    kernel.send("execute_request", content)
    asked = kernel.until(lambda m: m["channel"] == "stdin")[-1]
    assert asked["header"]["msg_type"] == "input_request" and asked["content"]["prompt"] == "who? ", asked
    kernel.send("input_reply", {"value": "me"}, channel="stdin", parent=asked["header"])
    got = kernel.until(lambda m: m["header"]["msg_type"] == "execute_result")
    assert got[-1]["content"]["data"]["text/plain"] == "'me'", got


@case
def the_binary_protocol_carries_buffers_both_ways(_):
    kernel = Kernel(v1=True)
    try:
        assert kernel.socket.subprotocol == V1
        assert one(kernel.execute("2 + 2"), "execute_result")["data"]["text/plain"] == "4"
        got = kernel.execute(
            "from comm import create_comm\n"
            "c = create_comm('t', data={}, buffers=[b'\\x00\\xff', memoryview(b'abc')])\n"
            "@c.on_msg\ndef _(m): print('got', [bytes(b) for b in m['buffers']], m['content']['data'])"
        )
        opened = [message for message in got if message["header"]["msg_type"] == "comm_open"]
        assert [bytes(buffer) for buffer in opened[0]["buffers"]] == [b"\x00\xff", b"abc"], opened
        comm = {"comm_id": opened[0]["content"]["comm_id"], "data": {"n": 1}}
        kernel.send("comm_msg", comm, buffers=[b"\x01\x02\n", b""])
        said = kernel.until(lambda m: m["header"]["msg_type"] == "stream")[-1]
        assert "[b'\\x01\\x02\\n', b''] {'n': 1}" in said["content"]["text"], said
    finally:
        kernel.kill()


@case
def two_clients_hear_what_is_published_and_answers_are_for_one(kernel):
    other = kernel.connect()
    kernel.execute("print('shared')")
    other.settimeout(10)
    seen = []
    while "idle" not in [message["content"].get("execution_state") for message in seen]:
        seen.append(json.loads(other.recv()))
    assert "stream" in kinds(seen) and all(message["channel"] == "iopub" for message in seen), kinds(seen)
    assert rest("GET", kernel.path, status=200)["connections"] == 2
    other.close()


@case
def an_interrupt_ends_the_code_and_not_the_kernel(kernel):
    kernel.execute("kept = 1")
    content = {"code": "import time\nprint('now', flush=True)\ntime.sleep(60)", "silent": False}
    kernel.send("execute_request", content)
    kernel.until(lambda m: m["header"]["msg_type"] == "stream")
    assert rest("GET", kernel.path, status=200)["execution_state"] == "busy"
    rest("POST", f"{kernel.path}/interrupt", status=204)
    got = kernel.until(lambda m: m["header"]["msg_type"] == "execute_reply")
    assert one(got, "error")["ename"] == "KeyboardInterrupt", got[-1]
    assert one(kernel.execute("kept"), "execute_result")["data"]["text/plain"] == "1"


@case
def a_restart_loses_the_variables_and_keeps_the_connection(kernel):
    kernel.execute("lost = 1")
    model = rest("POST", f"{kernel.path}/restart", {}, status=200)
    assert model["id"] == kernel.model["id"], model
    assert one(kernel.execute("lost"), "error")["ename"] == "NameError"


@case
def a_kernel_that_dies_is_told_and_begins_anew(kernel):
    kernel.send("execute_request", {"code": "import os; os._exit(3)", "silent": False})
    kernel.until(lambda m: m["content"].get("execution_state") == "restarting")
    assert rest("GET", kernel.path, status=200)["execution_state"] == "dead"
    assert one(kernel.execute("3"), "execute_result")["data"]["text/plain"] == "3"


@case
def much_output_comes_whole(kernel):
    got = kernel.execute("for i in range(20000): print(i)\nprint('x' * 3_000_000)")
    text = "".join(message["content"]["text"] for message in got if message["header"]["msg_type"] == "stream")
    assert text == "".join(f"{n}\n" for n in range(20000)) + "x" * 3_000_000 + "\n", len(text)


@case
def javascript_and_bash_speak_it_too(_):
    for name, code, text in [("javascript", "const a = 40; a + 2", "42"), ("bash", "echo $((40 + 2))", "42\n")]:
        kernel = Kernel(name)
        try:
            got = kernel.execute(code)
            seen = [m["content"].get("text") or m["content"].get("data", {}).get("text/plain") for m in got]
            assert text in seen, (name, seen)
            assert rest("GET", kernel.path, status=200)["name"] == name
        finally:
            kernel.kill()


@case
def a_kernel_of_its_own_is_a_sandbox_that_ends_with_it(_):
    before = {box["id"] for box in rest("GET", "/v1/sandboxes", status=200)["sandboxes"]}
    kernel = Kernel()
    made = [box for box in rest("GET", "/v1/sandboxes", status=200)["sandboxes"] if box["id"] not in before]
    assert [box["template"] for box in made] == ["code-interpreter-v1"], made
    assert kernel.model["id"] in [model["id"] for model in rest("GET", "/api/kernels", status=200)]
    kernel.kill()
    assert rest("GET", kernel.path)[0] == 404
    after = {box["id"] for box in rest("GET", "/v1/sandboxes", status=200)["sandboxes"]}
    assert after == before, (after, before)
    status, said = rest("POST", "/api/kernels", {"name": "cobol"})
    assert status == 501 and "cobol" in said["message"], said
    assert {box["id"] for box in rest("GET", "/v1/sandboxes", status=200)["sandboxes"]} == before


@case
def kernels_within_a_sandbox_that_is_there(_):
    box = rest("POST", "/v1/sandboxes", {"template": "code-interpreter-v1"}, status=201)
    base = f"/v1/sandboxes/{box['id']}/jupyter"
    try:
        specs = rest("GET", f"{base}/api/kernelspecs", status=200)["kernelspecs"]
        assert {"python3", "bash", "javascript", "typescript"} <= set(specs), specs
        kernel, second = Kernel(base=base, path="/tmp"), Kernel(base=base)
        assert "/tmp" in one(kernel.execute("import os; os.getcwd()"), "execute_result")["data"]["text/plain"]
        kernel.execute("open('/tmp/shared', 'w').write('x')")
        assert "'x'" in one(second.execute("open('/tmp/shared').read()"), "execute_result")["data"]["text/plain"]
        assert len(rest("GET", f"{base}/api/kernels", status=200)) == 2
        kernel.kill()
        assert len(rest("GET", f"{base}/api/kernels", status=200)) == 1
        assert second.model["id"] not in [model["id"] for model in rest("GET", "/api/kernels", status=200)]
        assert rest("GET", f"/api/kernels/{second.model['id']}")[0] == 404
    finally:
        rest("DELETE", f"/v1/sandboxes/{box['id']}", status=200)
    try:
        second.until(lambda m: False)
        raise AssertionError("the connection outlived the sandbox")
    except (websocket.WebSocketException, AssertionError, OSError) as ended:
        assert "outlived" not in str(ended), ended


@case
def who_shows_no_good_key_learns_nothing(kernel):
    for headers in [{"Authorization": ""}, {"Authorization": "token e2b_" + "0" * 40}, {"Authorization": "token "}]:
        for path in ["/api/kernels", kernel.path, "/api", "/api/none"]:
            assert rest("GET", path, **headers)[0] == 401, (path, headers)
    assert rest("GET", f"{kernel.path}?token={KEY}", Authorization="")[0] == 200
    assert rest("GET", f"{kernel.path}?token={KEY}", Authorization=f"token {OTHER}")[0] == 404, "a header wins"
    for path, method in [("", "GET"), ("", "DELETE"), ("/interrupt", "POST"), ("/restart", "POST")]:
        assert rest(method, kernel.path + path, Authorization=f"token {OTHER}")[0] == 404, path
    assert rest("GET", "/api/kernels", Authorization=f"token {OTHER}", status=200) == []
    assert rest("GET", kernel.path, status=200)["id"] == kernel.model["id"], "and nothing was done"


@case
def a_page_of_another_site_cannot_connect(kernel):
    def status(headers, **more):
        address = URL.replace("http", "ws", 1) + kernel.path + "/channels"
        try:
            websocket.create_connection(address, header=headers, timeout=20, **more).close()
            return 101
        except websocket.WebSocketBadStatusException as error:
            return error.status_code

    key = f"Authorization: token {KEY}"
    assert status([key]) == 101
    assert status([key], suppress_origin=True) == 101
    assert status([key], origin="http://evil.example") == 403
    assert status([key], origin="null") == 403
    assert status([key], origin="http://evil.example", host="evil.example") == 403, "a name that was made to lead here"
    assert status([]) == 401 and status([f"Authorization: token {OTHER}"]) == 404
    assert rest("GET", kernel.path + "/channels")[0] == 400


def gateway():
    from jupyter_server.gateway.gateway_client import GatewayClient

    GatewayClient.clear_instance()
    GatewayClient.instance(url=URL, auth_token=KEY)
    # This client of Jupyter's shows no key on its WebSocket, whatever it is configured with.
    from jupyter_server.gateway import managers

    class WithKey:
        def __getattr__(self, name):
            return getattr(websocket, name)

        def create_connection(self, *args, **more):
            return websocket.create_connection(*args, header=[f"Authorization: token {KEY}"], **more)

    managers.websocket = WithKey()


@case
def jupyter_servers_gateway_manager(_):
    gateway()
    from jupyter_server.gateway.managers import GatewayKernelSpecManager, GatewayMappingKernelManager

    async def all_of_it():
        spec = await GatewayKernelSpecManager().get_kernel_spec("python3")
        assert spec["spec"]["language"] == "python", spec
        manager = GatewayMappingKernelManager()
        id = await manager.start_kernel(kernel_name="python3")
        assert id in [model["id"] for model in await manager.list_kernels()]
        assert (await manager.kernel_model(id))["name"] == "python3"
        await manager.interrupt_kernel(id)
        await manager.restart_kernel(id)
        kernel = manager.get_kernel(id)
        client = kernel.client()
        await client.start_channels()
        asked = client.execute("6 * 7")
        while True:
            message = await client.get_iopub_msg(timeout=30)
            if message["parent_header"].get("msg_id") == asked and message["msg_type"] == "execute_result":
                assert message["content"]["data"]["text/plain"] == "42", message
                break
        client.stop_channels()
        await manager.shutdown_kernel(id)
        assert id not in [model["id"] for model in await manager.list_kernels()]

    asyncio.run(all_of_it())


@case
def the_websocket_of_jupyter_servers_gateway(_):
    gateway()
    from jupyter_server.gateway.connections import GatewayWebSocketConnection
    from tornado.websocket import websocket_connect  # noqa: F401
    from traitlets import Any, Unicode

    kernel = Kernel()

    class Handler:
        def __init__(self):
            self.seen = []

        def write_message(self, message):
            self.seen.append(json.loads(message))

    class Connection(GatewayWebSocketConnection):
        websocket_handler, kernel_id, session_id = Any(), Unicode(), Unicode()

    async def all_of_it():
        handler = Handler()
        made = Connection(websocket_handler=handler, kernel_id=kernel.model["id"], session_id="s")
        await made.connect()
        message = Session().msg("execute_request", {"code": "print(1)", "silent": False})
        made.handle_incoming_message(json.dumps({**message, "channel": "shell", "buffers": []}, default=str))
        for _ in range(200):
            await asyncio.sleep(0.1)
            if "execute_reply" in kinds(handler.seen):
                break
        assert {"stream", "execute_reply", "status"} <= set(kinds(handler.seen)), kinds(handler.seen)
        made.disconnect()

    try:
        asyncio.run(all_of_it())
    finally:
        kernel.kill()


@case
def nbclient_executes_a_notebook(_):
    gateway()
    import nbformat
    from jupyter_server.gateway.managers import GatewayKernelManager
    from nbclient import NotebookClient

    # What it asks this manager is not what that one answers.
    GatewayKernelManager._async_is_alive = GatewayKernelManager.is_alive
    cells = ["import matplotlib.pyplot as plt\nx = 20", "plt.plot([1, 2]); plt.show()", "x + 1"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    begun = time.monotonic()
    NotebookClient(notebook, timeout=120, kernel_name="python3", kernel_manager_class=GatewayKernelManager).execute()
    assert time.monotonic() - begun < 100
    assert notebook.cells[2].outputs[0].data["text/plain"] == "21", notebook.cells[2]
    assert any("image/png" in output.get("data", {}) for output in notebook.cells[1].outputs), notebook.cells[1]


main(create, "jupyter_client")
