"""Files of a live sandbox. Paths are absolute inside, or relative to the workspace where there is one, else to the home."""

from __future__ import annotations

import posixpath
from typing import IO, Any, Iterable, Iterator, Mapping, cast

from . import _names
from ._frames import Incoming, Kind
from ._link import Link, Stream, ok, reply, result, within
from ._names import Path, utf8
from ._results import EntryInfo, FilesystemEvent, FilesystemEventType, WriteData, WriteInfo, entry_of
from .errors import FileNotFoundException, FumehoodError, InvalidArgumentException, TooManyException

#: Bytes that ``read`` gives at most; ``format="stream"`` has no such end.
MAX_READ = 256 << 20
#: Entries that ``list`` gives at most.
MAX_ENTRIES = 200_000
_CHUNK = 256 * 1024
#: Where a workspace is shown, unless its policy says otherwise.
_WORKSPACE = "/workspace"


async def place(link: Link, path: Path) -> str:
    """A path as a request has it: a relative one is of the folder in which programs start, where that is the workspace or one of an
    image, else of the home folder. ``/workspace`` is that folder too, where it is shown elsewhere and nothing else is called so."""
    name = _names.told(path)
    aside = name == _WORKSPACE or name.startswith(f"{_WORKSPACE}/")
    if name.startswith("~") or (name.startswith("/") and not aside):
        return name
    if link.start is None:
        agent = (await link.call({"op": "info"})).get("agent") or {}
        start = str(agent.get("cwd") or "")
        # Without such a folder; what is relative to its home, the agent itself knows the place of.
        link.start = "" if start in (agent.get("home"), "/tmp", "/") else start
    if not link.start or (aside and link.start == _WORKSPACE):
        return name
    if not aside:
        return posixpath.join(link.start, name)
    if link.aside is None:
        try:
            await link.call({"op": "stat", "path": _WORKSPACE}, missing=FileNotFoundException)
            link.aside = False
        except FileNotFoundException:
            link.aside = True
    return link.start + name[len(_WORKSPACE):] if link.aside else name


async def stat(link: Link, path: Path, timeout: float | None) -> EntryInfo:
    """What is at a path, a link itself."""
    return entry_of(await link.call({"op": "stat", "path": await place(link, path)}, timeout=timeout, missing=FileNotFoundException))


async def exists(link: Link, path: Path, timeout: float | None) -> bool:
    """Whether anything is there."""
    try:
        await stat(link, path, timeout)
    except FileNotFoundException:
        return False
    except InvalidArgumentException as error:
        # A file where a folder of the path would be.
        if error.code == "not_a_directory":
            return False
        raise
    return True


async def entries(link: Link, path: Path, depth: int, timeout: float | None) -> list[EntryInfo]:
    """What is in a folder."""
    if depth < 1:
        raise InvalidArgumentException("depth is 1 or more", code="invalid")
    stream = link.open({"op": "list", "path": await place(link, path), "depth": depth})
    found: list[EntryInfo] = []
    try:
        while True:
            incoming = await within(stream, timeout)
            if incoming.kind is Kind.EVENT:
                found += [entry_of(one) for one in incoming.value.get("entries") or ()]
            if len(found) > MAX_ENTRIES:
                raise TooManyException(f"{path!r} has more than {MAX_ENTRIES} entries: list its folders one by one", code="too_many")
            if incoming.kind is Kind.END:
                ok(incoming, FileNotFoundException)
                return found
    finally:
        stream.drop()


async def open_read(link: Link, path: Path, timeout: float | None) -> Stream:
    """A stream that gives the bytes of a file."""
    stream = link.open({"op": "read", "path": await place(link, path)})
    try:
        await reply(stream, timeout, FileNotFoundException)
        return stream
    except BaseException:
        stream.drop()
        raise


async def next_bytes(stream: Stream, timeout: float | None) -> bytes | None:
    """The next bytes of a stream that gives some; ``None`` at its end."""
    while True:
        incoming = await within(stream, timeout)
        if incoming.kind is Kind.DATA:
            data: bytes = incoming.value
            return data
        if incoming.kind is Kind.END:
            ok(incoming, FileNotFoundException)
            return None


