"""``run`` with the product itself."""

import asyncio
import pathlib

import pytest

from fumehood import CommandExitException, FumehoodError, InvalidArgumentException, ProgramNotFoundException, Refused, TimeoutException, arun, run
from fumehood._files import chunks
from fumehood._frames import encode_json


def test_code_gives_its_output_its_usage_and_what_was_stopped():
    done = run("print(6 * 7)", language="python", policy="strict", timeout=5)
    assert (done.stdout, done.stderr, done.exit_code, done.outcome.kind) == ("42\n", "", 0, "exited")
    assert done.usage.wall > 0 and done.usage["memory_peak"] != 0 and done.violations == () and done.error is None
    done = run("import socket; socket.create_connection(('192.0.2.1', 443))", language="python")
    assert done.exit_code == 1 and done.violations[0].clause == "net.mode" and "PermissionError" in done.stderr
    assert done.violations[0].instead and done.violations[0].seen == "output"
    with pytest.raises(CommandExitException) as error:
        done.check()
    assert error.value.violations == done.violations


def test_without_a_policy_strict_holds_whatever_the_user_has_as_default(tmp_path, monkeypatch):
    folder = tmp_path / "fumehood"
    folder.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def digests():
        done = [run("true", language="bash"), run("true", language="bash", envs={"A": "1"}), asyncio.run(arun("true", language="bash"))]
        return [one.report["policy"]["digest"] for one in done]

    without = digests()
    (folder / "policy.toml").write_text('version = 1\nextends = "strict"\nlimits.wall = "7s"\n')
    assert digests() == without and without[0] == run("true", language="bash", policy="strict").report["policy"]["digest"]


def test_a_list_is_a_program_and_input_is_its_own():
    assert run(["cat"], stdin="ä").stdout == "ä"
    assert run(["cat"]).stdout == ""
    assert run("import sys; print(sys.stdin.read().upper())", language="python", stdin=b"x").stdout == "X\n"
    assert run("read x; echo got $x", language="bash").stdout == "got\n"
    big = "#" * 200_000 + "\nprint('big')"
    assert run(big, language="python").stdout == "big\n"
    with pytest.raises(InvalidArgumentException):
        run(big, language="python", stdin="")
    with pytest.raises(InvalidArgumentException):
        run("print(1)")
    with pytest.raises(InvalidArgumentException):
        run(["true"], language="python")


def test_what_is_no_character_is_refused_by_the_name_of_its_argument():
    for words, named in [
        ({"code": "print('\ud800')", "language": "python"}, "'code'"),
        ({"code": ["echo", "\ud800"]}, "'code'"),
        ({"code": ["cat"], "stdin": "ab\udfff"}, "'stdin' has a lone surrogate at position 2"),
    ]:
        with pytest.raises(InvalidArgumentException, match=named):
            run(**words)
    assert run(["printf", "%s", "\udcff"]).report["stdout_base64"] == "/w=="


def test_what_cannot_be_asked_of_a_sandbox_is_named():
    for words, named in [({"op": "spawn", "argv": ["ok", "\ud800"]}, "'argv'"), ({"envs": {"A": "1", "B": "\udc00"}}, "'envs.B'")]:
        with pytest.raises(InvalidArgumentException, match=named):
            encode_json(words)
    with pytest.raises(InvalidArgumentException, match="NaN|JSON compliant"):
        encode_json({"a": float("nan")})
    with pytest.raises(InvalidArgumentException, match="'data'"):
        list(chunks("\ud800"))


def test_a_limit_is_a_result_and_with_check_an_exception():
    done = run(["sh", "-c", "echo before; sleep 30"], timeout=0.5)
    assert (done.exit_code, done.outcome.limit, done.stdout) == (124, "wall", "before\n")
    with pytest.raises(TimeoutException) as error:
        run(["sleep", "30"], timeout=0.5, check=True)
    assert error.value.result.exit_code == 124


def test_a_refusal_has_every_reason_with_its_remedy():
    with pytest.raises(Refused) as error:
        run(["true"], policy={"net": {"mode": "no-such"}, "limits": {"memory": "x"}})
    assert {reason.clause for reason in error.value.refused} == {"net.mode", "limits.memory"}
    assert all(reason.fix for reason in error.value.refused) and error.value.violations == ()
    with pytest.raises(FumehoodError) as error:
        run(["true"], flags=["--no-such-flag"])
    assert not isinstance(error.value, Refused) and "--no-such-flag" in str(error.value)


def test_layers_variables_and_a_workspace(tmp_path):
    (tmp_path / "a").write_text("1")
    work = tmp_path / "work"
    work.mkdir()
    done = run(["sh", "-c", 'echo "$SECRET" > new; cat /proc/self/cmdline'], policy=["data-analysis", {"limits": {"pids": 7}}],
               envs={"SECRET": "s3"}, workspace=work)
    assert [(one.path, one.change) for one in done.changes] == [("new", "added")]
    assert not (work / "new").exists(), "changes wait"
    with pytest.raises(Refused, match="quota"):
        run(["true"], workspace=f"{work}:rw")
    accepted = ["--prefer", "limits.disk", "--prefer", "limits.files"]
    done = run(["sh", "-c", "echo x > new"], workspace=f"{work}:rw", flags=accepted)
    assert done.exit_code == 0 and (work / "new").exists()
    assert run(["no-such-program"]).exit_code == 127


def test_variables_are_not_on_a_command_line(monkeypatch):
    from fumehood import _run

    seen = []
    monkeypatch.setattr(_run, "call", lambda command, stdin: seen.append(command) or _run.Answer(0, b"{}", b""))
    run(["true"], envs={"TOKEN": "verysecret"})
    assert "verysecret" not in " ".join(seen[0]) and not any(pathlib.Path(word).exists() for word in seen[0] if word.endswith("policy.json"))


def test_in_an_event_loop_and_given_up_early():
    async def work():
        both = await asyncio.gather(arun(["echo", "x"]), arun("print(1)", language="python"))
        assert [one.stdout for one in both] == ["x\n", "1\n"]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(arun(["sleep", "30"]), 0.5)

    asyncio.run(work())


def test_a_program_that_is_not_there_is_told():
    with pytest.raises(ProgramNotFoundException):
        run(["true"], binary="/no/such/fumehood")
    with pytest.raises(FumehoodError, match="ended with 1"):
        run(["true"], binary="/bin/false")
