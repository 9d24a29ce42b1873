"""Cases of our own for the E2B client of OpenAI's Agents SDK against a running `fumehood serve`.

usage: openai_agents.py URL KEY OTHER_KEY     (a Python that has openai-agents[e2b])
"""

import asyncio
import io
import os
import sys
from pathlib import Path

from harness import case, main

URL, KEY, OTHER = sys.argv[1:4]
NEEDS_NO_TEMPLATE = True
os.environ.update(E2B_API_URL=URL, E2B_SANDBOX_URL=URL, E2B_API_KEY=KEY, OPENAI_AGENTS_DISABLE_TRACING="1")

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions  # noqa: E402
from agents.sandbox import Manifest  # noqa: E402
from agents.sandbox.entries import File  # noqa: E402
from agents.sandbox.errors import InvalidManifestPathError  # noqa: E402

CLIENT = E2BSandboxClient()


def options(**more):
    return E2BSandboxClientOptions(sandbox_type="e2b", timeout=120, **more)


class Nothing:
    """Each case has a session of its own."""

    def kill(self):
        pass


def session(function):
    """A case over a session that was started; it is shut down at the end."""

    def run(_):
        async def all_of_it():
            made = await CLIENT.create(options=options())
            try:
                await made.start()
                await function(made)
            finally:
                await made.shutdown()

        asyncio.run(all_of_it())

    run.__name__ = function.__name__
    return case(run)


@session
async def a_session_starts_runs_and_ends(box):
    assert await box.running()
    done = await box.exec("echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == (b"out\n", b"err\n", 3), done
    assert (await box.exec("pwd")).stdout == b"/workspace\n"
    assert (await box.exec("python3", "-c", "print(6 * 7)", shell=False)).stdout == b"42\n"


@session
async def files_go_in_and_out(box):
    await box.write(Path("dir/in.bin"), io.BytesIO(b"\x00\xff"))
    assert (await box.read(Path("dir/in.bin"))).read() == b"\x00\xff"
    assert (await box.exec("wc -c < dir/in.bin")).stdout.strip() == b"2"
    await box.mkdir(Path("made/deep"), parents=True)
    names = [str(entry.path).rpartition("/")[2] for entry in await box.ls(Path("."))]
    assert {"dir", "made"} <= set(names), names
    await box.rm(Path("dir"), recursive=True)
    assert (await box.exec("test -e dir")).exit_code == 1
    assert (await box.exec("test -s ../etc/passwd")).exit_code == 0, "there is nothing that could be read"
    try:
        read = await box.read(Path("../etc/passwd"))
    except InvalidManifestPathError as refused:
        assert "../etc/passwd" in str(refused), refused
    else:
        raise AssertionError(f"a path out of the workspace was read: {read}")


@session
async def a_timeout_ends_the_command(box):
    try:
        await box.exec("sleep 60", timeout=2)
        raise AssertionError("it was not ended")
    except AssertionError:
        raise
    except Exception as error:  # noqa: BLE001
        assert "imeout" in type(error).__name__, error
    assert (await box.exec("echo lives")).stdout == b"lives\n"


@session
async def a_workspace_is_kept_and_brought_into_another(box):
    await box.exec("mkdir -p a && echo kept > a/b && ln -s b a/c && chmod 755 a/b")
    kept = (await box.persist_workspace()).read()
    other = await CLIENT.create(options=options())
    try:
        await other.start()
        await other.hydrate_workspace(io.BytesIO(kept))
        assert (await other.exec("cat a/c; stat -c %a a/b")).stdout == b"kept\n755\n"
    finally:
        await other.shutdown()


@session
async def a_terminal(box):
    if not box.supports_pty():
        return
    begun = await box.pty_exec_start("bash", "-i", shell=False, tty=True, yield_time_s=2)
    assert begun.process_id is not None, begun
    said = await box.pty_write_stdin(session_id=begun.process_id, chars="echo $((40 + 2)); exit\n", yield_time_s=3)
    assert b"42" in said.output, said


@case
def a_manifest_is_there_and_a_state_is_resumed(_):
    async def all_of_it():
        manifest = Manifest(entries={"notes.txt": File(content=b"from the manifest")})
        made = await CLIENT.create(options=options(), manifest=manifest)
        try:
            await made.start()
            assert (await made.exec("cat notes.txt")).stdout == b"from the manifest"
            await made.exec("echo more > later.txt")
            payload = CLIENT.serialize_session_state(made.state)
            again = await CLIENT.resume(CLIENT.deserialize_session_state(payload))
            await again.start()
            assert (await again.exec("cat later.txt")).stdout == b"more\n"
        finally:
            await made.shutdown()

    asyncio.run(all_of_it())


main(lambda **_: Nothing(), "openai-agents")
