"""Runs that execute on one device at the same time: memory limits, and NVIDIA's MPS where the settings ask for it (ADR 46).

Whether a run is a client of MPS is decided when it starts, and is in its environment. So a restarted agent knows as much as the
one before.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial

from node_agent.devices.base import Inventory
from node_agent.devices.mps import MpsDaemons, Server
from node_agent.processes.process_groups import read
from node_agent.run_state.model import LaunchSpec, RunKey, RunRecord
from node_agent.run_state.share_plan import SharePlan
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

LIMIT_VARIABLE = "EBB_DEVICE_MEMORY_LIMIT_MIB"
"""What the run may use of each of its devices, for the hook inside PyTorch."""
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"


class Packing:
    """Of the runs of one spool. `start` launches a run that has waited for its daemon. `daemons` is None where MPS is not used.
    `guarded` calls a function for the event loop, and tells of what fails in it."""

    def __init__(
        self,
        spool: Spool,
        inventory: Inventory,
        daemons: MpsDaemons | None,
        start: Callable[[RunKey], None],
        guarded: Callable[..., None],
    ) -> None:
        self._spool = spool
        self._uuids = {device.index: device.uuid for device in inventory.devices}
        self._daemons = daemons
        self._start = start
        self._guarded = guarded
        self._starting: dict[RunKey, asyncio.Task[str]] = {}
        self._without: set[RunKey] = set()
        """Runs whose daemon could not be started. They share the device as the driver lets them."""
        self._ready: set[RunKey] = set()
        self._turn = asyncio.Lock()
        self._untidy = False
        self._keeping: asyncio.Task[Mapping[Server, str]] | None = None

    def may_start(self, key: RunKey) -> bool:
        """Whether a run has the daemon that it needs. If it has to wait, it is started when the daemon answers."""
        record = self._spool.runs[key]
        if self._daemons is None or key in self._ready or key in self._without:
            return True
        if record.launch is None or (server := self._server(record.launch)) is None:
            return True
        if key not in self._starting:
            task = self._starting[key] = asyncio.get_running_loop().create_task(self._have(server))
            task.add_done_callback(partial(self._guarded, self._answered, key))
        return False

    def environment(self, launch: LaunchSpec) -> Mapping[str, str]:
        """What a run with this plan needs beside what its devices ask for."""
        limit = 0 if launch.share is None else launch.share.device_memory_mib
        found = {LIMIT_VARIABLE: str(limit)} if limit else {}
        if self._daemons is not None and launch.key in self._ready and (server := self._server(launch)) is not None:
            found |= self._daemons.environment(server, memory_limit_mib=limit or None)
        return found

    def uses_mps(self, key: RunKey) -> bool:
        record = self._spool.runs.get(key)
        return record is not None and bool(_pipes(record))

    def over(self, key: RunKey) -> None:
        """A run has ended. Daemons that no run uses are stopped."""
        self._ready.discard(key)
        self._without.discard(key)
        if (task := self._starting.pop(key, None)) is not None:
            task.cancel()
        self.tidy()

    def tidy(self) -> None:
        """Stops daemons that no run uses, and starts those again that have died."""
        self._untidy = self._daemons is not None and bool(self._daemons.known())
        if self._untidy and self._keeping is None:
            self._untidy = False
            self._keeping = asyncio.get_running_loop().create_task(self._keep())
            self._keeping.add_done_callback(partial(self._guarded, self._kept))

    def close(self) -> None:
        """Daemons go on, as their clients do."""
        for task in (*self._starting.values(), *([self._keeping] if self._keeping is not None else ())):
            task.cancel()

    async def _have(self, server: Server) -> str:
        assert self._daemons is not None
        async with self._turn:
            return await self._daemons.start(server)

    async def _keep(self) -> Mapping[Server, str]:
        assert self._daemons is not None
        async with self._turn:  # what is wanted is asked in turn: a run that is about to start has asked for its daemon
            return await self._daemons.keep(self._wanted())

    def _answered(self, key: RunKey, task: "asyncio.Task[str]") -> None:
        self._starting.pop(key, None)
        if task.cancelled():
            return
        if why := task.result():
            log.warning("run %s: starts without MPS: %s", key, why)
            self._without.add(key)
        else:
            self._ready.add(key)
        self._start(key)

    def _kept(self, task: "asyncio.Task[Mapping[Server, str]]") -> None:
        self._keeping = None
        if not task.cancelled():
            for why in task.result().values():
                log.warning("MPS: %s", why)
            if self._untidy:
                self.tidy()

    def _server(self, launch: LaunchSpec) -> Server | None:
        """The daemon for a run that is packed on one device; None for any other run. A client of MPS sees one device."""
        if launch.share is None or len(launch.devices) != 1 or not is_packed(launch.key, launch.share):
            return None
        (device,) = launch.devices
        return Server(os.geteuid(), self._uuids[device])

    def _wanted(self) -> set[Server]:
        assert self._daemons is not None
        live = self._spool.live()
        used = {pipes for record in live if (pipes := _pipes(record))}
        found = {server for server in self._daemons.known() if self._daemons.environment(server)[_PIPES] in used}
        waiting = (self._server(record.launch) for record in live if record.launch is not None and not record.pid)
        return found | {server for server in waiting if server is not None}


def is_packed(key: RunKey, plan: SharePlan) -> bool:
    """Whether others execute at the same time as this run, perhaps on its devices, or may come to. A run becomes a client of
    MPS when it starts or never, so the first one of a device is one, too."""
    return plan.packed or any(key in row.runs and len(row.runs) > 1 for row in plan.rows)


def _pipes(record: RunRecord) -> str:
    """The folder of the daemon that a run is a client of; empty for none."""
    if not record.pid:
        return ""
    _, found, rest = (b"\0" + read(f"/proc/{record.pid}/environ")).partition(f"\0{_PIPES}=".encode())
    return os.fsdecode(rest.partition(b"\0")[0]) if found else ""
