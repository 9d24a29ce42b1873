"""Cases of our own for E2B's released Python clients against a running `fumehood serve`.

usage: cases.py URL KEY OTHER_KEY     (a Python that has e2b installed)
Prints one line for each case that failed, and at the end `N passed, N failed, N skipped`.
"""

import asyncio
import io
import json
import os
import shlex
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


# A sandbox that was killed, or whose life is over: the older generation has no word of its own for it.
GONE = getattr(e2b, "SandboxNotRunningException", e2b.TimeoutException)


def create(**more):
    make = getattr(Sandbox, "create", None)
    return make(timeout=more.pop("timeout", 120), **more)


def paused(box):
    """Pauses it, where there is a freezer."""
    pause = getattr(box, "pause", None) or getattr(box, "beta_pause", None)
    if pause is None:
        return False
    try:
        pause()
    except e2b.SandboxException as error:
        if "freez" in str(error):
            return False
        raise
    return True


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
    if VERSION >= (2, 45):
        filesystem = {"on_timeout": {"action": "pause", "mode": "filesystem"}}
        refuses(e2b.SandboxException, lambda: create(lifecycle=filesystem), "autoPauseMemory")


@case
def networks_that_are_open_carry_traffic_and_closed_ones_do_not(_):
    """Names of a ceiling's own, which lead to `outside.py` by a proxy."""
    key = os.environ.get("E2B_TEST_OUTSIDE")
    if not key:
        raise Skip("there is no openssl for the server outside")
    everything, value = ["0.0.0.0/0"], "Bearer of-the-cases-alone"
    rules = {"headers.test": [{"transform": {"headers": {"Authorization": value}}}]}
    network = {"allow_out": ["carried.test", "headers.test"], "deny_out": everything, "rules": rules}
    box = create(template="outside", api_key=key, network=network)
    try:
        def get(url, asked="import json; print(json.dumps(json.load(answer)))"):
            code = f"import urllib.request; answer = urllib.request.urlopen({url!r}, timeout=10); {asked}"
            done = box.commands.run(f"python3 -c {shlex.quote(code)} 2>&1 || true")
            return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout

        carried = get("http://carried.test/")
        assert carried["host"] == "carried.test" and carried["tls"] is False, carried
        assert get("https://carried.test/")["tls"] is True
        assert "Error" in get("http://other.test/")
        # Its header is put on outside, taken out of the answer again, and known nowhere inside.
        headers = get("https://headers.test/")["headers"]
        assert headers["authorization"] == "*" * len(value), headers
        assert "Error" in get("http://headers.test/"), "without TLS nobody would put it on"
        inside = box.commands.run("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -ac 'of-the-case[s]' || true")
        assert inside.stdout == "0\n", inside
        told = box.get_info()
        if hasattr(told, "network"):
            assert sorted(told.network["allow_out"]) == ["carried.test", "headers.test"], told
            assert told.network["deny_out"] == everything and told.allow_internet_access is None, told
        refuses(e2b.SandboxException, lambda: box.update_network({"allow_out": ["headers.test"], "deny_out": everything}), "rules")
        box.update_network({"allow_out": ["other.test", "headers.test"], "deny_out": everything, "rules": rules})
        assert get("http://other.test/")["host"] == "other.test"
        assert "Error" in get("http://carried.test/")
        box.update_network({})
        assert "Error" in get("http://other.test/")
    finally:
        box.kill()


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
        def listed(**query):
            found = Sandbox.list(query=SandboxQuery(metadata={"mark": mark}, **query)).next_items()
            return {info.sandbox_id for info in found}

        one = Sandbox.list(query=SandboxQuery(metadata={"mark": mark, "n": "1"})).next_items()
        assert [info.sandbox_id for info in one] == [boxes[1].sandbox_id]
        state = type(one[0].state)
        everyone = {box.sandbox_id for box in boxes}
        assert listed(state=[state.RUNNING]) == everyone
        if paused(boxes[0]):
            assert listed(state=[state.PAUSED]) == {boxes[0].sandbox_id}
            assert listed(state=[state.RUNNING]) == everyone - {boxes[0].sandbox_id}
        if "template" in SandboxQuery.__annotations__:
            assert listed(template="base") == everyone and listed(template="strict") == set()
            assert listed(started_after=one[0].started_at) == {boxes[1].sandbox_id, boxes[2].sandbox_id}
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
    refuses(GONE, lambda: box.commands.run("sleep 60", timeout=0), "was killed or reached its end of life")
    assert box.is_running() is False


