"""Cases of our own for E2B's released Python clients against a running `fumehood serve`.

usage: cases.py URL KEY OTHER_KEY     (a Python that has e2b installed)
Prints one line for each case that failed, and at the end `N passed, N failed, N skipped`.
"""

import io
import os
import sys
import threading
import time

from harness import Skip, case, main, refuses

URL, KEY, OTHER = sys.argv[1:4]
NEEDS_NO_TEMPLATE = True
os.environ.update(E2B_API_URL=URL, E2B_SANDBOX_URL=URL, E2B_API_KEY=KEY)

import e2b  # noqa: E402
from e2b import Sandbox  # noqa: E402

VERSION = tuple(int(part) for part in __import__("importlib.metadata").metadata.version("e2b").split(".")[:2])


def create(**more):
    make = getattr(Sandbox, "create", None)
    return make(timeout=more.pop("timeout", 120), **more)


@case
def create_info_kill(_):
    box = create(metadata={"a b": "c&d"})
    info = box.get_info()
    assert info.sandbox_id == box.sandbox_id and info.metadata == {"a b": "c&d"}, info
    assert info.template_id == "base" and info.state.value == "running", info
    assert box.is_running()
    assert box.kill() is True
    assert box.kill() is False
    assert box.is_running() is False


@case
def a_wrong_key_is_an_authentication_error(_):
    refuses(e2b.AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 40))


@case
def another_key_finds_nothing(box):
    refuses(e2b.NotFoundException, lambda: Sandbox.connect(box.sandbox_id, api_key=OTHER))
    assert all(one.sandbox_id != box.sandbox_id for one in Sandbox.list(api_key=OTHER).next_items())


@case
def what_cannot_be_held_is_refused(_):
    refuses(e2b.SandboxException, lambda: create(network={"allow_out": ["example.com"]}), "network.allowOut")
    refuses(e2b.SandboxException, lambda: create(template="none-such"), "templateID")


@case
def list_by_metadata_and_pages(_):
    mark = f"m{time.time_ns()}"
    boxes = [create(metadata={"mark": mark, "n": str(n)}) for n in range(3)]
    try:
        from e2b import SandboxQuery

        pages = Sandbox.list(query=SandboxQuery(metadata={"mark": mark}), limit=2)
        found = []
        while pages.has_next:
            found += pages.next_items()
        assert [one.sandbox_id for one in found] == [box.sandbox_id for box in reversed(boxes)], found
        one = Sandbox.list(query=SandboxQuery(metadata={"mark": mark, "n": "1"})).next_items()
        assert [info.sandbox_id for info in one] == [boxes[1].sandbox_id]
    finally:
        for box in boxes:
            box.kill()


@case
def connect_and_timeout(box):
    again = Sandbox.connect(box.sandbox_id)
    assert again.commands.run("echo hi").stdout == "hi\n"
    box.set_timeout(300)
    assert (box.get_info().end_at - box.get_info().started_at).total_seconds() > 200


@case
def a_life_ends(_):
    box = create(timeout=2)
    time.sleep(4)
    assert box.is_running() is False


@case
def metrics(box):
    metric = box.get_metrics()
    assert isinstance(metric, list) and metric[0].mem_total > 0, metric


@case
def commands(box):
    done = box.commands.run("echo out; echo err >&2; pwd; id -un")
    assert done.stdout.startswith("out\n/") and done.stderr == "err\n" and done.exit_code == 0, done
    failed = refuses(e2b.CommandExitException, lambda: box.commands.run("exit 3"))
    assert failed.exit_code == 3
    assert box.commands.run("echo $A-$B", envs={"A": "1", "B": "x y"}).stdout == "1-x y\n"
    assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    refuses(e2b.InvalidArgumentException, lambda: box.commands.run("pwd", cwd="/none"), "/none")


