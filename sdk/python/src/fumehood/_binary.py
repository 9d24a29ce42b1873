"""The ``fumehood`` program: where it is, what it is started with, and what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

from ._times import milliseconds
from .errors import FumehoodError, InvalidArgumentException, ProgramNotFoundException, Reason, Refused, SandboxNotFoundException

#: A document as a mapping, a file, or the name of a preset.
PolicyLike = Union[str, "os.PathLike[str]", Mapping[str, Any]]
#: One, or several: later ones over earlier.
Policies = Union[PolicyLike, Sequence[PolicyLike]]

#: Seconds in which a program that is told to end must end.
_PATIENCE = 10


def find_program(program: str | os.PathLike[str] | None = None) -> str:
    """The ``fumehood`` to start: as given, ``$FUMEHOOD_BIN``, the one that was installed with this package, or on the path."""
    if program is not None:
        return os.fspath(program)
    # A wheel puts the program beside its modules or beside the environment's Python, which need not be on the path.
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
    scripts = sysconfig.get_path("scripts")
    found = (
        os.environ.get("FUMEHOOD_BIN")
        or shutil.which("fumehood", path=inside)
        or shutil.which("fumehood", path=scripts)
        or shutil.which("fumehood")
    )
    if not found:
        raise ProgramNotFoundException("no `fumehood` on the path: install it, set FUMEHOOD_BIN, or name the program", code="no_program")
    return found


def state_folder() -> str:
    """Where ``fumehood`` keeps what it knows, by the rules of the program itself."""
    env = os.environ
    if env.get("FUMEHOOD_STATE"):
        return _absolute(env["FUMEHOOD_STATE"], "FUMEHOOD_STATE")
    if os.path.isabs(env.get("XDG_STATE_HOME", "")):
        return os.path.join(env["XDG_STATE_HOME"], "fumehood")
    if os.geteuid() == 0:
        return "/var/lib/fumehood"
    if not env.get("HOME"):
        raise FumehoodError("there is no place for the state folder: set FUMEHOOD_STATE", code="no_state")
    return os.path.join(_absolute(env["HOME"], "HOME"), ".local/state/fumehood")


def _absolute(path: str, variable: str) -> str:
    if not os.path.isabs(path):
        raise FumehoodError(f"{variable} is {path}, which is no absolute path", code="no_state")
    return path


class Answer(NamedTuple):
    """What the program said."""

    code: int
    stdout: bytes
    stderr: bytes

    def json(self) -> Any:
        """Its answer, as JSON; raises :class:`Refused` or :class:`FumehoodError` where that says no."""
        try:
            value = json.loads(self.stdout)
        except ValueError:
            said = self.stderr.decode("utf-8", "replace").strip() or "it said nothing"
            raise FumehoodError(f"`fumehood` ended with {self.code}: {said}") from None
        if self.code == 126 and isinstance(value, dict) and value.get("refused"):
            raise Refused(Reason.of(value["refused"]))
        if self.code == 125 and isinstance(value, dict) and value.get("errors") and "run" not in value:
            raise _failed(value)
        return value


def _failed(value: Mapping[str, Any]) -> FumehoodError:
    reasons = Reason.of(value["errors"])
    words = "\n".join(str(reason) for reason in reasons)
    ids = [reason.id for reason in reasons]
    if any("sandbox" in one and "unknown" in one for one in ids):
        return SandboxNotFoundException(words, code=ids[0])
    return FumehoodError(words, code=ids[0] if ids else "failed")


def call(command: Sequence[str], stdin: bytes | None = None, timeout: float | None = None) -> Answer:
    """Starts the program and waits for its end. An exception here ends it, and with it what it runs."""
    with _started(command, stdin) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            process.terminate()
            try:
                process.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
        return Answer(process.returncode, out, err)


def _started(command: Sequence[str], stdin: bytes | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise ProgramNotFoundException(f"{command[0]} cannot be started: {error}", code="no_program") from error


async def acall(command: Sequence[str], stdin: bytes | None = None) -> Answer:
    """As :func:`call`, in an event loop."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise ProgramNotFoundException(f"{command[0]} cannot be started: {error}", code="no_program") from error
    try:
        out, err = await process.communicate(stdin)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.communicate(), _PATIENCE)
        except asyncio.TimeoutError:
            process.kill()
        raise
    return Answer(process.returncode or 0, out, err)


