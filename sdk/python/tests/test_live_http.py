"""A sandbox of a server: ``/v1`` as `fumehood serve` speaks it, by a server of the tests' own."""

import asyncio
import base64
import json
import queue
import socket
import subprocess
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fumehood import (
    AsyncSandbox,
    CommandExitException,
    ConnectionLost,
    FileNotFoundException,
    FumehoodError,
    InvalidArgumentException,
    Refused,
    Sandbox,
    SandboxNotFoundException,
    SandboxNotRunningException,
    TimeoutException,
    UnsupportedException,
)

KEY = "e2b_" + "0" * 40


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # A client that went away is part of a test.

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.asked, self.boxes = root, [], {}
        self.cut = None
        self.input = queue.Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, value, kind="application/json"):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def problem(self, status, id, what, refused=None):
        self.say(status, {"id": id, "title": what, "detail": "why", "status": status, "instead": "do else", "refused": refused or []})

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do(self):
        body = self.body()
        parts = urllib.parse.urlsplit(self.path)
        self.server.asked.append((self.command, parts.path))
        if self.headers.get("X-API-Key") != KEY:
            return self.problem(401, "serve/key", "the key is not known")
        _, _, box, *rest = parts.path.strip("/").split("/") + [""] * (3 - len(parts.path.strip("/").split("/")))
        if not box:
            return self.many(body)
        info = self.server.boxes.get(urllib.parse.unquote(box))
        if info is None:
            return self.problem(404, "serve/no-such-sandbox", "sandbox not found")
        path = dict(urllib.parse.parse_qsl(parts.query)).get("path", "")
        return self.one(info, "/".join(rest), body, path)

    do_GET = do_POST = do_PUT = do_DELETE = do

    def many(self, body):
        if self.command == "GET":
            return self.say(200, {"sandboxes": list(self.server.boxes.values())})
        asked = json.loads(body)
        if asked.get("policy") == "no-such":
            reason = {"id": "value/word", "clause": "net.mode", "what": "no", "why": "because", "instead": "write none"}
            return self.problem(400, "value/word", "no", [reason])
        name = f"box{len(self.server.boxes)}".ljust(20, "x")
        info = {"id": name, "state": "running", "created_ms": 0, "labels": asked.get("labels", {}), "asked": asked, "usage": {},
                "ends_ms": int(time.time() * 1000) + 1000}
        self.server.boxes[name] = info
        self.say(201, info)

    def one(self, info, what, body, path):
        place = self.server.root / path.lstrip("/")
        if what == "" and self.command == "DELETE":
            info["state"] = "ended"
        elif what == "snapshots":
            asked = json.loads(body)
            return self.say(201, {"id": "s-1", "bytes": 3, "left_out": 0, **asked})
        elif what == "fork":
            if info.get("frozen") is False:
                return self.problem(501, "serve/not-enforceable", "nothing can be frozen")
            copy = {**info, "id": f"fork{len(self.server.boxes)}".ljust(20, "x")}
            self.server.boxes[copy["id"]] = copy
            return self.say(201, {"sandboxes": [copy], "refused": []})
        elif what in ("pause", "resume"):
            info["state"] = {"pause": "paused", "resume": "running"}[what]
        elif what == "timeout":
            info["ends_ms"] = int((time.time() + json.loads(body)["timeout"]) * 1000)
        elif what == "exec":
            return self.exec(json.loads(body))
        elif what == "processes/p1/stdin":
            self.server.input.put(body)
            if "close=true" in self.path:
                self.server.input.put(None)
            return self.say(200, {"written": len(body)})
        elif what == "processes":
            return self.say(200, {"programs": [], "processes": []})
        elif what == "files" and self.command == "PUT":
            place.write_bytes(body)
            return self.say(200, {"name": place.name, "path": path, "kind": "file", "size": len(body), "modified": [0, 0]})
        elif what == "files" and not place.exists():
            return self.problem(404, "serve/not-found", f"{path} is not there")
        elif what == "files" and self.command == "DELETE":
            place.unlink()
            return self.say(200, {})
        elif what == "files":
            self.send_response(200)
            self.send_header("Content-Length", str(place.stat().st_size))
            self.end_headers()
            self.wfile.write(place.read_bytes())
            return None
        return self.say(200, info)

    def exec(self, asked):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

        def event(name, data):
            self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())

        event("started", {"id": "p1", "pid": 7})
        if self.server.cut:
            self.wfile.write(self.server.cut)
            self.close_connection = True
            return
        limit = None
        given = b"".join(iter(self.server.input.get, None)) if asked.get("stdin") else b""
        try:
            done = subprocess.run(asked["cmd"], input=given, capture_output=True, timeout=asked.get("timeout"),
                                  env=asked.get("env"), cwd=asked.get("cwd") or self.server.root)
            out, err, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            out, err, code, limit = late.stdout or b"", b"", 124, "wall"
        for at in range(0, len(out), 50_000):
            event("stdout", base64.b64encode(out[at : at + 50_000]).decode())
        event("stderr", base64.b64encode(err).decode())
        event("ended", {"outcome": "limit" if limit else "exited", "code": code, "limit": limit, "message": "it ended"})
        self.close_connection = True


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path)
    yield made
    made.shutdown()
    made.server_close()


