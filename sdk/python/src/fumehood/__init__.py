"""Fumehood for Python: code that a model wrote, run with less trust.

:func:`run` is one run; :class:`Sandbox` and :class:`AsyncSandbox` live until they are killed. ``fumehood.tools`` is the gate
before an agent's tools, ``fumehood.webhook`` checks deliveries. Names follow E2B's SDK where both have the thing.
"""

from ._async import AsyncSandbox
from ._async_commands import AsyncCommandHandle
from ._async_files import AsyncFileStreamReader, AsyncWatchHandle
from ._code import Context, Execution, ExecutionError, Logs, OutputMessage, Result
from ._results import (
    CommandResult,
    EntryInfo,
    FilesystemEvent,
    FilesystemEventType,
    FileType,
    ProcessInfo,
    PtySize,
    Record,
    RunResult,
    SandboxInfo,
    SandboxList,
    SandboxState,
    SnapshotInfo,
    WriteEntry,
    WriteInfo,
)
from ._run import arun, run
from ._sync import Sandbox
from ._sync_commands import CommandHandle
from ._sync_files import FileStreamReader, WatchHandle
from .errors import (
    CommandExitException,
    ConnectionLost,
    FileNotFoundException,
    FumehoodError,
    InvalidArgumentException,
    LimitExceeded,
    NotEnoughSpaceException,
    NotFoundException,
    PermissionDeniedException,
    ProcessNotFoundException,
    ProgramNotFoundException,
    Reason,
    Refused,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    TimeoutException,
    TooManyException,
    UnsupportedException,
    Violation,
)

__version__ = "0.1.0"
__all__ = [
    "AsyncCommandHandle",
    "AsyncFileStreamReader",
    "AsyncSandbox",
    "AsyncWatchHandle",
    "CommandExitException",
    "CommandHandle",
    "CommandResult",
    "ConnectionLost",
    "Context",
    "EntryInfo",
    "Execution",
    "ExecutionError",
    "FileNotFoundException",
    "FileStreamReader",
    "FileType",
    "FilesystemEvent",
    "FilesystemEventType",
    "FumehoodError",
    "InvalidArgumentException",
    "LimitExceeded",
    "Logs",
    "NotEnoughSpaceException",
    "NotFoundException",
    "OutputMessage",
    "PermissionDeniedException",
    "ProcessInfo",
    "ProcessNotFoundException",
    "ProgramNotFoundException",
    "PtySize",
    "Reason",
    "Record",
    "Refused",
    "Result",
    "RunResult",
    "Sandbox",
    "SandboxException",
    "SandboxInfo",
    "SandboxList",
    "SandboxNotFoundException",
    "SandboxNotRunningException",
    "SandboxState",
    "SnapshotInfo",
    "TimeoutException",
    "TooManyException",
    "UnsupportedException",
    "Violation",
    "WatchHandle",
    "WriteEntry",
    "WriteInfo",
    "arun",
    "run",
]
