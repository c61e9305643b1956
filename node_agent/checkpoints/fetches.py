"""Fetches the checkpoints of jobs that last ran on another node, before their runs begin here.

A run that has to wait for its checkpoint stays STARTING or PREPARING in the spool, and is launched when all is here. What was
fetched when the agent or the connection ended is used again: a partial file resumes at its end.

While a run is being warmed, its source still works. What that saves is fetched as it comes (`follow`), so that little is left
to fetch when the source has ended.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from node_agent.checkpoints.fetched_files import (
    Source,
    SourceRefuses,
    call_to_the_end,
    copy_file,
    fetch_file,
    make_links,
    prepare,
    sync,
)
from node_agent.checkpoints.folders import CheckpointFolders, Described, SavedFile, choose_safe
from node_agent.checkpoints.pieces import Changed, Damaged
from node_agent.checkpoints.store import CheckpointStore, StoreSource
from node_agent.run_state.model import LaunchSpec, RunKey, clean

log = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds without a byte from a source until the run is given up here."""
_AGAIN = 0.25
"""Seconds until a failed try is repeated."""
_LOOK = 0.1
"""Seconds between two looks at what a working source has saved."""
_DAMAGED = 5
"""Times that a file may arrive damaged, or change while it is fetched, before the run is given up here."""
_HOPELESS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


