"""Tools for LangChain and LangGraph, over one live sandbox."""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from ._results import FileType
from ._sync import Sandbox
from .errors import FumehoodError

#: Bytes of output and of files that a model is given.
_MOST = 128 * 1024


def tools(box: Sandbox, *, timeout: float = 60) -> list[BaseTool]:
    """``run_command``, ``read_file``, ``write_file`` and ``list_files``; ``timeout`` is in seconds for each command.

    What goes wrong is the tool's answer, with status ``error``; that the sandbox is gone is raised.
    """

    def run_command(command: Annotated[str, "a command line for bash"]) -> str:
        """Run a command in the sandbox; what it prints to stdout and stderr comes back."""
        done = box.commands.run(command, timeout=timeout, check=False, max_output=_MOST)
        said = "\n".join(part.rstrip("\n") for part in (done.stdout, done.stderr) if part)
        if done.error is not None:
            raise ToolException(f"{said}\n[{done.error}]".lstrip("\n"))
        return said

    def read_file(path: str) -> str:
        """Read a text file of the sandbox."""
        return box.files.read(path, format="bytes", max_bytes=_MOST).decode("utf-8", "replace")

    def write_file(path: str, content: str) -> str:
        """Make or replace a text file of the sandbox, and the folders above it."""
        return f"{box.files.write(path, content).path} was written"

    def list_files(path: str = ".") -> str:
        """List a folder of the sandbox."""
        names = [f"{one.name}/" if one.type is FileType.DIR else one.name for one in box.files.list(path)]
        return "\n".join(names[:1000])

    return [_tool(one) for one in (run_command, read_file, write_file, list_files)]


def _tool(function: Any) -> BaseTool:
    def call(**values: Any) -> Any:
        try:
            return function(**values)
        except FumehoodError as error:
            if error.code in ("ended", "closed", "protocol", "fork", "paused"):
                raise
            raise ToolException(str(error)) from error

    made = StructuredTool.from_function(function, parse_docstring=False)
    return StructuredTool(
        name=made.name, description=made.description, args_schema=made.args_schema, func=call, handle_tool_error=True
    )


__all__ = ["tools"]
