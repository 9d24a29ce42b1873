"""What requests give back. Names follow E2B's Python SDK where both have the thing."""

from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass, field
from enum import Enum
from typing import IO, Any, Callable, Iterable, Mapping, ParamSpec, TypedDict, TypeVar, Union

from . import _names
from .errors import CommandExitException, ConnectionLost, LimitExceeded, TimeoutException, Violation


P = ParamSpec("P")
R = TypeVar("R")


def shaped(read: Callable[P, R]) -> Callable[P, R]:
    """For what reads an answer: one of another shape than the protocol's is an error of this package's own."""

    @functools.wraps(read)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise ConnectionLost(f"the supervisor answered what it should not: {error!r}", code="protocol") from error

    return checked


class Record(dict[str, Any]):
    """An object of a report: its fields are keys and attributes alike."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the report has no `{name}`") from None


@dataclass
class CommandResult:
    """How a command ended, and what it printed."""

    #: What it printed; bytes that are no UTF-8 are shown as U+FFFD. Beyond ``max_output`` the middle is left out, which a line says.
    stdout: str
    stderr: str
    #: Its own, or 128 + the number of the signal that ended it; 127 no such program, 126 not executable.
    exit_code: int
    #: One sentence, unless it exited by itself with 0.
    error: str | None = None
    #: ``exited``, ``signalled``, ``limit``, ``refused`` or ``failed``.
    outcome: str = "exited"
    #: Which limit ended it: ``wall`` (its own timeout), ``output``, ``memory``.
    limit: str | None = None
    #: Bytes of output that are in neither ``stdout`` nor ``stderr``.
    dropped: int = 0
    #: ``wall``, ``cpu_user``, ``cpu_system`` (seconds), ``memory_peak`` (of its largest process, with what that shares), ``output`` (bytes).
    usage: Record = field(default_factory=Record)
    violations: tuple[Violation, ...] = ()

    def check(self) -> CommandResult:
        """Itself, if it ended with exit code 0.

        Raises :class:`TimeoutException`, :class:`LimitExceeded` or :class:`CommandExitException`.
        """
        _check(self, self.outcome, self.limit)
        return self

    def _repr_markdown_(self) -> str:
        return _markdown(self.stdout, self.stderr, self.error)


@dataclass
class RunResult:
    """How a run ended (see ``docs/concepts/report.md``), and what it printed."""

    stdout: str
    stderr: str
    #: As ``fumehood run`` would end: the program's own, 124 a limit, 125 failed, 127 not found.
    exit_code: int
    #: ``kind``, ``code``, ``signal``, ``limit``, ``message``.
    outcome: Record
    violations: tuple[Violation, ...]
    #: ``wall``, ``cpu_user``, ``cpu_system`` (seconds), ``memory_peak``, ``disk``, ``output``, ... (bytes), ``pids_peak``. ``memory_peak``
    #: is as ``limits.memory`` counts it; ``None`` where no control group counts and it ended before the first look.
    usage: Record
    #: What changed in the workspace; ``diff``, ``apply`` and ``discard`` take the run by ``report["run"]``.
    changes: list[Record]
    #: The whole report.
    report: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)

    @property
    def error(self) -> str | None:
        """One sentence, unless it exited by itself with 0; with what of Fumehood failed after the program had run."""
        if self.exit_code == 0:
            return None
        failed = [f"{one.get('what')}: {one.get('why')}" for one in self.report.get("errors") or ()]
        return "; ".join([str(self.outcome.get("message") or ""), *failed])

    def check(self) -> RunResult:
        """Itself, if it ended with exit code 0; raises as :meth:`CommandResult.check`."""
        _check(self, str(self.outcome.get("kind")), self.outcome.get("limit"))
        return self

    def _repr_markdown_(self) -> str:
        return _markdown(self.stdout, self.stderr, self.error)


def _check(result: CommandResult | RunResult, outcome: str, limit: str | None) -> None:
    if outcome == "limit" and limit == "wall":
        raise TimeoutException(result.error or "the command ran longer than its timeout", result=result)
    if outcome == "limit":
        raise LimitExceeded(result.error or f"the limit `{limit}` ended the command", limit or "", result)
    if result.exit_code != 0:
        raise CommandExitException(result)


def _markdown(stdout: str, stderr: str, error: str | None) -> str:
    """For notebooks: text alone, so that nothing a program printed is shown as anything else."""
    def block(text: str) -> str:
        ticks = "`" * 3
        while ticks in text:
            ticks += "`"
        return f"{ticks}text\n{text.rstrip()}\n{ticks}"

    parts = [block(text) for text in (stdout, stderr, error or "") if text.strip()]
    return "\n\n".join(parts) or "*no output*"


@dataclass
class ProcessInfo:
    """A command that runs in a sandbox."""

    #: Its pid inside.
    pid: int
    tag: str | None
    cmd: str
    args: list[str]
    envs: dict[str, str]
    cwd: str | None
    #: Its word for the command line: ``p1``, ``p2``, ...
    id: str = ""


@dataclass
class PtySize:
    """Lines, and characters in a line, of a terminal."""

    rows: int
    cols: int


class FileType(Enum):
    """What is at a path."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"
    #: A device, pipe or socket.
    OTHER = "other"


_TYPES = {"file": FileType.FILE, "dir": FileType.DIR, "link": FileType.SYMLINK}


@dataclass
class WriteInfo:
    """A file that was written."""

    name: str
    type: FileType | None
    #: Absolute path inside.
    path: str
    metadata: dict[str, str] | None = field(default=None, kw_only=True)


