"""What agents know by other names, over one live sandbox: each with the package that it is for."""

import asyncio
import importlib.util
import time

import pytest

from fake_supervisor import House
from fumehood import AsyncSandbox, Sandbox, SandboxNotRunningException, TimeoutException
from fumehood._session import BashSession, PythonSession, SessionEnded

ID = "abcdefghij0123456789"


def needs(package):
    found = importlib.util.find_spec(package)
    return pytest.mark.skipif(found is None, reason=f"{package} is not installed")


@pytest.fixture
def supervisor(house):
    folder = house / "state" / "live" / ID
    folder.mkdir(parents=True)
    (house / "root").mkdir()
    made = House(folder / "socket", house / "root")
    yield made
    made.stop()
    assert made.breaches == []


@pytest.fixture
def box(supervisor):
    made = Sandbox.connect(ID)
    yield made
    made.close()


def test_a_bash_keeps_what_it_was_told(box):
    bash = BashSession(box, timeout=10)
    assert bash.run("mkdir -p d && cd d && export X=1 && f() { echo f$X; }") == ("", 0)
    assert bash.run("basename $PWD; f; echo e >&2") == ("d\nf1\ne", 0)
    assert bash.run("false") == ("", 1)
    assert bash.run("cat; echo 'it'\"'\"'s'") == ("it's", 0), "it reads an empty file, and quotes are its own"
    said, code = bash.run("echo 'not closed")
    assert code != 0 and "unexpected EOF" in said
    assert bash.run("f") == ("f1", 0), "what does not parse ends nothing"
    said, code = bash.run("seq 1 200000")
    assert said.startswith("1\n2\n") and said.endswith("\n200000") and "were cut here" in said
    assert bash.run("printf 'no newline'") == ("no newline", 0)
    assert bash.run("printf '%s\n' fumehood-0123 12 $?") == ("fumehood-0123\n12\n0", 0), "no token of its own is taken for ours"


def test_a_bash_that_ends_or_hangs_is_told_and_replaced(box):
    bash = BashSession(box, timeout=1)
    bash.run("X=1")
    with pytest.raises(SessionEnded) as error:
        bash.run("echo last; exit 3")
    assert error.value.text.strip() == "last"
    assert bash.run("echo ${X-gone}") == ("gone", 0)
    with pytest.raises(TimeoutException, match="before"):
        bash.run("echo before; sleep 30")
    assert bash.run("echo again") == ("again", 0)
    until = time.monotonic() + 5
    while [one.cmd for one in box.commands.list()] != ["/bin/bash"]:
        assert time.monotonic() < until, "the one that hung was ended"
        time.sleep(0.02)


def test_a_python_keeps_what_it_was_told(box):
    python = PythonSession(box, timeout=10)
    assert python.run("x = 6\nprint('hello')").logs == "hello"
    assert python.run("x * 7").result == 42
    assert python.run("{'a': [1, None]}").result == {"a": [1, None]} and python.run("object").result == "<class 'object'>"
    failed = python.run("import sys\nprint('before'); print('err', file=sys.stderr)\nx / 0")
    assert (failed.logs, failed.error) == ("before\nerr", "ZeroDivisionError") and "line 3" in failed.traceback
    assert python.run("syntax error here").error == "SyntaxError"
    assert python.run("raise SystemExit(3)").error == "SystemExit"
    assert python.run("import subprocess; subprocess.run(['echo', 'child'], check=True); x").result == 6
    assert python.run("input()").error == "EOFError"
    with pytest.raises(SessionEnded):
        python.run("import os; os._exit(1)")
    assert python.run("'x' in globals()").result is False
    with pytest.raises(TimeoutException):
        PythonSession(box, timeout=0.5).run("while True: pass")


@needs("anthropic")
def test_anthropic_bash(box):
    from anthropic.lib.tools import ToolError

    from fumehood.anthropic import bash

    tool = bash(box, timeout=5)
    assert tool.to_dict() == {"type": "bash_20250124", "name": "bash"} and tool.name == "bash"
    assert tool.call({"command": "cd /tmp; X=5; echo hi"}) == "hi"
    assert tool.call({"command": "echo $X $PWD"}) == "5 /tmp"
    with pytest.raises(ToolError, match=r"nope\n\[exit code 2\]"):
        tool.call({"command": "echo nope; (exit 2)"})
    assert "restarted" in tool.call({"restart": True})
    assert tool.call({"command": "echo [$X]"}) == "[]"
    with pytest.raises(ToolError, match="finds a new shell"):
        tool.call({"command": "exit"})
    for wrong in ({}, {"command": 1}, "x"):
        with pytest.raises(ToolError):
            tool.call(wrong)
    box.close()
    with pytest.raises(SandboxNotRunningException):
        tool.call({"command": "true"})
        tool.call({"command": "true"})