@case
def metrics(box):
    box.files.write("measured", b"x" * (1 << 20))
    until(lambda: [box.get_metrics()[0].disk_used], lambda bytes_: bytes_ >= 1 << 20)
    metric = box.get_metrics()
    assert len(metric) == 1 and 0 < metric[0].mem_used < metric[0].mem_total, metric
    assert 0 < metric[0].disk_used < metric[0].disk_total, metric
    # What is freed is used no more.
    held = "x = b'x' * (200 << 20); print('held', flush=True); input(); del x; print('freed', flush=True); input()"
    program = box.commands.run(f"python3 -c {shlex.quote(held)}", background=True, stdin=True)
    used = lambda: [box.get_metrics()[0].mem_used]  # noqa: E731
    until(used, lambda bytes_: bytes_ > 200 << 20)
    box.commands.send_stdin(program.pid, "\n")
    until(used, lambda bytes_: bytes_ < 150 << 20)
    program.kill()


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
    box.pty.send_stdin(pty.pid, b"stty size; read line; stty size; exit 5\n")
    for _, _, data in pty:
        seen.extend(data or b"")
        if b"30 100" in seen:
            break
    box.pty.resize(pty.pid, PtySize(rows=40, cols=120))
    box.pty.send_stdin(pty.pid, b"\n")
    ended = refuses(e2b.CommandExitException, lambda: pty.wait(on_pty=lambda data: seen.extend(data)))
    assert ended.exit_code == 5 and b"40 120" in seen, seen


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
    for below in ["/etc/hostname/a", "/etc/hostname/b"]:
        refuses(e2b.SandboxException, lambda: box.files.write(below, data), "hostname")
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
    # Files of size 0, whose bytes come from the kernel all the same.
    version = box.files.read("/proc/version")
    assert version.startswith("Linux version") and version == box.commands.run("cat /proc/version").stdout, version
    assert box.files.read("/proc/self/status").startswith("Name:")


@case
def watch(box):
    # What upstream's own cases ask for: an overwrite is a write; a new file is three events, of which the first is that it was made.
    box.files.make_dir("w")
    box.files.write("w/old", "x")
    handle = box.files.watch_dir("w")
    told = lambda: [(event.name, event.type.value) for event in until(handle.get_new_events, is_write)]  # noqa: E731
    is_write = lambda event: event.type.value == "write"  # noqa: E731
    box.files.write("w/old", "y")
    assert (seen := told()) == [("old", "write")], seen
    box.files.write("w/new", "x")
    assert (seen := told()) == [("new", "create"), ("new", "chmod"), ("new", "write")], seen
    handle.stop()


def until(told, wanted):
    """What was told until something wanted is among it."""
    seen = []
    for _ in range(100):
        seen += told()
        if any(wanted(one) for one in seen):
            return seen
        time.sleep(0.05)
    raise AssertionError(seen)


@case
def a_tree_is_watched_and_listed(box):
    box.files.make_dir("t/a/b")
    handle = box.files.watch_dir("t", recursive=True)
    flat = box.files.watch_dir("t")
    box.files.write("t/a/b/deep", "x")
    box.files.write("t/top", "x")
    seen = until(handle.get_new_events, lambda event: event.name == "top" and event.type.value == "write")
    seen = [(event.name, event.type.value) for event in seen]
    assert seen == [(name, what) for name in ("a/b/deep", "top") for what in ("create", "chmod", "write")], seen
    seen = until(flat.get_new_events, lambda event: event.name == "top")
    assert all("deep" not in event.name for event in seen), seen
    box.files.rename("t/top", "t/moved")
    box.files.remove("t/a/b/deep")
    until(handle.get_new_events, lambda event: event.name == "a/b/deep" and event.type.value == "remove")
    handle.stop()
    flat.stop()
    home = box.commands.run("echo $HOME").stdout.strip()
    paths = lambda depth: [one.path.removeprefix(f"{home}/") for one in box.files.list("t", depth=depth)]  # noqa: E731
    assert paths(1) == ["t/a", "t/moved"], paths(1)
    assert paths(2) == ["t/a", "t/a/b", "t/moved"], paths(2)


@case
def signed_addresses(box):
    import urllib.request

    box.files.write("s.txt", "signed")
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="s.txt"\r\n\r\nsent up\r\n--b--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    sent = urllib.request.Request(box.upload_url("up.txt", use_signature_expiration=60), data=form, headers=kind)
    with urllib.request.urlopen(sent, timeout=10) as answer:
        assert answer.status == 200
    assert box.files.read("up.txt") == "sent up"
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
        box.commands.run("echo kept > kept", background=False)
        sleeper = box.commands.run("sleep 100", background=True)
        if not paused(box):
            raise Skip("no freezer here, or this client cannot pause")
        assert box.is_running() is False
        again = Sandbox.connect(box.sandbox_id)
        assert again.files.read("kept") == "kept\n"
        assert any(one.pid == sleeper.pid for one in again.commands.list()), "processes are kept"
    finally:
        box.kill()


