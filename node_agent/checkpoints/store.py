"""A store that all nodes reach, such as a bucket. It has what a run saved when the run's own node is unreachable.

    URL/CLUSTER/job-N/objects/DIGEST   the content of a file
    URL/CLUSTER/job-N/manifest.json    the files and their digests; written last, so that it is true or absent

The name of an object is the SHA-256 of its content. So an upload that was cut off resumes with what is missing, and a file
that has not changed is uploaded once. Functions here wait for the store: call them in a thread.
"""

import asyncio
import hashlib
import json
import logging
import os
import random
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from node_agent.checkpoints.folders import Described, SavedFile, is_as_described, open_below, saved_files
from node_agent.checkpoints.pieces import PIECE, Changed, Piece
from node_agent.errors import StoreUnusable
from node_agent.run_state.model import short_id

log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_VERSION = 1
_JOB = "job-"
_AT_ONCE = 1000
"""Jobs in one request to the scheduler."""


class Stored(NamedTuple):
    """The checkpoint of a job in the store."""

    run: int
    """The run that saved it."""
    files: dict[SavedFile, str]
    """The files and the digest of each; empty for a link."""


class CheckpointStore:
    """A store at an fsspec URL. Calls raise OSError, and what the file system of the URL raises."""

    def __init__(self, url: str, files: Any = None) -> None:
        """`files` is a file system in place of that of the URL. Raises StoreUnusable."""
        self.url = url
        if files is not None:
            self._files, self._root = files, url
            return
        try:
            import fsspec
        except ImportError:
            why = "it needs the package fsspec: pip install 'ebb-cluster[store]', or leave the setting out"
            raise StoreUnusable(url=url, why=why) from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise StoreUnusable(url=url, why=error) from error

    def find(self, cluster: str, job_id: int) -> Stored | None:
        """Return the checkpoint of a job; None: no complete one. Raises StoreUnusable if it has another version."""
        try:
            text = self._files.cat_file(f"{self._job(cluster, job_id)}/{_MANIFEST}")
        except FileNotFoundError:
            return None
        said = json.loads(text)
        if said["version"] != _VERSION:
            why = f"job {job_id} has version {said['version']} there, and this agent reads {_VERSION}: update it"
            raise StoreUnusable(url=self.url, why=why)
        return Stored(said["run"], {SavedFile(*file): digest for *file, digest in said["files"]})

    def upload(self, cluster: str, job_id: int, run: int, folder: Path) -> int:
        """Upload what the run saved; return how many bytes were uploaded. What a later run saved there stays.

        Raises Changed if a run changes the folder meanwhile.
        """
        before = self.find(cluster, job_id)
        if before is not None and before.run > run:
            return 0
        at = self._job(cluster, job_id)
        self._files.makedirs(f"{at}/objects", exist_ok=True)
        known, uploaded, found = {} if before is None else before.files, 0, dict[SavedFile, str]()
        for file in saved_files(folder):
            digest = "" if file.link else known.get(file) or _digest(folder, file)
            if digest and not self._has(f"{at}/objects/{digest}", file.size):
                self._put(folder, file, f"{at}/objects/{digest}")
                uploaded += file.size
            found[file] = digest
        self._write_manifest(at, run, found)
        kept = set(found.values())
        for path in self._files.ls(f"{at}/objects", detail=False):
            if path.rpartition("/")[2] not in kept:
                with suppress(FileNotFoundError):
                    self._files.rm_file(path)
        return uploaded

    def jobs(self, cluster: str) -> list[int]:
        """Return the jobs of which the store has anything, in order."""
        at = f"{self._root}/{short_id(cluster)}"
        self._files.invalidate_cache()  # cached listings, which other agents change
        try:
            names = [path.rstrip("/").rpartition("/")[2] for path in self._files.ls(at, detail=False)]
        except FileNotFoundError:
            return []
        return sorted(int(name.removeprefix(_JOB)) for name in names if name.startswith(_JOB) and name[len(_JOB) :].isdecimal())

    def remove(self, cluster: str, job_id: int) -> None:
        """Remove everything of a job, the manifest first. Others may do so at the same time. The next call completes
        one that was interrupted."""
        at = self._job(cluster, job_id)
        found = self._files.find(at)
        for path in sorted(found, key=lambda path: not path.endswith(f"/{_MANIFEST}")):
            with suppress(FileNotFoundError):
                self._files.rm_file(path)
        for folder in (f"{at}/objects", at):  # of file systems that have folders
            with suppress(OSError, NotImplementedError):
                self._files.rmdir(folder)

    def read(self, cluster: str, job_id: int, digest: str, offset: int, end: int) -> bytes:
        data: bytes = self._files.cat_file(f"{self._job(cluster, job_id)}/objects/{digest}", start=offset, end=end)
        return data

    def _job(self, cluster: str, job_id: int) -> str:
        return f"{self._root}/{short_id(cluster)}/{_JOB}{job_id}"

    def _has(self, path: str, size: int) -> bool:
        try:
            return bool(self._files.info(path)["size"] == size)
        except FileNotFoundError:
            return False

    def _put(self, folder: Path, file: SavedFile, path: str) -> None:
        """Write a file, so that its name appears only when it is whole, even if the file system shows partial files."""
        part = f"{path}{self._suffix}"
        found = hashlib.sha256()
        try:
            with os.fdopen(open_below(folder, file.path), "rb") as source, self._files.open(part, "wb") as target:
                while data := source.read(PIECE):
                    found.update(data)
                    target.write(data)
            if found.hexdigest() != path.rpartition("/")[2]:
                raise Changed(f"{file.path} has changed")
        except BaseException:
            with suppress(Exception):
                self._files.rm_file(part)
            raise
        self._rename(part, path)

    def _write_manifest(self, at: str, run: int, files: dict[SavedFile, str]) -> None:
        text = json.dumps({"version": _VERSION, "run": run, "files": [[*file, digest] for file, digest in files.items()]})
        self._files.pipe_file(f"{at}/{_MANIFEST}{self._suffix}", text.encode())
        self._rename(f"{at}/{_MANIFEST}{self._suffix}", f"{at}/{_MANIFEST}")

    @property
    def _suffix(self) -> str:
        return ".part" if "file" in self._files.protocol else ""

    def _rename(self, part: str, path: str) -> None:
        if part != path:
            os.replace(part, path)  # noqa: PTH105  # of the local file system, as the suffix says