@case
def many_short_commands_on_kept_connections(box):
    """The end of a program's request comes apart from its message: where nobody reads it, a client that asks again is hung up on."""
    failed = []

    def work():
        for number in range(100):
            try:
                assert box.commands.run(f"echo {number}").stdout == f"{number}\n"
                refuses(e2b.InvalidArgumentException, lambda: box.commands.run("pwd", cwd="/none"), "/none")
            except Exception as error:  # noqa: BLE001
                failed.append(repr(error))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed


@case
def much_output(box):
    done = box.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(done.stdout) == 3_000_000, len(done.stdout)


@case
def output_as_it_comes(box):
    seen = []
    box.commands.run("for i in 1 2 3; do echo $i; sleep 0.1; done", on_stdout=lambda text: seen.append(str(text)))
    assert "".join(seen) == "1\n2\n3\n" and len(seen) > 1, seen


@case
def background_input_kill(box):
    cat = box.commands.run("cat", background=True, stdin=True)
    assert any(one.pid == cat.pid for one in box.commands.list())
    box.commands.send_stdin(cat.pid, "typed\n")
    for out, _, _ in cat:
        assert out == "typed\n", out
        break
    assert box.commands.kill(cat.pid) is True
    refuses(e2b.CommandExitException, cat.wait)
    assert box.commands.kill(cat.pid) is False


@case
def connect_to_a_command(box):
    first = box.commands.run("sleep 1; echo late; exit 4", background=True)
    second = box.commands.connect(first.pid)
    ended = refuses(e2b.CommandExitException, second.wait)
    assert ended.exit_code == 4 and "late" in ended.stdout, ended


@case
def a_command_has_its_time(box):
    begun = time.time()
    refuses(e2b.TimeoutException, lambda: box.commands.run("sleep 30", timeout=1))
    assert time.time() - begun < 10
    assert box.commands.run("pgrep -fc 'sleep 3[0]' || true").stdout.strip() in ("", "0")


@case
def a_tree_is_killed(box):
    cmd = box.commands.run("sh -c 'sleep 77 & sleep 77'; true", background=True)
    time.sleep(0.5)
    cmd.kill()
    time.sleep(0.5)
    assert box.commands.run("pgrep -fc 'sleep 7[7]' || true").stdout.strip() in ("", "0")


@case
def terminal(box):
    from e2b.sandbox.commands.command_handle import PtySize

    seen = bytearray()
    pty = box.pty.create(PtySize(rows=30, cols=100))
    box.pty.send_stdin(pty.pid, b"stty size; exit 5\n")
    ended = refuses(e2b.CommandExitException, lambda: pty.wait(on_pty=lambda data: seen.extend(data)))
    assert ended.exit_code == 5 and b"30 100" in seen, seen


@case
def another_user_is_refused(box):
    refuses(e2b.AuthenticationException, lambda: box.commands.run("id", user="root"), "root")


@case
def files(box):
    info = box.files.write("dir/a.txt", "text")
    assert info.path.endswith("/dir/a.txt"), info
    assert box.files.read("dir/a.txt") == "text"
    assert box.files.read("dir/a.txt", format="bytes") == b"text"
    assert box.files.exists("dir/a.txt") and not box.files.exists("dir/none")
    refuses(e2b.NotFoundException, lambda: box.files.read("none"))
    assert box.files.make_dir("dir/sub") is True and box.files.make_dir("dir/sub") is False
    names = [(one.name, one.type.value) for one in box.files.list("dir")]
    assert names == [("a.txt", "file"), ("sub", "dir")], names
    assert box.files.rename("dir/a.txt", "dir/sub/b.txt").name == "b.txt"
    info = box.files.get_info("dir/sub/b.txt")
    assert info.size == 4 and info.permissions.endswith("r--"), info
    box.files.remove("dir")
    assert not box.files.exists("dir")


@case
def large_and_binary_files(box):
    data = bytes(range(256)) * 20_000
    box.files.write("big", data)
    assert box.files.read("big", format="bytes") == data
    assert b"".join(box.files.read("big", format="stream")) == data
    box.files.write("io", io.BytesIO(data[:1000]))
    assert box.commands.run("sha256sum < big | cut -c1-16").stdout.strip() == __import__("hashlib").sha256(data).hexdigest()[:16]


