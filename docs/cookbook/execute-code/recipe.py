"""`execute_code_sandboxed`: a model's code in a process of its own, as guides have it, and in a sandbox."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import passes_naive, shown

from fumehood import run


def execute_code_sandboxed(code: str, timeout: float = 5) -> str:
    """As guides have it: another process, a temporary folder, no environment, a timeout."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        script.write_text(code)
        done = subprocess.run([sys.executable, "-I", str(script)], cwd=folder, env={}, capture_output=True, text=True, timeout=timeout)
    return done.stdout if done.returncode == 0 else done.stderr


def execute_code(code: str, timeout: float = 5) -> str:
    """The same with Fumehood: `strict` has no network, none of your files, and nothing outlives the run."""
    done = run(code, language="python", policy="strict", timeout=timeout)
    return done.stdout if done.exit_code == 0 else done.stderr


with tempfile.TemporaryDirectory() as place:
    os.chmod(place, 0o755)
    key, mark = pathlib.Path(place, "id_ed25519"), pathlib.Path(place, "mark")
    key.write_text("PRIVATE KEY")
    STEALS = f"print(open({str(key)!r}).read())"
    WRITES = f"open({str(mark)!r}, 'w').write('x')\nprint('written')"
    STAYS = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    for fd in (0, 1, 2):
        os.close(fd)
    time.sleep(1)
    open({str(mark)!r}, "w").write("later")
    os._exit(0)
print("done")
"""

    passes_naive("code that reads a key of yours", "PRIVATE KEY" in execute_code_sandboxed(STEALS))
    passes_naive("code that writes beside its folder", "written" in execute_code_sandboxed(WRITES) and mark.exists())
    mark.unlink()
    execute_code_sandboxed(STAYS)
    time.sleep(2)
    passes_naive("a process that goes on after the end", mark.exists())
    mark.unlink()

    shown("a key of yours is not there", "FileNotFoundError" in execute_code(STEALS))
    execute_code(WRITES)
    shown("nothing is written beside its folder", not mark.exists())
    execute_code(STAYS)
    time.sleep(2)
    shown("no process goes on after the end", not mark.exists())
    shown("work is done", execute_code("print(sum(range(10)))") == "45\n")
    slow = run("while True: pass", language="python", timeout=0.5)
    shown("a timeout is told as what it is", (slow.outcome.kind, slow.outcome.limit) == ("limit", "wall"))
