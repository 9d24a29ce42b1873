"""``sandbox="fumehood"`` for inspect_ai: each sample has a live sandbox of its own.

The configuration is a policy: a preset, the path of a document, or ``("fumehood", "policy.toml")`` as inspect writes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from typing import Any, Literal, NoReturn, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)

from . import _files, _names
from ._async import AsyncSandbox
from ._binary import find_program
from ._results import FileType
from .errors import FileNotFoundException, FumehoodError, SandboxNotRunningException, TimeoutException

#: Seconds that a sample's sandbox lives, unless the evaluation ends it before.
LIFE = 24 * 3600.0
_POLICY = "coding-agent"


@sandboxenv(name="fumehood")
class FumehoodSandboxEnvironment(SandboxEnvironment):
    """One live sandbox; paths are relative to where its programs start."""

    def __init__(self, box: AsyncSandbox, agent: dict[str, Any]) -> None:
        super().__init__()
        self.box = box
        self._cwd = _names.read(str(agent.get("cwd") or "/"))
        self._users = {str(agent.get("user")), str(agent.get("uid"))}

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        policy = config if config is None or isinstance(config, (str, dict)) else config.model_dump(exclude_none=True)
        box = await AsyncSandbox.create(policy or _POLICY, timeout=LIFE, metadata={"inspect_task": task_name})
        return {"default": cls(box, (await box.get_info()).data.get("agent") or {})}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        for environment in environments.values():
            await environment.as_type(FumehoodSandboxEnvironment).box.kill()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        for info in await AsyncSandbox.list():
            if "inspect_task" in info.metadata and id in (None, info.sandbox_id):
                box = await AsyncSandbox.connect(info.sandbox_id)
                await box.kill()

    @classmethod
    def default_concurrency(cls) -> int | None:
        return os.cpu_count()

    async def exec(
        self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None, env: dict[str, str] | None = None,
        user: str | None = None, timeout: int | None = None, timeout_retry: bool = True, concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None and user not in self._users:
            raise SandboxUserUnsupportedError(f"a sandbox of Fumehood has one user, {sorted(self._users)}: not {user!r}")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            done = await self.box.commands.run(
                list(cmd), envs=env, cwd=self._at(cwd or "."), timeout=timeout, stdin=input, max_output=limit, check=False
            )
        except FumehoodError as error:
            _raise(error, cwd or cmd[0])
        if done.limit == "wall":
            raise TimeoutError(done.error)
        if done.outcome == "refused" and done.exit_code == 126:
            raise PermissionError(errno.EACCES, done.error, cmd[0])
        if done.dropped:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, done.stdout)
        return ExecResult(done.exit_code == 0, done.exit_code, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        try:
            # A write replaces the file, for which its own permissions count for nothing; inspect's contract has them count.
            with contextlib.suppress(FileNotFoundException):
                if (there := await self.box.files.get_info(self._at(file))).type is FileType.FILE and not there.mode & 0o222:
                    raise PermissionError(errno.EACCES, "permission denied", file)
            await self.box.files.write(self._at(file), contents)
        except FumehoodError as error:
            _raise(error, file)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await _files.read(self.box._link, self._at(file), most=limit, timeout=60)
        except FumehoodError as error:
            if error.code == "too_many":
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
            _raise(error, file)
        return data.decode("utf-8") if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        program = find_program()
        return SandboxConnection(type="fumehood", command=f"{program} exec -i -t {self.box.sandbox_id} -- /bin/sh -i")

    def default_polling_interval(self) -> float:
        return 0.2

    def _at(self, path: str) -> str:
        return posixpath.join(self._cwd, path)


def _raise(error: FumehoodError, path: str) -> NoReturn:
    """What inspect's contract has for it."""
    of_code: dict[str, tuple[int, str]] = {
        "not_found": (errno.ENOENT, "no such file or directory"),
        "no_cwd": (errno.ENOENT, "no such directory"),
        "is_a_directory": (errno.EISDIR, "is a directory"),
        "not_a_directory": (errno.ENOTDIR, "not a directory"),
        "denied": (errno.EACCES, "permission denied"),
        "no_space": (errno.ENOSPC, "no space left"),
    }
    if isinstance(error, SandboxNotRunningException):
        raise SandboxUnavailableError(str(error)) from error
    if isinstance(error, TimeoutException):
        raise TimeoutError(str(error)) from error
    if error.code in of_code:
        # The number chooses the class: FileNotFoundError, IsADirectoryError, PermissionError.
        raise OSError(of_code[error.code][0], of_code[error.code][1], path) from error
    raise error


__all__ = ["FumehoodSandboxEnvironment"]
