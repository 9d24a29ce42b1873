"""`Sandbox().run_code`: code in a kernel of this machine, as those have it who leave E2B's account out, and in a sandbox.

E2B's own lines are in guide.py. This needs a Python with ipykernel; elsewhere `fumehood template build code-interpreter-v1` makes a
template with one, for `Sandbox(template="code-interpreter-v1")`.
"""

import os
import pathlib
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import passes_naive, shown
from jupyter_client.manager import start_new_kernel

from fumehood import Execution, Sandbox

# What `python` allows, a loopback network of its own for the kernel, and this Python with its packages to read.
POLICY = {
    "extends": "python",
    "net": {"mode": "loopback"},
    "fs": {"read": sorted({sys.prefix, sys.base_prefix} - {"/usr"})},
    "limits": {"memory": "1G", "pids": 256},
    "env": {"set": {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"}},
}


def run_code_here(code: str) -> str:
    """The same interpreter without a sandbox: a kernel that is started here and asked."""
    manager, client = start_new_kernel(kernel_name="python3")
    said = []

    def hear(message: dict) -> None:
        content = message["content"]
        said.append(content.get("text") or content.get("evalue") or content.get("data", {}).get("text/plain", ""))

    try:
        client.execute_interactive(code, timeout=60, allow_stdin=False, output_hook=hear)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return "".join(said)


def run_code(code: str) -> Execution:
    """As E2B's guides have it, with no account and no server: a sandbox of this machine's own, which ends with the block."""
    with Sandbox(POLICY, timeout=60) as sandbox:
        return sandbox.run_code(code)


def why(execution: Execution) -> str:
    return execution.error.name if execution.error else ""


def answer(door: socket.socket) -> None:
    while True:
        guest, _ = door.accept()
        with guest:
            guest.sendall(b"ROWS OF A DATABASE")


with tempfile.TemporaryDirectory() as place, socket.create_server(("127.0.0.1", 0)) as door:
    os.chmod(place, 0o755)
    threading.Thread(target=answer, args=(door,), daemon=True).start()
    key, mark = pathlib.Path(place, "id_ed25519"), pathlib.Path(place, "mark")
    key.write_text("PRIVATE KEY")
    STEALS = f"open({str(key)!r}).read()"
    ASKS = f"import socket; socket.create_connection({door.getsockname()!r}, 5).recv(99)"
    STAYS = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(1)
    open({str(mark)!r}, "w").write("later")
    os._exit(0)
"""

    passes_naive("code that reads a key of yours", "PRIVATE KEY" in run_code_here(STEALS))
    passes_naive("code that asks a service of this machine", "ROWS" in run_code_here(ASKS))
    run_code_here(STAYS)
    time.sleep(2)
    passes_naive("a process that goes on after the kernel", mark.exists())
    mark.unlink()

    shown("a key of yours is not there", why(run_code(STEALS)) == "FileNotFoundError")
    shown("no service of this machine answers", why(run_code(ASKS)) == "ConnectionRefusedError")
    run_code(STAYS)
    time.sleep(2)
    shown("no process goes on after the end", not mark.exists())

    with Sandbox(POLICY, timeout=60) as sandbox:
        sandbox.run_code("x = 1")
        execution = sandbox.run_code("x+=1; x")
        shown("variables stay from one execution to the next", execution.text == "2")
        table = sandbox.run_code("from IPython.display import HTML; HTML('<b>2</b>')")
        shown("results are what a notebook shows", table.results[0].html == "<b>2</b>")
        shown("an error is a result", why(sandbox.run_code("1 / 0")) == "ZeroDivisionError")