@case
def at_its_end_it_is_paused_and_traffic_wakes_it(_):
    if VERSION < (2, 45):
        raise Skip("this client has no lifecycle")
    box = create(timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        if not paused(box):
            raise Skip("no freezer here")
        Sandbox.connect(box.sandbox_id, timeout=1)
        state = lambda: [Sandbox.get_info(box.sandbox_id).state.value]  # noqa: E731
        until(state, lambda word: word == "paused")
        assert box.commands.run("echo awake").stdout == "awake\n"
        assert state() == ["running"]
    finally:
        box.kill()


@case
def snapshots_and_forks(box):
    if not hasattr(Sandbox, "create_snapshot"):
        raise Skip("this client has no snapshots")
    box.files.write("of-the-snapshot", "kept")
    name = f"s{time.time_ns()}"
    try:
        made = box.create_snapshot(name)
    except e2b.SandboxException as error:
        if "freez" in str(error):
            raise Skip("no freezer here") from error
        raise
    try:
        assert made.snapshot_id in [one.snapshot_id for one in Sandbox.list_snapshots(sandbox_id=box.sandbox_id).next_items()]
        other = create(template=made.snapshot_id)
        assert other.files.read("of-the-snapshot") == "kept"
        other.kill()
    finally:
        assert Sandbox.delete_snapshot(made.snapshot_id) is True
    if hasattr(box, "fork"):
        one, two = box.fork(count=2)
        assert {one.files.read("of-the-snapshot"), two.files.read("of-the-snapshot")} == {"kept"}
        one.files.write("of-the-snapshot", "changed")
        assert two.files.read("of-the-snapshot") == "kept" == box.files.read("of-the-snapshot")
        one.kill()
        two.kill()


@case
def the_same_request_twice_makes_one(_):
    if "idempotency_key" not in Sandbox.create.__code__.co_varnames:
        raise Skip("this client sends no Idempotency-Key")
    key = f"k-{time.time_ns()}"
    one, two = create(idempotency_key=key), create(idempotency_key=key)
    try:
        assert one.sandbox_id == two.sandbox_id
        refuses(e2b.SandboxException, lambda: create(idempotency_key=key, metadata={"other": "body"}), "422")
    finally:
        one.kill()


@case
def the_host_of_a_port(box):
    assert box.get_host(8080).startswith(f"8080-{box.sandbox_id}."), box.get_host(8080)


@case
def input_is_closed(box):
    cat = box.commands.run("cat; echo over", background=True, stdin=True)
    box.commands.send_stdin(cat.pid, "typed")
    if not hasattr(box.commands, "close_stdin"):
        cat.kill()
        raise Skip("this client closes no input")
    box.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "typedover\n"


@case
def without_waiting(box):
    from e2b import AsyncSandbox

    async def work():
        same = await AsyncSandbox.connect(box.sandbox_id)
        both = await asyncio.gather(*(same.commands.run(f"sleep 0.2; echo {n}") for n in (1, 2)))
        assert [done.stdout for done in both] == ["1\n", "2\n"], both
        await same.files.write("async.txt", "a")
        assert await same.files.read("async.txt") == "a"
        named = []
        await same.files.make_dir("watched")
        handle = await same.files.watch_dir("watched", on_event=lambda event: named.append(event.name))
        await same.files.write("watched/new", "x")
        for _ in range(100):
            if named:
                break
            await asyncio.sleep(0.05)
        await handle.stop()
        assert set(named) == {"new"}, named
        listed = await AsyncSandbox.list().next_items()
        assert box.sandbox_id in [one.sandbox_id for one in listed]
        cat = await same.commands.run("cat", background=True, stdin=True)
        await same.commands.send_stdin(cat.pid, "x")
        assert await same.commands.kill(cat.pid) is True

    asyncio.run(work())


@case
def kill_ends_what_another_waits_for(_):
    box = create()
    result = []

    def wait():
        try:
            box.commands.run("sleep 60", timeout=0)
            result.append("ended")
        except Exception as error:  # noqa: BLE001
            result.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(1)
    begun = time.time()
    Sandbox.connect(box.sandbox_id).kill()
    thread.join(20)
    assert type(result[0]) is GONE and "was killed" in str(result[0]), result
    assert time.time() - begun < 15, time.time() - begun


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
