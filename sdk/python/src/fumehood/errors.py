"""What goes wrong, as exceptions: all of them are a :class:`FumehoodError`, and each carries ``.violations``.

Names follow E2B's Python SDK where both have the thing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Sequence

if TYPE_CHECKING:
    from ._results import CommandResult, RunResult


#: What is the same here as a command of the shell, for those who read in a message of a command alone.
_CALLS = {
    "apply": "box.apply()", "cp": "box.files", "create": "Sandbox(...)", "diff": "box.diff()", "discard": "box.discard()",
    "exec": "box.commands.run(...)", "fork": "box.fork()", "info": "box.get_info()", "kill": "box.kill()", "pause": "box.pause()",
    "ps": "Sandbox.list()", "resume": "box.resume()", "run": "fumehood.run(...)", "snapshot": "box.snapshot()", "wait": "box.wait()",
}
_COMMAND = re.compile(r"`fumehood ([a-z]+)(?: [^`]*)?`(?! \(here )")


def _here(message: str) -> str:
    """A message with the calls of this package beside the commands that it names."""

    def both(found: re.Match[str]) -> str:
        call = _CALLS.get(found[1])
        return f"{found[0]} (here `{call}`)" if call else found[0]

    return _COMMAND.sub(both, message)


@dataclass(frozen=True)
class Violation:
    """An attempt of a program that was stopped, worded for the model that wrote the program."""

    id: str
    clause: str
    what: str
    why: str
    instead: str
    #: How often it was seen.
    count: int = 1
    #: ``kernel``, ``broker`` (of the network), or ``output``: read from what the program printed, which is a hint and no evidence.
    seen: str = "kernel"
    #: Of a connection to an address that no name was looked up for: the program that had it, or ``unknown``; else empty.
    program: str = ""

    @classmethod
    def of(cls, data: Any) -> tuple[Violation, ...]:
        """The ``violations`` of a report."""
        return tuple(cls._one(one) for one in data or () if isinstance(one, Mapping))

    @classmethod
    def _one(cls, data: Mapping[str, Any]) -> Violation:
        text = {name: str(data.get(name) or "") for name in ("id", "clause", "what", "why", "instead")}
        count = data.get("count")
        seen, program = str(data.get("seen") or "kernel"), str(data.get("program") or "")
        return cls(**text, count=count if isinstance(count, int) else 1, seen=seen, program=program)


@dataclass(frozen=True)
class Reason:
    """One reason of a refusal or of a failure: what, where, why, and what to do."""

    id: str
    what: str
    where: str
    why: str
    fix: str
    clause: str | None = None

    @classmethod
    def of(cls, data: Any) -> tuple[Reason, ...]:
        """The ``refused`` or ``errors`` of an answer of ``fumehood --json``."""
        return tuple(cls._one(one) for one in data or () if isinstance(one, Mapping))

    @classmethod
    def _one(cls, data: Mapping[str, Any]) -> Reason:
        text = {name: str(data.get(name) or "") for name in ("id", "what", "where", "why", "fix")}
        clause = data.get("clause")
        return cls(**text, clause=None if clause is None else str(clause))

    def __str__(self) -> str:
        words = f"{self.what}: {self.why}" if self.why else self.what
        words = f"{words} (at {self.where})" if self.where else words
        return f"{words}\n  fix: {self.fix}" if self.fix else words


class FumehoodError(RuntimeError):
    """Base of all errors of this package. ``code`` is one word for programs, e.g. ``not_found``."""

    def __init__(self, message: str, *, code: str = "failed", violations: Sequence[Violation] = ()) -> None:
        super().__init__(_here(message))
        self.code = code
        self.violations: tuple[Violation, ...] = tuple(violations)


class Refused(FumehoodError):
    """Nothing was run: no plan could hold the policy (exit code 126). ``refused`` has every reason with its remedy."""

    def __init__(self, refused: Sequence[Reason], message: str | None = None) -> None:
        lines = [message or "refused: nothing was run", *(f"- {reason}" for reason in refused)]
        super().__init__("\n".join(lines), code="refused")
        self.refused: tuple[Reason, ...] = tuple(refused)


class TimeoutException(FumehoodError):
    """Something took longer than it was given; of a command its whole tree was killed. ``result`` has what it printed."""

    #: As of :class:`LimitExceeded`.
    limit = "wall"

    def __init__(
        self, message: str, *, code: str = "timeout", result: CommandResult | RunResult | None = None
    ) -> None:
        super().__init__(message, code=code, violations=result.violations if result else ())
        self.result = result


class LimitExceeded(FumehoodError):
    """A limit of the policy ended a program. ``limit`` names it (``output``, ``memory``, ...), ``result`` has what it printed."""

    def __init__(self, message: str, limit: str, result: CommandResult | RunResult | None = None) -> None:
        super().__init__(message, code="limit", violations=result.violations if result else ())
        self.limit = limit
        self.result = result


class CommandExitException(FumehoodError):
    """A command ended with another exit code than 0. It has all that :class:`CommandResult` has."""

    def __init__(self, result: CommandResult | RunResult) -> None:
        said = f"\n{result.stderr.rstrip()}" if result.stderr.strip() else ""
        super().__init__(f"the command ended with {result.exit_code}: {result.error or ''}{said}", code="exit",
                         violations=result.violations)
        self.result = result
        self.stdout: str = result.stdout
        self.stderr: str = result.stderr
        self.exit_code: int = result.exit_code
        self.error: str | None = result.error


class NotFoundException(FumehoodError):
    """Something is not there."""


class FileNotFoundException(NotFoundException):
    """A file or folder is not there."""


class ProcessNotFoundException(NotFoundException):
    """No such command runs in the sandbox."""


class SandboxNotFoundException(NotFoundException):
    """No sandbox has this id or name."""


class ProgramNotFoundException(NotFoundException):
    """There is no ``fumehood`` program to start."""


class SandboxNotRunningException(TimeoutException):
    """The sandbox has ended or is paused (``code`` says which); asking again does not help. As E2B has it, a kind of timeout."""


class InvalidArgumentException(FumehoodError):
    """The request makes no sense, e.g. a folder where a file is needed; ``code`` says which."""


class PermissionDeniedException(FumehoodError):
    """The sandbox's own user may not do it."""


