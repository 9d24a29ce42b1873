"""Files of a :class:`Sandbox`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, overload

from . import _files
from ._files import MAX_READ
from ._frames import Kind
from ._link import REQUEST_TIMEOUT, Expired, Link, Stream, drive
from ._names import Path
from ._results import EntryInfo, FilesystemEvent, WriteData, WriteEntry, WriteInfo


class FileStreamReader(Iterator[bytes]):
    """The bytes of a file as they come; no more of them wait than 256 KiB."""

    def __init__(self, stream: Stream, timeout: float | None) -> None:
        self._stream, self._timeout = stream, timeout
        self._over = False

    def __next__(self) -> bytes:
        data = None if self._over else drive(_files.next_bytes(self._stream, self._timeout))
        if data is None:
            self._over = True
            raise StopIteration
        return data

    def close(self) -> None:
        """Takes no more."""
        self._over = True
        self._stream.drop()

    def __enter__(self) -> FileStreamReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WatchHandle:
    """A folder that is watched."""

    def __init__(self, link: Link, stream: Stream, folder: Path, include_entry: bool) -> None:
        self._link, self._stream, self._folder, self._include_entry = link, stream, folder, include_entry
        self._over = False

    def get_new_events(self, timeout: float = 0) -> list[FilesystemEvent]:
        """What happened since it was asked last; waits up to ``timeout`` seconds for the first.

        ``REMOVE`` with an empty name: the folder itself is gone. Raises :class:`TooManyException` where it has too many folders.
        """
        events: list[FilesystemEvent] = []
        while not self._over:
            try:
                incoming = drive(self._stream.next(0 if events else timeout))
            except Expired:
                break
            if incoming.kind not in (Kind.EVENT, Kind.END):
                continue
            event = drive(_files.event_of(self._link, self._folder, incoming, self._include_entry))
            if event is None:
                self._over = True
            else:
                events.append(event)
        return events

    def stop(self) -> None:
        """Watches no longer."""
        self._over = True
        self._stream.drop()


class Filesystem:
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
    def read(self, path: Path, format: Literal["text"] = "text", request_timeout: float | None = REQUEST_TIMEOUT,
             *, max_bytes: int = MAX_READ) -> str: ...

    @overload
    def read(self, path: Path, format: Literal["bytes"], request_timeout: float | None = REQUEST_TIMEOUT,
             *, max_bytes: int = MAX_READ) -> bytearray: ...

    @overload
    def read(self, path: Path, format: Literal["stream"], request_timeout: float | None = REQUEST_TIMEOUT,
             *, max_bytes: int = MAX_READ) -> FileStreamReader: ...

    def read(self, path: Path, format: Literal["text", "bytes", "stream"] = "text",
             request_timeout: float | None = REQUEST_TIMEOUT, *, max_bytes: int = MAX_READ) -> str | bytearray | FileStreamReader:
        """A file as text (UTF-8), as bytes, or as a stream of bytes; of the first two at most ``max_bytes``.

        Raises :class:`TooManyException` beyond that, ``UnicodeDecodeError`` for text that is none.
        """
        if format == "stream":
            stream = drive(_files.open_read(self._link, path, request_timeout))
            return FileStreamReader(stream, request_timeout)
        data = drive(_files.read(self._link, path, most=max_bytes, timeout=request_timeout))
        return bytearray(data) if format == "bytes" else data.decode("utf-8")

    def write(self, path: Path, data: WriteData, request_timeout: float | None = REQUEST_TIMEOUT,
              *, mode: int | None = None, metadata: Mapping[str, str] | None = None) -> WriteInfo:
        """Makes or replaces a file, and the folders above it; ``mode`` are the permission bits of a new one (default 0o644).

        It is seen with its old or its new content, never with a part.
        """
        return drive(_files.write(self._link, path, data, mode=mode, metadata=metadata, timeout=request_timeout))

    def write_files(self, files: Sequence[WriteEntry], request_timeout: float | None = REQUEST_TIMEOUT) -> list[WriteInfo]:
        """Writes files, one after the other."""
        return [self.write(file["path"], file["data"], request_timeout) for file in files]

    def list(self, path: Path, depth: int = 1, request_timeout: float | None = REQUEST_TIMEOUT) -> list[EntryInfo]:
        """What is in a folder, by name; with ``depth`` 2 also in its folders, and so on."""
        return drive(_files.entries(self._link, path, depth, request_timeout))

    def exists(self, path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> bool:
        """Whether anything is at a path, a link that leads nowhere too."""
        return drive(_files.exists(self._link, path, request_timeout))

    def get_info(self, path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> EntryInfo:
        """What is at a path."""
        return drive(_files.stat(self._link, path, request_timeout))

    def make_dir(self, path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> bool:
        """Makes a folder and those above it; ``False`` if it is there already."""
        return drive(_files.make_dir(self._link, path, request_timeout))

    def rename(self, old_path: Path, new_path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> EntryInfo:
        """Renames; replaces a file."""
        return drive(_files.rename(self._link, old_path, new_path, request_timeout))

    def remove(self, path: Path, request_timeout: float | None = REQUEST_TIMEOUT) -> None:
        """Removes a file, a link, or a folder with all that is in it."""
        drive(_files.remove(self._link, path, request_timeout))

    def watch_dir(self, path: Path, recursive: bool = False, include_entry: bool = False,
                  request_timeout: float | None = REQUEST_TIMEOUT) -> WatchHandle:
        """Watches a folder, with ``recursive`` also all below it."""
        stream = drive(_files.open_watch(self._link, path, recursive, request_timeout))
        return WatchHandle(self._link, stream, path, include_entry)
