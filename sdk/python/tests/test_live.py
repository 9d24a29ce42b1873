"""The live half of the package against a supervisor that is none: the protocol, results and errors."""

import asyncio
import contextlib
import os
import pathlib
import re
import threading
import time

import pytest

import fumehood
from fake_supervisor import House
from fumehood import _names, _sandboxes
from fumehood._programs import Output
from fumehood import (
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    ProcessNotFoundException,
    Sandbox,
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
    root = house / "root"
    root.mkdir()
    made = House(folder / "socket", root)
    yield made
    made.stop()
    assert made.breaches == []


@pytest.fixture
def box(supervisor):
    made = Sandbox.connect(ID)
    yield made
    made.close()


def test_paths_are_of_the_folder_where_programs_start_and_a_workspace_has_its_usual_name_too(box, supervisor, house):
    box.files.write("mine", "home")
    assert (house / "root" / "mine").read_text() == "home"
    supervisor.agent = {"home": "/home/user", "cwd": "/srv/work"}
    with contextlib.closing(Sandbox.connect(ID)) as other:
        assert other.files.write("a.txt", "x").path == "/srv/work/a.txt"
        other.files.write("/workspace/b.txt", "y")
        assert [one.path for one in other.files.list("/workspace")] == ["/srv/work/a.txt", "/srv/work/b.txt"]
        assert other.files.read("a.txt") == "x" and other.files.read("/workspace/b.txt") == "y"
        other.files.rename("a.txt", "/workspace/c.txt")
        assert (house / "root" / "srv/work/c.txt").read_text() == "x"
        assert other.files.read("/mine") == "home" and not other.files.exists("/workspaces")
    (house / "root" / "workspace").mkdir()
    with contextlib.closing(Sandbox.connect(ID)) as other:
        # Something of its own is called so.
        assert other.files.list("/workspace") == []
    for start in ("/home/user", "/tmp"):
        supervisor.agent = {"home": "/home/user", "cwd": start}
        with contextlib.closing(Sandbox.connect(ID)) as other:
            assert other.files.write("a.txt", "x").path == "/a.txt", "the agent knows where its home is"


def test_the_preset_of_code_interpreters_has_their_template_where_it_was_built(house):
    def asked(*words, flags=()):
        policy, template, snapshot = words
        with _sandboxes.create_command(policy, None, None, None, None, None, None, template, snapshot, None, flags, None) as command:
            return [command[at + 1] for at, word in enumerate(command) if word == "--template"]

    assert asked("data-analysis", None, None) == []
    names = house / "state" / "templates" / "names"
    names.mkdir(parents=True)
    (names / "code-interpreter-v1").write_text("digest")
    assert asked("data-analysis", None, None) == ["code-interpreter-v1"]
    assert asked("data-analysis", "other", None) == ["other"] and asked("data-analysis", None, "snapshot") == []
    assert asked(None, None, None) == [] and asked("strict", None, None) == []
    assert asked("data-analysis", None, None, flags=["--template=x"]) == []


def test_a_command_gives_its_output_and_its_code(box):
    done = box.commands.run("echo out; echo err >&2", envs={"A": "b"})
    assert (done.stdout, done.stderr, done.exit_code, done.error) == ("out\n", "err\n", 0, None)
    assert box.commands.run(["sh", "-c", 'printf "$A"'], envs={"A": "ä"}).stdout == "ä"
    with pytest.raises(CommandExitException) as error:
        box.commands.run("echo no >&2; exit 3")
    assert (error.value.exit_code, error.value.stderr) == (3, "no\n") and error.value.violations == ()
    assert box.commands.run("kill -9 $$", check=False).exit_code == 137


def test_what_the_broker_stopped_comes_before_what_the_output_hints_at():
    words = {"clause": "net.allow", "what": "w", "why": "y", "instead": "i"}
    stopped = {"id": "net.allow/unknown-address", **words, "count": 2, "seen": "broker", "program": "/bin/x"}
    report = {"outcome": "exited", "code": 0, "violations": [stopped], "hints": [{"id": "fs.read/outside", **words, "count": 1}]}
    first, second = Output(1000).result(report).violations
    assert (first.id, first.count, first.seen, first.program) == ("net.allow/unknown-address", 2, "broker", "/bin/x")
    assert (second.id, second.seen) == ("fs.read/outside", "output")


def test_what_cannot_be_started_is_told_as_a_shell_does(box):
    missing = box.commands.run(["no-such-program"], check=False)
    assert missing.exit_code == 127 and "no-such-program" in missing.stderr
    with pytest.raises(CommandExitException):
        box.commands.run(["no-such-program"])
    assert box.commands.run(["/etc/passwd"], check=False).exit_code == 126
    with pytest.raises(InvalidArgumentException):
        box.commands.run("true", cwd="/no/such")
    with pytest.raises(InvalidArgumentException):
        box.commands.run([])


def test_without_bash_sh_is_the_shell(box, supervisor):
    supervisor.no_bash = True
    assert box.commands.run("echo x").stdout == "x\n"
    assert box.commands.run("echo y").stdout == "y\n"
    started = [asked["program"]["argv"][0] for asked in supervisor.asked if asked["op"] == "exec"]
    assert started == ["/bin/bash", "/bin/sh", "/bin/sh"]


def test_a_timeout_is_an_exception_with_what_was_printed(box):
    with pytest.raises(TimeoutException) as error:
        box.commands.run("echo before; sleep 30", timeout=0.3)
    assert error.value.result.stdout == "before\n" and error.value.limit == "wall"
    assert box.commands.run("sleep 30", timeout=0.2, check=False).limit == "wall"


def test_of_much_output_head_and_tail_are_kept_and_the_gap_is_told(box):
    done = box.commands.run("seq 1 200000", max_output=1000)
    assert done.stdout.startswith("1\n2\n") and done.stdout.endswith("200000\n")
    assert "bytes were cut here]" in done.stdout and len(done.stdout) < 1100
    assert done.dropped == 1288895 - 1000
    assert box.commands.run("seq 1 200000").stdout.count("\n") == 200000
    assert box.commands.run("echo x", max_output=0).dropped == 2


def test_callbacks_hear_whole_characters_as_they_come(box):
    heard = []
    box.commands.run(r"printf 'x\303'; sleep 0.2; printf '\244\n\377'", on_stdout=heard.append)
    assert "".join(heard) == "xä\n\N{REPLACEMENT CHARACTER}" and heard[0] == "x"


def test_input_is_text_or_later_and_large_input_does_not_stand_still(box):
    assert box.commands.run("cat", stdin="ä\n").stdout == "ä\n"
    big = b"x" * 3_000_000
    assert box.commands.run(["wc", "-c"], stdin=big).stdout.strip() == "3000000"
    assert len(box.commands.run("cat", stdin=big).stdout) == 3_000_000
    assert box.commands.run(["true"], stdin=big).exit_code == 0, "nobody reads it"
    handle = box.commands.run("read x; echo got $x", background=True, stdin=True)
    handle.send_stdin("hello\n")
    assert handle.wait().stdout == "got hello\n"
    other = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(other.pid, b"abc")
    box.commands.close_stdin(other.pid)
    assert other.wait().stdout == "abc"
    silent = box.commands.run("sleep 30", background=True)
    with pytest.raises(InvalidArgumentException):
        silent.send_stdin("x")
    assert silent.kill()


def test_more_arguments_than_a_request_holds(box):
    words = [f"{number:06}" + "ä" * 30_000 for number in range(30)]
    assert box.commands.run(["printf", "%s", *words]).stdout == "".join(words)
    assert box.commands.run(["sh", "-c", "cat; echo $#", "sh", *words], stdin="input ").stdout == "input 30\n"
    assert box.commands.run(["sh", "-c", "cat; echo $#", "sh", *words]).stdout == "30\n"
    handle = box.commands.run(["sh", "-c", "read x; echo $x $#", "sh", *words], background=True, stdin=True)
    handle.send_stdin("later\n")
    assert handle.wait().stdout == "later 30\n"
    with pytest.raises(InvalidArgumentException):
        box.commands.run(["echo", "\udcff" * 100_000])


def test_a_handle_is_listed_iterated_killed_and_connected_to(box):
    handle = box.commands.run("for i in 1 2 3; do echo $i; sleep 0.05; done; echo e >&2", background=True, tag="t")
    [listed] = box.commands.list()
    assert (listed.pid, listed.tag, listed.cmd) == (handle.pid, "t", "/bin/bash")
    pieces = list(handle)
    assert "".join(out for out, _, _ in pieces if out) == "1\n2\n3\n" and [err for _, err, _ in pieces if err] == ["e\n"]
    assert handle.wait().exit_code == 0 and box.commands.list() == []
    long = box.commands.run("sleep 30", background=True)
    again = box.commands.connect(long.pid)
    assert again.id == long.id and long.exit_code is None
    assert box.commands.kill(long.pid)
    for each in (long, again):
        with pytest.raises(CommandExitException) as error:
            each.wait()
        assert error.value.exit_code == 137
    assert not box.commands.kill(long.pid) and not long.kill()
    with pytest.raises(ProcessNotFoundException):
        box.commands.connect(999_999)


def test_a_handle_that_nobody_reads_does_not_stop_its_command(box):
    handle = box.commands.run("seq 1 500000 >/dev/stderr; echo done", background=True, max_output=1 << 16)
    assert handle.wait().stdout == "done\n"
    slow = box.commands.run("seq 1 300000", background=True)
    lines = "".join(out for out, _, _ in slow if not time.sleep(0.001))
    assert lines.endswith("300000\n") and slow.wait().exit_code == 0


def test_whoever_iterates_is_waited_for(box):
    handle = box.commands.run("sleep 0.3; seq 1 1000000", background=True)
    count = 0
    looking = iter(handle)
    first = next(looking)
    time.sleep(0.5)
    count = len(first[0]) + sum(len(out) for out, _, _ in looking)
    assert count == 6888896, "nothing was left out"


def test_a_disconnected_handle_leaves_its_command_alone(box):
    handle = box.commands.run("sleep 0.4; echo x", background=True)
    handle.disconnect()
    with pytest.raises(fumehood.FumehoodError):
        handle.wait()
    assert [one.pid for one in box.commands.list()] == [handle.pid]
    assert box.commands.connect(handle.pid).wait().stdout == "x\n"


def test_what_a_callback_raises_is_raised_and_kills_the_command_in_front(box):
    def bad(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        box.commands.run("echo x; sleep 30", on_stdout=bad)
    time.sleep(0.2)
    assert box.commands.list() == []
    handle = box.commands.run("echo x; echo done >&2", background=True, on_stdout=bad)
    with pytest.raises(ZeroDivisionError):
        handle.wait()
    assert handle.stderr == "done\n", "the command itself went on"


def test_files(box):
    text = "ä" * 500_000
    assert box.files.write("a/b/text", text).path == "/a/b/text"
    assert box.files.read("a/b/text") == text
    assert box.files.read("a/b/text", format="bytes") == text.encode()
    with box.files.read("a/b/text", format="stream") as pieces:
        assert b"".join(pieces) == text.encode()
    with pytest.raises(TooManyException):
        box.files.read("a/b/text", max_bytes=999_999)
    assert box.files.write("empty", b"").type is FileType.FILE and box.files.read("empty") == ""
    [first, second] = box.files.write_files([{"path": "w1", "data": b"1"}, {"path": "w2", "data": iter([b"2", b"2"])}])
    assert (first.name, box.files.read("w2")) == ("w1", "22")
    assert [one.path for one in box.files.list("/a", depth=2)] == ["/a/b", "/a/b/text"]
    info = box.files.get_info("a/b/text")
    assert (info.size, info.permissions, info.type) == (1_000_000, "-rw-r--r--", FileType.FILE)
    assert box.files.make_dir("a/c") and not box.files.make_dir("a/c")
    assert box.files.rename("w1", "w3").path == "/w3" and box.files.exists("w3") and not box.files.exists("w1")
    assert not box.files.exists("w3/below-a-file")
    box.files.remove("a")
    assert not box.files.exists("a/b/text")
    with pytest.raises(FileNotFoundException):
        box.files.read("a/b/text")
    for none in ("x\0y", "x\0ff", "", b"\0", "\ud800"):
        with pytest.raises(InvalidArgumentException):
            box.files.get_info(none)


def test_names_that_are_no_text(box, supervisor):
    raw = b"caf\xe9 \xff\xc3"
    name = os.fsdecode(raw)
    assert box.files.write(f"odd/{name}", "x").name == name
    assert os.listdir(os.fsencode(supervisor.root) + b"/odd") == [raw]
    assert [one.name for one in box.files.list("odd")] == [name]
    assert box.files.read(b"odd/" + raw) == box.files.read(pathlib.PurePath("odd", name)) == "x"
    watch = box.files.watch_dir("odd", include_entry=True)
    box.files.rename(f"odd/{name}", b"odd/\x80")
    [event] = watch.get_new_events(timeout=5)
    assert event.name == "\udc80" and event.entry.name == "\udc80"
    with pytest.raises(FileNotFoundException):
        box.files.get_info(f"odd/{name}")


@pytest.mark.parametrize("raw", [b"a", "\u00e4/\u65e5".encode(), b"\xe9", b"\xed\xa0\x80", b"\xf0\x9f\x92", b"\xc3\xa9\xc3", bytes(range(1, 256))])
def test_every_name_has_one_text_and_comes_back(raw):
    told = _names.told(raw)
    # As `agent::path_text` writes it: what is UTF-8 stays, each other byte is a zero and two digits.
    kept = re.sub("\0([0-9a-f]{2})", lambda byte: chr(0xDC00 + int(byte[1], 16)), told)
    assert os.fsencode(_names.read(told)) == raw and os.fsencode(kept) == raw
    assert _names.told(_names.read(told)) == told and told.encode()


def test_a_stream_that_is_closed_early_leaves_the_others_alone(box):
    box.files.write("big", b"x" * 5_000_000)
    streams = [box.files.read("big", format="stream") for _ in range(20)]
    assert all(next(stream) for stream in streams)
    assert box.commands.run("echo x").stdout == "x\n", "nobody stands still for those who do not read"
    for stream in streams[1:]:
        stream.close()
    assert sum(len(piece) for piece in streams[0]) > 4_900_000


def test_a_watched_folder(box, supervisor):
    handle = box.files.watch_dir("/", include_entry=True)
    assert handle.get_new_events() == []
    box.files.write("new", "x")
    [event] = handle.get_new_events(timeout=5)
    assert (event.name, event.type, event.entry.size) == ("new", FilesystemEventType.CREATE, 1)
    handle.stop()
    assert handle.get_new_events() == []


def test_many_threads_share_one_connection(box, supervisor):
    wrong = []

    def work(number):
        for turn in range(10):
            text = f"{number}-{turn}" * 1000
            box.files.write(f"f{number}", text)
            if box.files.read(f"f{number}") != text or box.commands.run(["echo", "-n", text]).stdout != text:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert wrong == [] and supervisor.clients == 1


def test_states_and_the_end(box, supervisor):
    info = box.get_info()
    assert (info.sandbox_id, info.name, info.metadata, info.memory_mb, info.run) == (ID, "box", {"who": "me"}, 256, "r-1")
    assert box.is_running() and box.pause() and not box.is_running()
    other = Sandbox.connect(ID, timeout=60)
    assert other.is_running(), "connect resumes"
    assert 50 < other.get_info().end_at.timestamp() - time.time() < 70
    other.close()
    assert box.kill()
    with pytest.raises(SandboxNotRunningException):
        box.commands.run("true")
    supervisor.thread.join(5)
    assert not box.is_running() and not box.kill()
    with pytest.raises(SandboxNotRunningException):
        Sandbox.connect(ID)


def test_a_name_that_nothing_has_is_told(house):
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect("no-such-box")


def test_a_long_state_folder_is_no_hindrance(tmp_path, monkeypatch):
    folder = tmp_path / ("d" * 100) / "live" / ID
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    made = House("socket", tmp_path)
    monkeypatch.setenv("FUMEHOOD_STATE", str(tmp_path / ("d" * 100)))
    with Sandbox.connect(ID) as box:
        assert box.commands.run("echo x").stdout == "x\n"
    made.stop()


def test_a_sandbox_that_nobody_holds_lets_its_connection_go(supervisor):
    box = Sandbox.connect(ID)
    assert supervisor.clients == 1
    del box
    for _ in range(100):
        if supervisor.clients == 0:
            break
        time.sleep(0.02)
    assert supervisor.clients == 0
