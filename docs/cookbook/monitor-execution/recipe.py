"""`monitor_execution`: a thread that looks now and then, as guides have it, and limits that need no look.

The kernel counts memory where Fumehood has a control group (`fumehood doctor`). Elsewhere Fumehood looks too, every 20 ms and at the
whole tree, and its plan says what passes between two looks.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import passes_naive, shown

from fumehood import RunResult, run

MIB = 1 << 20


def resident(pid: int) -> int:
    try:
        pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def monitor_execution(code: str, memory: int = 100 * MIB, every: float = 1) -> str:
    """As guides have it: the process is looked at, and killed if it has too much."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([sys.executable, "-I", "-c", code], stdout=said, stderr=said)
        while process.poll() is None:
            if resident(process.pid) > memory:
                process.kill()
                process.wait()
                return "killed"
            time.sleep(every)
        said.seek(0)
        return said.read()


def execution(code: str, memory: str = "100M") -> RunResult:
    """The same with Fumehood: the report says what was used, and what held it."""
    return run(code, language="python", policy={"limits": {"memory": memory}}, timeout=20)


# Between two looks.
SHORT = "x = bytearray(b'x') * (150 << 20); del x; print('150 MiB were in use')"
# In a child, at which nobody looks.
CHILD = """
import os, time
if os.fork() == 0:
    x = bytearray(b"x") * (150 << 20)
    time.sleep(2)
    os._exit(0)
print("exit status of the child:", os.wait()[1])
"""

passes_naive("much memory for a moment", any("were in use" in monitor_execution(SHORT) for _ in range(10)))
passes_naive("much memory in a child", "child: 0" in monitor_execution(CHILD))

done = execution(SHORT)
memory = next(one for one in done.report["enforcers"] if one["clause"] == "limits.memory")
if memory["strength"] == "kernel":
    shown("a moment is enough to be held", (done.outcome.kind, done.outcome.limit) == ("limit", "memory") and not done.stdout)
else:
    shown("what may pass between two looks is said", "between two looks" in memory["overshoot"])
done = execution(CHILD)
shown("a child counts", done.outcome.limit == "memory" and "child: 0" not in done.stdout)
done = execution("import time; x = bytearray(b'x') * (30 << 20); print(len(x)); time.sleep(0.5)")
shown("what fits is done", done.stdout == f"{30 * MIB}\n")
shown("its peak is in the report", 30 * MIB <= done.usage.memory_peak <= 100 * MIB)
