"""Supervisors that break the protocol, end in the middle, are slow, or say nothing: each request ends, and says why."""

import asyncio
import contextlib
import json
import os
import socket
import struct
import threading
import time

import pytest

from fake_supervisor import CREDIT, DATA, END, EOF, EVENT, HEADER, OPEN, REPLY, frame, words
from fumehood import AsyncSandbox, ConnectionLost, FumehoodError, Sandbox, SandboxNotRunningException, TimeoutException, TooManyException
from fumehood import _frames, _threads
from fumehood._link import drive
from fumehood._frames import Decoder, Kind, ProtocolError
from fumehood._loop import LoopLink
from fumehood._threads import BlockingLink


class Scripted:
    """Answers each connection by a function of its own."""

    def __init__(self, path, script):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.script = script
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                made, _ = self.listener.accept()
                with contextlib.suppress(OSError), made:
                    self.script(made)


def request(made):
    """The number of the stream that a client opens."""
    head = b""
    while len(head) < HEADER.size:
        head += made.recv(HEADER.size - len(head))
    length, kind, number = HEADER.unpack(head)
    assert kind == OPEN
    rest = b""
    while len(rest) < length - 5:
        rest += made.recv(length - 5 - len(rest))
    return number, json.loads(rest)


def wait_for_end(made):
    with contextlib.suppress(OSError):
        while made.recv(65536):
            pass


def answers(data):
    def script(made):
        number, _ = request(made)
        made.sendall(data(number))
        wait_for_end(made)

    return script


BREACHES = {
    "garbage": lambda n: os.urandom(4096).replace(b"\0", b"\xff"),
    "no such kind": lambda n: HEADER.pack(5, 10, n),
    "kind 0": lambda n: HEADER.pack(5, 0, n),
    "stream 0": lambda n: frame(EVENT, 0, b"{}"),
    "another stream": lambda n: frame(EVENT, n + 1, b"{}"),
    "too long": lambda n: HEADER.pack(5 + 256 * 1024 + 1, REPLY, n),
    "4 GiB": lambda n: HEADER.pack(0xFFFFFFFF, DATA, n),
    "too short": lambda n: HEADER.pack(4, EVENT, n),
    "data too long": lambda n: HEADER.pack(5 + 64 * 1024 + 1, DATA, n),
    "data without a lane": lambda n: HEADER.pack(5, DATA, n),
    "credit of three bytes": lambda n: HEADER.pack(8, CREDIT, n) + b"123",
    "an end of data with bytes": lambda n: HEADER.pack(6, EOF, n) + b"x",
    "lane in": lambda n: frame(DATA, n, b"\0x"),
    "lane 3": lambda n: frame(DATA, n, b"\3x"),
    "no json": lambda n: frame(REPLY, n, b"{"),
    "no object": lambda n: frame(REPLY, n, b"[]"),
    "no utf-8": lambda n: frame(REPLY, n, b'{"a": "\xff"}'),
    "deep json": lambda n: frame(REPLY, n, b"[" * 100_000),
    "two replies": lambda n: words(REPLY, n, {}) * 2,
    "a reply after data": lambda n: frame(DATA, n, b"\1x") + words(REPLY, n, {}),
    "an end without a result": lambda n: words(END, n, {}),
    "after the end": lambda n: words(END, n, {"ok": {}}) * 2,
    "a client's kind": lambda n: frame(OPEN, n, b"{}"),
    "more than the window": lambda n: frame(DATA, n, b"\1" + b"x" * 65535) * 5,
    "credit without end": lambda n: frame(CREDIT, n, struct.pack("<I", 0xFFFFFFFF)) * 300,
    "torn": lambda n: frame(EVENT, n, b"{}")[:-1],
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_ends_the_connection_and_is_told(tmp_path, breach):
    def script(made):
        number, _ = request(made)
        made.sendall(BREACHES[breach](number))
        if breach == "torn":
            return
        wait_for_end(made)

    Scripted(tmp_path / "s", script)
    link = BlockingLink(str(tmp_path / "s"))
    stream = link.open({"op": "info"})
    time.sleep(0.1)  # What nobody takes is not acknowledged.
    with pytest.raises(FumehoodError) as error:
        for _ in range(10):
            drive(stream.next(10))
    assert isinstance(error.value, (ConnectionLost, SandboxNotRunningException)) and "supervisor" in str(error.value)
    with pytest.raises(FumehoodError):
        drive(link.call({"op": "info"}, timeout=5))

    async def loop():
        link = await LoopLink.connect(str(tmp_path / "s"))
        stream = link.open({"op": "info"})
        await asyncio.sleep(0.1)
        with pytest.raises(FumehoodError) as error:
            for _ in range(10):
                await stream.next(10)
        assert isinstance(error.value, (ConnectionLost, SandboxNotRunningException))
        with pytest.raises(FumehoodError):
            await link.call({"op": "info"}, timeout=5)
        await link.close()

    asyncio.run(loop())


def test_bytes_may_come_one_by_one(tmp_path):
    def script(made):
        number, _ = request(made)
        for byte in words(REPLY, number, {"a": "ä"}) + words(END, number, {"ok": {"b": 1}}):
            made.sendall(bytes([byte]))
            time.sleep(0.001)

    Scripted(tmp_path / "s", script)
    assert drive(BlockingLink(str(tmp_path / "s")).call({"op": "info"})) == {"b": 1}

    async def loop():
        link = await LoopLink.connect(str(tmp_path / "s"))
        assert await link.call({"op": "info"}) == {"b": 1}
        await link.close()

    asyncio.run(loop())


def test_an_end_in_the_middle_is_told_to_everybody_who_waits(tmp_path):
    def script(made):
        request(made)
        request(made)

    Scripted(tmp_path / "s", script)
    link = BlockingLink(str(tmp_path / "s"))
    told = []

    def ask():
        try:
            drive(link.call({"op": "wait"}, timeout=None))
        except SandboxNotRunningException as error:
            told.append(error.code)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join(5) for thread in threads]
    assert told == ["ended", "ended"]