async def read(link: Link, path: Path, *, most: int = MAX_READ, timeout: float | None) -> bytes:
    """The bytes of a file, at most ``most``."""
    stream = await open_read(link, path, timeout)
    parts: list[bytes] = []
    count = 0
    try:
        while (data := await next_bytes(stream, timeout)) is not None:
            count += len(data)
            if count > most:
                raise TooManyException(f'{path!r} has more than {most} bytes: read it with format="stream"', code="too_many")
            parts.append(data)
        return b"".join(parts)
    finally:
        stream.drop()


async def write(
    link: Link, path: Path, data: WriteData, *, mode: int | None = None,
    metadata: Mapping[str, str] | None = None, timeout: float | None,
) -> WriteInfo:
    """Makes or replaces a file; it is seen with its old or its new content, never with a part."""
    words: dict[str, Any] = {"op": "write", "path": await place(link, path)}
    if mode is not None:
        words["mode"] = mode
    if metadata is not None:
        words["metadata"] = dict(metadata)
    stream = link.open(words)
    try:
        for chunk in chunks(data):
            if not await stream.send(chunk, timeout):
                break
        await stream.finish()
        entry = entry_of(await result(stream, timeout, FileNotFoundException))
    finally:
        stream.drop()
    return WriteInfo(entry.name, entry.type, entry.path, metadata=entry.metadata)


def chunks(data: WriteData) -> Iterator[bytes | memoryview]:
    """What is to be written, in pieces."""
    if isinstance(data, str):
        yield utf8(data, "data")
    elif isinstance(data, (bytes, bytearray, memoryview)):
        yield memoryview(data).cast("B")
    elif hasattr(data, "read"):
        source = cast("IO[Any]", data)
        while piece := source.read(_CHUNK):
            yield utf8(piece, "data") if isinstance(piece, str) else piece
    else:
        for part in cast("Iterable[Any]", data):
            if not isinstance(part, (bytes, bytearray, memoryview)):
                raise InvalidArgumentException("data is text, bytes, an open file, or pieces of bytes", code="invalid")
            yield memoryview(part).cast("B")


async def make_dir(link: Link, path: Path, timeout: float | None) -> bool:
    """Makes a folder and those above it; ``False`` if it is there already."""
    try:
        await link.call({"op": "mkdir", "path": await place(link, path)}, timeout=timeout, missing=FileNotFoundException)
    except InvalidArgumentException as error:
        if error.code == "exists":
            return False
        raise
    return True


async def rename(
    link: Link, old: Path, new: Path, timeout: float | None
) -> EntryInfo:
    """Renames; replaces a file."""
    words = {"op": "move", "from": await place(link, old), "to": await place(link, new)}
    return entry_of(await link.call(words, timeout=timeout, missing=FileNotFoundException))


async def remove(link: Link, path: Path, timeout: float | None) -> None:
    """Removes a file, a link, or a folder with all that is in it."""
    await link.call({"op": "remove", "path": await place(link, path)}, timeout=timeout, missing=FileNotFoundException)


async def open_watch(link: Link, path: Path, recursive: bool, timeout: float | None) -> Stream:
    """A stream of changes of a folder; it is watched when this returns."""
    stream = link.open({"op": "watch", "path": await place(link, path), "recursive": recursive})
    try:
        await reply(stream, timeout, FileNotFoundException)
        return stream
    except BaseException:
        stream.drop()
        raise


async def event_of(link: Link, folder: Path, incoming: Incoming, include_entry: bool) -> FilesystemEvent | None:
    """A change, with what is there now if that is wanted; ``None`` where the watch has ended."""
    if incoming.kind is Kind.END:
        ok(incoming, FileNotFoundException)
        return None
    event = FilesystemEvent(_names.read(str(incoming.value.get("name") or "")), _what(incoming.value.get("what")))
    if include_entry and event.type is not FilesystemEventType.OVERFLOW:
        try:
            event.entry = await stat(link, posixpath.join(_names.shown(folder), event.name) if event.name else folder, 60)
        except FumehoodError:
            pass  # It is gone again, or was never to be seen.
    return event


def _what(word: Any) -> FilesystemEventType:
    try:
        return FilesystemEventType(word)
    except ValueError:
        # A kind that a newer supervisor knows: what there is must be looked at again.
        return FilesystemEventType.OVERFLOW