@case
def many_files_at_once(box):
    home = box.commands.run("echo $HOME").stdout.strip()
    wanted = [{"path": "m/1", "data": "one"}, {"path": f"{home}/m/2", "data": b"two"}]
    written = box.files.write_files(wanted) if hasattr(box.files, "write_files") else box.files.write(wanted)
    assert [one.path for one in written] == [f"{home}/m/1", f"{home}/m/2"] or len(written) == 2, written
    assert box.files.read("m/1") == "one" and box.files.read(f"{home}/m/2") == "two"


@case
def a_file_of_the_kernel(box):
    assert "processor" in box.files.read("/proc/cpuinfo") or "MemTotal" in box.files.read("/proc/meminfo")


@case
def watch(box):
    box.files.make_dir("w")
    handle = box.files.watch_dir("w")
    box.files.write("w/new", "x")
    seen = []
    for _ in range(50):
        seen += handle.get_new_events()
        if seen:
            break
        time.sleep(0.05)
    assert seen and all(event.name == "new" or event.name for event in seen), seen
    handle.stop()


@case
def signed_addresses(box):
    import urllib.request

    box.files.write("s.txt", "signed")
    url = box.download_url("s.txt")
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.read() == b"signed"
    try:
        urllib.request.urlopen(url.replace("s.txt", "t.txt"), timeout=10)
        raise AssertionError("another file was given out")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error.code


@case
def pause_and_connect(_):
    box = create()
    try:
        pause = getattr(box, "pause", None) or getattr(box, "beta_pause", None)
        if pause is None:
            raise Skip("this client cannot pause")
        box.commands.run("echo kept > kept", background=False)
        sleeper = box.commands.run("sleep 100", background=True)
        try:
            pause()
        except e2b.SandboxException as error:
            if "freezer" in str(error):
                raise Skip("no freezer here") from error
            raise
        assert box.is_running() is False
        again = Sandbox.connect(box.sandbox_id)
        assert again.files.read("kept") == "kept\n"
        assert any(one.pid == sleeper.pid for one in again.commands.list()), "processes are kept"
    finally:
        box.kill()


@case
def kill_ends_what_another_waits_for(_):
    box = create()
    result = []

    def wait():
        try:
            box.commands.run("sleep 60", timeout=0)
            result.append("ended")
        except Exception as error:  # noqa: BLE001
            result.append(type(error).__name__)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(1)
    begun = time.time()
    Sandbox.connect(box.sandbox_id).kill()
    thread.join(20)
    assert result and result != ["ended"] and time.time() - begun < 15, (result, time.time() - begun)


@case
def what_adapters_ask_for(_):
    make = getattr(Sandbox, "create", None)
    try:
        box = make(timeout=60, secure=True, allow_internet_access=True, envs={"SEEN": "yes"})
    except TypeError as error:
        raise Skip(str(error)) from error
    try:
        box.files.make_dir("/workspace")
        assert box.commands.run("test -d /workspace && cd /workspace && touch x && echo ok").stdout == "ok\n"
        assert box.commands.run("echo $SEEN").stdout == "yes\n"
        assert box.commands.run("id -un").stdout == "user\n"
        assert box.commands.run("python3 -c 'print(6*7)'").stdout == "42\n"
    finally:
        box.kill()


@case
def a_port_inside(box):
    import json
    import urllib.error
    import urllib.request

    box.commands.run("python3 -m http.server 8123 --bind 127.0.0.1 --directory /etc", background=True, timeout=0)
    request = urllib.request.Request(
        f"{URL}/hostname", headers={"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8123"}
    )
    for _ in range(100):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.status == 200
                return
        except urllib.error.HTTPError as error:
            assert error.code == 502 and json.load(error)["message"].endswith("port is not open"), error
            time.sleep(0.1)
    raise AssertionError("the port was never open")


main(create, "e2b")
