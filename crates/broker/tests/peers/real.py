"""Real servers behind the gateway, with the official Python SDK as client: what works directly must work through it.

usage: real.py FUMEHOOD CACHE [--bench N]
CACHE is where `scripts/setup mcp` put the peers. A peer that is not there is skipped by its name; a difference between
direct and through is a failure. With --bench, calls are made alternately on both ways in one run.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FUMEHOOD, CACHE = sys.argv[1], Path(sys.argv[2])
BENCH = int(sys.argv[sys.argv.index("--bench") + 1]) if "--bench" in sys.argv else 0
# Of this run alone: the direct server is not in a sandbox, and its file would be found by the next run.
DATABASE = f"/tmp/fumehood-peer-{os.getpid()}.db"
PYTHON, NODE = CACHE / "py/bin", CACHE / "node/node_modules/@modelcontextprotocol"

from mcp import ClientSession, StdioServerParameters  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402


def peers(work):
    """Name, file that must be there, command, calls (tool, arguments)."""
    node = "/usr/bin/node"
    return [
        ("time", PYTHON / "mcp-server-time", [str(PYTHON / "mcp-server-time"), "--local-timezone", "UTC"],
         [("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"})]),
        ("git", PYTHON / "mcp-server-git", [str(PYTHON / "mcp-server-git"), "--repository", work],
         [("git_log", {"repo_path": work, "max_count": 1}), ("git_branch", {"repo_path": work, "branch_type": "local"})]),
        ("sqlite", CACHE / "py-sqlite/bin/mcp-server-sqlite", [str(CACHE / "py-sqlite/bin/mcp-server-sqlite"), "--db-path", DATABASE],
         [("create_table", {"query": "create table t (a int)"}), ("list_tables", {})]),
        ("filesystem", NODE / "server-filesystem/dist/index.js", [node, str(NODE / "server-filesystem/dist/index.js"), work],
         [("read_text_file", {"path": work + "/a.txt"}), ("list_directory", {"path": work})]),
        ("everything", NODE / "server-everything/dist/index.js", [node, str(NODE / "server-everything/dist/index.js")],
         [("echo", {"message": "hello"}), ("get-sum", {"a": 2, "b": 3})]),
        ("memory", NODE / "server-memory/dist/index.js", [node, str(NODE / "server-memory/dist/index.js")],
         [("read_graph", {})]),
    ]


def gateway(folder, work, name, command, tools):
    """A policy for one server; how the gateway is started with it."""
    server = {"MEMORY_FILE_PATH": "/tmp/memory.json"} if name == "memory" else {}
    (folder / "sandbox.toml").write_text(
        'version = 1\nextends = "node"\n[fs]\nread = %s\n[limits]\nmemory = "2G"\n[env]\nset = %s\n' % (
            json.dumps([str(CACHE), work, *(p for p in ("/root/.pyenv",) if os.path.exists(p))]),
            "{ " + ", ".join(f'{k} = "{v}"' for k, v in {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*", **server}.items()) + " }"))
    entries = "".join(
        f'[[tools.tool]]\nname = "{name}.{tool}"\ndecision = "allow"\neffect = "write"\n' for tool in sorted(tools))
    (folder / "p.toml").write_text(
        f"version = 1\n{entries}[mcp.servers.{name}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\npolicy = \"./sandbox.toml\"\n")
    return StdioServerParameters(command=FUMEHOOD, args=["mcp", "gateway", "-p", str(folder / "p.toml")], cwd=str(folder),
                                 env={**os.environ, "FUMEHOOD_STATE": str(folder / "state")})


def plain(result):
    return [getattr(part, "text", part.type) for part in result.content]


async def one(name, command, calls, work):
    folder = Path(tempfile.mkdtemp(prefix="fh-peer-"))
    direct = StdioServerParameters(command=command[0], args=command[1:], cwd=work, env=dict(os.environ))
    async with stdio_client(direct) as (read, write), ClientSession(read, write) as near:
        await near.initialize()
        names = {tool.name for tool in (await near.list_tools()).tools}
        through = gateway(folder, work, name, command, {tool for tool, _ in calls})
        async with stdio_client(through) as (read2, write2), ClientSession(read2, write2) as far:
            hello = await far.initialize()
            shown = {tool.name for tool in (await far.list_tools()).tools}
            wanted = {f"{name}__{tool}" for tool, _ in calls}
            assert shown == wanted, f"listed {shown}, wanted {wanted} of {names}"
            for tool, arguments in calls:
                one_way = await near.call_tool(tool, arguments)
                other = await far.call_tool(f"{name}__{tool}", arguments)
                assert plain(one_way) == plain(other), f"{tool}: {plain(one_way)} and {plain(other)}"
            hidden = next((tool for tool in sorted(names) if tool not in {t for t, _ in calls}), None)
            if hidden:
                denied = await far.call_tool(f"{name}__{hidden}", {})
                text = plain(denied)[0]
                assert text.startswith("denied ("), text
            figures = None
            if BENCH:
                figures = await bench(near, far, calls[-1], name)
            version = getattr(hello, "protocolVersion", None) or getattr(hello, "protocol_version", "?")
            return version, figures


async def bench(near, far, call, name):
    tool, arguments = call
    times = {"direct": [], "through": []}
    for turn in range(BENCH):
        for way, session, full in (("direct", near, tool), ("through", far, f"{name}__{tool}")):
            begun = time.perf_counter()
            await session.call_tool(full, arguments)
            if turn >= BENCH // 10:
                times[way].append((time.perf_counter() - begun) * 1000)
    return {way: statistics.median(list_) for way, list_ in times.items()}


async def main():
    work = tempfile.mkdtemp(prefix="fh-work-")
    Path(work, "a.txt").write_text("hello\n")
    git = ["git", "-C", work, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run(["chmod", "-R", "a+rX", work], check=True)
    failed = 0
    for name, needed, command, calls in peers(work):
        if not needed.exists():
            print(f"skipped  {name}: {needed} is not there")
            continue
        try:
            version, figures = await asyncio.wait_for(one(name, command, calls, work), 120)
            more = "" if figures is None else "  direct {direct:.2f} ms, through {through:.2f} ms, +{d:.2f} ms".format(d=figures["through"] - figures["direct"], **figures)
            print(f"ok       {name}: {len(calls)} calls agree, {version}{more}", flush=True)
        except BaseException as error:
            failed += 1
            while getattr(error, "exceptions", None):
                error = error.exceptions[0]
            print(f"FAILED   {name}: {type(error).__name__}: {str(error)[:600]}", flush=True)
    Path(DATABASE).unlink(missing_ok=True)
    sys.exit(1 if failed else 0)


asyncio.run(main())
