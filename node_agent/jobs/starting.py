"""Has runs begin: launched at once or, a task of a gang, made ready; what the node cannot do now is tried again."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from node_agent.devices.base import Provider
from node_agent.errors import EnvironmentMissing, UnknownDevice
from node_agent.jobs.confinement import Holding
from node_agent.jobs.environment import Paths
from node_agent.jobs.launch_retries import Retries
from node_agent.jobs.launcher.client import LauncherClient
from node_agent.jobs.launcher.prepared_folders import PreparedFolder
from node_agent.jobs.model import LaunchSpec, Ready, RunKey, RunPhase, RunRecord
from node_agent.jobs.preparation import beside, prepare
from node_agent.jobs.rendezvous import Rendezvous
from node_agent.jobs.results import Results
from node_agent.jobs.snapshots import Snapshots
from node_agent.jobs.spool.spool import Spool
from node_agent.jobs.transfers import Transfers

log = logging.getLogger(__name__)

_SPARE_DELAY = 0.02
"""Seconds after a launch until there is time to make the next folder for checkpoints."""


class Starting:
    """Of the runs of one spool. `reported` is called when there is something to report, `refused` with a run that cannot be
    launched, and why. `may_start` says whether a run has its devices now; one that has not is launched again later. `gave_up`
    is called with a run that cannot be launched for now. `packed` gives what a run finds in its environment because it shares
    its devices. `guarded` calls a function for the event loop, and tells of what fails in it."""

    def __init__(
        self,
        spool: Spool,
        holding: Holding,
        rendezvous: Rendezvous,
        provider: Provider,
        paths: Paths,
        node: str,
        reported: Callable[[], None],
        refused: Callable[[RunRecord, str], None],
        may_start: Callable[[RunKey], bool],
        gave_up: Callable[[RunKey], None],
        packed: Callable[[LaunchSpec], Mapping[str, str]],
        guarded: Callable[..., None],
    ) -> None:
        self._spool = spool
        self._holding = holding
        self._rendezvous = rendezvous
        self._provider = provider
        self._paths = paths
        self._node = node
        self._reported = reported
        self._refused = refused
        self._may_start = may_start
        self._gave_up = gave_up
        self._packed = packed
        self._own_environment = dict(os.environ)
        self._launcher: LauncherClient | None = None
        self._spare = PreparedFolder(paths.prepared_checkpoint(node))
        self._making: asyncio.TimerHandle | None = None
        self._ceased = False
        self.retries = Retries(partial(guarded, self.launch), gave_up)
        files = Snapshots(paths), Results(paths)
        self.transfers = Transfers(
            *files, lambda: spool.cluster[0], partial(guarded, self.launch), partial(guarded, self._lacks)
        )

    def _lacks(self, key: RunKey, why: str) -> None:
        self._refused(self._spool.runs[key], why)

    def waits(self, key: RunKey) -> bool:
        """Whether a run is launched by itself later: it waits for its snapshots, or its launch has failed for now."""
        return key in self.retries.timers or self.transfers.has(key)

    def connect(self, launcher: LauncherClient) -> None:
        self._launcher = launcher

    @property
    def launcher(self) -> LauncherClient:
        assert self._launcher is not None, "connect() comes first"
        return self._launcher

    def cease(self) -> None:
        """Nothing begins here any more."""
        self._ceased = True

    def close(self) -> None:
        """Nothing is tried again, or made in advance, from here on."""
        if self._making is not None:
            self._making.cancel()
        self.retries.close()

    def launch(self, key: RunKey) -> None:
        """Has a run launched that is to start; of one that was told to stop, only asks what became of it."""
        self.retries.due(key)
        if self._ceased:
            return  # the agent that comes next finds it in the spool
        record = self._spool.runs[key]
        if record.phase in (RunPhase.PREPARING, RunPhase.READY):
            self._get_ready(record)
            return
        launch = record.launch
        if record.phase is not RunPhase.STARTING or launch is None:
            self.launcher.find(key, self._paths.folder(key))
            return
        if self.transfers.waits(launch):
            self._gave_up(key)
            return
        if not self._may_start(key):
            return
        try:
            group = self._holding.make(key, launch.memory_mib)
            cluster_id, _ = self._spool.cluster
            of_node = self._node, self._paths, cluster_id, self._provider
            request = prepare(launch, self._own_environment, *of_node, group, self._spare, self._packed(launch))
            if launch.gang is not None:
                self._rendezvous.release(key)
            self.launcher.spawn(request)
        except (UnknownDevice, EnvironmentMissing) as error:
            self._refused(record, " ".join(str(error).split()))  # the story has it on one line
        except OSError as error:
            self.retries.later(key, str(error))
        else:
            self.make_spare_soon()

    def spawn_checkpoint(self, record: RunRecord) -> None:
        """Has the checkpoint command of a run started. Raises OSError, and UnknownDevice."""
        assert record.launch is not None
        cluster_id, _ = self._spool.cluster
        of_node = self._node, self._paths, cluster_id, self._provider
        self.launcher.spawn(beside(record.launch, record.pid, self._own_environment, *of_node, self._holding.path(record.key)))

    def find_checkpoint(self, key: RunKey) -> None:
        """Asks the launcher for the checkpoint command of a run, without starting it."""
        self.launcher.find(key, self._paths.checkpointing(key), beside=True)

    def make_spare_soon(self) -> None:
        """Not now: what follows a launch comes first."""
        if self._spare.missing and self._making is None:
            self._making = asyncio.get_running_loop().call_later(_SPARE_DELAY, self._make_spare)

    def _make_spare(self) -> None:
        self._making = None
        self._spare.make()

    def _get_ready(self, record: RunRecord) -> None:
        """For a gang, until it is to run; again after a restart, when the port may be another one."""
        launch = record.launch
        assert launch is not None
        assert launch.gang is not None
        if self.transfers.waits(launch):
            return
        try:
            os.makedirs(self._paths.folder(record.key), exist_ok=True)  # noqa: PTH103
            port = self._rendezvous.keep(record.key, record.port) if launch.gang.rank == 0 else 0
            ready = Ready(self._rendezvous.address(), port)
        except OSError as error:
            self.retries.later(record.key, str(error))
            return
        if record.phase is RunPhase.READY and port == record.port:
            return
        self._spool.report(replace(record, phase=RunPhase.READY, port=port), ready)
        self._reported()
        self.retries.over(record.key)
        log.info("run %s: ready, at %s port %d", record.key, ready.address, port)
