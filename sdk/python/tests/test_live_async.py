"""The asynchronous half against the same supervisor as the other one."""

import asyncio
import time

import pytest

from fake_supervisor import House
from fumehood import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FumehoodError,
    ProcessNotFoundException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    TimeoutException,
    TooManyException,
)

ID = "abcdefghij0123456789"


@pytest.fixture
def supervisor(house):
    folder = house / "state" / "live" / ID
    folder.mkdir(parents=True)
    (house / "root").mkdir()
    made = House(folder / "socket", house / "root")
    yield made
    made.stop()
    assert made.breaches == []


def in_a_loop(test):
    """Runs an asynchronous test with a sandbox."""

    def run(supervisor):
        async def whole():
            box = await AsyncSandbox.connect(ID)
            try:
                await asyncio.wait_for(test(box, supervisor), 60)
            finally:
                await box.close()

        asyncio.run(whole())

    run.__name__ = test.__name__
    return run


@in_a_loop
async def test_commands(box, supervisor):
    assert (await box.commands.run("echo x; echo y >&2")).stderr == "y\n"
    with pytest.raises(CommandExitException) as error:
        await box.commands.run("exit 4")
    assert error.value.exit_code == 4
    with pytest.raises(TimeoutException) as error:
        await box.commands.run("echo before; sleep 30", timeout=0.3)
    assert error.value.result.stdout == "before\n"
    big = b"x" * 3_000_000
    assert len((await box.commands.run("cat", stdin=big)).stdout) == 3_000_000
    done = await asyncio.gather(*(box.commands.run(["echo", str(number)]) for number in range(50)))
    assert [one.stdout.strip() for one in done] == [str(number) for number in range(50)]
    assert supervisor.clients == 1


@in_a_loop
async def test_callbacks_may_be_coroutines(box, supervisor):
    heard = []

    async def hear(text):
        await asyncio.sleep(0)
        heard.append(text)

    await box.commands.run("echo x", on_stdout=hear, on_stderr=heard.append)
    handle = await box.commands.run("echo y; echo z >&2", background=True, on_stdout=hear, on_stderr=heard.append)
    await handle.wait()
    assert sorted(heard) == ["x\n", "y\n", "z\n"]

    def bad(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await box.commands.run("echo x; sleep 30", on_stdout=bad)
    handle = await box.commands.run("echo x", background=True, on_stdout=bad)
    with pytest.raises(ZeroDivisionError):
        await handle.wait()


@in_a_loop
async def test_handles(box, supervisor):
    handle = await box.commands.run("sleep 0.3; seq 1 1000000", background=True)
    count = 0
    async for out, _, _ in handle:
        count += len(out)
        await asyncio.sleep(0)
    assert count == 6888896 and (await handle.wait()).exit_code == 0
    reads = await box.commands.run("read x; echo got $x", background=True, stdin=True)
    await reads.send_stdin("hello\n")
    assert (await reads.wait()).stdout == "got hello\n"
    long = await box.commands.run("sleep 30", background=True)
    again = await box.commands.connect(long.pid)
    assert [one.pid for one in await box.commands.list()] == [long.pid]
    assert await again.kill()
    with pytest.raises(CommandExitException):
        await long.wait()
    assert not await box.commands.kill(long.pid)
    with pytest.raises(ProcessNotFoundException):
        await box.commands.connect(99_999_999)
    left = await box.commands.run("sleep 0.4; echo x", background=True)
    await left.disconnect()
    with pytest.raises(FumehoodError):
        await left.wait()
    assert (await (await box.commands.connect(left.pid)).wait()).stdout == "x\n"


@in_a_loop
async def test_what_is_cancelled_is_killed(box, supervisor):
    work = asyncio.create_task(box.commands.run("sleep 30"))
    while not await box.commands.list():
        await asyncio.sleep(0.01)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    until = time.monotonic() + 5
    while await box.commands.list():
        assert time.monotonic() < until
        await asyncio.sleep(0.01)


@in_a_loop
async def test_files(box, supervisor):
    text = "ä" * 500_000
    await box.files.write("a/text", text)
    assert await box.files.read("a/text") == text
    stream = await box.files.read("a/text", format="stream")
    assert b"".join([piece async for piece in stream]) == text.encode()
    with pytest.raises(TooManyException):
        await box.files.read("a/text", max_bytes=10)
    assert [one.name for one in await box.files.write_files([{"path": "x", "data": b"1"}])] == ["x"]
    assert await box.files.make_dir("d") and not await box.files.make_dir("d")
    assert (await box.files.rename("x", "y")).path == "/y" and await box.files.exists("y")
    await box.files.remove("y")
    with pytest.raises(FileNotFoundException):
        await box.files.get_info("y")
    assert {one.name for one in await box.files.list("/")} == {"a", "d"}


@in_a_loop
async def test_watched_folders(box, supervisor):
    heard, over = [], []

    async def hear(event):
        heard.append(event.name)

    told = await box.files.watch_dir("/", on_event=hear, on_exit=over.append)
    asked = await box.files.watch_dir("/")
    await box.files.write("new", "x")
    assert [event.name for event in await asked.get_new_events(timeout=5)] == ["new"]
    await asyncio.sleep(0.1)
    assert heard == ["new"] and over == []
    await told.stop()
    await asked.stop()


@in_a_loop
async def test_states_and_the_end(box, supervisor):
    assert await box.pause() and not await box.is_running() and await box.resume()
    assert (await box.get_info()).run == "r-1" and (await box.wait()).name == "box"
    assert await box.kill()
    with pytest.raises(SandboxNotRunningException):
        await box.commands.run("true")
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect("no-such-box")
    with pytest.raises(FumehoodError, match="not created yet"):
        await AsyncSandbox().is_running()
