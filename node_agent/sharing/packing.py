"""Runs that execute on one device at the same time: memory limits, and NVIDIA's MPS if it is enabled (ADR 46).

Whether a run is a client of MPS is decided when it starts, and is in its environment. So a restarted agent knows as much as
the one before.
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
"""Variable with the memory that the run may use of each of its devices, for the hook inside PyTorch."""
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"


class Packing:
    """The packed runs of one spool. `start` launches a run that has waited for its daemon. `daemons` is None if MPS is not
    used. `guarded` calls a function for the event loop, and reports what fails in it."""

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
        """Runs whose daemon could not be started. They share the device as the driver allows."""
        self._ready: set[RunKey] = set()
        self._turn = asyncio.Lock()
        self._untidy = False
        self._keeping: asyncio.Task[Mapping[Server, str]] | None = None

    def may_start(self, key: RunKey) -> bool:
        """Whether a run has the daemon that it needs. If not, the run is started when the daemon answers."""
        record = self._spool.runs[key]
        if self._daemons is None or key in self._ready or key in self._without:
            return True
        if record.launch is None or (server := self._server(record.launch)) is None:
            return True
        if key not in self._starting:
            task = self._starting[key] = asyncio.get_running_loop().create_task(self._ensure_server(server))
            task.add_done_callback(partial(self._guarded, self._handle_answer, key))
        return False

    def environment(self, launch: LaunchSpec) -> Mapping[str, str]:
        """Return the variables that a run with this plan needs in addition to those of its devices."""
        limit = 0 if launch.share is None else launch.share.device_memory_mib
        found = {LIMIT_VARIABLE: str(limit)} if limit else {}
        if self._daemons is not None and launch.key in self._ready and (server := self._server(launch)) is not None:
            found |= self._daemons.environment(server, memory_limit_mib=limit or None)
        return found

    def uses_mps(self, key: RunKey) -> bool:
        record = self._spool.runs.get(key)
        return record is not None and bool(_pipes(record))

    def handle_end(self, key: RunKey) -> None:
        """Handle the end of a run. Daemons that no run uses are stopped."""
        self._ready.discard(key)
        self._without.discard(key)
        if (task := self._starting.pop(key, None)) is not None:
            task.cancel()
        self.tidy()

    def tidy(self) -> None:
        """Stop daemons that no run uses, and restart those that have died."""
        self._untidy = self._daemons is not None and bool(self._daemons.find_started())
        if self._untidy and self._keeping is None:
            self._untidy = False
            self._keeping = asyncio.get_running_loop().create_task(self._keep())
            self._keeping.add_done_callback(partial(self._guarded, self._finish_keeping))

    def close(self) -> None:
        """Leave the daemons running, as their clients do."""
        for task in (*self._starting.values(), *([self._keeping] if self._keeping is not None else ())):
            task.cancel()

    async def _ensure_server(self, server: Server) -> str:
        assert self._daemons is not None
        async with self._turn:
            return await self._daemons.start(server)

    async def _keep(self) -> Mapping[Server, str]:
        assert self._daemons is not None
        async with self._turn:  # computed in turn: a run that is about to start has requested its daemon by then
            return await self._daemons.keep(self._wanted_servers())

    def _handle_answer(self, key: RunKey, task: "asyncio.Task[str]") -> None:
        self._starting.pop(key, None)
        if task.cancelled():
            return
        if why := task.result():
            log.warning("run %s: starts without MPS: %s", key, why)
            self._without.add(key)
        else:
            self._ready.add(key)
        self._start(key)

    def _finish_keeping(self, task: "asyncio.Task[Mapping[Server, str]]") -> None:
        self._keeping = None
        if not task.cancelled():
            for why in task.result().values():
                log.warning("MPS: %s", why)
            if self._untidy:
                self.tidy()

    def _server(self, launch: LaunchSpec) -> Server | None:
        """Return the daemon for a run that is packed on one device, since a client of MPS sees one device; otherwise None."""
        if launch.share is None or len(launch.devices) != 1 or not is_packed(launch.key, launch.share):
            return None
        (device,) = launch.devices
        return Server(os.geteuid(), self._uuids[device])

    def _wanted_servers(self) -> set[Server]:
        assert self._daemons is not None
        live = self._spool.live()
        used = {pipes for record in live if (pipes := _pipes(record))}
        found = {server for server in self._daemons.find_started() if self._daemons.environment(server)[_PIPES] in used}
        waiting = (self._server(record.launch) for record in live if record.launch is not None and not record.pid)
        return found | {server for server in waiting if server is not None}


def is_packed(key: RunKey, plan: SharePlan) -> bool:
    """Whether other runs execute at the same time as this one, perhaps on its devices, or may later. A run becomes a client of
    MPS when it starts or never, so the first run on a device becomes one, too."""
    return plan.packed or any(key in row.runs and len(row.runs) > 1 for row in plan.rows)


def _pipes(record: RunRecord) -> str:
    """Return the folder of the daemon of which a run is a client; empty for none."""
    if not record.pid:
        return ""
    _, found, rest = (b"\0" + read(f"/proc/{record.pid}/environ")).partition(f"\0{_PIPES}=".encode())
    return os.fsdecode(rest.partition(b"\0")[0]) if found else ""
