"""Brings the files of a checkpoint into the incoming folder, and reuses files that are here already."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from node_agent.checkpoints.folders import Described, SavedFile, is_as_described, open_below, saved_files
from node_agent.checkpoints.pieces import Changed, Damaged, Piece, Writer
from node_agent.processes import job_files

T = TypeVar("T")
_AT_ONCE = 16 << 20
"""Bytes that the kernel copies in one call."""
_UNABLE = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}
"""Errors by which the kernel says that it cannot copy between two files itself."""


class SourceRefuses(Exception):
    """The source answers, and does not give the checkpoint: another try would get the same answer."""


class Source(Protocol):
    """The agent of another node. Calls raise SourceRefuses, Changed, and any error that ends a connection."""

    async def describe(self, job_id: int) -> Described: ...

    def pieces(self, job_id: int, file: SavedFile, offset: int) -> AsyncIterator[Piece]: ...

    async def close(self) -> None: ...


def copy_file(folder: Path, file: SavedFile, path: Path) -> bool:
    """Copy one file of a folder on this machine, without its bytes passing through this process.

    Return False if it cannot be read here. Raises OSError if it cannot be written, and Changed; nothing is kept then.
    """
    try:
        source = open_below(folder, file.path)
    except OSError:
        return False
    part = _part(path)
    try:
        if not is_as_described(source, file):
            raise Changed(f"{file.path} has changed")
        part.unlink(missing_ok=True)
        target = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _copy(source, target, file.size)
        finally:
            os.close(target)
        if not is_as_described(source, file):
            raise Changed(f"{file.path} has changed")
        _put(part, file, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        os.close(source)
    return True


def _copy(source: int, target: int, size: int) -> None:
    done, in_kernel = 0, True
    while done < size:
        count = min(_AT_ONCE, size - done)
        try:
            count = os.copy_file_range(source, target, count) if in_kernel else os.sendfile(target, source, None, count)
        except OSError as error:
            if not in_kernel or error.errno not in _UNABLE:
                raise
            in_kernel = False
            continue
        if not count:
            raise Changed(f"the file ends at byte {done}, and not at {size}")
        done += count


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _put(part: Path, file: SavedFile, path: Path) -> None:
    os.utime(part, ns=(file.modified_ns, file.modified_ns))
    part.chmod(file.mode & 0o777)
    part.rename(path)


async def fetch_file(job: int, source: Source, file: SavedFile, path: Path, arrived: Callable[[], None]) -> int:
    """Fetch one file from where an earlier try ended; return how many bytes came. On Changed or Damaged, nothing is kept."""
    part = _part(path)
    writer = await call_to_the_end(Writer, str(part))
    first = writer.offset
    try:
        if writer.offset > file.size:
            raise Damaged("more is here than the file has")
        async with contextlib.aclosing(source.pieces(job, file, writer.offset)) as coming:  # type: ignore[type-var]
            async for piece in coming:
                if piece.sha256:
                    writer.check(piece.sha256, file.size)
                    break
                await call_to_the_end(writer.write, piece)
                arrived()
            else:
                raise ConnectionError("the source ended the file before its end")
        _put(part, file, path)
    except (Damaged, Changed):
        part.unlink(missing_ok=True)
        raise
    finally:
        writer.close()
    return writer.offset - first


async def call_to_the_end(call: Callable[..., T], *arguments: object) -> T:
    """Call it in a thread, and return only when it is through, even if cancelled: then what the thread uses is closed."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise


def prepare(folder: Path, new: Path, wanted: tuple[SavedFile, ...]) -> list[SavedFile]:
    """Reuse wanted files of the job's folder, remove others from `new`, and return those that are missing.

    Links are left to `make_links`: no link is there while files are written, so none can lead a file elsewhere.
    """
    job_files.make_folder(str(new))
    names = {file.path for file in wanted}
    here = {file.path: file for file in saved_files(new)}
    for gone in (path for path, file in here.items() if path not in names or file.link):
        job_files.remove_file(str(new), gone)
    _remove_parts(new, names)
    known = {file.path: file for file in saved_files(folder)}
    missing = []
    for file in wanted:
        if file.link or here.get(file.path) == file:
            continue
        _make_parent(new, file)
        job_files.remove_file(str(new), file.path)
        if known.get(file.path) != file or not job_files.link_file(str(folder), file.path, str(new)):
            missing.append(file)
    return missing


def make_links(new: Path, wanted: tuple[SavedFile, ...]) -> None:
    """Make the links among the wanted files, after all files are there. Raises OSError."""
    for file in wanted:
        if file.link:
            _make_parent(new, file)
            job_files.make_link(str(new), file.path, file.link)


def _make_parent(new: Path, file: SavedFile) -> None:
    job_files.make_folder(str(new), file.path.rpartition("/")[0])


def _remove_parts(new: Path, names: set[str]) -> None:
    """Remove parts of files that the source no longer has."""
    for part in new.rglob(".*.part"):
        if part.with_name(part.name.removeprefix(".").removesuffix(".part")).relative_to(new).as_posix() not in names:
            part.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    for file in saved_files(folder):
        if not file.link:
            with suppress(OSError):
                descriptor = open_below(folder, file.path)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