def test_one_that_says_nothing_is_given_up(tmp_path):
    Scripted(tmp_path / "s", wait_for_end)
    link = BlockingLink(str(tmp_path / "s"))
    began = time.monotonic()
    with pytest.raises(TimeoutException, match="said nothing for 0.2 s"):
        drive(link.call({"op": "info"}, timeout=0.2))

    async def loop():
        link = await LoopLink.connect(str(tmp_path / "s"))
        with pytest.raises(TimeoutException):
            await link.call({"op": "info"}, timeout=0.2)
        await link.close()

    asyncio.run(loop())
    assert time.monotonic() - began < 5


def test_one_that_takes_nothing_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(_threads, "_SEND_TIMEOUT", 1)
    Scripted(tmp_path / "s", lambda made: time.sleep(20))
    link = BlockingLink(str(tmp_path / "s"))
    with pytest.raises(SandboxNotRunningException, match="takes nothing"):
        for _ in range(1000):
            link.open({"op": "x", "fill": "x" * 200_000})


def test_one_that_gives_no_credit_stops_a_write_alone(tmp_path):
    def script(made):
        number, _ = request(made)
        for _ in range(1):
            other, asked = None, None
            while asked is None:
                head = made.recv(HEADER.size, socket.MSG_WAITALL)
                if not head:
                    return
                length, kind, other = HEADER.unpack(head)
                payload = made.recv(length - 5, socket.MSG_WAITALL)
                if kind == OPEN:
                    asked = json.loads(payload)
            made.sendall(words(END, other, {"ok": {"id": "x"}}))
        wait_for_end(made)

    Scripted(tmp_path / "s", script)
    link = BlockingLink(str(tmp_path / "s"))
    stream = link.open({"op": "write", "path": "x"})
    with pytest.raises(TimeoutException, match="takes no more"):
        drive(stream.send(b"x" * 1_000_000, 0.3))
    assert drive(link.call({"op": "info"}, timeout=5)) == {"id": "x"}


def test_events_that_nobody_takes_end_their_request_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(_frames, "MAX_UNREAD", 10_000)

    def script(made):
        number, _ = request(made)
        made.sendall(words(REPLY, number, {}) + words(EVENT, number, {"what": "create", "name": "x" * 100}) * 200)
        other, _ = request(made)
        made.sendall(words(END, other, {"ok": {"id": "x"}}))
        wait_for_end(made)

    Scripted(tmp_path / "s", script)
    link = BlockingLink(str(tmp_path / "s"))
    from fumehood import _files
    from fumehood._sync_files import WatchHandle

    handle = WatchHandle(link, drive(_files.open_watch(link, "/", False, 5)), "/", False)
    assert drive(link.call({"op": "info"}, timeout=5)) == {"id": "x"}
    with pytest.raises(TooManyException):
        handle.get_new_events(timeout=5)


def test_a_fork_has_no_sandbox(tmp_path):
    Scripted(tmp_path / "s", answers(lambda number: words(END, number, {"ok": {}})))
    link = BlockingLink(str(tmp_path / "s"))
    child = os.fork()
    if child == 0:
        try:
            drive(link.call({"op": "info"}, timeout=5))
        except FumehoodError as error:
            os._exit(7 if error.code == "fork" else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert drive(link.call({"op": "info"}, timeout=5)) == {}


def test_no_bytes_do_more_than_end_it():
    for seed in range(2000):
        data = bytearray(os.urandom(40))
        data[:9] = HEADER.pack(seed % 40, seed % 12, seed % 3)
        decoder = Decoder()
        with contextlib.suppress(ProtocolError):
            whole = decoder.feed(bytes(data))
            again = b"".join(_frames.encode(one.kind, one.stream, one.payload) for one in whole)
            assert bytes(data).startswith(again)
    assert Kind.END == 9


def test_a_sandbox_whose_supervisor_is_broken_is_not_connected_to(tmp_path, monkeypatch):
    folder = tmp_path / "live" / ("a" * 20)
    folder.mkdir(parents=True)
    monkeypatch.setenv("FUMEHOOD_STATE", str(tmp_path))
    Scripted(folder / "socket", answers(lambda number: words(END, number, {"ok": {"state": "no such", "id": 1}})))
    with pytest.raises(FumehoodError):
        Sandbox.connect("a" * 20)
    with pytest.raises(FumehoodError):
        asyncio.run(AsyncSandbox.connect("a" * 20))