@needs("anthropic")
def test_anthropic_text_editor(box):
    from anthropic.lib.tools import ToolError

    from fumehood.anthropic import text_editor

    tool = text_editor(box, max_characters=1000)
    assert tool.to_dict()["name"] == "str_replace_based_edit_tool"

    def does(command, **more):
        return tool.call({"command": command, "path": "/d/f.txt", **more})

    does("create", file_text="one\ntwo\ntwo again")
    assert does("view") == "     1\tone\n     2\ttwo\n     3\ttwo again"
    assert does("view", view_range=[2, -1]) == "     2\ttwo\n     3\ttwo again"
    does("str_replace", old_str="one", new_str="ONE")
    does("insert", insert_line=3, insert_text="end")
    does("insert", insert_line=0, insert_text="begin\n")
    assert box.files.read("/d/f.txt") == "begin\nONE\ntwo\ntwo again\nend\n"
    does("str_replace", old_str="end\n")
    assert tool.call({"command": "view", "path": "/"}) == "/, two levels deep, without hidden files:\n/d/\n/d/f.txt"
    for command, more, said in (
        ("str_replace", {"old_str": "two", "new_str": "x"}, "2 times"),
        ("str_replace", {"old_str": "none", "new_str": "x"}, "0 times"),
        ("str_replace", {"old_str": "", "new_str": "x"}, "0 times"),
        ("insert", {"insert_line": 99, "insert_text": "x"}, "from 0 to 4"),
        ("view", {"view_range": [3, 2]}, "two line numbers"),
        ("view", {"path": "/none"}, "No such file"),
        ("create", {}, "`file_text` is missing"),
        ("undo_edit", {}, "is no command"),
    ):
        with pytest.raises(ToolError, match=said):
            does(command, **more)
    box.files.write("/d/f.txt", b"\xff")
    with pytest.raises(ToolError, match="no text"):
        does("view")
    box.files.write("/d/f.txt", "x" * 5000)
    assert does("view").endswith("give a `view_range`]")


@needs("agents")
def test_openai_shell(box, supervisor):
    from agents import RunContextWrapper, ShellActionRequest, ShellCallData, ShellCommandRequest, ShellTool

    from fumehood.openai_agents import shell_executor

    def ask(box, commands, **more):
        tool = ShellTool(executor=shell_executor(box))
        data = ShellCallData(call_id="c", action=ShellActionRequest(commands=commands, **more))
        return tool.executor(ShellCommandRequest(ctx_wrapper=RunContextWrapper(None), data=data))

    def check(result):
        first, second, third = result.output
        assert (first.stdout, first.exit_code, first.status) == ("x\n", 0, "completed")
        assert (second.stderr, second.exit_code) == ("no\n", 3)
        assert (third.status, third.stdout, third.command) == ("timeout", "y\n", "echo y; sleep 30")

    commands = ["echo x", "echo no >&2; exit 3", "echo y; sleep 30", "echo never"]
    check(asyncio.run(ask(box, commands, timeout_ms=1000)))

    async def loop():
        other = await AsyncSandbox.connect(ID)
        check(await ask(other, commands, timeout_ms=1000))
        long = await ask(other, ["seq 1 10000"], max_output_length=1000)
        assert len(long.output[0].stdout) < 1100 and long.max_output_length == 1000
        await other.close()
        with pytest.raises(SandboxNotRunningException):
            await ask(other, ["true"])

    asyncio.run(loop())


@needs("langchain_core")
def test_langchain(box):
    from fumehood.langchain import tools

    run, read, write, listing = tools(box)
    assert run.invoke({"command": "echo hi; echo err >&2"}) == "hi\nerr"
    call = {"type": "tool_call", "id": "1", "name": "run_command", "args": {"command": "echo part; exit 4"}}
    answer = run.invoke(call)
    assert answer.status == "error" and answer.content.startswith("part\n[")
    assert "was written" in write.invoke({"path": "/a/b", "content": "ä"}) and read.invoke({"path": "/a/b"}) == "ä"
    assert listing.invoke({"path": "/"}) == "a/"
    missing = read.invoke({"type": "tool_call", "id": "2", "name": "read_file", "args": {"path": "/none"}})
    assert missing.status == "error" and "No such file" in missing.content
    assert run.args["command"]["description"] == "a command line for bash" and run.name == "run_command"
    box.close()
    with pytest.raises(SandboxNotRunningException):
        run.invoke({"command": "true"})


@needs("smolagents")
def test_smolagents(box):
    from smolagents import CodeAgent, Tool
    from smolagents.models import ChatMessage, MessageRole, Model
    from smolagents.utils import AgentError

    from fumehood.smolagents import SandboxExecutor

    class Scripted(Model):
        def __init__(self, *said):
            super().__init__(model_id="scripted")
            self.said = list(said)

        def generate(self, messages, **_):
            return ChatMessage(role=MessageRole.ASSISTANT, content=self.said.pop(0))

    class Shout(Tool):
        name = "shout"
        description = "Says it loudly."
        inputs = {"text": {"type": "string", "description": "what to say"}}
        output_type = "string"

        def forward(self, text: str) -> str:
            return text.upper()

    code = "<code>\nimport os\nx = shout('hi') + str(offset)\nprint(x, os.getpid())\n</code>"
    model = Scripted(code, "<code>\nfinal_answer({'said': x, 'n': (1, 2)})\n</code>")
    agent = CodeAgent(tools=[Shout()], model=model, executor=SandboxExecutor(box), verbosity_level=0)
    assert agent.run("say hi", additional_args={"offset": 7}) == {"said": "HI7", "n": (1, 2)}
    executor = SandboxExecutor(box, timeout=1)
    with pytest.raises(AgentError, match="ZeroDivisionError"):
        executor("1 / 0")
    with pytest.raises(AgentError, match="variables are lost"):
        executor("while True: pass")
    assert executor("print('x'); 5").output == 5
    with pytest.raises(AgentError, match="no-such-package"):
        SandboxExecutor(box, ["no-such-package", "json"])
    with pytest.raises(Exception, match="allow_pickle"):
        executor("class FinalAnswerException(BaseException):\n    value = 'pickle:gASVCg=='\nraise FinalAnswerException")
    executor.cleanup()
