"""Live sandboxes with the product itself: nothing here stands in for it."""

import asyncio
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import pytest

from conftest import product
from fumehood import (
    AsyncSandbox,
    CommandExitException,
    ConnectionLost,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    FumehoodError,
    InvalidArgumentException,
    LimitExceeded,
    PermissionDeniedException,
    PtySize,
    Refused,
    Sandbox,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxState,
    TimeoutException,
    UnsupportedException,
)
from fumehood._link import drive, reply
from fumehood._session import BashSession, PythonSession
from serving import new_key, served

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "src"


def can_live():
    return subprocess.run([product(), "create", "--help"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not can_live(), reason="this fumehood has no live sandboxes")


@pytest.fixture
def box(there):
    with Sandbox("coding-agent", **there) as made:
        yield made


def until(is_so, what, seconds=10):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_it_lives_from_create_to_kill(there):
    with Sandbox(timeout=60, name="mine", metadata={"who": "me"}, envs={"GREETING": "hi"}, **there) as box:
        info = box.get_info()
        assert (info.name, info.metadata, info.state) == ("mine", {"who": "me"}, SandboxState.RUNNING)
        assert 40 < info.end_at.timestamp() - time.time() <= 61
        assert box.commands.run("echo $GREETING").stdout == "hi\n"
        assert [one.sandbox_id for one in Sandbox.list(**there)] == [box.sandbox_id]
        other = Sandbox.connect("mine", **there)
        assert other.sandbox_id == box.sandbox_id and other.is_running()
        other.close()
        with pytest.raises(FumehoodError):
            Sandbox(name="mine", **there)
    assert Sandbox.list(**there) == []
    assert [one.sandbox_id for one in Sandbox.list(all=True, **there)] == [box.sandbox_id]
    info = box.get_info()
    assert (info.state, info.reason) == (SandboxState.ENDED, "killed")
    assert not box.kill(), "again is no error"
    with pytest.raises(SandboxNotRunningException):
        box.commands.run("true")
    with pytest.raises((SandboxNotRunningException, SandboxNotFoundException)):
        Sandbox.connect(box.sandbox_id, **there)
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect("no-such-sandbox", **there)


def test_what_cannot_be_held_is_refused(there):
    with pytest.raises(Refused) as error:
        Sandbox({"net": {"mode": "no-such"}}, **there)
    assert error.value.refused[0].clause == "net.mode" and error.value.refused[0].fix
    assert Sandbox.list(all=True, **there) == []


def test_commands(box):
    done = box.commands.run("echo out; echo err >&2; pwd", cwd="/tmp")
    assert (done.stdout, done.stderr, done.exit_code, done.outcome) == ("out\n/tmp\n", "err\n", 0, "exited")
    with pytest.raises(CommandExitException) as error:
        box.commands.run("exit 3")
    assert error.value.exit_code == 3
    assert box.commands.run(["no-such-program"], check=False).exit_code == 127
    assert box.commands.run(["/etc/passwd"], check=False).exit_code == 126
    with pytest.raises(FumehoodError):
        box.commands.run("true", cwd="/no/such")
    assert box.commands.run("kill -9 $$", check=False).exit_code == 137
    big = b"x" * 3_000_000
    assert box.commands.run(["wc", "-c"], stdin=big).stdout.strip() == "3000000"
    assert len(box.commands.run("cat", stdin=b"x" * 500_000).stdout) == 500_000
    heard = []
    box.commands.run("echo a; sleep 0.2; echo b", on_stdout=heard.append)
    assert heard == ["a\n", "b\n"]


def test_a_timeout_kills_the_whole_tree(box):
    with pytest.raises(TimeoutException) as error:
        box.commands.run("setsid sleep 98765 & echo before; sleep 98765", timeout=0.5)
    assert error.value.result.stdout == "before\n"
    assert box.commands.run("cat /proc/[0-9]*/comm | grep -c '^sleep$'", check=False).stdout == "0\n"
    box.commands.run("setsid sleep 98765 >/dev/null 2>&1 & echo left", timeout=20)
    look = "cat /proc/[0-9]*/comm | grep -c '^sleep$'"
    until(lambda: box.commands.run(look, check=False).stdout == "1\n", "what a command leaves lives on")


def test_output_is_bounded_by_the_policy(there):
    with Sandbox({"limits": {"output": "64K", "over": "kill"}}, **there) as box:
        with pytest.raises(LimitExceeded) as error:
            box.commands.run("yes", timeout=20)
        assert error.value.limit == "output" and error.value.result.stdout.startswith("y\n")
        assert box.commands.run("echo x").stdout == "x\n", "the sandbox goes on"


def test_handles(box):
    handle = box.commands.run("for i in 1 2 3; do echo $i; sleep 0.05; done", background=True, tag="count")
    assert [(one.pid, one.tag) for one in box.commands.list()] == [(handle.pid, "count")]
    assert "".join(out for out, _, _ in handle if out) == "1\n2\n3\n" and handle.wait().exit_code == 0
    until(lambda: box.commands.list() == [], "it is over")
    reads = box.commands.run("read x; echo got $x", background=True, stdin=True)
    reads.send_stdin("hello\n")
    assert reads.wait().stdout == "got hello\n"
    cat = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(cat.pid, "abc")
    cat.close_stdin()
    assert cat.wait().stdout == "abc"
    long = box.commands.run("sleep 100", background=True)
    again = box.commands.connect(long.pid)
    assert long.kill()
    for each in (long, again):
        with pytest.raises(CommandExitException) as error:
            each.wait()
        assert error.value.exit_code == 137
    assert not long.kill()
    noisy = box.commands.run("seq 1 300000; echo done >&2", background=True)
    assert noisy.wait().stderr == "done\n", "nobody reads it, and it goes on"


def test_a_handle_that_listens_no_longer_says_so(box, there):
    handle = box.commands.run("sleep 2; echo x > /tmp/mark", background=True)
    # Its thread listens when it is told to stop, and has stopped when the handle is asked.
    time.sleep(0.3)
    handle.disconnect()
    time.sleep(0.3)
    with pytest.raises(FumehoodError) as error:
        handle.wait()
    assert (type(error.value), error.value.code) == (FumehoodError, "disconnected")
    until(lambda: box.files.exists("/tmp/mark"), "the command goes on")
    done = box.commands.run("echo done", background=True)
    assert done.wait().stdout == "done\n"
    done.disconnect()
    assert done.wait().stdout == "done\n", "what has ended has a result"

    async def same():
        other = await AsyncSandbox.connect(box.sandbox_id, **there)
        handle = await other.commands.run("sleep 100", background=True)
        await asyncio.sleep(0.3)
        await handle.disconnect()
        with pytest.raises(FumehoodError) as error:
            await handle.wait()
        assert (type(error.value), error.value.code) == (FumehoodError, "disconnected")
        await other.close()

    asyncio.run(same())


def test_a_time_that_is_none_is_an_error_and_ends_nothing(there):
    with Sandbox(**there) as box:
        end = box.get_info().end_at
        for bad in (-1, -0.001, math.nan, math.inf, -math.inf):
            for ask in (
                box.set_timeout,
                lambda time: Sandbox(timeout=time, **there),
                lambda time: Sandbox(idle=time, **there),
                lambda time: Sandbox.connect(box.sandbox_id, time, **there),
                lambda time: box.commands.run("true", timeout=time),
                lambda time: box.run_code("1", timeout=time),
                lambda time: box.run_python("1", timeout=time),
            ):
                with pytest.raises(InvalidArgumentException, match="no time: give a number"):
                    ask(bad)

        async def same():
            other = await AsyncSandbox.connect(box.sandbox_id, **there)
            for bad in (-1, math.nan):
                with pytest.raises(InvalidArgumentException, match="no time: give a number"):
                    await other.set_timeout(bad)
            await other.close()

        asyncio.run(same())
        assert box.is_running() and box.get_info().end_at == end
        assert [one.sandbox_id for one in Sandbox.list(**there)] == [box.sandbox_id], "none was made"


def test_what_has_ended_is_neither_forked_nor_kept(there):
    box = Sandbox("coding-agent", **there)
    assert Sandbox.connect(box.sandbox_id, **there).kill()

    async def same():
        async with AsyncSandbox("coding-agent", **there) as other:
            await (await AsyncSandbox.connect(other.sandbox_id, **there)).kill()
            for ask in (other.fork, other.snapshot):
                with pytest.raises(SandboxNotRunningException) as error:
                    await ask()
                assert error.value.code == "ended"

    for ask in (box.fork, box.snapshot):
        with pytest.raises(SandboxNotRunningException) as error:
            ask()
        assert error.value.code == "ended"
    asyncio.run(same())


def test_a_command_in_the_background_outlives_its_connection(box, there):
    other = Sandbox.connect(box.sandbox_id, **there)
    handle = other.commands.run("sleep 1; echo x > /tmp/mark", background=True)
    front = other._link.open({"op": "exec", "program": {"argv": ["sleep", "100"], "stdin": False}, "detach": False})
    drive(reply(front, 20))
    until(lambda: len(box.commands.list()) == 2, "both run")
    other.close()
    del front
    until(lambda: [one.pid for one in box.commands.list()] == [handle.pid], "what was not detached is killed")
    until(lambda: box.files.exists("/tmp/mark"), "what was detached goes on")


def test_files(box):
    text = "ä" * 500_000
    info = box.files.write("/tmp/a/b/text", text)
    assert (info.path, info.type) == ("/tmp/a/b/text", FileType.FILE)
    assert box.files.read("/tmp/a/b/text") == text
    assert b"".join(box.files.read("/tmp/a/b/text", format="stream")) == text.encode()
    box.files.write("/tmp/a/run", "#!/bin/sh\necho ran\n", mode=0o755)
    assert box.files.get_info("/tmp/a/run").permissions == "-rwxr-xr-x"
    assert [one.path for one in box.files.list("/tmp/a", depth=2)] == ["/tmp/a/b", "/tmp/a/run", "/tmp/a/b/text"]
    box.commands.run("ln -s b/text /tmp/a/link")
    link = box.files.get_info("/tmp/a/link")
    assert link.symlink_target == "b/text" and link.type is FileType.FILE
    assert box.files.make_dir("/tmp/d/e") and not box.files.make_dir("/tmp/d/e")
    assert box.files.rename("/tmp/a/run", "/tmp/d/ran").path == "/tmp/d/ran"
    box.files.remove("/tmp/a")
    assert not box.files.exists("/tmp/a/b/text") and box.files.exists("/tmp/d/ran")
    for wrong, kind in (("/none", FileNotFoundException), ("/tmp", FumehoodError)):
        with pytest.raises(kind):
            box.files.read(wrong)
    # Relative to the workspace, where commands start.
    mine = box.files.write("mine", "x").path
    box.files.write("~/other", "y")
    assert mine != "/home/user/mine" and box.commands.run(f"cat mine {mine} ~/other").stdout == "xxy"


def test_the_home_folder_is_told_by_its_own_name_and_the_kernel_says_where_it_lies(there):
    with Sandbox("strict", timeout=60, **there) as made:
        told = made.commands.run('echo "$HOME" "$PWD"; pwd; cd /; cd; pwd; pwd -P; readlink ~', cwd="/home/user").stdout.split()
        assert told == ["/home/user"] * 4 + ["/tmp/.home"] * 2
        assert made.commands.run("python3 -c 'import os; print(os.getcwd())'", cwd="/home/user").stdout == "/tmp/.home\n"


def test_relative_paths_are_of_the_workspace_by_each_of_its_names(house):
    (house / "work").mkdir()
    with Sandbox("coding-agent", house / "work") as box:
        box.files.write("a.txt", "x")
        box.files.write("/workspace/b.txt", "y")
        assert box.commands.run("cat a.txt b.txt").stdout == "xy"
        assert [one.path for one in box.files.list("/workspace")] == [f"{house}/work/a.txt", f"{house}/work/b.txt"]
        box.apply(["a.txt"])
    assert (house / "work" / "a.txt").read_text() == "x"


def test_what_the_sandbox_may_not_do_its_caller_may_not_do_through_it(house, box):
    secret = house / "secret"
    secret.write_text("PRIVATE")
    assert secret.read_text() == "PRIVATE", "out here it is there"
    for path in (str(secret), f"/proc/1/root{secret}", f"/tmp/../..{secret}"):
        with pytest.raises((FileNotFoundException, PermissionDeniedException)):
            box.files.read(path)
    box.commands.run(["ln", "-s", str(secret), "/tmp/link"])
    with pytest.raises((FileNotFoundException, PermissionDeniedException)):
        box.files.read("/tmp/link")
    with pytest.raises(FumehoodError):
        box.files.write("/usr/bin/planted", "x")
    assert not os.path.exists("/usr/bin/planted")
    done = box.commands.run("exec 3<>/dev/tcp/192.0.2.1/443", check=False)
    assert done.exit_code != 0


def test_a_watched_folder(box):
    box.files.make_dir("/tmp/w")
    with_all = box.files.watch_dir("/tmp/w", recursive=True, include_entry=True)
    box.commands.run("mkdir /tmp/w/d && echo x > /tmp/w/f && sleep 0.1 && echo y > /tmp/w/d/g && rm /tmp/w/f")
    events = []

    def come():
        events.extend(with_all.get_new_events(timeout=0.1))
        return any(one.name == "d/g" for one in events) and any(one.type is FilesystemEventType.REMOVE for one in events)

    until(come, "what happened is told")
    assert any(one.name == "f" and one.type is FilesystemEventType.CREATE for one in events)
    with_all.stop()


def test_a_terminal(box):
    heard = bytearray()
    shell = box.pty.create(PtySize(24, 80), timeout=30, on_data=heard.extend)
    box.pty.send_stdin(shell.pid, b"stty size; tty && echo is-a-$((40+2))\n")
    until(lambda: b"24 80" in heard and b"is-a-42" in heard, bytes(heard))
    box.pty.resize(shell.pid, PtySize(50, 132))
    box.pty.send_stdin(shell.pid, b"stty size\n")
    until(lambda: b"50 132" in heard, bytes(heard))
    box.pty.send_stdin(shell.pid, b"echo sle$((1))eps; sleep 100\n")
    until(lambda: b"sle1eps" in heard, bytes(heard))
    box.pty.send_stdin(shell.pid, b"\x03")

    def interrupted():
        # A shell throws away what was typed before it has dealt with the signal: typed again until it is answered.
        if b"inter1rupted" not in heard:
            box.pty.send_stdin(shell.pid, b"echo inter$((1))rupted\n")
        return b"inter1rupted" in heard

    until(interrupted, bytes(heard))
    assert box.pty.kill(shell.pid) and not box.commands.list()[:0]


def test_a_workspace_waits_for_its_changes(house):
    work = house / "work"
    work.mkdir()
    (work / "a").write_text("1\n")
    with Sandbox("coding-agent", workspace=work) as box:
        inside = box.commands.run("pwd; echo 2 > a; echo n > new").stdout.strip()
        assert box.files.read(f"{inside}/new") == "n\n" and (work / "a").read_text() == "1\n"
    assert {one["path"] for one in box.diff()["entries"]} == {"a", "new"}
    box.apply(["new"])
    assert (work / "new").read_text() == "n\n" and (work / "a").read_text() == "1\n"
    with pytest.raises(FumehoodError):
        box.apply(digest="0" * 64)
    box.discard()
    assert box.diff()["entries"] == [] and (work / "a").read_text() == "1\n"


def test_pause_where_there_is_a_freezer(box, there):
    try:
        box.pause()
    except UnsupportedException:
        pytest.skip("no freezer here")
    assert not box.is_running()
    with pytest.raises(SandboxNotRunningException) as error:
        box.commands.run("true")
    assert error.value.code == "paused"
    assert box.resume() and box.commands.run("echo x").stdout == "x\n"
    box.pause()
    other = Sandbox.connect(box.sandbox_id, **there)
    assert other.is_running(), "who connects finds it running"
    other.close()


def test_its_time_is_over(there):
    box = Sandbox(timeout=60, **there)
    waiting = box.commands.run("sleep 100", background=True)
    box.set_timeout(0.5)
    info = box.wait()
    assert (info.state, info.reason) == (SandboxState.ENDED, "timeout")
    with pytest.raises(FumehoodError):
        waiting.wait()
    with pytest.raises(SandboxNotRunningException):
        box.files.read("/tmp/x")
    with Sandbox(idle=0.5, **there) as other:
        assert other.wait().reason == "idle"


def test_it_outlives_its_maker_and_is_found_by_others(house):
    code = "from fumehood import Sandbox; box = Sandbox(timeout=60); box.files.write('/tmp/x', 'left'); print(box.sandbox_id)"
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert made.returncode == 0, made.stderr
    with Sandbox.connect(made.stdout.strip()) as box:
        assert box.files.read("/tmp/x") == "left"


def test_in_an_event_loop(there):
    async def whole():
        async with AsyncSandbox("coding-agent", **there) as box:
            done = await asyncio.gather(*(box.commands.run(["echo", str(number)]) for number in range(30)))
            assert [one.stdout for one in done] == [f"{number}\n" for number in range(30)]
            await box.files.write("/tmp/x", "y" * 1_000_000)
            stream = await box.files.read("/tmp/x", format="stream")
            assert sum([len(piece) async for piece in stream]) == 1_000_000
            work = asyncio.create_task(box.commands.run("sleep 100"))
            while not await box.commands.list():
                await asyncio.sleep(0.01)
            work.cancel()
            end = time.monotonic() + 10
            while await box.commands.list():
                assert time.monotonic() < end, "what is cancelled is killed"
                await asyncio.sleep(0.01)
        assert (await box.get_info()).reason == "killed"

    asyncio.run(whole())


def test_sessions(box):
    bash = BashSession(box, timeout=20)
    assert bash.run("cd /tmp; X=1; f() { echo f$X; }") == ("", 0)
    assert bash.run("f; pwd") == ("f1\n/tmp", 0)
    python = PythonSession(box, timeout=20)
    assert python.run("x = 6").error is None and python.run("x * 7").result == 42
    assert python.run("1/0").error == "ZeroDivisionError"


def test_a_policy_and_its_report(there):
    with Sandbox({"limits": {"memory": "100M"}}, **there) as box:
        done = box.commands.run("x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo $x | wc -c", check=False, timeout=30)
        assert done.exit_code != 0
        ran = box.get_info()
        assert ran.memory_mb == 100 and ran.tier in ("container", "process")
        json.dumps(ran.data)


def test_what_the_policy_may_have_stopped_is_told(there):
    with Sandbox({"net": {"mode": "loopback"}}, **there) as box:
        with pytest.raises(CommandExitException) as error:
            box.commands.run("echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6")
        [found] = error.value.violations
        assert (found.id, found.seen, found.clause) == ("net.mode/closed", "output", "net.mode") and found.instead
        assert box.commands.run("echo fine >&2").violations == ()


def test_names_that_are_no_text(box):
    name = os.fsdecode(b"caf\xe9")
    made = box.commands.run(r"mkdir /tmp/n; printf x > $'/tmp/n/caf\351'; ln -s $'caf\351' /tmp/n/link")
    assert made.exit_code == 0
    [found, link] = box.files.list("/tmp/n")
    assert (found.name, found.path) == (name, f"/tmp/n/{name}") and link.symlink_target == name
    assert box.files.read(found.path) == box.files.read(os.fsencode(found.path)) == "x"
    assert box.files.exists(f"/tmp/n/{name}") and not box.files.exists("/tmp/n/caf\N{REPLACEMENT CHARACTER}")
    watch = box.files.watch_dir("/tmp/n", include_entry=True)
    written = box.files.write(f"/tmp/n/{name}2", "y")
    assert written.name == f"{name}2"
    events = []
    until(lambda: events.extend(watch.get_new_events(0.1)) or events, "the new file is told")
    assert events[0].name == f"{name}2" and events[0].entry.path == written.path
    watch.stop()
    assert box.files.rename(written.path, pathlib.PurePath("/tmp/n") / os.fsdecode(b"\xff\xfe")).name == os.fsdecode(b"\xff\xfe")
    assert box.commands.run(r"cat $'/tmp/n/\377\376'").stdout == "y"
    assert box.files.make_dir(b"/tmp/n/\xe4") and box.files.get_info(b"/tmp/n/\xe4").type is FileType.DIR
    box.files.remove(f"/tmp/n/{name}")
    assert not box.files.exists(found.path)
    # There is one way to say a name, and none to say what is none.
    for wrong in ("", "a\0e9", b"a\0", "\ud800"):
        with pytest.raises(InvalidArgumentException):
            box.files.exists(wrong)


def test_metadata_of_a_file(box):
    try:
        written = box.files.write("/tmp/m", "x", mode=0o600, metadata={"Author": "ä", "n": "1"})
    except UnsupportedException:
        pytest.skip("the file system has no extended attributes of users")
    assert written.metadata == {"Author": "ä", "n": "1"}
    assert box.files.get_info("/tmp/m").metadata == written.metadata and box.files.get_info("/tmp/m").mode == 0o600


def test_a_watched_folder_that_goes_says_so(box):
    box.files.make_dir("/tmp/gone")
    watch = box.files.watch_dir("/tmp/gone")
    box.files.remove("/tmp/gone")
    events = []
    until(lambda: events.extend(watch.get_new_events(0.2)) or events, "the folder is gone")
    assert ("", FilesystemEventType.REMOVE) in [(one.name, one.type) for one in events]
    with pytest.raises(FileNotFoundException):
        box.files.watch_dir("/tmp/gone")


def test_many_are_listened_to_at_once(there):
    async def whole():
        async with AsyncSandbox("coding-agent", **there) as box:
            # More than there are threads for an event loop.
            waiting = [await box.commands.run("read x; echo $x", background=True, stdin=True) for _ in range(40)]
            told = asyncio.Queue()
            watch = await box.files.watch_dir("/tmp", told.put)
            await box.files.write("/tmp/new", "x")
            assert (await asyncio.wait_for(told.get(), 20)).name == "new"
            await watch.stop()
            for number, handle in enumerate(waiting):
                await handle.send_stdin(f"{number}\n")
            done = await asyncio.gather(*(handle.wait() for handle in waiting))
            assert [one.stdout for one in done] == [f"{number}\n" for number in range(40)]
            shell = await box.pty.create(PtySize(24, 80), timeout=30)
            await box.pty.send_stdin(shell.pid, b"stty size; exit 3\n")
            with pytest.raises(CommandExitException) as error:
                await shell.wait()
            assert error.value.exit_code == 3

    asyncio.run(whole())


def test_a_workspace_of_a_server_waits_for_its_changes(house):
    work = house / "work"
    work.mkdir()
    (work / "a").write_text("1\n")
    ceiling = house / "ceiling.toml"
    ceiling.write_text(f'version = 1\nextends = "coding-agent"\nworkspace = {{ path = "{work}", mode = "copy" }}\n')
    policy = {"extends": "coding-agent", "workspace": {"path": str(work), "mode": "copy"}}
    with served() as (_, where):
        person = {**where, "key": new_key("-p", str(ceiling), "--operator")}
        with Sandbox(policy, timeout=60, **person) as box:
            box.commands.run(r"echo 2 > a; echo n > new; echo o > $'odd\377'", cwd=str(work))
            try:
                shown = box.diff()
            except UnsupportedException:
                pytest.skip("no freezer here")
            assert {one["name"] for one in shown["entries"]} >= {"a", "new"} and len(shown["entries"]) == 3
            with pytest.raises(FumehoodError):
                box.apply(digest="0" * 64)
            assert box.apply(["new", b"odd\xff"])["applied"] and (work / "new").read_text() == "n\n"
            assert os.path.exists(os.fsencode(work) + b"/odd\xff") and (work / "a").read_text() == "1\n"
            assert [one["name"] for one in box.diff(["a"])["entries"]] == ["a"]
            with pytest.raises(FumehoodError):
                box.discard()
            (work / "a").write_text("theirs\n")
            with pytest.raises(FumehoodError) as error:
                box.apply()
            assert error.value.code == "conflict" and "a" in str(error.value)
        assert box.discard()["discarded"] and box.diff()["entries"] == []
        # A key that is no person's, and a sandbox that has no folder of the host.
        with Sandbox("coding-agent", timeout=60, **where) as other:
            other.commands.run("echo x > /workspace/x")
            assert [one["name"] for one in other.diff()["entries"]] == ["x"]
            with pytest.raises(PermissionDeniedException):
                other.apply()


def test_the_preset_of_code_interpreters_has_their_template_there_as_here(house):
    recipe = house / "recipe.toml"
    recipe.write_text('policy = ["data-analysis"]\nready = "test -n $MARK"\nenv.MARK = "built"\n')

    def had(policy, **where):
        with Sandbox(policy, timeout=60, **where) as made:
            return made.get_info().template_id, made.commands.run("echo $MARK").stdout

    with served() as (_, where):
        assert had("data-analysis") == had("data-analysis", **where) == ("", "\n")
        words = [product(), "template", "build", "code-interpreter-v1", "-f", str(recipe)]
        built = subprocess.run(words, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        assert had("data-analysis") == had("data-analysis", **where) == ("code-interpreter-v1", "built\n")
        assert had("python") == had("python", **where) == ("", "\n")


def test_a_server_that_is_killed_ends_no_sandbox(house):
    with served() as (serving, where):
        box = Sandbox("strict", timeout=60, metadata={"a": "b"}, **where)
        assert box.get_info().metadata == {"a": "b"}
        box.files.write("/tmp/f", "left")
        try:
            kept = box.snapshot("base")
        except FumehoodError as error:
            assert "freez" in str(error)
        else:
            with Sandbox(snapshot=kept.snapshot_id, timeout=60, **where) as again, box.fork() as other:
                assert again.files.read("/tmp/f") == other.files.read("/tmp/f") == "left"
        waiting = box.commands.run("sleep 100", background=True)
        serving.kill()
        serving.wait()
        with pytest.raises(ConnectionLost):
            waiting.wait()
        with pytest.raises(ConnectionLost):
            box.is_running()
        with Sandbox.connect(box.sandbox_id) as here:
            assert here.files.read("/tmp/f") == "left", "it outlives its server"
        with pytest.raises(InvalidArgumentException):
            Sandbox(url=where["url"])


def test_a_life_that_the_policy_says_goes_before_the_default_and_not_before_what_is_given(there):
    says = {"limits": {"wall": "90s"}}

    def lives(**wanted):
        with Sandbox(**wanted, **there) as box:
            info = box.get_info()
            return round((info.end_at - info.started_at).total_seconds())

    assert (lives(), lives(policy=says), lives(policy=says, timeout=60)) == (300, 90, 60)