class CheckpointFetches:
    """The checkpoint fetches of one agent. `ready` is called with a run whose checkpoint is here, `refused` with one whose
    checkpoint cannot be had, and why. `reach` gives the agent of a node at an address. With `copies`, files of a source on this
    machine are copied. If a run has no source, `store` is asked for what was saved after the last run here; if the source
    cannot be reached, for what the run right before this one saved."""

    def __init__(
        self,
        folders: CheckpointFolders,
        cluster: Callable[[], str],
        reach: Callable[[str, str], Source],
        ready: Callable[[RunKey], None],
        refused: Callable[[RunKey, str], None],
        patience: float = _PATIENCE,
        copies: bool = True,
        store: CheckpointStore | None = None,
    ) -> None:
        self._folders = folders
        self._cluster = cluster
        self._reach = reach
        self._ready = ready
        self._refused = refused
        self._patience = patience
        self._copies = copies
        self._store = store
        self._tasks: dict[RunKey, asyncio.Task[None]] = {}
        self._complete_for: set[RunKey] = set()
        """Runs whose folder needs nothing more, including those with nothing to fetch."""
        self._following: dict[RunKey, asyncio.Task[None]] = {}
        self._heard: set[RunKey] = set()
        """Runs that are being warmed, and whose source has answered."""
        self._locks: dict[int, asyncio.Lock] = {}
        """One for each job with a fetch in progress: tasks of a gang share its folder."""
        self.modules: dict[RunKey, tuple[str, ...]] = {}
        """Modules that the source's run has imported, for runs that are being warmed."""
        self.cold: set[RunKey] = set()
        """Runs that get no warm process, because the source dumps its own."""
        self._syncing: set[asyncio.Future[None]] = set()

    def waits(self, launch: LaunchSpec) -> bool:
        """Whether a run has to wait for its checkpoint, which is then fetched."""
        key = launch.key
        if key in self._complete_for or self._is_fetched(key) or not (launch.source is not None or self._asks_store(key)):
            self._note_run(key)
            return False
        if launch.key not in self._tasks:
            self._unfollow(launch.key)
            task = asyncio.ensure_future(self._fetch(launch))
            self._tasks[launch.key] = task
        return True

    def _asks_store(self, key: RunKey) -> bool:
        """Whether an earlier run, on another node, may have left something in the store."""
        return self._store is not None and self._folders.last_run(self._cluster(), key.job_id) < key.run - 1

    def _note_run(self, key: RunKey) -> None:
        if self._store is not None:
            with suppress(OSError):  # if a folder cannot be written, the program will find out
                self._folders.note_run(self._cluster(), key.job_id, key.run)

    def follow(self, launch: LaunchSpec, heard: Callable[[RunKey], None]) -> bool:
        """Fetch what there is, and what the source saves from now on; nothing of it becomes visible before `waits`.

        Return whether the source has answered, or the run has none. If not, `heard` is called when it does or never will.
        """
        key = launch.key
        if launch.source is None or key in self._heard:
            return True
        if key not in self._following:
            self._following[key] = asyncio.ensure_future(self._follow(launch, heard))
        return False

    def has(self, key: RunKey) -> bool:
        """Whether a run waits for its checkpoint."""
        return key in self._tasks

    def drop(self, key: RunKey) -> bool:
        """Forget a run that has ended, or is not to start any more; return whether it was waiting."""
        waited = key in self._following
        self._unfollow(key)
        self.modules.pop(key, None)
        self.cold.discard(key)
        self._complete_for.discard(key)
        followed = key in self._heard
        self._heard.discard(key)
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
        return task is not None or followed or waited

    def close(self) -> None:
        for task in (*self._tasks.values(), *self._following.values()):
            task.cancel()

    def _unfollow(self, key: RunKey) -> None:
        if (following := self._following.pop(key, None)) is not None:
            following.cancel()

    def _is_fetched(self, key: RunKey) -> bool:
        return self._folders.is_fetched(self._cluster(), key.job_id, key.run)

    async def _fetch(self, launch: LaunchSpec) -> None:
        """Fetch from the agent of the source; if it cannot be reached, from the store."""
        key, why = launch.key, ""
        if launch.source is not None:
            why = await self._fetch_from(key, self._reach(*launch.source))
            why = why and f"from node {launch.source.node}: {why}"
        if self._store is not None and (why or launch.source is None):
            least = max(self._folders.last_run(self._cluster(), key.job_id) + 1, key.run - 1 if why else 0)
            lacks = await self._fetch_from(key, StoreSource(self._store, self._cluster, least), must=bool(why))
            why = lacks and (f"{why}; nor from the store: {lacks}" if why else f"from the store: {lacks}")
        if self._tasks.pop(key, None) is None:
            return
        if why:
            self._refused(key, clean(f"its checkpoint cannot be fetched {why}", 1024))
        else:
            self._complete_for.add(key)
            self._ready(key)

    async def _fetch_from(self, key: RunKey, source: Source, must: bool = False) -> str:
        """Return why the source does not give the checkpoint; empty: the folder is complete. `must`: it has to have one."""
        began = time.monotonic()
        limit, failed, damaged = began + self._patience, "", 0

        def extend_limit() -> None:
            nonlocal limit
            limit = time.monotonic() + self._patience

        try:
            while True:
                try:
                    count = await self._complete(key, source, extend_limit, must)
                except SourceRefuses as error:
                    return str(error)
                except (Changed, Damaged) as error:  # the next look sees what is there now
                    failed, damaged = str(error), damaged + 1
                except OSError as error:
                    if error.errno in _HOPELESS:
                        return f"{error.strerror} on this node"
                    failed = str(error)
                except Exception as error:  # of the connection, which returns if the source does
                    failed = str(error)
                else:
                    log.info("run %s: %s in %.2f s", key, count, time.monotonic() - began)
                    return ""
                if time.monotonic() > limit or damaged >= _DAMAGED:
                    return failed
                log.debug("run %s: its checkpoint cannot be fetched now: %s; trying again", key, failed)
                await asyncio.sleep(_AGAIN)
        finally:
            await source.close()

    async def _complete(self, key: RunKey, source: Source, arrived: Callable[[], None], must: bool) -> str:
        """Make the job's folder equal to that of the source; return what was done, in words.

        Raises SourceRefuses if the source `must` have a checkpoint, and has none."""
        cluster, job = self._cluster(), key.job_id
        async with self._locks.setdefault(job, asyncio.Lock()):
            if self._is_fetched(key):
                return "its checkpoint was fetched for another task"
            described = await source.describe(job)
            arrived()
            if described.store == await asyncio.to_thread(self._folders.store):
                self._sync_soon(self._folders.folder(cluster, job))
                return "the nodes share their storage, so no checkpoint had to be fetched"
            if not described.exists:
                if must:
                    raise SourceRefuses("it does not have what the run before this one saved")
                return "the source has no checkpoint"
            fetched = await self._mirror(job, source, described, arrived)
            await asyncio.to_thread(self._folders.publish, cluster, job, key.run)
            self._sync_soon(self._folders.folder(cluster, job))
            return f"its checkpoint was fetched: {fetched} of {sum(file.size for file in described.files)} bytes now"

    async def _mirror(self, job: int, source: Source, described: Described, arrived: Callable[[], None]) -> int:
        """Fetch the described files into the incoming folder; return how many bytes had to be fetched."""
        cluster = self._cluster()
        folder, new = self._folders.folder(cluster, job), self._folders.incoming(cluster, job)
        safe = choose_safe(described.files)
        if len(safe) < len(described.files):
            number = len(described.files) - len(safe)
            log.warning("job %d: not fetched: %d links that may lead out of its folder, or files behind links", job, number)
        missing = await asyncio.to_thread(prepare, folder, new, safe)
        near = await asyncio.to_thread(self._folders.find_nearby, described) if self._copies else None
        fetched = 0
        for file in missing:
            if near is not None and await call_to_the_end(copy_file, near, file, new / file.path):
                fetched += file.size
                arrived()
            else:
                fetched += await fetch_file(job, source, file, new / file.path, arrived)
        await asyncio.to_thread(make_links, new, safe)
        return fetched

    async def _follow(self, launch: LaunchSpec, heard: Callable[[RunKey], None]) -> None:
        key = launch.key
        assert launch.source is not None
        source = self._reach(*launch.source)
        before: set[SavedFile] = set()
        try:
            ours = await asyncio.to_thread(self._folders.store)
            while True:
                with suppress(Exception):  # the fetch that counts meets the same error and reports it
                    async with self._locks.setdefault(key.job_id, asyncio.Lock()):
                        described = await source.describe(key.job_id)
                        self.modules[key] = described.modules
                        if described.would_dump:
                            self.cold.add(key)
                        self._hear(key, heard)
                        # A file that still grows would be fetched in vain, and slow down the process that writes it.
                        quiet = tuple(file for file in described.files if file in before)
                        before = set(described.files)
                        if described.store != ours and described.exists:
                            await self._mirror(key.job_id, source, described._replace(files=quiet), lambda: None)
                self._hear(key, heard)
                await asyncio.sleep(_LOOK)
        finally:
            await source.close()

    def _hear(self, key: RunKey, heard: Callable[[RunKey], None]) -> None:
        if key not in self._heard and key in self._following:
            self._heard.add(key)
            heard(key)

    def _sync_soon(self, folder: Path) -> None:
        """Sync without waiting: the source keeps its copy, so the run need not wait for the disk."""
        syncing = asyncio.ensure_future(asyncio.to_thread(sync, folder))
        self._syncing.add(syncing)
        syncing.add_done_callback(self._syncing.discard)
