"""A live sandbox, for threads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeVar

from . import _sandboxes
from ._binary import Policies, call, find_program
from ._http import HttpLink, Server
from ._link import Link, drive
from ._results import Record, SandboxInfo, SandboxList, SandboxState, info_of
from ._sandboxes import TIMEOUT
from ._sync_commands import Commands, Pty
from ._sync_files import Filesystem
from ._threads import BlockingLink
from .errors import SandboxNotRunningException

Self = TypeVar("Self", bound="Sandbox")


class Sandbox:
    """Created once, worked in for as long as it lives. No server: it is a process of this machine's own, which outlives this one.

    As a context manager it is killed at the end of the block; else by :meth:`kill`, or when its time is over.
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
        flags: Sequence[str] = (),
        binary: str | os.PathLike[str] | None = None,
        url: str | None = None,
        key: str | None = None,
    ) -> None:
        """Creates one.

        ``policy`` is a preset, a file, a mapping (the document itself), or a list of them; without it ``strict`` holds.
        ``workspace`` is a folder, with a mode if wanted: ``".:ro"``. ``timeout`` is its life in seconds (``None``: what the
        policy says), ``idle`` ends it when nothing was asked of it and nothing runs for so many seconds. A ``name`` may stand
        for its id. ``metadata`` is kept with it, ``envs`` are set inside. ``flags`` are further arguments of ``fumehood create``,
        ``binary`` is the program. With ``url`` and ``key`` it is one of a server (``fumehood serve``), without a workspace.

        Raises :class:`Refused` if no plan can hold the policy.
        """
        wanted = (policy, workspace, timeout, idle, name, metadata, envs, flags, binary)
        server = _sandboxes.server_of(url, key)
        if server is not None:
            self._set_up(str(server.create(_sandboxes.order(*wanted))["id"]), server, binary)
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
        return BlockingLink(self._place) if isinstance(self._place, str) else HttpLink(self._place, self._id)

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
        flags: Sequence[str] = (),
        binary: str | os.PathLike[str] | None = None,
        url: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Creates one, as ``Sandbox(...)`` does."""
        return cls(policy, workspace, timeout=timeout, idle=idle, name=name, metadata=metadata, envs=envs, flags=flags,
                   binary=binary, url=url, key=key)

    @classmethod
    def connect(
        cls: type[Self], sandbox_id: str, timeout: float | None = None, *, binary: str | os.PathLike[str] | None = None,
        url: str | None = None, key: str | None = None,
    ) -> Self:
        """Connects to one by id or name; a paused one runs again. With ``timeout`` it lives so many seconds from now at least.

        Raises :class:`SandboxNotFoundException`, :class:`SandboxNotRunningException`.
        """
        place = _sandboxes.server_of(url, key) or _sandboxes.direct(sandbox_id)
        if place is None:
            answer = call([find_program(binary), "info", sandbox_id, "--json"])
            place = _sandboxes.socket_of(_sandboxes.found(answer, sandbox_id))
        box = cls.__new__(cls)
        box._set_up(sandbox_id, place, binary)
        try:
            box._id = drive(_sandboxes.settle(box._link, timeout)).sandbox_id
        except BaseException:
            box.close()
            raise
        return box

    @classmethod
    def list(
        cls, *, all: bool = False, binary: str | os.PathLike[str] | None = None, url: str | None = None, key: str | None = None
    ) -> SandboxList:
        """The sandboxes of this user's state folder, or of a key of a server; with ``all`` also those that have ended."""
        server = _sandboxes.server_of(url, key)
        if server is not None:
            return SandboxList(info_of(one) for one in server.list())
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
        """It lives so many seconds from now, whatever was said before."""
        drive(self._link.call({"op": "timeout", "ms": max(0, round(timeout * 1000))}))

    def get_info(self) -> SandboxInfo:
        """All about it, also when it has ended."""
        try:
            return info_of(drive(self._link.call({"op": "info"})))
        except SandboxNotRunningException:
            if not isinstance(self._place, str):
                raise
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

    def diff(self, files: Sequence[str | os.PathLike[str]] | None = None) -> Record:
        """What it changed in its workspace, as ``fumehood diff --json`` says it: ``entries``, ``digest``, ``text``, ..."""
        return self._changes("diff", files, ())

    def apply(self, files: Sequence[str | os.PathLike[str]] | None = None, *, digest: str | None = None) -> Record:
        """Takes changes over into the workspace, all or those of ``files``; ``digest`` is what :meth:`diff` showed.

        Raises :class:`FumehoodError` with every reason if it cannot be; nothing was applied then.
        """
        return self._changes("apply", files, () if digest is None else ("--digest", digest))

    def discard(self, files: Sequence[str | os.PathLike[str]] | None = None) -> Record:
        """Throws changes away, all or those of ``files``."""
        return self._changes("discard", files, ())

    def _changes(self, verb: str, files: Sequence[str | os.PathLike[str]] | None, flags: Sequence[str]) -> Record:
        _sandboxes.here_alone(self._place, verb)
        command = _sandboxes.changes_command(verb, self.get_info().run, files, flags, self._binary)
        return _sandboxes.changed(verb, call(command))
