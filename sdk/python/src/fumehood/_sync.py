"""A live sandbox, for threads."""

from __future__ import annotations

import builtins
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TypeVar

from . import _code, _programs, _sandboxes
from ._binary import Policies, call, find_program
from ._code import Context, Execution, ExecutionError, OutputMessage, Result
from ._http import Server
from ._link import Link, drive
from ._programs import MAX_OUTPUT
from ._results import CommandResult, Record, SandboxInfo, SandboxList, SandboxState, SnapshotInfo, info_of, snapshot_of
from ._names import Path
from ._sandboxes import TIMEOUT
from ._served import BlockingHttpLink
from ._sync_commands import Commands, Pty
from ._sync_files import Filesystem
from ._threads import BlockingLink
from ._times import milliseconds
from ._wire import BlockingWire
from .errors import FumehoodError, SandboxNotFoundException, SandboxNotRunningException

Self = TypeVar("Self", bound="Sandbox")


class Sandbox:
    """Created once, worked in for as long as it lives. No server: it is a process of this machine's own, which outlives this one.

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
        """Creates one.

        ``policy`` is a preset, a file, a mapping (the document itself), or a list of them; without it ``strict`` holds.
        ``workspace`` is a folder, with a mode if wanted: ``".:ro"``. ``template`` is one of ``fumehood template ls`` (with the preset ``data-analysis`` it is
        ``code-interpreter-v1``, where that was built, here or on the server), ``snapshot``
        what another sandbox was (:meth:`snapshot`). ``imports`` are modules that a Python inside
        has imported when :meth:`run_python` needs it. ``timeout`` is its life in seconds: what is given, else what the policy itself says, else 300 (``None``: no end, where the policy says none), ``idle`` ends it when nothing was asked of it and nothing runs for so many seconds. A ``name`` may stand
        for its id. ``metadata`` is kept with it, ``envs`` are set inside. ``flags`` are further arguments of ``fumehood create``,
        ``binary`` is the program. With ``url`` and ``key`` it is one of a server (``fumehood serve``), without a workspace.

        Raises :class:`Refused` if no plan can hold the policy.
        """
        wanted = (policy, workspace, timeout, idle, name, metadata, envs, template, snapshot, imports, flags, binary)
        server = _sandboxes.server_of(url, key, BlockingWire.dial)
        if server is not None:
            self._set_up(drive(server.create(_sandboxes.order(*wanted))), server, binary)
            return
        with _sandboxes.create_command(*wanted) as command:
            info = _sandboxes.created(call(command))
        self._set_up(str(info["id"]), _sandboxes.socket_of(info), binary)

    def _set_up(self, sandbox_id: str, place: str | Server, binary: str | os.PathLike[str] | None) -> None:
        self._id, self._place, self._binary = sandbox_id, place, binary
        self._link = self._open()
        self.commands = Commands(self._link)
        self.files = Filesystem(self._link)
        self.pty = Pty(self._link)

    def _open(self) -> Link:
        return BlockingLink(self._place) if isinstance(self._place, str) else BlockingHttpLink(self._place, self._id)

    @classmethod
    def create(
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
        """Creates one, as ``Sandbox(...)`` does."""
        return cls(policy, workspace, timeout=timeout, idle=idle, name=name, metadata=metadata, envs=envs,
                   template=template, snapshot=snapshot, imports=imports, flags=flags,
                   binary=binary, url=url, key=key)

    @classmethod
    def connect(
        cls: type[Self], sandbox_id: str, timeout: float | None = None, *, binary: str | os.PathLike[str] | None = None,
        url: str | None = None, key: str | None = None,
    ) -> Self:
        """Connects to one by id or name; a paused one runs again. With ``timeout`` it lives so many seconds from now at least.

        Raises :class:`SandboxNotFoundException`, :class:`SandboxNotRunningException`.
        """
        place = _sandboxes.server_of(url, key, BlockingWire.dial) or _sandboxes.direct(sandbox_id)
        if place is None:
            place = _sandboxes.place_of(call(_sandboxes.info_command(sandbox_id, binary)), sandbox_id)
        box = cls.__new__(cls)
        try:
            box._set_up(sandbox_id, place, binary)
        except SandboxNotRunningException:
            # Its supervisor was killed, or ended just now: how, is known by now where anybody knows it.
            if isinstance(place, str):
                with contextlib.suppress(SandboxNotFoundException):
                    _sandboxes.place_of(call(_sandboxes.info_command(sandbox_id, binary)), sandbox_id)
            raise
        try:
            found = drive(_sandboxes.settle(box._link, timeout)).sandbox_id
        except BaseException:
            box.close()
            raise
        if found != sandbox_id:
            # By its id from now on: the name may be another's one day.
            box.close()
            box._set_up(found, place, binary)
        return box

    @classmethod
    def list(
        cls, *, all: bool = False, binary: str | os.PathLike[str] | None = None, url: str | None = None, key: str | None = None
    ) -> SandboxList:
        """The sandboxes of this user's state folder, or of a key of a server; with ``all`` also those that have ended."""
        server = _sandboxes.server_of(url, key, BlockingWire.dial)
        if server is not None:
            return SandboxList(info_of(one) for one in drive(server.list(all)))
        return _sandboxes.listed(call(_sandboxes.ps_command(all, binary)))

    @property
    def sandbox_id(self) -> str:
        """Its id, for :meth:`connect` and the command line."""
        return self._id

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"Sandbox({self._id!r})"

    def kill(self) -> bool:
        """Ends it; returns when nothing of it is left. ``False`` if it had ended already."""
        # A connection of its own: this one may be closed, and kill must end the sandbox all the same.
        self.close()
        try:
            link = self._open()
        except SandboxNotRunningException:
            return False
        try:
            return drive(_sandboxes.kill(link))
        finally:
            drive(link.close())

    def close(self) -> None:
        """Ends the connection; the sandbox lives on."""
        drive(self._link.close())

    def is_running(self) -> bool:
        """Whether it runs: neither paused nor ended."""
        try:
            return info_of(drive(self._link.call({"op": "info"}))).state is SandboxState.RUNNING
        except SandboxNotRunningException:
            return False

    def set_timeout(self, timeout: float) -> None:
        """It lives so many seconds from now, whatever was said before (0: it ends at once).

        Raises :class:`InvalidArgumentException` for a negative number or NaN; its end stands then.
        """
        drive(self._link.call({"op": "timeout", "ms": milliseconds(timeout)}))

    def get_info(self) -> SandboxInfo:
        """All about it, also when it has ended."""
        try:
            return info_of(drive(self._link.call({"op": "info"})))
        except SandboxNotRunningException:
            if not isinstance(self._place, str):
                # This connection is closed.
                return info_of(drive(self._open().call({"op": "info"})))
            return info_of(_sandboxes.found(call([find_program(self._binary), "info", self._id, "--json"]), self._id))

    def wait(self) -> SandboxInfo:
        """Waits for its end."""
        try:
            return info_of(drive(self._link.call({"op": "wait"}, timeout=None)))
        except SandboxNotRunningException:
            return self.get_info()

    def pause(self) -> bool:
        """Freezes it: its processes are kept and get no processor time. Raises :class:`UnsupportedException` without a freezer."""
        drive(self._link.call({"op": "pause"}))
        return True

    def resume(self) -> bool:
        """Thaws it."""
        drive(self._link.call({"op": "resume"}))
        return True

    def run_code(
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
        return drive(_code.execute(self._link, asked, tell))

    def run_python(self, code: str, *, timeout: float | None = 60, max_output: int = MAX_OUTPUT, check: bool = True) -> CommandResult:
        """Runs code that keeps no state in a Python that waits and has imported ``imports`` of this sandbox; each is used once.

        ``timeout`` is seconds, after which it is killed; of each of stdout and stderr ``max_output`` bytes are kept. With ``check`` all but exit code 0 raises, as by ``commands.run``.
        """
        done = drive(_programs.python(self._link, code, timeout, max_output))
        return done.check() if check else done

    def create_code_context(self, cwd: str | None = None, language: str | None = None, *, timeout: float = 90) -> Context:
        """A context of its own; returns when its kernel is ready, for which it has ``timeout`` seconds."""
        return drive(_code.create_context(self._link, cwd, language, timeout))

    def list_code_contexts(self) -> builtins.list[Context]:
        """All contexts, the oldest first."""
        return drive(_code.list_contexts(self._link))

    def restart_code_context(self, context: Context | str, *, timeout: float = 90) -> None:
        """A new kernel under the same id, without variables; ``timeout`` is in seconds. Raises :class:`NotFoundException`."""
        drive(_code.of_context(self._link, "restart", context, timeout))

    def remove_code_context(self, context: Context | str) -> None:
        """Ends a context."""
        drive(_code.of_context(self._link, "remove", context, 60))

    def interrupt_code_context(self, context: Context | str) -> None:
        """Interrupts what it executes, as Ctrl-C would."""
        drive(_code.of_context(self._link, "interrupt", context, 60))

    def snapshot(self, name: str | None = None) -> SnapshotInfo:
        """Keeps its workspace, home folder and ``/tmp``, all of one moment; no memory and no programs.

        ``Sandbox(snapshot=...)`` makes another sandbox of it. Raises :class:`UnsupportedException` without a freezer.
        """
        asked = {"op": "snapshot"} if name is None else {"op": "snapshot", "name": name}
        return snapshot_of(drive(self._link.call(asked, timeout=None)))

    def fork(self: Self) -> Self:
        """Another sandbox that begins as this one is now: the same policy and files, no programs. It lives as long as this one was to."""
        place = self._place
        try:
            if isinstance(place, str):
                made = _sandboxes.forked(call(_sandboxes.fork_command(self._id, self._binary)))
            else:
                made = drive(place.fork(self._id))
        except FumehoodError as error:
            raise _sandboxes.why_not(error, self.get_info()) from error
        if isinstance(place, str):
            return type(self).connect(made, binary=self._binary)
        return type(self).connect(made, url=place.url, key=place.key)

    def diff(self, files: Sequence[Path] | None = None) -> Record:
        """What it changed in its workspace, as ``fumehood diff --json`` says it: ``entries``, ``digest``, ``text``, ..."""
        return self._changes("diff", files)

    def apply(self, files: Sequence[Path] | None = None, *, digest: str | None = None) -> Record:
        """Takes changes over into the workspace, all or those of ``files``; ``digest`` is what :meth:`diff` showed.

        Raises :class:`FumehoodError` with every reason if it cannot be; nothing was applied then.
        """
        return self._changes("apply", files, digest)

    def discard(self, files: Sequence[Path] | None = None) -> Record:
        """Throws changes away, all or those of ``files``."""
        return self._changes("discard", files)

    def _changes(self, verb: str, files: Sequence[Path] | None, digest: str | None = None) -> Record:
        if not isinstance(self._place, str):
            return drive(_sandboxes.changes_of(self._place, self._id, verb, files, digest))
        command = _sandboxes.changes_command(verb, self.get_info().run, files, digest, self._binary)
        return _sandboxes.changed(verb, call(command))
