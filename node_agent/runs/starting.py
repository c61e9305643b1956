"""Starts runs: launches them, or makes tasks of a gang ready; retries what the node cannot do now."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from node_agent.checkpoints.criu_dumps import Dumps, is_waited_for
from node_agent.checkpoints.criu_images import Image
from node_agent.checkpoints.fetched_files import Source
from node_agent.checkpoints.fetches import CheckpointFetches
from node_agent.checkpoints.folders import CheckpointFolders
from node_agent.checkpoints.store import CheckpointStore
from node_agent.devices.base import Provider
from node_agent.errors import EnvironmentMissing, UnknownDevice
from node_agent.processes.launcher.client import LauncherClient
from node_agent.processes.launcher.prepared_folders import PreparedFolder
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Ready
from node_agent.run_state.model import LaunchSpec, RunKey, RunPhase, RunRecord
from node_agent.runs.launch_retries import Retries
from node_agent.runs.preparation import build_checkpoint_command, prepare
from node_agent.runs.rendezvous import Rendezvous
from node_agent.runs.warming import WarmFolder, warm_launch
from node_agent.spool.spool import Spool
from node_agent.user_files.results import Results
from node_agent.user_files.snapshots import Snapshots
from node_agent.user_files.transfers import Transfers

log = logging.getLogger(__name__)

_LOOK = 0.02
"""Seconds between two checks whether a process is warm."""
_SPARE_DELAY = 0.02
"""Seconds after a launch until the next folder for checkpoints is made."""


_COLLECTED = 10.0
"""Seconds for exited processes of a dump to be reaped, until CRIU is asked to restore them anyway."""
_COLLECTED_LOOK = 0.1


class _Soon(Exception):
    """The run is to be launched again in a moment."""


class Starting:
    """The starts of one spool's runs. `reported` is called when there is something to report, `refused` with a run that cannot
    be launched, and why. `may_start` says whether a run has its devices now; if not, it is launched again later. `gave_up` is
    called with a run that cannot be launched for now. `packed` gives the environment variables of a run that shares its
    devices. `guarded` calls a function for the event loop, and reports what fails in it. `begun` is called with a run whose
    process was warm and now runs its program, `not_fetched` with one whose checkpoint cannot be had, and why. `reach` gives the
    agent of another node; with `copies`, its files are copied if it is on this machine. `store` has checkpoints for the case
    that their node is away. `dumps` are those of CRIU."""

    def __init__(
        self,
        spool: Spool,
        holding: RunCgroups,
        rendezvous: Rendezvous,
        provider: Provider,
        paths: Paths,
        node: str,
        reported: Callable[[], None],
        refused: Callable[[RunRecord, str, bool], None],
        may_start: Callable[[RunKey], bool],
        gave_up: Callable[[RunKey], None],
        packed: Callable[[LaunchSpec], Mapping[str, str]],
        guarded: Callable[..., None],
        begun: Callable[[RunRecord], None],
        not_fetched: Callable[[RunRecord, str], None],
        dumps: Dumps,
        reach: Callable[[str, str], Source] | None = None,
        copies: bool = True,
        store: CheckpointStore | None = None,
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
        self._guarded = guarded
        self._told: set[RunKey] = set()
        """Runs that were reported to the scheduler as warm."""
        self._looks: dict[RunKey, asyncio.TimerHandle] = {}
        """Timers of checks whether a process is warm."""
        self.retries = Retries(partial(guarded, self.launch), gave_up)
        files = Snapshots(paths), Results(paths)
        self.transfers = Transfers(
            *files, lambda: spool.cluster[0], partial(guarded, self.launch), partial(guarded, self._refuse_for_lack)
        )

        self._begun = begun
        self._not_fetched = not_fetched
        self.dumps = dumps
        self._collected: dict[RunKey, float] = {}
        """Time until which exited processes with the pids of a dump may take to be reaped."""
        self.checkpoints = CheckpointFetches(
            CheckpointFolders(paths, node),
            lambda: spool.cluster[0],
            reach or _refuse_fetch,
            partial(guarded, self.launch),
            partial(guarded, self._lacks_checkpoint),
            copies=copies,
            store=store,
        )

    def _lacks_checkpoint(self, key: RunKey, why: str) -> None:
        self._not_fetched(self._spool.runs[key], why)

    def _fetches(self, launch: LaunchSpec) -> bool:
        """Whether a run has to wait for files, which are then fetched."""
        snapshots, checkpoint = self.transfers.waits(launch), self.checkpoints.waits(launch)
        return snapshots or checkpoint

    def drop(self, key: RunKey) -> bool:
        """Forget a run that is not to start any more; return whether it was waiting for files."""
        snapshots, checkpoint, told = self.transfers.drop(key), self.checkpoints.drop(key), key in self._told
        self._told.discard(key)
        if (look := self._looks.pop(key, None)) is not None:
            look.cancel()
        collected = self._collected.pop(key, None) is not None
        return snapshots or checkpoint or told or collected

    def _refuse_for_lack(self, key: RunKey, why: str) -> None:
        self._refused(self._spool.runs[key], why, True)

    def waits(self, key: RunKey) -> bool:
        """Whether a run is launched later without a new order: it waits for files, or its launch has failed for now."""
        waits = key in self.retries.timers or key in self._collected
        return waits or self.transfers.has(key) or self.checkpoints.has(key)

    def connect(self, launcher: LauncherClient) -> None:
        self._launcher = launcher

    @property
    def launcher(self) -> LauncherClient:
        assert self._launcher is not None, "connect() comes first"
        return self._launcher

    def cease(self) -> None:
        """Let nothing begin here any more."""
        self._ceased = True

    def close(self) -> None:
        """Retry nothing, and prepare nothing, from here on."""
        if self._making is not None:
            self._making.cancel()
        self.retries.close()
        self.checkpoints.close()
        for look in self._looks.values():
            look.cancel()

    def launch(self, key: RunKey) -> None:
        """Launch a run that is to start; for one that was told to stop, only ask what happened to it."""
        self.retries.note_try(key)
        if self._ceased:
            return  # the next agent finds it in the spool
        record = self._spool.runs[key]
        if record.phase in (RunPhase.PREPARING, RunPhase.READY):
            self._get_ready(record)
            return
        launch = record.launch
        if record.phase is RunPhase.WARMING and launch is not None and not self._is_to_warm(record, launch):
            return
        if record.phase not in (RunPhase.STARTING, RunPhase.WARMING) or launch is None:
            self.launcher.find(key, self._paths.folder(key))
            return
        if record.phase is RunPhase.STARTING and self._fetches(launch):
            self._gave_up(key)
            return
        if not self._may_start(key):
            return
        if self.is_warm(key):
            launch = warm_launch(launch, self._paths.hook) or launch
        try:
            group = self._holding.make(key, launch.memory_mib)
            cluster_id, _ = self._spool.cluster
            of_node = self._node, self._paths, cluster_id, self._provider
            warming = record.phase is RunPhase.WARMING
            request = prepare(launch, self._own_environment, *of_node, group, self._spare, self._packed(launch), warming)
            if launch.gang is not None and record.phase is RunPhase.STARTING:
                self._rendezvous.release(key)
            if record.pid:
                WarmFolder(self._paths, key).go(request.environment)
                self._begun(record)
            elif (restorable := self._restorable(launch)) is not None:
                self.launcher.spawn(replace(request, restore=self.dumps.restore(restorable, key)))
            else:
                self.launcher.spawn(request)
        except _Soon:
            log.debug("run %s: waits until what has the pids of its dump is collected", key)
            self._looks[key] = asyncio.get_running_loop().call_later(_COLLECTED_LOOK, self._guarded, self.launch, key)
        except (UnknownDevice, EnvironmentMissing) as error:
            # The story has it on one line.
            self._refused(record, " ".join(str(error).split()), isinstance(error, EnvironmentMissing))
        except OSError as error:
            self.retries.retry_later(key, str(error))
        else:
            self.make_spare_soon()

    def _restorable(self, launch: LaunchSpec) -> Image | None:
        """Return the dump to restore; None: the run's command is executed. Raises _Soon if its pids are not free yet."""
        found = self.dumps.restoration(launch)
        if found is None or found.why_not:
            return None
        now = time.monotonic()
        if is_waited_for(found.image) and now < self._collected.setdefault(launch.key, now + _COLLECTED):
            raise _Soon
        self._collected.pop(launch.key, None)
        return found.image

    # Warm processes.

    def is_warm(self, key: RunKey) -> bool:
        """Whether the run has, or is to have, a process that waits until the run is to begin."""
        return WarmFolder(self._paths, key).exists

    def _is_to_warm(self, record: RunRecord, launch: LaunchSpec) -> bool:
        """Whether to start its process now. If not, it waits for files, or is warm: then the scheduler is informed."""
        key = record.key
        known = self.checkpoints.follow(launch, partial(self._guarded, self.launch))
        if self.transfers.waits(launch) or not known:
            return False
        folder = WarmFolder(self._paths, key)
        if record.pid:
            self._look_whether_warm(key)
        elif key in self.checkpoints.cold or warm_launch(launch, self._paths.hook) is None:
            self._tell_warm(record)
        else:
            try:
                folder.make(self.checkpoints.modules.get(key, ()))
            except OSError as error:
                self.retries.retry_later(key, str(error))
                return False
            return True
        return False

    def _look_whether_warm(self, key: RunKey) -> None:
        self._looks.pop(key, None)
        record = self._spool.runs[key]
        if record.phase is not RunPhase.WARMING or key in self._told:
            return
        if WarmFolder(self._paths, key).is_warm:
            self._tell_warm(record)
        else:
            self._looks[key] = asyncio.get_running_loop().call_later(_LOOK, self._guarded, self._look_whether_warm, key)

    def _tell_warm(self, record: RunRecord) -> None:
        """Report that the run can begin here."""
        if record.key in self._told:
            return
        gang = record.launch.gang if record.launch is not None else None
        try:
            port = self._rendezvous.keep(record.key, record.port) if gang is not None and gang.rank == 0 else 0
            ready = Ready(self._rendezvous.address() if gang is not None else "", port)
        except OSError as error:
            self.retries.retry_later(record.key, str(error))
            return
        self._told.add(record.key)
        self._spool.report(replace(record, port=port), ready)
        self._reported()

    def spawn_checkpoint(self, record: RunRecord) -> None:
        """Start the checkpoint command of a run, or its dump. Raises OSError, and UnknownDevice."""
        assert record.launch is not None
        if not record.launch.checkpoint_command:
            self.launcher.spawn(self.dumps.request(record))
            return
        cluster_id, _ = self._spool.cluster
        of_node = self._node, self._paths, cluster_id, self._provider
        self.launcher.spawn(
            build_checkpoint_command(record.launch, record.pid, self._own_environment, *of_node, self._holding.path(record.key))
        )

    def find_checkpoint(self, key: RunKey) -> None:
        """Ask the launcher for the checkpoint command of a run, without starting it."""
        self.launcher.find(key, self._paths.checkpointing(key), beside=True)

    def make_spare_soon(self) -> None:
        """Make the next folder a little later, after the work that follows a launch."""
        if self._spare.missing and self._making is None:
            self._making = asyncio.get_running_loop().call_later(_SPARE_DELAY, self._make_spare)

    def _make_spare(self) -> None:
        self._making = None
        self._spare.make()

    def _get_ready(self, record: RunRecord) -> None:
        """Make a task ready for its gang; again after a restart, when the port may be another one."""
        launch = record.launch
        assert launch is not None
        assert launch.gang is not None
        if self._fetches(launch):
            return
        try:
            os.makedirs(self._paths.folder(record.key), exist_ok=True)  # noqa: PTH103
            port = self._rendezvous.keep(record.key, record.port) if launch.gang.rank == 0 else 0
            ready = Ready(self._rendezvous.address(), port)
        except OSError as error:
            self.retries.retry_later(record.key, str(error))
            return
        if record.phase is RunPhase.READY and port == record.port:
            return
        self._spool.report(replace(record, phase=RunPhase.READY, port=port), ready)
        self._reported()
        self.retries.forget(record.key)
        log.info("run %s: ready, at %s port %d", record.key, ready.address, port)


def _refuse_fetch(node: str, _address: str) -> Source:
    raise LookupError(f"this agent fetches nothing, and so not from {node}")
