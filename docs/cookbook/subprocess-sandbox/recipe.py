"""`SubprocessSandbox`: limits by `setrlimit`, as guides have it, and of everything together."""

import pathlib
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import passes_naive, shown

from fumehood import RunResult, run

MIB = 1 << 20


class SubprocessSandbox:
    """As guides have it: limits that each process has for itself."""

    def __init__(self, memory: int = 100 * MIB, file_size: int = MIB) -> None:
        self.memory, self.file_size = memory, file_size

    def _limits(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_size, self.file_size))

    def run(self, code: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-I", "-c", code]
            done = subprocess.run(command, cwd=folder, preexec_fn=self._limits, capture_output=True, text=True, timeout=30)
        return done.stdout + done.stderr


class Sandbox:
    """The same with Fumehood: of all its processes, and all its files, together."""

    def __init__(self, memory: str = "100M", disk: str = "1M") -> None:
        self.limits = {"memory": memory, "disk": disk}

    def run(self, code: str) -> RunResult:
        return run(code, language="python", policy={"limits": self.limits}, timeout=30)


# Each of three processes stays below the limit; together they are far above it.
CHILDREN = """
import os, time
ends = []
for _ in range(3):
    said, says = os.pipe()
    go, goes = os.pipe()
    if os.fork() == 0:
        kept = bytearray(b"x") * (60 << 20)
        os.write(says, b"x")
        os.close(goes)
        os.read(go, 1)
        os._exit(0)
    os.close(says)
    ends.append((said, goes))
if all(os.read(said, 1) for said, _ in ends):
    # Where no control group counts it, memory is looked at many times a second.
    time.sleep(0.5)
    print("180 MiB in use")
"""
# Each file is small enough; together they fill the disk.
FILES = """
for number in range(8):
    with open(f"/tmp/fill-{number}" if ABSOLUTE else f"fill-{number}", "wb") as file:
        file.write(b"x" * (900 << 10))
print("7 MiB on disk")
"""

naive, ours = SubprocessSandbox(), Sandbox()
passes_naive("many processes that are small enough each", "180 MiB in use" in naive.run(CHILDREN))
passes_naive("many files that are small enough each", "7 MiB on disk" in naive.run("ABSOLUTE = False" + FILES))

done = ours.run(CHILDREN)
shown("memory is counted for all processes together", "180 MiB" not in done.stdout and done.outcome.limit == "memory")
done = ours.run("ABSOLUTE = True" + FILES)
shown("files are counted together", "7 MiB" not in done.stdout and "No space left" in done.stderr)
shown("the report says which limit it was", any(one.clause == "limits.disk" for one in done.violations))
done = ours.run("print(len(bytearray(20 << 20)))")
shown("what fits is done", (done.stdout, done.exit_code) == (f"{20 * MIB}\n", 0))
