"""Cases of our own for smolagents against a running `fumehood serve`: its E2B executor, and how it speaks with a kernel gateway.

usage: smol.py URL KEY OTHER_KEY     (a Python that has smolagents[e2b])
"""

import os
import sys

from harness import case, main, refuses

URL, KEY, OTHER = sys.argv[1:4]
os.environ.update(E2B_API_URL=URL, E2B_SANDBOX_URL=URL, E2B_API_KEY=KEY)

from smolagents import CodeAgent, FinalAnswerTool, Model, tool  # noqa: E402
from smolagents.models import ChatMessage, MessageRole  # noqa: E402
from smolagents.monitoring import AgentLogger, LogLevel  # noqa: E402
from smolagents.remote_executors import (  # noqa: E402
    E2BExecutor,
    _create_kernel_http,
    _websocket_run_code_raise_errors,
)
from smolagents.utils import AgentError  # noqa: E402

LOGGER = AgentLogger(level=LogLevel.OFF)


class Shared:
    def __init__(self):
        self.executor = E2BExecutor([], LOGGER, timeout=300)

    def kill(self):
        self.executor.cleanup()


@case
def state_output_and_errors(box):
    first = box.executor("x = 41\nprint('said')\nx + 1")
    assert first.output in (42, "42") and "said" in first.logs and not first.is_final_answer, first
    assert box.executor("x").output in (41, "41")
    refuses(AgentError, lambda: box.executor("1 / 0"), "ZeroDivisionError")


@case
def variables_are_sent(box):
    box.executor.send_variables({"table": {"a": [1, 2, None]}, "word": "it's"})
    assert "it's" in str(box.executor("print(word, table['a'])").logs)


@case
def a_final_answer_ends_it(box):
    box.executor.send_tools({"final_answer": FinalAnswerTool()})
    done = box.executor("final_answer({'n': 7})")
    assert done.is_final_answer and done.output == {"n": 7}, done


@case
def an_agent_runs_its_code_in_the_sandbox(_):
    @tool
    def double(n: int) -> int:
        """Doubles.

        Args:
            n: a number
        """
        return 2 * n

    class Scripted(Model):
        """A model that is none: what it says stands here."""

        turns = ["import os\nhere = os.path.exists('/opt/fumehood/template')", "final_answer([double(21), here])"]

        def generate(self, messages, **_more):
            code = self.turns.pop(0)
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go\n<code>\n{code}\n</code>")

    with CodeAgent(
        tools=[double], model=Scripted(), executor_type="e2b", executor_kwargs={"timeout": 120},
        additional_authorized_imports=[], verbosity_level=0, max_steps=3,
    ) as agent:  # fmt: skip
        assert agent.run("go") == [42, True], agent.memory.steps


@case
def its_way_with_a_kernel_gateway(_):
    import requests
    from websocket import create_connection

    id = _create_kernel_http(f"{URL}/api/kernels?token={KEY}", LOGGER)
    socket = create_connection(f"{URL.replace('http', 'ws', 1)}/api/kernels/{id}/channels?token={KEY}", timeout=60)
    try:
        done = _websocket_run_code_raise_errors("print('said')\n6 * 7", socket, LOGGER)
        assert "said" in done.logs and done.output in (42, "42"), done
        refuses(AgentError, lambda: _websocket_run_code_raise_errors("1 / 0", socket, LOGGER), "ZeroDivisionError")
    finally:
        socket.close()
        assert requests.delete(f"{URL}/api/kernels/{id}?token={KEY}", timeout=30).status_code == 204


main(lambda **_: Shared(), "smolagents")