def test_a_sandbox_of_a_server(server):
    with Sandbox({"limits": {"pids": 7}}, timeout=60, metadata={"a": "b"}, envs={"X": "y"}, url=server.url, key=KEY) as box:
        asked = server.boxes[box.sandbox_id]["asked"]
        assert asked == {"policy": {"limits": {"pids": 7}}, "timeout": 60, "labels": {"a": "b"}, "env": {"X": "y"}}
        assert box.commands.run("echo x; echo y >&2", envs={"PATH": "/bin:/usr/bin"}).stderr == "y\n"
        assert box.commands.run(["cat"], stdin="ä").stdout == "ä"
        assert box.commands.run(["wc", "-c"], stdin=b"\xff" * 2_000_000).stdout.strip() == "2000000"
        assert len(box.commands.run("seq 1 100000").stdout) == 588895
        with pytest.raises(CommandExitException):
            box.commands.run("exit 3")
        with pytest.raises(TimeoutException):
            box.commands.run("sleep 30", timeout=0.3)
        handle = box.commands.run("echo later", background=True)
        assert handle.wait().stdout == "later\n" and handle.pid == 7 and box.commands.list() == []
        big = "ä" * 300_000
        assert box.files.write("/f", big).path == "/f" and box.files.read("/f") == big
        assert b"".join(box.files.read("/f", format="stream")) == big.encode()
        with pytest.raises(FileNotFoundException):
            box.files.read("/none")
        box.files.remove("/f")
        with pytest.raises(FileNotFoundException):
            box.files.remove("/f")
        assert box.pause() and not box.is_running() and box.resume()
        box.set_timeout(100)
        other = Sandbox.connect(box.sandbox_id, 50, url=server.url, key=KEY)
        assert other.get_info().metadata == {"a": "b"}
        assert 80 < other.get_info().end_at.timestamp() - time.time() < 110
        assert [one.sandbox_id for one in Sandbox.list(url=server.url, key=KEY)] == [box.sandbox_id]
    assert server.boxes[box.sandbox_id]["state"] == "ended"
    with pytest.raises(SandboxNotRunningException):
        Sandbox.connect(box.sandbox_id, url=server.url, key=KEY)


def test_what_makes_no_sense_with_a_server_is_told_and_not_tried(server):
    box = Sandbox(url=server.url, key=KEY)
    before = len(server.asked)
    with pytest.raises(UnsupportedException):
        box._link.open({"op": "no-such"})
    with pytest.raises(InvalidArgumentException):
        box.commands.run(["echo", "\udcff"])
    assert len(server.asked) == before
    for wrong in ({"key": "e2b_\r\nX-Other: 1"}, {"url": "http://127.0.0.1:99999"}, {"url": "http://127.0.0.1:1/a b"}):
        with pytest.raises(InvalidArgumentException):
            Sandbox(**{"url": server.url, "key": KEY, **wrong})
    for wrong in ({"workspace": "."}, {"flags": ["--net", "none"]}, {"policy": ["strict"]}, {"url": "ftp://x"}, {"key": None}, {"url": None}):
        with pytest.raises(InvalidArgumentException):
            Sandbox(**{"url": server.url, "key": KEY, **wrong})


def test_what_a_server_says_no_to(server):
    with pytest.raises(Refused) as error:
        Sandbox("no-such", url=server.url, key=KEY)
    assert error.value.refused[0].clause == "net.mode" and error.value.refused[0].fix == "write none"
    with pytest.raises(FumehoodError, match="key is not known"):
        Sandbox(url=server.url, key="e2b_wrong")
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect("../other", url=server.url, key=KEY)
    assert server.asked[-1][1].endswith("..%2Fother"), "an id is no path"
    with pytest.raises(ConnectionLost):
        Sandbox(url="http://127.0.0.1:9", key=KEY)
    assert KEY not in repr(Sandbox(url=server.url, key=KEY)._place)


