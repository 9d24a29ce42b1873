"""The executor of the OpenAI Agents SDK's ``ShellTool``, over one live sandbox.

.. code-block:: python

    agent = Agent(..., tools=[ShellTool(executor=shell_executor(box))])
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agents import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult

from ._async import AsyncSandbox
from ._results import CommandResult
from ._sync import Sandbox
from .errors import FumehoodError

#: Seconds for a command where the model says nothing.
_TIMEOUT = 60.0
_MAX_OUTPUT = 256 * 1024


def shell_executor(
    box: Sandbox | AsyncSandbox, *, cwd: str | None = None, timeout: float = _TIMEOUT
) -> Callable[[ShellCommandRequest], Awaitable[ShellResult]]:
    """Runs each command of a call by bash, one after the other; ``timeout`` seconds each, unless the model asks for less.

    After a command that ran out of time the rest of the call is left out.
    """

    async def executor(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        seconds = min(timeout, action.timeout_ms / 1000) if action.timeout_ms else timeout
        most = action.max_output_length
        output = []
        for command in action.commands:
            done = await _run(box, command, cwd, seconds, most)
            output.append(done)
            if done.outcome.type == "timeout":
                break
        return ShellResult(output=output, max_output_length=most)

    return executor


async def _run(
    box: Sandbox | AsyncSandbox, command: str, cwd: str | None, seconds: float, most: int | None
) -> ShellCommandOutput:
    more: dict[str, Any] = {
        "cwd": cwd, "timeout": seconds, "check": False, "max_output": _MAX_OUTPUT if most is None else max(0, min(most, _MAX_OUTPUT)),
    }
    done: CommandResult
    try:
        if isinstance(box, AsyncSandbox):
            done = await box.commands.run(command, **more)
        else:
            run: Any = box.commands.run
            done = await asyncio.to_thread(run, command, **more)
    except FumehoodError as error:
        if error.code in ("ended", "closed", "protocol", "fork", "paused"):
            raise
        return ShellCommandOutput(stderr=str(error), outcome=ShellCallOutcome(type="exit", exit_code=1), command=command)
    if done.limit == "wall":
        return ShellCommandOutput(done.stdout, done.stderr, ShellCallOutcome(type="timeout"), command)
    stderr = done.stderr if done.outcome == "exited" else f"{done.stderr}{done.error}\n"
    return ShellCommandOutput(done.stdout, stderr, ShellCallOutcome(type="exit", exit_code=done.exit_code), command)


__all__ = ["shell_executor"]
