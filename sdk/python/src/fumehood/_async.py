"""A live sandbox, for event loops."""

from __future__ import annotations

import builtins
import contextlib
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Callable, TypeVar

from . import _code, _programs, _sandboxes
from ._async_commands import AsyncCommands, AsyncPty
from ._async_files import AsyncFilesystem
from ._binary import Policies, acall, find_program
from ._code import Context, Execution, ExecutionError, OutputMessage, Result
from ._http import Server
from ._link import Link
from ._loop import LoopLink
from ._programs import MAX_OUTPUT
from ._results import CommandResult, Record, SandboxInfo, SandboxList, SandboxState, SnapshotInfo, info_of, snapshot_of
from ._names import Path
from ._sandboxes import TIMEOUT
from ._served import LoopHttpLink
from ._times import milliseconds
from ._wire import LoopWire
from .errors import FumehoodError, SandboxNotFoundException, SandboxNotRunningException

Self = TypeVar("Self", bound="AsyncSandbox")


class AsyncSandbox:
    """As :class:`Sandbox`, for one event loop: ``async with AsyncSandbox() as box:``, or ``await AsyncSandbox.create()``.

    As a context manager it is killed at the end of the block; else by :meth:`kill`, or when its time is over.

    Whatever asks it raises :class:`SandboxNotRunningException` when it has ended or is paused, :class:`ConnectionLost` when its
    supervisor or server is gone, and :class:`TimeoutException` when nothing is answered for 60 seconds.
    """

    def __init__(
        self,
        policy: Policies | None = None,
        workspace: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = TIMEOUT,
        idle: float | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        template: str | None = None,
        snapshot: str | None = None,
        imports: Sequence[str] | None = None,
        flags: Sequence[str] = (),
        binary: str | os.PathLike[str] | None = None,
        url: str | None = None,
        key: str | None = None,
    ) -> None:
        """Says what is wanted, as for :class:`Sandbox`; it is created by ``await`` or ``async with``."""
        self._wanted = (policy, workspace, timeout, idle, name, metadata, envs, template, snapshot, imports, flags, binary)
        self._server = _sandboxes.server_of(url, key, LoopWire.dial)
        self._id, self._binary = "", binary
        self._place: str | Server = ""
        self._live: Link | None = None

    async def _start(self: Self) -> Self:
        if self._live is None and self._server is not None:
            await self._set_up(await self._server.create(_sandboxes.order(*self._wanted)), self._server)
        elif self._live is None:
            with _sandboxes.create_command(*self._wanted) as command:
                info = _sandboxes.created(await acall(command))
            await self._set_up(str(info["id"]), _sandboxes.socket_of(info))
        return self

    async def _set_up(self, sandbox_id: str, place: str | Server) -> None:
        self._id, self._place = sandbox_id, place
        self._live = await self._open()
        self.commands = AsyncCommands(self._live)
        self.files = AsyncFilesystem(self._live)
        self.pty = AsyncPty(self._live)

    async def _open(self) -> Link:
        return await LoopLink.connect(self._place) if isinstance(self._place, str) else LoopHttpLink(self._place, self._id)

    @property
    def _link(self) -> Link:
        if self._live is None:
            raise FumehoodError("this AsyncSandbox was not created yet: use `async with`, or `await AsyncSandbox.create()`")
        return self._live

    @classmethod
    async def create(
        cls: type[Self],
        policy: Policies | None = None,
        workspace: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = TIMEOUT,
        idle: float | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        template: str | None = None,
        snapshot: str | None = None,
        imports: Sequence[str] | None = None,
        flags: Sequence[str] = (),
        binary: str | os.PathLike[str] | None = None,
        url: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Creates one. Raises :class:`Refused` if no plan can hold the policy."""
        box = cls(policy, workspace, timeout=timeout, idle=idle, name=name, metadata=metadata, envs=envs,
                   template=template, snapshot=snapshot, imports=imports, flags=flags,
                  binary=binary, url=url, key=key)
        return await box._start()

    @classmethod
    async def connect(
        cls: type[Self], sandbox_id: str, timeout: float | None = None, *, binary: str | os.PathLike[str] | None = None,
        url: str | None = None, key: str | None = None,
    ) -> Self:
        """Connects to one by id or name; a paused one runs again. With ``timeout`` it lives so many seconds from now at least.

        Raises :class:`SandboxNotFoundException`, :class:`SandboxNotRunningException`.
        """
        place = _sandboxes.server_of(url, key, LoopWire.dial) or _sandboxes.direct(sandbox_id)
        if place is None:
            place = _sandboxes.place_of(await acall(_sandboxes.info_command(sandbox_id, binary)), sandbox_id)
        box = cls(binary=binary)
        try:
            await box._set_up(sandbox_id, place)
        except SandboxNotRunningException:
            # Its supervisor was killed, or ended just now: how, is known by now where anybody knows it.
            if isinstance(place, str):
                with contextlib.suppress(SandboxNotFoundException):
                    _sandboxes.place_of(await acall(_sandboxes.info_command(sandbox_id, binary)), sandbox_id)
            raise
        try:
            found = (await _sandboxes.settle(box._link, timeout)).sandbox_id
        except BaseException:
            await box.close()
            raise
        if found != sandbox_id:
            # By its id from now on: the name may be another's one day.
            await box.close()
            await box._set_up(found, place)
        return box

    @classmethod
    async def list(
        cls, *, all: bool = False, binary: str | os.PathLike[str] | None = None, url: str | None = None, key: str | None = None
    ) -> SandboxList:
        """The sandboxes of this user's state folder, or of a key of a server; with ``all`` also those that have ended."""
        server = _sandboxes.server_of(url, key, LoopWire.dial)
        if server is not None:
            return SandboxList(info_of(one) for one in await server.list(all))
        return _sandboxes.listed(await acall(_sandboxes.ps_command(all, binary)))

    @property
    def sandbox_id(self) -> str:
        """Its id, for :meth:`connect` and the command line."""
        return self._id

    def __await__(self: Self) -> Generator[Any, None, Self]:
        return self._start().__await__()

    async def __aenter__(self: Self) -> Self:
        return await self._start()

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    def __repr__(self) -> str:
        return f"AsyncSandbox({self._id!r})"

    async def kill(self) -> bool:
        """Ends it; returns when nothing of it is left. ``False`` if it had ended already."""
        # A connection of its own: this one may be closed, and kill must end the sandbox all the same.
        await self.close()
        try:
            link = await self._open()
        except SandboxNotRunningException:
            return False
        try:
            return await _sandboxes.kill(link)
        finally:
            await link.close()

    async def close(self) -> None:
        """Ends the connection; the sandbox lives on."""
        await self._link.close()

    async def is_running(self) -> bool:
        """Whether it runs: neither paused nor ended."""
        try:
            return info_of(await self._link.call({"op": "info"})).state is SandboxState.RUNNING
        except SandboxNotRunningException:
            return False

    async def set_timeout(self, timeout: float) -> None:
        """It lives so many seconds from now, whatever was said before (0: it ends at once).

        Raises :class:`InvalidArgumentException` for a negative number or NaN; its end stands then.
        """
        await self._link.call({"op": "timeout", "ms": milliseconds(timeout)})

    async def get_info(self) -> SandboxInfo:
        """All about it, also when it has ended."""
        try:
            return info_of(await self._link.call({"op": "info"}))
        except SandboxNotRunningException:
            if not isinstance(self._place, str):
                # This connection is closed.
                return info_of(await (await self._open()).call({"op": "info"}))
            return info_of(_sandboxes.found(await acall([find_program(self._binary), "info", self._id, "--json"]), self._id))

    async def wait(self) -> SandboxInfo:
        """Waits for its end."""
        try:
            return info_of(await self._link.call({"op": "wait"}, timeout=None))
        except SandboxNotRunningException:
            return await self.get_info()

    async def pause(self) -> bool:
        """Freezes it: its processes are kept and get no processor time. Raises :class:`UnsupportedException` without a freezer."""
        await self._link.call({"op": "pause"})
        return True

    async def resume(self) -> bool:
        """Thaws it."""
        await self._link.call({"op": "resume"})
        return True

    async def run_code(
        self,
        code: str,
        language: str | None = None,
        *,
        context: Context | str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = _code.TIMEOUT,
        on_stdout: Callable[[OutputMessage], Any] | None = None,
        on_stderr: Callable[[OutputMessage], Any] | None = None,
        on_result: Callable[[Result], Any] | None = None,
        on_error: Callable[[ExecutionError], Any] | None = None,
    ) -> Execution:
        """Executes code in a context, whose variables stay: the one that is named, else the default one of the ``language`` (Python).

        ``timeout`` is seconds of its own run (``None``: none), after which it is interrupted; ``envs`` are set for it alone. Listeners
        hear what comes as it comes. What code raises, a timeout too, is ``.error`` of the result. It needs a template with a kernel, or
        an ipykernel of the host; without, :class:`UnsupportedException` says what is missing.
        """
        asked = _code.wanted(code, language, context, envs, timeout)
        tell = {"stdout": on_stdout, "stderr": on_stderr, "result": on_result, "error": on_error}
        return await _code.execute(self._link, asked, tell)

    async def run_python(self, code: str, *, timeout: float | None = 60, max_output: int = MAX_OUTPUT, check: bool = True) -> CommandResult:
        """Runs code that keeps no state in a Python that waits and has imported ``imports`` of this sandbox; each is used once.

        ``timeout`` is seconds, after which it is killed; of each of stdout and stderr ``max_output`` bytes are kept. With ``check`` all but exit code 0 raises, as by ``commands.run``.
        """
        done = await _programs.python(self._link, code, timeout, max_output)
        return done.check() if check else done

    async def create_code_context(self, cwd: str | None = None, language: str | None = None, *, timeout: float = 90) -> Context:
        """A context of its own; returns when its kernel is ready."""
        return await _code.create_context(self._link, cwd, language, timeout)

    async def list_code_contexts(self) -> builtins.list[Context]:
        """All contexts, the oldest first."""
        return await _code.list_contexts(self._link)

    async def restart_code_context(self, context: Context | str, *, timeout: float = 90) -> None:
        """A new kernel under the same id, without variables."""
        await _code.of_context(self._link, "restart", context, timeout)

    async def remove_code_context(self, context: Context | str) -> None:
        """Ends a context."""
        await _code.of_context(self._link, "remove", context, 60)

    async def interrupt_code_context(self, context: Context | str) -> None:
        """Interrupts what it executes, as Ctrl-C would."""
        await _code.of_context(self._link, "interrupt", context, 60)

    async def snapshot(self, name: str | None = None) -> SnapshotInfo:
        """Keeps its workspace, home folder and ``/tmp``, all of one moment; no memory and no programs."""
        asked = {"op": "snapshot"} if name is None else {"op": "snapshot", "name": name}
        return snapshot_of(await self._link.call(asked, timeout=None))

    async def fork(self: Self) -> Self:
        """Another sandbox that begins as this one is now: the same policy and files, no programs."""
        place = self._place
        try:
            if isinstance(place, str):
                made = _sandboxes.forked(await acall(_sandboxes.fork_command(self._id, self._binary)))
            else:
                made = await place.fork(self._id)
        except FumehoodError as error:
            raise _sandboxes.why_not(error, await self.get_info()) from error
        if isinstance(place, str):
            return await type(self).connect(made, binary=self._binary)
        return await type(self).connect(made, url=place.url, key=place.key)

    async def diff(self, files: Sequence[Path] | None = None) -> Record:
        """What it changed in its workspace, as ``fumehood diff --json`` says it."""
        return await self._changes("diff", files)

    async def apply(self, files: Sequence[Path] | None = None, *, digest: str | None = None) -> Record:
        """Takes changes over into the workspace, all or those of ``files``; ``digest`` is what :meth:`diff` showed.

        Raises :class:`FumehoodError` with every reason if it cannot be; nothing was applied then.
        """
        return await self._changes("apply", files, digest)

    async def discard(self, files: Sequence[Path] | None = None) -> Record:
        """Throws changes away, all or those of ``files``."""
        return await self._changes("discard", files)

    async def _changes(self, verb: str, files: Sequence[Path] | None, digest: str | None = None) -> Record:
        if not isinstance(self._place, str):
            return await _sandboxes.changes_of(self._place, self._id, verb, files, digest)
        command = _sandboxes.changes_command(verb, (await self.get_info()).run, files, digest, self._binary)
        return _sandboxes.changed(verb, await acall(command))
