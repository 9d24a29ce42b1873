"""The tools that Anthropic's models know by name, over one live sandbox: for ``client.beta.messages.tool_runner``.

.. code-block:: python

    with Sandbox("coding-agent", workspace=".") as box:
        runner = client.beta.messages.tool_runner(tools=[bash(box), text_editor(box)], ...)
"""

from __future__ import annotations

from typing import Any, Mapping

from anthropic.lib.tools import BetaBuiltinFunctionTool, ToolError

from ._results import FileType
from ._session import BashSession, SessionEnded
from ._sync import Sandbox
from .errors import FileNotFoundException, FumehoodError, SandboxNotRunningException, TimeoutException

#: Bytes of a file that an editor opens.
_MAX_FILE = 8 << 20
#: Names that a folder shows.
_MAX_NAMES = 1000


def bash(box: Sandbox, *, timeout: float | None = 120) -> BetaBuiltinFunctionTool:
    """``bash_20250124``: one session that keeps its folder and its variables; ``timeout`` is in seconds for each command."""
    return _Bash(box, timeout)


def text_editor(box: Sandbox, *, max_characters: int | None = None) -> BetaBuiltinFunctionTool:
    """``text_editor_20250728``: view, create, str_replace and insert on the files of the sandbox."""
    return _TextEditor(box, max_characters)


class _Bash(BetaBuiltinFunctionTool):
    def __init__(self, box: Sandbox, timeout: float | None) -> None:
        self._session = BashSession(box, timeout)

    def to_dict(self) -> Any:
        return {"type": "bash_20250124", "name": "bash"}

    def call(self, input: object) -> str:
        asked = _asked(input)
        if asked.get("restart"):
            self._session.restart()
            return "the shell was restarted"
        command = asked.get("command")
        if not isinstance(command, str):
            raise ToolError("`command` is missing: give the command, or `restart`")
        try:
            said, code = self._session.run(command)
        except SessionEnded as error:
            raise ToolError(f"{error.text}\n{error}; the next command finds a new shell".strip()) from error
        except (SandboxNotRunningException, FumehoodError) as error:
            _ours(error)
            raise ToolError(str(error)) from error
        if code != 0:
            raise ToolError(f"{said}\n[exit code {code}]".lstrip("\n"))
        return said


class _TextEditor(BetaBuiltinFunctionTool):
    def __init__(self, box: Sandbox, max_characters: int | None) -> None:
        self._box, self._max = box, max_characters

    def to_dict(self) -> Any:
        made: dict[str, Any] = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
        return made if self._max is None else {**made, "max_characters": self._max}

    def call(self, input: object) -> str:
        asked = _asked(input)
        does = {"view": self._view, "create": self._create, "str_replace": self._replace, "insert": self._insert}
        command = does.get(str(asked.get("command")))
        if command is None:
            raise ToolError(f"`{asked.get('command')}` is no command: one of {', '.join(does)}")
        path = asked.get("path")
        if not isinstance(path, str) or not path:
            raise ToolError("`path` is missing")
        try:
            return command(path, asked)
        except FumehoodError as error:
            _ours(error)
            raise ToolError(str(error)) from error

    def _read(self, path: str) -> str:
        data = self._box.files.read(path, format="bytes", max_bytes=_MAX_FILE)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(f"{path} is no text") from None

    def _view(self, path: str, asked: Mapping[str, Any]) -> str:
        if self._box.files.get_info(path).type is FileType.DIR:
            return self._folder(path)
        lines = self._read(path).split("\n")
        first, last = _range(asked.get("view_range"), len(lines))
        shown = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines[first - 1 : last], first))
        if self._max is not None and len(shown) > self._max:
            shown = f"{shown[: self._max]}\n[cut at {self._max} characters: give a `view_range`]"
        return shown

    def _folder(self, path: str) -> str:
        found = [one for one in self._box.files.list(path, depth=2) if "/." not in one.path]
        names = [f"{one.path}/" if one.type is FileType.DIR else one.path for one in found[:_MAX_NAMES]]
        more = [f"[{len(found) - _MAX_NAMES} more]"] if len(found) > _MAX_NAMES else []
        return "\n".join([f"{path}, two levels deep, without hidden files:", *names, *more])

    def _create(self, path: str, asked: Mapping[str, Any]) -> str:
        self._box.files.write(path, _text(asked, "file_text"))
        return f"{path} was written"

    def _replace(self, path: str, asked: Mapping[str, Any]) -> str:
        old, new = _text(asked, "old_str"), _text(asked, "new_str", "")
        text = self._read(path)
        count = text.count(old) if old else 0
        if count != 1:
            raise ToolError(f"`old_str` is {count} times in {path}: it must be there exactly once, so give more of the lines around it")
        self._box.files.write(path, text.replace(old, new))
        return f"{path} was changed"

    def _insert(self, path: str, asked: Mapping[str, Any]) -> str:
        lines = self._read(path).splitlines(keepends=True)
        at, new = asked.get("insert_line"), _text(asked, "insert_text" if "insert_text" in asked else "new_str")
        if not isinstance(at, int) or not 0 <= at <= len(lines):
            raise ToolError(f"`insert_line` is a number from 0 to {len(lines)}, the line after which to insert")
        if at and not lines[at - 1].endswith("\n"):
            lines[at - 1] += "\n"
        self._box.files.write(path, "".join([*lines[:at], new if new.endswith("\n") else f"{new}\n", *lines[at:]]))
        return f"{path} was changed"


def _asked(input: object) -> Mapping[str, Any]:
    if not isinstance(input, Mapping):
        raise ToolError("the input is no object")
    return input


def _text(asked: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = asked.get(name, default)
    if not isinstance(value, str):
        raise ToolError(f"`{name}` is missing")
    return value


def _range(wanted: Any, count: int) -> tuple[int, int]:
    if wanted is None:
        return 1, count
    fits = isinstance(wanted, (list, tuple)) and len(wanted) == 2 and all(isinstance(one, int) for one in wanted)
    if not fits or not 1 <= wanted[0] <= count or (wanted[1] != -1 and wanted[1] < wanted[0]):
        raise ToolError(f"`view_range` is two line numbers, first and last (-1 = the end); the file has {count} lines")
    return wanted[0], count if wanted[1] == -1 else min(wanted[1], count)


def _ours(error: FumehoodError) -> None:
    """Raises what is not the model's business: without a sandbox the agent must stop."""
    gone = isinstance(error, SandboxNotRunningException) or not isinstance(error, (FileNotFoundException, TimeoutException))
    if gone and error.code in ("ended", "closed", "protocol", "fork", "paused"):
        raise error


__all__ = ["bash", "text_editor"]
