"""Fetches the snapshots that runs wait for, and sends the results that they left, whenever a scheduler is connected.

What is in progress when a connection ends resumes with the next one, where it stopped.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ebb_common.archive import BadArchive
from node_agent.run_state.model import LaunchSpec, RunKey, clean
from node_agent.user_files.results import Results
from node_agent.user_files.snapshots import Snapshots

log = logging.getLogger(__name__)

_AGAIN = 5.0
"""Seconds until a failed transfer is repeated."""
_PIECE = 1 << 20


class FileRefused(Exception):
    """The scheduler does not give a snapshot, or take a result: another try would get the same answer."""


class Calls(Protocol):
    """The calls of one connection. They raise FileRefused, and any error that ends the connection."""

    async def get(self, job_id: int, digest: str, offset: int) -> tuple[bytes, int]: ...

    async def put(self, key: RunKey, size: int, offset: int, data: bytes) -> int: ...

    async def find_ended(self, job_ids: list[int], days: float) -> list[int]: ...


class Transfers:
    """The transfers of one state directory. `ready` is called with a run once its snapshots are there, `refused` with one whose
    snapshots cannot be had, and why. `cluster` gives the cluster that is obeyed."""

    def __init__(
        self,
        snapshots: Snapshots,
        results: Results,
        cluster: Callable[[], str],
        ready: Callable[[RunKey], None],
        refused: Callable[[RunKey, str], None],
    ) -> None:
        self._snapshots = snapshots
        self._results = results
        self._cluster = cluster
        self._ready = ready
        self._refused = refused
        self._wanted: dict[RunKey, LaunchSpec] = {}
        self._changed = asyncio.Event()

    def waits(self, launch: LaunchSpec) -> bool:
        """Whether a run has to wait for its snapshots, which are then fetched."""
        if not self._snapshots.has_missing(launch):
            return False
        self._wanted[launch.key] = launch
        self._changed.set()
        return True

    def has(self, key: RunKey) -> bool:
        """Whether a run waits for its snapshots."""
        return key in self._wanted

    def drop(self, key: RunKey) -> bool:
        """Forget a run that is not to start any more, or has ended; return whether it was waiting."""
        return self._wanted.pop(key, None) is not None

    def send_result(self, key: RunKey) -> None:
        """Handle the end of a run: send its result."""
        self.drop(key)
        if self._results.take_result(self._cluster(), key):
            self._changed.set()

    async def run(self, calls: Calls) -> None:
        """Work over one connection until cancelled."""
        tasks: dict[object, asyncio.Task[None]] = {}
        try:
            while True:
                self._changed.clear()
                for of in [of for of, task in tasks.items() if task.done()]:
                    del tasks[of]
                for key in self._wanted.keys() - tasks.keys():
                    tasks[key] = asyncio.create_task(self._fetch(key, calls))
                for key, path in self._results.waiting(self._cluster()).items():
                    if (of := ("result", key)) not in tasks:
                        tasks[of] = asyncio.create_task(self._send(key, path, calls))
                await self._changed.wait()
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _fetch(self, key: RunKey, calls: Calls) -> None:
        while (launch := self._wanted.get(key)) is not None:
            try:
                await self._snapshots.provide(launch, calls.get)
            except (BadArchive, FileRefused) as error:
                if self.drop(key):
                    self._refused(key, clean(f"its snapshot cannot be used: {error}", 1024))
            except Exception as error:  # of the connection, which may last, or of the disk
                log.warning("run %s: its snapshots cannot be had now: %s; trying again", key, error)
                await asyncio.sleep(_AGAIN)
            else:
                if self.drop(key):
                    self._ready(key)

    async def _send(self, key: RunKey, path: Path, calls: Calls) -> None:
        while path.exists():
            try:
                await _send_whole(key, path, calls)
            except FileRefused as error:
                log.warning("run %s: its result is not taken: %s", key, error)
            except Exception as error:
                log.warning("run %s: its result cannot be sent now: %s; trying again", key, error)
                await asyncio.sleep(_AGAIN)
                continue
            with suppress(OSError):
                path.unlink()


async def _send_whole(key: RunKey, path: Path, calls: Any) -> None:
    with path.open("rb") as file:
        size, at = path.stat().st_size, 0
        while at < size:
            file.seek(at)
            stored = await calls.put(key, size, at, file.read(_PIECE))
            if stored == at:
                raise FileRefused("another result of this run is stored already")
            at = stored