@pytest.mark.parametrize("cut", [b" ", b"event: stdout\ndata: 7\n\n", b"event: ended\ndata: [\n\n", b"event: stdout\ndata: \"!\"\n\n"])
def test_events_that_stop_or_make_no_sense(server, cut):
    box = Sandbox(url=server.url, key=KEY)
    server.cut = cut
    with pytest.raises(ConnectionLost):
        box.commands.run("true")


def test_in_an_event_loop(server):
    async def whole():
        async with AsyncSandbox(url=server.url, key=KEY) as box:
            done = await asyncio.gather(*(box.commands.run(["echo", str(n)]) for n in range(10)))
            assert [one.stdout for one in done] == [f"{n}\n" for n in range(10)]
            await box.files.write("/f", "x")
            assert await box.files.read("/f") == "x"
            other = await AsyncSandbox.connect(box.sandbox_id, url=server.url, key=KEY)
            assert await other.is_running() and len(await AsyncSandbox.list(url=server.url, key=KEY)) == 1
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(box.commands.run("sleep 2"), 0.2)
        assert server.boxes[box.sandbox_id]["state"] == "ended"

    asyncio.run(whole())


def test_snapshots_and_forks_of_a_server(server):
    with Sandbox(timeout=60, metadata={"a": "b"}, url=server.url, key=KEY) as box:
        kept = box.snapshot("base")
        assert (kept.snapshot_id, kept.name, kept.size, kept.left_out) == ("s-1", "base", 3, 0)
        assert box.snapshot().name is None
        other = box.fork()
        assert other.sandbox_id != box.sandbox_id and other.get_info().metadata == {"a": "b"}
        again = Sandbox(snapshot="base", timeout=60, url=server.url, key=KEY)
        assert server.boxes[again.sandbox_id]["asked"]["from"] == "base"
        server.boxes[box.sandbox_id]["frozen"] = False
        with pytest.raises(FumehoodError):
            box.fork()

    async def main():
        async with AsyncSandbox(snapshot="base", timeout=60, url=server.url, key=KEY) as box:
            assert (await box.snapshot("x")).name == "x"
            assert (await box.fork()).sandbox_id != box.sandbox_id

    asyncio.run(main())


class Nonsense(threading.Thread):
    """Answers each connection with these bytes, whatever was asked."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self.door, self.answer = socket.create_server(("127.0.0.1", 0)), answer
        self.url = f"http://127.0.0.1:{self.door.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            try:
                guest, _ = self.door.accept()
            except OSError:
                return
            with guest:
                guest.recv(65536)
                guest.sendall(self.answer)


OBJECT = b'{"sandboxes": []}'


@pytest.mark.parametrize("answer", [
    b"", b"HTTP/1.1", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000,
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + OBJECT,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n" + OBJECT, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
])
def test_an_answer_that_is_none_is_an_error(answer):
    with pytest.raises(ConnectionLost):
        Sandbox.list(url=Nonsense(answer).url, key=KEY)


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n" + OBJECT + b"more",
    b"HTTP/1.1 103 Early\r\nx: y\r\n\r\nHTTP/1.0 200\r\n\r\n" + OBJECT,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1;x=y\r\n{\r\n010\r\n" + OBJECT[1:] + b"\r\n0\r\na: b\r\n\r\n",
])
def test_an_answer_may_be_framed_in_each_way_of_http(answer):
    assert Sandbox.list(url=Nonsense(answer).url, key=KEY) == []

    async def same():
        assert await AsyncSandbox.list(url=Nonsense(answer).url, key=KEY) == []

    asyncio.run(same())


def test_a_server_that_stops_speaking_is_waited_for_no_longer_than_was_said(server):
    box = Sandbox(url=server.url, key=KEY)
    silent = socket.create_server(("127.0.0.1", 0))
    box._link.server = type(box._link.server)(f"http://127.0.0.1:{silent.getsockname()[1]}", KEY, box._link.server.dial)
    with pytest.raises(TimeoutException):
        box.files.read("/f", request_timeout=0.2)
    with pytest.raises(TimeoutException):
        box.files.list("/", request_timeout=0.2)


def test_what_is_closed_is_not_asked(server):
    box = Sandbox(url=server.url, key=KEY)
    box.close()
    with pytest.raises(SandboxNotRunningException) as error:
        box.commands.run("true")
    assert error.value.code == "closed" and box.get_info().sandbox_id == box.sandbox_id
    assert box.kill()
