"""Files of an :class:`AsyncSandbox`; what is not said here is as in ``_sync_files``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Callable, Literal, overload

from . import _files
from ._files import MAX_READ
from ._frames import Kind
from ._link import REQUEST_TIMEOUT, Expired, Link, Stream
from ._names import Path
from ._results import EntryInfo, FilesystemEvent, WriteData, WriteEntry, WriteInfo


class AsyncFileStreamReader(AsyncIterator[bytes]):
    """The bytes of a file as they come; no more of them wait than 256 KiB."""

    def __init__(self, stream: Stream, timeout: float | None) -> None:
        self._stream, self._timeout = stream, timeout
        self._over = False

    async def __anext__(self) -> bytes:
        data = None if self._over else await _files.next_bytes(self._stream, self._timeout)
        if data is None:
            self._over = True
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Takes no more."""
        self._over = True
        self._stream.drop()

    async def __aenter__(self) -> AsyncFileStreamReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncWatchHandle:
    """A folder that is watched."""

    def __init__(
        self, link: Link, stream: Stream, folder: Path, include_entry: bool,
        on_event: Callable[[FilesystemEvent], Any] | None, on_exit: Callable[[Exception | None], Any] | None,
    ) -> None:
        self._link, self._stream, self._folder, self._include_entry = link, stream, folder, include_entry
        self._over = False
        self._task = None if on_event is None else asyncio.create_task(self._tell(on_event, on_exit), name="fumehood-live")

    async def _tell(
        self, on_event: Callable[[FilesystemEvent], Any], on_exit: Callable[[Exception | None], Any] | None
    ) -> None:
        why: Exception | None = None
        try:
            while (event := await self._next(None)) is not None:
                await self._link.tell(on_event, event)
        except Exception as error:
            why = None if self._over else error
            await self.stop()
        if on_exit is not None:
            await self._link.tell(on_exit, why)

    async def _next(self, timeout: float | None) -> FilesystemEvent | None:
        while not self._over:
            incoming = await self._stream.next(timeout)
            if incoming.kind not in (Kind.EVENT, Kind.END):
                continue
            event = await _files.event_of(self._link, self._folder, incoming, self._include_entry)
            self._over = event is None
            return event
        return None

    async def get_new_events(self, timeout: float = 0) -> list[FilesystemEvent]:
        """What happened since it was asked last; waits up to ``timeout`` seconds for the first. Not with ``on_event``.

        ``REMOVE`` with an empty name: the folder itself is gone. Raises :class:`TooManyException` where it has too many folders.
        """
        events: list[FilesystemEvent] = []
        while not self._over:
            try:
                event = await self._next(0 if events else timeout)
            except Expired:
                break
            if event is not None:
                events.append(event)
        return events

    async def stop(self) -> None:
        """Watches no longer."""
        self._over = True
        self._stream.drop()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()


class AsyncFilesystem:
    """Files of a sandbox: ``box.files``. Paths are absolute inside, or relative to the workspace where there is one (to the
    working folder of an image), else to the home of its user. ``/workspace`` is the workspace, also where it is shown elsewhere.

    A name that is no text is what ``os.fsdecode`` makes of it (``"caf\\udce9"``), in what is asked and in what is answered; bytes
    are taken too.

    Everything is done as the sandbox's user: what a program inside may not read, this does not read. ``request_timeout`` is how
    many seconds the supervisor may say nothing. All raise :class:`FileNotFoundException`, :class:`PermissionDeniedException`,
    :class:`NotEnoughSpaceException`, :class:`InvalidArgumentException` (e.g. a folder where a file is needed).
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    @overload
    async def read(self, path: Path, format: Literal["text"] = "text", request_timeout: float | None = REQUEST_TIMEOUT,
             *, max_bytes: int = MAX_READ) -> str: ...

    @overload
    async def read(self, path: Path, format: Literal["bytes"], request_timeout: float | None = REQUEST_TIMEOUT,
             *, max_bytes: int = MAX_READ) -> bytearray: ...

    @overload
    async def read(self, path: Path, format: Literal["stream"], request_timeout: float | None = REQUEST_TIMEOUT,
             *, max_bytes: int = MAX_READ) -> AsyncFileStreamReader: ...

    async def read(self, path: Path, format: Literal["text", "bytes", "stream"] = "text",
             request_timeout: float | None = REQUEST_TIMEOUT, *, max_bytes: int = MAX_READ) -> str | bytearray | AsyncFileStreamReader:
        """A file as text (UTF-8), as bytes, or as a stream of bytes; of the first two at most ``max_bytes``.

        Raises :class:`TooManyException` beyond that, ``UnicodeDecodeError`` for text that is none.
        """
        if format == "stream":
            stream = await _files.open_read(self._link, path, request_timeout)
            return AsyncFileStreamReader(stream, request_timeout)
        data = await _files.read(self._link, path, most=max_bytes, timeout=request_timeout)
        return bytearray(data) if format == "bytes" else data.decode("utf-8")

    async def write(self, path: Path, data: WriteData, request_timeout: float | None = REQUEST_TIMEOUT,
              *, mode: int | None = None, metadata: Mapping[str, str] | None = None) -> WriteInfo:
        """Makes or replaces a file, and the folders above it; ``mode`` are the permission bits of a new one (default 0o644).

        It is seen with its old or its new content, never with a part.
        """
        return await _files.write(self._link, path, data, mode=mode, metadata=metadata, timeout=request_timeout)

    async def write_files(self, files: Sequence[WriteEntry], request_timeout: float | None = REQUEST_TIMEOUT) -> list[WriteInfo]:
        """Writes files, one after the other."""
        return [await self.write(file["path"], file["data"], request_timeout) for file in files]

    async def list(self, path: Path, depth: int = 1, request_timeout: float | None = REQUEST_TIMEOUT) -> list[EntryInfo]:
        """What is in a folder, by name; with ``depth`` 2 also in its folders, and so on."""
        return await _files.entries(self._link, path, depth, request_timeout)

    async def exists(self, path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> bool:
        """Whether anything is at a path, a link that leads nowhere too."""
        return await _files.exists(self._link, path, request_timeout)

    async def get_info(self, path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> EntryInfo:
        """What is at a path."""
        return await _files.stat(self._link, path, request_timeout)

    async def make_dir(self, path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> bool:
        """Makes a folder and those above it; ``False`` if it is there already."""
        return await _files.make_dir(self._link, path, request_timeout)

    async def rename(self, old_path: Path, new_path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> EntryInfo:
        """Renames; replaces a file."""
        return await _files.rename(self._link, old_path, new_path, request_timeout)

    async def remove(self, path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> None:
        """Removes a file, a link, or a folder with all that is in it."""
        await _files.remove(self._link, path, request_timeout)

    async def watch_dir(self, path: Path, on_event: Callable[[FilesystemEvent], Any] | None = None,
                        on_exit: Callable[[Exception | None], Any] | None = None, recursive: bool = False,
                        include_entry: bool = False, request_timeout: float | None = REQUEST_TIMEOUT) -> AsyncWatchHandle:
        """Watches a folder, with ``recursive`` also all below it. ``on_event`` hears each change, ``on_exit`` the end; both may be
        coroutines. Without ``on_event`` ask the handle."""
        stream = await _files.open_watch(self._link, path, recursive, request_timeout)
        return AsyncWatchHandle(self._link, stream, path, include_entry, on_event, on_exit)
