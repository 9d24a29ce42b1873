"""Code, contexts, snapshots and forks, with the product itself and real kernels where `scripts/setup kernels` put them."""

import asyncio
import base64
import json
import os
import pathlib

import pytest

from fumehood import (
    AsyncSandbox, FumehoodError, Refused, Sandbox, SandboxNotRunningException, TimeoutException, UnsupportedException,
)
from fumehood._code import Execution, _take
from serving import served

CACHE = pathlib.Path(os.environ.get("FUMEHOOD_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "/root/.cache") / "fumehood")
KERNELS = CACHE / "kernels"


def with_kernels():
    """A policy in which the kernels of the tests are found."""
    python = KERNELS / "bin" / "python3"
    return {
        "version": 1, "extends": "python", "net": {"mode": "loopback"}, "fs": {"read": [str(KERNELS)]},
        "limits": {"memory": "1G", "pids": 256, "disk": "256M"}, "env": {"set": {"PATH": f"{python.parent}:/usr/bin:/bin"}},
    }


@pytest.fixture(params=["here", "served"])
def kerneled(request, house):
    """What a sandbox with kernels is made of, here or by a server."""
    if request.param == "here":
        yield {"policy": with_kernels(), "timeout": 120}
        return
    ceiling = house / "ceiling.json"
    ceiling.write_text(json.dumps(with_kernels()))
    with served("--pool", "1", of_key=("-p", str(ceiling))) as (_, where):
        yield {"policy": with_kernels(), "timeout": 120, **where}


kernels = pytest.mark.skipif(not (KERNELS / "bin" / "python3").exists(), reason="no kernels (`scripts/setup kernels`)")


def test_lines_become_results_and_nothing_else_is_one():
    made = Execution()
    lines = [
        {"type": "number_of_executions", "execution_count": 3},
        {"type": "stdout", "text": "a\n", "timestamp": "2026-11-23T00:00:00Z"},
        {"type": "stderr", "text": "b\n", "timestamp": "x"},
        {"type": "result", "text": "1", "html": "<b>1</b>", "extra": {"x/y": 1}, "is_main_result": True},
        {"type": "error", "name": "ValueError", "value": "no", "traceback": "..."},
        {"type": "keepalive"},
        {"type": "end_of_execution"},
    ]
    said = [_take(made, json.dumps(line).encode()) for line in lines]
    assert [one and one[0] for one in said] == [None, "stdout", "stderr", "result", "error", None, None]
    assert (made.text, made.execution_count, made.logs.stdout, made.logs.stderr) == ("1", 3, ["a\n"], ["b\n"])
    assert list(made.results[0].formats()) == ["text", "html", "x/y"]
    assert made.error is not None and made.error.name == "ValueError"
    for bad in (b"no json", b"[]", b'{"type": "result", "extra": 7}', b'{"type": "error"}'):
        with pytest.raises(FumehoodError):
            _take(Execution(), bad)


@kernels
def test_code_keeps_its_variables_and_shows_what_it_is(kerneled):
    with Sandbox(**kerneled) as box:
        assert box.run_code("x = 6 * 7").results == []
        heard = []
        done = box.run_code("print('hi')\nx", on_stdout=heard.append, on_result=heard.append)
        assert (done.text, done.logs.stdout, done.error) == ("42", ["hi\n"], None)
        assert [str(one) for one in heard] == ["hi\n", "42"] and done.context and not done.restarted
        failed = box.run_code("1 / 0")
        assert failed.error is not None and failed.error.name == "ZeroDivisionError"
        slow = box.run_code("import time; time.sleep(60)", timeout=0.5)
        assert slow.error is not None and slow.error.name == "TimeoutError"
        assert box.run_code("x").text == "42", "a timeout ends the code and not the kernel"
        shown = box.run_code("from IPython.display import Image\nImage(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(20), format='png')")
        assert base64.b64decode(shown.results[0].png or "").startswith(b"\x89PNG")
        other = box.create_code_context(language="python")
        assert box.run_code("'x' in dir()", context=other).text == "False"
        assert {one.id for one in box.list_code_contexts()} >= {other.id}
        box.restart_code_context(other)
        box.remove_code_context(other)
        with pytest.raises(FumehoodError):
            box.run_code("1", context=other)


@kernels
def test_code_in_an_event_loop(kerneled):
    async def all_of_it():
        async with AsyncSandbox(**kerneled) as box:
            heard = []
            begun = asyncio.Event()
            context = await box.create_code_context()
            code = "print('began', flush=True)\nimport time; time.sleep(600)"
            endless = asyncio.create_task(box.run_code(code, context=context, timeout=None, on_stdout=lambda _: begun.set()))
            await asyncio.wait_for(begun.wait(), 60)
            await box.interrupt_code_context(context)
            ended = await asyncio.wait_for(endless, 60)
            assert ended.error is not None and ended.error.name == "KeyboardInterrupt"

            async def hear(message):
                heard.append(message.line)

            done = await box.run_code("print('hi')\n6 * 7", on_stdout=hear)
            return done.text, heard

    assert asyncio.run(all_of_it()) == ("42", ["hi\n"])


def test_without_a_kernel_it_is_said_what_is_missing(there):
    with Sandbox("strict", **there) as box:
        if box.commands.run("python3 -c 'import ipykernel'", check=False).exit_code == 0:
            pytest.skip("the host's own python3 has an ipykernel")
        with pytest.raises(UnsupportedException, match="template build"):
            box.run_code("1")


def test_a_fork_and_a_snapshot_begin_as_it_is_and_go_their_own_ways(there):
    with Sandbox("strict", timeout=120, **there) as box:
        box.files.write("/tmp/a", "first")
        with box.fork() as other:
            box.files.write("/tmp/a", "second")
            assert (other.files.read("/tmp/a"), box.files.read("/tmp/a")) == ("first", "second")
            assert other.sandbox_id != box.sandbox_id
        kept = box.snapshot("base")
        assert kept.name == "base" and kept.snapshot_id
        box.files.write("/tmp/a", "third")
        with Sandbox(snapshot="base", timeout=120, **there) as again:
            assert again.files.read("/tmp/a") == "second"
    with pytest.raises(FumehoodError):
        Sandbox(snapshot="nosuch", **there)


def test_a_fork_has_the_policy_of_a_mapping(there):
    policy = {"version": 1, "extends": "strict", "env": {"set": {"F": "y"}}}
    with Sandbox(policy, timeout=120, **there) as box:
        box.snapshot("mapped")
        with box.fork() as other, Sandbox(snapshot="mapped", timeout=120, **there) as again:
            assert [one.commands.run("echo $F").stdout for one in (box, other, again)] == ["y\n"] * 3


def test_a_document_that_a_fork_reads_can_be_made_by_nobody_else(house, request):
    before = os.umask(0o002)
    request.addfinalizer(lambda: os.umask(before))
    with Sandbox({"version": 1, "extends": "strict"}, envs={"KEY": "value of a key"}, timeout=60) as box:
        assert box.commands.run("echo $KEY").stdout == "value of a key\n"
        state = house / "state"
        files = [one for one in (state / "documents").rglob("*") if one.is_file()]
        assert len(files) == 1 and b"value of a key" not in files[0].read_bytes(), "a policy stays, a variable does not"
        assert [one.stat().st_mode & 0o077 for one in (state, state / "documents", files[0])] == [0, 0, 0]
        # What begins as it would miss the variable: refused with why, and what to do.
        box.snapshot("of-keys")
        for another in (box.fork, lambda: Sandbox(snapshot="of-keys", timeout=60)):
            with pytest.raises(Refused, match=r"nothing keeps them(.|\n)*commands\.run"):
                another()


def test_changes_of_one_without_a_workspace_say_what_is_missing(house):
    with Sandbox(timeout=60) as box, pytest.raises(FumehoodError, match=r"no workspace(.|\n)*-w PATH") as told:
        box.diff()
    assert "doctor" not in str(told.value), "nothing is wrong with the host"


def test_who_connects_to_one_that_has_ended_is_told_how(house):
    with Sandbox(timeout=60, name="mine") as box:
        pass
    for word in ("mine", box.sandbox_id):
        with pytest.raises(SandboxNotRunningException, match="has ended: .*kill"):
            Sandbox.connect(word)
        with pytest.raises(SandboxNotRunningException, match="has ended: .*kill"):
            asyncio.run(AsyncSandbox.connect(word))


def test_the_same_in_an_event_loop(there):
    async def both():
        async with AsyncSandbox("strict", timeout=120, **there) as box:
            await box.files.write("/tmp/a", "first")
            async with await box.fork() as other:
                kept = await box.snapshot()
                return await other.files.read("/tmp/a"), kept.snapshot_id != ""

    assert asyncio.run(both()) == ("first", True)


def test_a_python_that_waits_runs_code_without_state(there):
    with Sandbox("python", imports=["json"], timeout=60, **there) as box:
        assert box.run_python("import sys; print('json' in sys.modules); x = 1").stdout == "True\n"
        assert box.run_python("print('x' in globals())").stdout == "False\n"
        assert box.run_python("raise SystemExit(7)", check=False).exit_code == 7
        with pytest.raises(TimeoutException):
            box.run_python("import time; time.sleep(60)", timeout=0.5)
    with Sandbox("python", timeout=60, **there) as box, pytest.raises(UnsupportedException):
        box.run_python("1")
    with pytest.raises(Refused):
        Sandbox("python", imports=["os; print(1)"], **there)

    async def same():
        async with AsyncSandbox("python", imports=["json"], timeout=60, **there) as box:
            return (await box.run_python("print(6 * 7)")).stdout

    assert asyncio.run(same()) == "42\n"


def test_a_python_that_waits_in_a_pool(house):
    with served("--pool", "1") as (_, where):
        for _ in range(4):
            with Sandbox("python", imports=["json"], timeout=60, **where) as box:
                assert box.run_python("import sys; print('json' in sys.modules)").stdout == "True\n"