@contextlib.contextmanager
def clauses(
    policy: Policies | None,
    workspace: str | os.PathLike[str] | None,
    timeout: float | None,
    envs: Mapping[str, str] | None,
    flags: Sequence[str],
    keep: bool = False,
) -> Iterator[list[str]]:
    """Arguments of ``run`` and ``create``. Mappings and variables go through files that only we may read, not through arguments. With
    ``keep`` a policy stays, since a fork or a snapshot of what is created reads it again; variables do not: they may be keys."""
    with contextlib.ExitStack() as files:
        made: list[str] = []
        for layer in _layers(policy):
            made += ["--policy", kept(layer) if keep else file_of(layer, files)]
        if envs:
            # What is created names this file to its end: nobody else may make one there.
            made += ["--policy", file_of({"env": {"set": dict(envs)}}, files, _documents() if keep else None)]
        if workspace is not None:
            made += ["--workspace", _workspace(workspace)]
        if timeout is not None:
            made += ["--timeout", duration(timeout)]
        yield [*made, *flags]


def _layers(policy: Policies | None) -> list[Any]:
    if policy is None:
        return []
    return [policy] if isinstance(policy, (str, os.PathLike, Mapping)) else list(policy)


def _workspace(workspace: str | os.PathLike[str]) -> str:
    text = os.fspath(workspace)
    # Its mode is part of the text: `.:ro`.
    return text or "."


def duration(seconds: float, what: str = "timeout") -> str:
    """Seconds, as a policy writes a time."""
    given = milliseconds(seconds, what)
    if given < 1:
        raise InvalidArgumentException(f"`{what}` is {seconds} seconds: give more than 0", code="invalid")
    return f"{given}ms"


def _documents() -> str:
    """A folder beside what ``fumehood`` knows, which only we may write."""
    folder = os.path.join(state_folder(), "documents")
    try:
        os.makedirs(os.path.dirname(state_folder()), exist_ok=True)
        for one in (state_folder(), folder):
            with contextlib.suppress(FileExistsError):
                os.mkdir(one, 0o700)
    except OSError as error:
        raise FumehoodError(f"{folder} cannot be made: {error}", code="no_state") from error
    return folder


def kept(policy: Any) -> str:
    """As :func:`file_of`; a mapping is written beside what ``fumehood`` knows, under the digest of what it says: nobody else can put
    another one there, and the same one is there once."""
    if not isinstance(policy, Mapping):
        return str(os.fspath(policy))
    text = json.dumps({"version": 1, **policy}, allow_nan=False, sort_keys=True).encode()
    folder = _documents()
    path = os.path.join(folder, hashlib.sha256(text).hexdigest() + ".json")
    try:
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            new = os.path.join(beside, "policy.json")
            with open(new, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
                out.write(text)
            os.replace(new, path)
    except OSError as error:
        raise FumehoodError(f"the policy cannot be kept in {folder}: {error}", code="no_state") from error
    return path


def file_of(policy: Any, files: contextlib.ExitStack, folder: str | None = None) -> str:
    """A policy as the name of a file; a mapping is written to one that only we may read, until the program has read it."""
    if not isinstance(policy, Mapping):
        return str(os.fspath(policy))
    folder = files.enter_context(tempfile.TemporaryDirectory(prefix="fumehood-", dir=folder))
    path = os.path.join(folder, "policy.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"version": 1, **policy}, out, allow_nan=False)
    return path