@dataclass
class EntryInfo(WriteInfo):
    """What is at a path. A link is shown with the type of what it leads to, and ``symlink_target``."""

    #: Bytes.
    size: int
    #: Permission bits.
    mode: int
    #: As `ls` shows it: ``-rw-r--r--``.
    permissions: str
    #: Owner and group inside, as numbers.
    owner: str
    group: str
    #: In UTC.
    modified_time: datetime.datetime
    symlink_target: str | None = None


@shaped
def entry_of(data: Mapping[str, Any]) -> EntryInfo:
    """An ``Entry`` of the protocol."""
    kind, target = str(data.get("kind")), data.get("target")
    shown = data.get("target_kind") or "link" if kind == "link" else kind
    modified = data.get("modified") or (0, 0)
    return EntryInfo(
        name=_names.read(str(data.get("name", ""))),
        type=_TYPES.get(str(shown), FileType.OTHER),
        path=_names.read(str(data.get("path", ""))),
        metadata=dict(data["metadata"]) if data.get("metadata") else None,
        size=int(data.get("size", 0)),
        mode=int(data.get("mode", 0)),
        permissions=_permissions(kind, int(data.get("mode", 0))),
        owner=str(data.get("uid", "")),
        group=str(data.get("gid", "")),
        modified_time=_moment(modified[0] + modified[1] / 1e9),
        symlink_target=None if target is None else _names.read(str(target)),
    )


def _permissions(kind: str, mode: int) -> str:
    first = {"dir": "d", "link": "l", "file": "-"}.get(kind, "?")
    return first + "".join(letter if mode >> bit & 1 else "-" for letter, bit in zip("rwxrwxrwx", range(8, -1, -1)))


def _moment(seconds: float) -> datetime.datetime:
    # A file may state any time; what no calendar has is shown as its edge.
    seconds = min(max(seconds, -62135596800.0), 253402300799.0)
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=seconds)


WriteData = Union[str, bytes, bytearray, memoryview, "IO[bytes]", "IO[str]", Iterable[bytes]]


class WriteEntry(TypedDict):
    """A file to write."""

    path: _names.Path
    data: WriteData


class FilesystemEventType(Enum):
    """What happened in a watched folder."""

    CHMOD = "chmod"
    CREATE = "create"
    REMOVE = "remove"
    RENAME = "rename"
    WRITE = "write"
    #: Events were lost: look again at everything.
    OVERFLOW = "overflow"


@dataclass
class FilesystemEvent:
    """A change in a watched folder."""

    #: Path below the watched folder; empty = the folder itself.
    name: str
    type: FilesystemEventType
    #: With ``include_entry``, what is there, if it is still there.
    entry: EntryInfo | None = None


class SandboxState(Enum):
    """How a sandbox is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    #: Nothing of it runs any more; its record and its changes are there.
    ENDED = "ended"


@dataclass
class SandboxInfo:
    """All about a sandbox."""

    sandbox_id: str
    name: str | None
    template_id: str
    metadata: dict[str, str]
    state: SandboxState
    #: In UTC.
    started_at: datetime.datetime
    #: When its life is over, or when it ended; ``None`` = never.
    end_at: datetime.datetime | None
    #: ``limits.cpus`` and ``limits.memory`` (MiB), where the policy has them.
    cpu_count: float | None
    memory_mb: int | None
    tier: str
    #: Name and digest.
    policy: str
    #: Its id for ``fumehood diff``, ``apply``, ``discard`` and ``audit``.
    run: str
    #: Why it ended: ``killed``, ``timeout``, ``idle``, ``limit``, ``memory``, ``agent``, ``signal``, ``lost``, ``failed``.
    reason: str | None
    message: str | None
    #: Usage so far, as in a report.
    usage: Record
    #: The report of its run, when it has ended.
    report: Mapping[str, Any] | None = field(repr=False, default=None)
    #: As the supervisor says it.
    data: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)


@shaped
def info_of(data: Mapping[str, Any]) -> SandboxInfo:
    """An ``Info`` of the protocol."""
    memory = data.get("memory_limit")
    # Of one whose supervisor was killed nobody knows when it ended.
    ends = data.get("ended_ms" if data["state"] == "ended" else "ends_ms")
    return SandboxInfo(
        sandbox_id=str(data["id"]),
        name=data.get("name"),
        template_id=str(data.get("template") or ""),
        metadata={str(key): str(value) for key, value in (data.get("labels") or {}).items()},
        state=SandboxState(data["state"]),
        started_at=_moment(data["created_ms"] / 1000),
        end_at=None if ends is None else _moment(ends / 1000),
        cpu_count=data.get("cpus"),
        memory_mb=None if memory is None else memory >> 20,
        tier=str(data.get("tier") or ""),
        policy=str(data.get("policy") or ""),
        run=str(data.get("run") or ""),
        reason=data.get("reason"),
        message=data.get("message"),
        usage=Record(data.get("usage") or {}),
        report=data.get("report"),
        data=data,
    )


@dataclass
class SnapshotInfo:
    """What was kept of a sandbox."""

    snapshot_id: str
    name: str | None
    #: Bytes that it takes, contents that it shares included.
    size: int
    #: Files that are not in it: special ones, and what could not be read.
    left_out: int


@shaped
def snapshot_of(data: Mapping[str, Any]) -> SnapshotInfo:
    """A ``Snapshotted`` of the protocol."""
    return SnapshotInfo(str(data["id"]), data.get("name"), int(data["bytes"]), int(data["left_out"]))


class SandboxList(list[SandboxInfo]):
    """All that were asked for; also a page as E2B's ``SandboxPaginator`` gives it."""

    def __init__(self, infos: Iterable[SandboxInfo]) -> None:
        super().__init__(infos)
        self.has_next = True
        self.next_token: str | None = None

    def next_items(self) -> list[SandboxInfo]:
        """The whole list, once."""
        self.has_next = False
        return list(self)
