"""A supervisor for tests: the protocol with real programs and a real folder, and no sandbox. It is strict where a real one is:
a client that sends what it may not, or more than its credit, is noted in ``breaches`` and cut off."""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import stat
import struct
import threading
import time

WINDOW = 256 * 1024
MAX_DATA = 64 * 1024
HEADER = struct.Struct("<IBI")
OPEN, REPLY, EVENT, DATA, EOF, CONTROL, CREDIT, CANCEL, END = range(1, 10)
OUT, ERR = 1, 2


def frame(kind, stream, payload=b""):
    return HEADER.pack(len(payload) + 5, kind, stream) + payload


def words(kind, stream, value):
    return frame(kind, stream, json.dumps(value).encode())


class Failed(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Stream:
    """One request of one client."""

    def __init__(self, client, number):
        self.client, self.number = client, number
        self.credit = WINDOW
        self.more = asyncio.Event()
        self.input = asyncio.Queue()
        self.window = WINDOW
        self.cancelled = asyncio.Event()

    def reply(self, value):
        self.client.put(words(REPLY, self.number, value))

    def event(self, value):
        self.client.put(words(EVENT, self.number, value))

    async def data(self, lane, data):
        for at in range(0, len(data), MAX_DATA - 1):
            chunk = data[at : at + MAX_DATA - 1]
            while self.credit < len(chunk):
                self.more.clear()
                await self.more.wait()
            self.credit -= len(chunk)
            self.client.put(frame(DATA, self.number, bytes([lane]) + chunk))
            await self.client.writer.drain()

    async def read(self):
        """What the client sends, until its end."""
        while (data := await self.input.get()) is not None:
            self.window += len(data)
            self.client.put(frame(CREDIT, self.number, struct.pack("<I", len(data))))
            yield data


class Client:
    def __init__(self, house, reader, writer):
        self.house, self.reader, self.writer = house, reader, writer
        self.streams = {}

    def put(self, data):
        self.writer.write(data)

    async def serve(self):
        try:
            while True:
                length, kind, number = HEADER.unpack(await self.reader.readexactly(HEADER.size))
                self.take(kind, number, await self.reader.readexactly(length - 5))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for stream in self.streams.values():
                stream.cancelled.set()
            self.writer.close()

    def take(self, kind, number, payload):
        stream = self.streams.get(number)
        if kind == OPEN:
            if stream or not number:
                return self.breach(f"stream {number} is open already")
            stream = self.streams[number] = Stream(self, number)
            asked = json.loads(payload)
            self.house.asked.append(asked)
            self.house.later(self.answer(stream, asked))
        elif stream is None:
            self.house.late += 1
        elif kind == DATA:
            stream.window -= len(payload) - 1
            if stream.window < 0 or payload[0] != 0 or len(payload) > MAX_DATA:
                return self.breach("more data than there was credit for")
            stream.input.put_nowait(payload[1:])
        elif kind == EOF:
            stream.input.put_nowait(None)
        elif kind == CREDIT:
            stream.credit += struct.unpack("<I", payload)[0]
            if stream.credit > WINDOW:
                return self.breach("more credit than there was data")
            stream.more.set()
        elif kind == CANCEL:
            stream.cancelled.set()
        else:
            self.breach(f"kind {kind}")

    def breach(self, what):
        self.house.breaches.append(what)
        self.writer.close()

    async def answer(self, stream, asked):
        try:
            work = asyncio.ensure_future(self.house.do(stream, asked))
            given_up = asyncio.ensure_future(stream.cancelled.wait())
            await asyncio.wait((work, given_up), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work
                raise Failed("cancelled", "given up")
            end = {"ok": work.result() or {}}
            given_up.cancel()
        except Failed as failed:
            end = {"error": {"code": failed.code, "message": str(failed)}}
        except OSError as error:
            codes = {2: "not_found", 3: "not_found", 13: "denied", 17: "exists", 20: "not_a_directory", 21: "is_a_directory", 28: "no_space"}
            end = {"error": {"code": codes.get(error.errno, "failed"), "message": str(error)}}
        self.streams.pop(stream.number, None)
        self.put(words(END, stream.number, end))


class House:
    """One sandbox that is none."""

    def __init__(self, socket, root):
        self.agent = None
        self.socket, self.root = str(socket), str(root)
        self.breaches, self.asked, self.late = [], [], 0
        self.programs, self.tasks = {}, set()
        self.state, self.ends = "running", None
        self.no_bash = False
        self.clients = 0
        self.loop = asyncio.new_event_loop()
        self.up = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.up.wait(5)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())

    async def _serve(self):
        self.stopped = asyncio.Event()

        async def one(reader, writer):
            self.clients += 1
            self.writers.add(writer)
            await Client(self, reader, writer).serve()
            self.clients -= 1

        self.writers = set()
        server = await asyncio.start_unix_server(one, self.socket)
        self.up.set()
        await self.stopped.wait()
        server.close()
        for writer in self.writers:
            writer.close()
        await asyncio.sleep(0.05)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def later(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def stop(self):
        self.loop.call_soon_threadsafe(self.stopped.set)
        self.thread.join(5)
        for one in self.programs.values():
            if one["report"] is None:
                os.killpg(one["process"].pid, signal.SIGKILL)

    async def do(self, stream, asked):
        return await getattr(self, f"do_{asked['op']}")(stream, asked)

    def info(self):
        return {
            "id": "abcdefghij0123456789", "name": "box", "labels": {"who": "me"}, "state": self.state, "run": "r-1",
            "tier": "container", "policy": "strict 00", "plan": "11", "created_ms": 1_700_000_000_000, "ends_ms": self.ends,
            "pid": 1, "usage": {"wall": 1.5}, "memory_limit": 256 << 20, "template": "",
            **({} if self.agent is None else {"agent": self.agent}),
        }

    async def do_info(self, stream, asked):
        return self.info()

    async def do_wait(self, stream, asked):
        await asyncio.sleep(0.05)
        return self.info()

    async def do_pause(self, stream, asked):
        self.state = "paused"
        return self.info()

    async def do_resume(self, stream, asked):
        self.state = "running"
        return self.info()

    async def do_timeout(self, stream, asked):
        self.ends = int(time.time() * 1000) + asked["ms"]
        return self.info()

    async def do_kill(self, stream, asked):
        self.state = "ended"
        self.loop.call_later(0.05, self.stopped.set)
        return self.info()

    # Programs

    def which(self, which):
        [(key, value)] = which.items()
        for one in reversed(self.programs.values()):
            if one["running"][key] == value and one["report"] is None:
                return one
        raise Failed("not_found", "no such program runs")

    async def do_exec(self, stream, asked):
        program = asked["program"]
        argv = program["argv"]
        if self.no_bash and argv[0] == "/bin/bash":
            raise Failed("not_found", "no program /bin/bash")
        if program.get("cwd") and not os.path.isdir(program["cwd"]):
            raise Failed("no_cwd", "the working directory is not there")
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env={"PATH": os.environ["PATH"], **program.get("env", {})}, cwd=program.get("cwd") or self.root,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise Failed("not_found", f"no program {argv[0]}") from error
        except PermissionError as error:
            raise Failed("not_executable", f"{argv[0]} cannot be executed") from error
        name = f"p{len(self.programs) + 1}"
        running = {"id": name, "pid": process.pid, "tag": asked.get("tag"), "program": program, "started_ms": 0}
        one = self.programs[name] = {
            "running": running, "process": process, "report": None, "readers": {stream}, "owner": stream, "ended": asyncio.Event(), "limit": None,
        }
        stream.reply(running)
        if not program.get("stdin"):
            process.stdin.close()
        work = asyncio.ensure_future(self.carry(one, asked))
        self.tasks.add(work)
        feed = asyncio.ensure_future(self.feed(stream, process))
        try:
            await one["ended"].wait()
        except asyncio.CancelledError:
            one["readers"].discard(stream)
            if not asked.get("detach"):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            feed.cancel()
        return one["report"]

    async def feed(self, stream, process):
        async for data in stream.read():
            process.stdin.write(data)
            with contextlib.suppress(OSError):
                await process.stdin.drain()
        process.stdin.close()

    async def carry(self, one, asked):
        process = one["process"]

        async def lane(number, pipe):
            while data := await pipe.read(MAX_DATA):
                await asyncio.gather(*(reader.data(number, data) for reader in list(one["readers"])))

        def over():
            one["limit"] = "wall"
            os.killpg(process.pid, signal.SIGKILL)

        timer = self.loop.call_later(asked["timeout_ms"] / 1000, over) if asked.get("timeout_ms") else None
        await asyncio.gather(lane(OUT, process.stdout), lane(ERR, process.stderr))
        code = await process.wait()
        if timer:
            timer.cancel()
        report = {"outcome": "exited" if code >= 0 else "signalled", "message": f"the program exited with {code}", "wall": 0.1,
                  "cpu_user": 0.0, "cpu_system": 0.0, "memory_peak": 1, "output": 1, "dropped": 0}
        report |= {"code": code} if code >= 0 else {"signal": -code, "message": f"signal {-code} ended the program"}
        if one["limit"]:
            report |= {"outcome": "limit", "limit": one["limit"], "message": "it ran longer than its timeout"}
        one["report"] = report
        one["ended"].set()

    async def do_attach(self, stream, asked):
        one = self.which(asked["which"])
        stream.reply(one["running"])
        one["readers"].add(stream)
        try:
            await one["ended"].wait()
        finally:
            one["readers"].discard(stream)
        return one["report"]

    async def do_programs(self, stream, asked):
        return {"programs": [{**one["running"], **({"report": one["report"]} if one["report"] else {})} for one in self.programs.values()]}

    async def do_signal(self, stream, asked):
        assert asked["tree"]
        os.killpg(self.which(asked["which"])["process"].pid, asked["number"])

    async def do_input(self, stream, asked):
        one = self.which(asked["which"])
        if not one["running"]["program"].get("stdin") and not one["running"]["program"].get("tty"):
            raise Failed("invalid", "it has no input")
        # Behind what came on the program's own stream.
        one["owner"].input.put_nowait(base64.b64decode(asked["bytes"], validate=True))

    async def do_close_input(self, stream, asked):
        self.which(asked["which"])["owner"].input.put_nowait(None)

    async def do_resize(self, stream, asked):
        self.which(asked["which"])

    # Files

    def at(self, path):
        head, *rest = path.encode().split(b"\0")
        raw = head + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest)
        return os.path.join(self.root, os.fsdecode(raw).lstrip("/"))

    @staticmethod
    def told(path):
        """A name as the protocol has it: of what is no text, a zero and two digits for each byte."""
        return "".join(f"\0{ord(one) - 0xDC00:02x}" if 0xDC80 <= ord(one) <= 0xDCFF else one for one in path)

    def entry(self, path):
        place = self.at(path)
        about = os.lstat(place)
        kind = "link" if stat.S_ISLNK(about.st_mode) else "dir" if stat.S_ISDIR(about.st_mode) else "file"
        made = {"name": os.path.basename(path), "path": "/" + path.lstrip("/"), "kind": kind, "size": about.st_size,
                "mode": about.st_mode & 0o7777, "uid": 0, "gid": 0, "modified": [int(about.st_mtime), 5]}
        return made | ({"target": os.readlink(place)} if kind == "link" else {})

    async def do_stat(self, stream, asked):
        return self.entry(asked["path"])

    async def do_list(self, stream, asked):
        def walk(path, depth):
            for name in sorted(os.listdir(self.at(path))):
                inner = os.path.join(path, self.told(name))
                yield self.entry(inner)
                if depth > 1 and os.path.isdir(self.at(inner)):
                    yield from walk(inner, depth - 1)

        found = list(walk(asked["path"], asked["depth"]))
        for at in range(0, len(found), 100):
            stream.event({"entries": found[at : at + 100]})

    async def do_read(self, stream, asked):
        with open(self.at(asked["path"]), "rb") as file:
            stream.reply(self.entry(asked["path"]))
            while data := file.read(1 << 20):
                await stream.data(OUT, data)

    async def do_write(self, stream, asked):
        place = self.at(asked["path"])
        os.makedirs(os.path.dirname(place), exist_ok=True)
        parts = [data async for data in stream.read()]
        with open(place, "wb") as file:
            file.write(b"".join(parts))
        os.chmod(place, asked.get("mode", 0o644))
        return self.entry(asked["path"])

    async def do_mkdir(self, stream, asked):
        os.makedirs(self.at(asked["path"]))
        return self.entry(asked["path"])

    async def do_move(self, stream, asked):
        os.replace(self.at(asked["from"]), self.at(asked["to"]))
        return self.entry(asked["to"])

    async def do_remove(self, stream, asked):
        place = self.at(asked["path"])
        shutil.rmtree(place) if os.path.isdir(place) else os.unlink(place)

    async def do_watch(self, stream, asked):
        before = set(os.listdir(self.at(asked["path"])))
        stream.reply({})
        while True:
            await asyncio.sleep(0.02)
            now = set(os.listdir(self.at(asked["path"])))
            for name in sorted(now - before):
                stream.event({"what": "create", "name": self.told(name)})
            before = now
