"""Cases of our own for langchain-e2b (a backend of deep agents) against a running `fumehood serve`.

usage: langchain_backend.py URL KEY OTHER_KEY     (a Python that has langchain-e2b)
"""

import asyncio
import os
import sys

from harness import case, main

URL, KEY, OTHER = sys.argv[1:4]
NEEDS_NO_TEMPLATE = True
os.environ.update(E2B_API_URL=URL, E2B_SANDBOX_URL=URL, E2B_API_KEY=KEY)

import e2b  # noqa: E402
from langchain_e2b import AsyncE2BSandbox, E2BSandbox  # noqa: E402


class Shared:
    def __init__(self):
        self.inside = e2b.Sandbox.create(timeout=300)
        self.box = E2BSandbox(sandbox=self.inside, workdir="/workspace")

    def kill(self):
        self.inside.kill()


@case
def it_executes(shared):
    done = shared.box.execute("echo out; echo err >&2; exit 3")
    assert done.exit_code == 3 and "out" in done.output and "err" in done.output, done
    assert shared.box.execute("pwd").output.strip() == "/workspace"


@case
def it_writes_reads_and_edits(shared):
    box = shared.box
    assert box.write("/workspace/a.txt", "one\ntwo\n").error is None
    assert "two" in str(box.read("/workspace/a.txt").file_data), box.read("/workspace/a.txt")
    edited = box.edit("/workspace/a.txt", "two", "three")
    assert edited.error is None and edited.occurrences == 1, edited
    assert box.execute("cat a.txt").output == "one\nthree\n"
    assert box.read("/workspace/none").error


@case
def it_finds(shared):
    box = shared.box
    box.execute("mkdir -p d && echo needle > d/x.py && echo hay > d/y.txt")
    assert [entry["path"] for entry in box.glob("*.py", "/workspace/d").matches], box.glob("*.py", "/workspace/d")
    found = box.grep("needle", "/workspace")
    assert found.error is None and [match["line"] for match in found.matches] == [1], found
    assert any("d" in entry["path"] for entry in box.ls("/workspace").entries)


@case
def files_go_in_and_out(shared):
    answers = shared.box.upload_files([("/workspace/b.bin", b"\x00\xff")])
    assert [answer.error for answer in answers] == [None], answers
    back = shared.box.download_files(["/workspace/b.bin", "/workspace/none"])
    assert back[0].content == b"\x00\xff" and back[1].error == "file_not_found", back


@case
def it_works_asynchronously(_):
    async def all_of_it():
        inside = await e2b.AsyncSandbox.create(timeout=120)
        box = AsyncE2BSandbox(sandbox=inside, workdir="/workspace")
        try:
            assert (await box.aexecute("echo $((40 + 2))")).output == "42\n"
            assert (await box.awrite("/workspace/c", "x")).error is None
            assert [entry["path"] for entry in (await box.als("/workspace")).entries], "nothing"
        finally:
            await inside.kill()

    asyncio.run(all_of_it())


main(lambda **_: Shared(), "langchain-e2b")
