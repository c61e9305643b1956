"""Uploads to the store what runs that have left this node saved, one job after the other.

A folder is marked when its run has ended, and the mark is removed when the store has it: a restarted agent resumes there.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from node_agent.checkpoints.folders import UPLOAD, CheckpointFolders
from node_agent.checkpoints.pieces import Changed
from node_agent.checkpoints.store import CheckpointStore
from node_agent.processes import job_files
from node_agent.run_state.model import RunKey

log = logging.getLogger(__name__)

_AGAIN = (1.0, 5.0, 30.0, 120.0)
"""Seconds until each retry; after the last one it is given up, until the agent starts or the job leaves again."""


class CheckpointUploads:
    """The uploads of one agent."""

    def __init__(self, store: CheckpointStore, folders: CheckpointFolders, again: tuple[float, ...] = _AGAIN) -> None:
        self._store = store
        self._folders = folders
        self._again = again
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._one = asyncio.Lock()

    def recover(self, cluster: str) -> None:
        """Resume what an earlier agent began."""
        for mark in self._folders.folder(cluster, 0).parent.glob(f"job-*/{UPLOAD}*"):
            with suppress(ValueError):
                job_id, run = int(mark.parent.name.partition("-")[2]), int(mark.name.removeprefix(UPLOAD))
                self._begin(cluster, job_id, run)

    def upload_ended_run(self, cluster: str, key: RunKey) -> None:
        """Upload the work of a run that has ended. Raises nothing: a folder that cannot be marked is uploaded all the same."""
        with suppress(OSError):
            job_files.touch_file(str(self._folders.folder(cluster, key.job_id)), f"{UPLOAD}{key.run}")
        self._begin(cluster, key.job_id, key.run)

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _mark(self, cluster: str, job_id: int, run: int) -> Path:
        return self._folders.folder(cluster, job_id) / f"{UPLOAD}{run}"

    def _begin(self, cluster: str, job_id: int, run: int) -> None:
        if (before := self._tasks.pop(job_id, None)) is not None:
            before.cancel()
        self._tasks[job_id] = asyncio.ensure_future(self._upload(cluster, job_id, run))

    async def _upload(self, cluster: str, job_id: int, run: int) -> None:
        folder = self._folders.folder(cluster, job_id)
        for pause in (*self._again, None):
            try:
                async with self._one:
                    count = await asyncio.to_thread(self._store.upload, cluster, job_id, run, folder)
            except (Changed, FileNotFoundError) as error:
                log.info("job %d: not stored: the job goes on here: %s", job_id, error)
                break
            except Exception as error:  # any that the file system of the store raises
                text = f"job {job_id}: what run {run} saved cannot be stored at {self._store.url}: {error}"
                if pause is None:
                    log.error("%s; it stays on this node alone", text)
                    return
                log.warning("%s; trying again in %g s", text, pause)
                await asyncio.sleep(pause)
            else:
                log.info("job %d: what run %d saved is in the store (%d bytes now)", job_id, run, count)
                break
        with suppress(OSError):
            self._mark(cluster, job_id, run).unlink(missing_ok=True)
