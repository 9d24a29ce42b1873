"""10 calls in 60 s: counted before each call, in a table that processes share."""

import os
import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import HERE, passes_naive, shown

from fumehood.tools import Denied, Gateway


class NaiveLimit:
    """As guides have it: a list of times in the program, by session."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def allows(self, session: str) -> bool:
        times = self.times.setdefault(session, [])
        times[:] = [then for then in times if then > time.time() - 60]
        used = len(times)
        time.sleep(0.05)  # Something else has its turn between the look and the note.
        if used >= 10:
            return False
        times.append(time.time())
        return True


def together(work, count: int = 64) -> int:
    done = []
    threads = [threading.Thread(target=lambda n=n: done.append(bool(work(n)))) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)


if "--child" not in sys.argv:
    limit = NaiveLimit()
    passes_naive("64 threads at once", together(lambda n: limit.allows("one")) > 10)
    passes_naive("a new session for each call", sum(NaiveLimit().allows(f"s{n}") for n in range(30)) == 30)

with Gateway(HERE / "policy.toml") as gate:

    @gate.tool(effect="read")
    def search(query: str) -> str:
        return query

    def one(n: int) -> bool:
        try:
            with gate.session(f"s{n}"):
                return search(f"{n}") == f"{n}"
        except Denied as denied:
            assert denied.id.startswith("tools.rate/"), denied
            return False

    if "--child" in sys.argv:
        print(together(one, 16))
        sys.exit(0)
    first = together(one)
    shown(f"of 64 calls by 64 threads in 64 sessions {first} were made", first == 10)
child = subprocess.run([sys.executable, __file__, "--child"], env=os.environ, capture_output=True, text=True, check=True)
shown("another process makes none", child.stdout.split() == ["0"])
with Gateway(HERE / "policy.toml") as again:
    shown("a restart makes none", not again.check("search", {"query": "x"}).allowed)
