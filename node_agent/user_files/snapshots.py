"""Snapshots for runs: each is fetched once for a node, and unpacked separately for each run that names it.

    STATE/snapshots/DIGEST        a complete archive: its content has been compared with its name
    STATE/snapshots/DIGEST.part   an archive that is being fetched
    RUN/code                      the unpacked snapshots of a run, all of them or none

Each run has a copy of its own, because programs write where they are started.
"""

import asyncio
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from ebb_common.archive import BadArchive, unpack
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import LaunchSpec, RunKey

log = logging.getLogger(__name__)

FOLDER = "snapshots"
KEEP = 7 * 86400.0
"""Seconds for which an archive is kept after a run last named it."""
_PART = ".part"

Fetch = Callable[[int, str, int], Awaitable[tuple[bytes, int]]]
"""Returns a piece of the snapshot that this job names, from this byte on, and the size of the whole."""


class Snapshots:
    """The snapshots of one state directory. `ready` is called with a run once its snapshots are unpacked."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._folder = paths.state / FOLDER
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One for each archive that is being fetched."""
        self._unpacking: dict[RunKey, asyncio.Future[None]] = {}

    def has_missing(self, launch: LaunchSpec) -> bool:
        """Whether a run has snapshots that are not unpacked yet."""
        return bool(launch.snapshots) and not os.path.isdir(self._paths.code(launch.key))  # noqa: PTH112

    async def provide(self, launch: LaunchSpec, fetch: Fetch) -> None:
        """Fetch and unpack what a run names. Raises BadArchive, OSError, and what `fetch` raises."""
        archives = []
        for digest in dict.fromkeys(launch.snapshots):
            async with self._locks.setdefault(digest, asyncio.Lock()):
                archives.append(await self._archive(launch.key, digest, fetch))
        await asyncio.shield(self._start_unpacking(launch.key, archives))

    def _start_unpacking(self, key: RunKey, archives: list[Path]) -> asyncio.Future[None]:
        """Return a future that is done once the snapshots of a run are unpacked. The thread outlives a caller that is
        cancelled, and the next caller waits for the same thread: two of them would write to the same folder."""
        if (current := self._unpacking.get(key)) is not None:
            return current
        current = self._unpacking[key] = asyncio.ensure_future(asyncio.to_thread(self._unpack, key, archives))
        current.add_done_callback(partial(self._note_unpacked, key))
        return current

    def _note_unpacked(self, key: RunKey, done: asyncio.Future[None]) -> None:
        del self._unpacking[key]
        if not done.cancelled():
            done.exception()  # retrieved, also if no caller waits; the next try meets it again

    async def _archive(self, key: RunKey, digest: str, fetch: Fetch) -> Path:
        path = self._folder / digest
        if await asyncio.to_thread(_is_whole, path, digest):
            os.utime(path)  # it is in use
            return path
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        part = path.with_name(digest + _PART)
        with part.open("ab", buffering=0) as file:  # what was written outlives the agent
            resumed = file.tell() > 0
            while True:
                data, size = await fetch(key.job_id, digest, file.tell())
                file.write(data)
                if not data or file.tell() >= size:
                    break
        try:
            await asyncio.to_thread(_keep, part, path, digest)
        except BadArchive:
            if not resumed:
                raise
            return await self._archive(key, digest, fetch)  # what was there before may have been damaged
        return path

    def _unpack(self, key: RunKey, archives: list[Path]) -> None:
        code = Path(self._paths.code(key))
        if code.is_dir():
            return
        new = code.with_name(code.name + ".new")
        with suppress(FileNotFoundError):
            shutil.rmtree(new)
        new.parent.mkdir(parents=True, exist_ok=True)
        new.mkdir()
        for number, archive in enumerate(archives):
            # Unpack each separately, then merge: files of one must not redirect the next one elsewhere.
            each = new.with_name(f"{code.name}.{number}")
            with suppress(FileNotFoundError):
                shutil.rmtree(each)
            with archive.open("rb") as file:
                unpack(file, each)
            _merge(each, new)
            shutil.rmtree(each)
        new.rename(code)

    async def expire(self) -> int:
        """Remove archives that no run has named for long; return how many."""
        return await asyncio.to_thread(self._expire, time.time() - KEEP)

    def _expire(self, before: float) -> int:
        removed = 0
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        Path(entry.path).unlink()
                        removed += 1
        return removed


def _keep(part: Path, path: Path, digest: str) -> None:
    """Give the fetched archive its name. Raises BadArchive if the content does not match the name."""
    if (found := _digest(part)) != digest:
        part.unlink()
        raise BadArchive(f"what was fetched has the digest {found}, and not {digest}")
    part.rename(path)


def _is_whole(path: Path, digest: str) -> bool:
    """Whether the archive is there. If a power loss or a disk fault has damaged it, it is removed."""
    try:
        if _digest(path) == digest:
            return True
    except FileNotFoundError:
        return False
    log.warning("the archive %s is damaged; it is removed, and fetched again", path)
    path.unlink(missing_ok=True)
    return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _merge(source: Path, into: Path) -> None:
    """Move the contents of one folder into another. Raises BadArchive if both have one name for different kinds."""
    for entry in os.scandir(source):
        target = into / entry.name
        if entry.is_dir(follow_symlinks=False) and target.is_dir() and not target.is_symlink():
            _merge(Path(entry.path), target)
        elif not os.path.lexists(target):
            Path(entry.path).rename(target)
        elif target.is_dir() or entry.is_dir(follow_symlinks=False):
            raise BadArchive(f"{entry.name} is a file in one snapshot and a directory in another")
        else:
            Path(entry.path).replace(target)
