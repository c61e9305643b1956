"""The node as its link to the scheduler sees it: what it has, what is asked of it, and what it reports."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from node_agent.checkpoints.store import StoredExpiry
from node_agent.devices.base import Inventory
from node_agent.errors import Forgetful
from node_agent.measuring.observations import Observations, Observing
from node_agent.measuring.step_watch import StepWatch
from node_agent.processes.logs import Logs
from node_agent.run_state.events import Report
from node_agent.run_state.model import Desired
from node_agent.runs.executor import Executor
from node_agent.spool.spool import Spool
from node_agent.transport.messages import Hello, LogRequest, Welcome
from node_agent.user_files.transfers import Calls


class LocalNode:
    """The implementation of `transport.link.Node`."""

    def __init__(
        self,
        name: str,
        spool: Spool,
        inventory: Inventory,
        logs: Logs,
        obeyed: Callable[[str], None] = lambda _: None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`obeyed` is called with the cluster that the agent obeys, before that cluster orders anything."""
        self.reported = asyncio.Event()
        self._name = name
        self._spool = spool
        self._inventory = inventory
        self._logs = logs
        self._obeyed = obeyed
        self._labels = tuple(sorted((labels or {}).items()))
        self.checkpoints_at = ""
        """HOST:PORT where other nodes fetch checkpoints; empty: nowhere."""
        self.transfer_key = b""
        """The key in the last welcome."""
        self._instance = uuid.uuid4().hex
        self.executor: Executor | None = None
        self.observing: Observing | None = None
        self.step_watch: StepWatch | None = None
        self.stored_expiry: StoredExpiry | None = None

    def hello(self) -> Hello:
        cluster_id, epoch = self._spool.cluster
        inventory = self._inventory
        if (seen := self.observations()) is not None:
            inventory = inventory.with_faults({device.index: device.fault for device in seen.devices})
        spool = self._spool
        return Hello(
            self._name,
            spool.boot_id,
            cluster_id,
            epoch,
            inventory,
            spool.runs_to_report(),
            _version(),
            spool.acknowledged,
            spool.seal,
            self._instance,
            self._labels,
            self.checkpoints_at,
        )

    def observations(self) -> Observations | None:
        seen = None if self.observing is None else self.observing.latest
        watch, slices = self.step_watch, () if self.executor is None else self.executor.suspending.slices.observe()
        if slices:
            seen = replace(seen or Observations((), ()), slices=slices)
        if watch is None or not (watch.latest or watch.graces or watch.checkpoints):
            return seen
        found = seen or Observations((), ())
        found = replace(found, steps=watch.latest, measurements=watch.measurements, graces=watch.graces)
        return replace(found, checkpoints=watch.checkpoints)

    def accept_welcome(self, welcome: Welcome) -> None:
        self._spool.obey(welcome.cluster_id, welcome.epoch, welcome.seal)
        self._obeyed(welcome.cluster_id)
        self.transfer_key = welcome.transfer_key
        if welcome.acknowledged < self._spool.acknowledged:
            raise Forgetful(theirs=welcome.acknowledged, ours=self._spool.acknowledged)

    def obey(self, wanted: Sequence[Desired]) -> None:
        assert self.executor is not None
        self.executor.obey(wanted)

    def pending(self, after: int) -> list[Report]:
        return self._spool.pending(after)

    async def recheck_devices(self, reports: Sequence[Report]) -> None:
        if self.observing is not None and any(map(self._spool.is_failure, reports)):
            await self.observing.once_more()

    def acknowledge(self, sequence: int) -> None:
        self._spool.acknowledge(sequence)

    async def transfer(self, calls: Calls) -> None:
        assert self.executor is not None
        works = [self.executor.starting.transfers.run(calls)]
        if self.stored_expiry is not None:
            works.append(self.stored_expiry.run(calls))
        await asyncio.gather(*works)

    async def log(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(self._logs.read(request.key, request.offset, request.follow)) as pieces:
            async for piece in pieces:
                yield piece


def _version() -> str:
    try:
        return version("ebb-cluster")
    except PackageNotFoundError:
        return "unknown"