class NotEnoughSpaceException(FumehoodError):
    """No room is left: bytes, inodes, or a limit of the policy."""


class TooManyException(FumehoodError):
    """Too many at once, or too large."""


class UnsupportedException(FumehoodError):
    """This sandbox, or this host, cannot do it; the message says why."""


class ConnectionLost(FumehoodError):
    """The supervisor of the sandbox is gone, or said what the protocol does not allow."""


#: E2B's name of the base, for code that moves.
SandboxException = FumehoodError

_OF_CODE: dict[str, type[FumehoodError]] = {
    "not_found": NotFoundException,
    "exists": InvalidArgumentException,
    "not_a_directory": InvalidArgumentException,
    "is_a_directory": InvalidArgumentException,
    "invalid": InvalidArgumentException,
    "no_cwd": InvalidArgumentException,
    "denied": PermissionDeniedException,
    "secret": PermissionDeniedException,
    "not_executable": PermissionDeniedException,
    "no_space": NotEnoughSpaceException,
    "too_many": TooManyException,
    "unsupported": UnsupportedException,
    "ended": SandboxNotRunningException,
    "paused": SandboxNotRunningException,
}


def of_failure(code: str, message: str, *, missing: type[FumehoodError] = NotFoundException) -> FumehoodError:
    """The exception for what a supervisor answered; ``missing`` is what is not there if something is not."""
    kind = missing if code == "not_found" else _OF_CODE.get(code, FumehoodError)
    return kind(message, code=code)