class Asks(Protocol):
    """The scheduler, which alone knows which jobs have ended."""

    async def find_ended(self, job_ids: list[int], days: float) -> list[int]: ...


class StoredExpiry:
    """Removes from the store the checkpoints of jobs that ended a number of days ago. Each agent of a site may do so: what
    another one has removed is simply gone."""

    def __init__(
        self, store: CheckpointStore, cluster: Callable[[], str], days: float, first: float = 600.0, pause: float = 6 * 3600.0
    ) -> None:
        """Look within `first` seconds, and then about every `pause` seconds, so that agents do not look at the same time."""
        self._store = store
        self._cluster = cluster
        self._days = days
        self._pause = pause
        self._next = time.monotonic() + random.uniform(0, first)

    async def run(self, scheduler: Asks) -> None:
        """Work over one connection until cancelled."""
        while True:
            await asyncio.sleep(max(self._next - time.monotonic(), 0))
            try:
                if removed := await self._remove_expired(scheduler):
                    text = "removed the checkpoints of jobs that ended more than %g days ago from %s: %d"
                    log.info(text, self._days, self._store.url, removed)
            except Exception as error:  # of the connection, or any that the file system of the store raises
                log.warning("what ended jobs have in %s cannot be removed now: %s; trying again later", self._store.url, error)
            self._next = time.monotonic() + self._pause * random.uniform(0.8, 1.2)

    async def _remove_expired(self, scheduler: Asks) -> int:
        cluster, removed = self._cluster(), 0
        jobs = await asyncio.to_thread(self._store.jobs, cluster)
        for first in range(0, len(jobs), _AT_ONCE):
            for job_id in await scheduler.find_ended(jobs[first : first + _AT_ONCE], self._days):
                await asyncio.to_thread(self._store.remove, cluster, job_id)
                removed += 1
        return removed


def _digest(folder: Path, file: SavedFile) -> str:
    with os.fdopen(open_below(folder, file.path), "rb") as source:
        if not is_as_described(source.fileno(), file):
            raise Changed(f"{file.path} has changed")
        return hashlib.file_digest(source, "sha256").hexdigest()


class StoreSource:
    """The store in place of the agent of another node (`fetched_files.Source`). Skips runs before `least`."""

    def __init__(self, store: CheckpointStore, cluster: Callable[[], str], least: int) -> None:
        self._store = store
        self._cluster = cluster
        self._least = least
        self._digests: dict[SavedFile, str] = {}

    async def describe(self, job_id: int) -> Described:
        found = await asyncio.to_thread(self._store.find, self._cluster(), job_id)
        if found is None or found.run < self._least:
            return Described(self._store.url)
        self._digests = found.files
        return Described(self._store.url, True, tuple(found.files))

    async def pieces(self, job_id: int, file: SavedFile, offset: int) -> AsyncIterator[Piece]:
        digest = self._digests[file]
        try:
            while offset < file.size:
                end = min(offset + PIECE, file.size)
                data = await asyncio.to_thread(self._store.read, self._cluster(), job_id, digest, offset, end)
                if not data:
                    raise Changed(f"{file.path} ends at byte {offset} in the store, and not at {file.size}")
                offset += len(data)
                yield Piece(data, zlib.crc32(data))
        except FileNotFoundError:
            raise Changed(f"{file.path} has been replaced in the store") from None
        yield Piece(sha256=bytes.fromhex(digest))

    async def close(self) -> None:
        """Nothing is open between two calls."""
