"""Brings about the desired states of runs, as `reconcile` decides, and reports their events.

Everything is written to the spool before it is done, and can be repeated: after an agent was killed in between, the next one
resumes from the spool when a launcher is connected (`_recover`), as it also does at its start and when a launcher is lost.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import assert_never

from node_agent.checkpoints.criu_dumps import Dumps
from node_agent.checkpoints.fetched_files import Source
from node_agent.checkpoints.folders import CheckpointFolders
from node_agent.checkpoints.save_means import SaveMeansWatch
from node_agent.checkpoints.store import CheckpointStore
from node_agent.checkpoints.uploads import CheckpointUploads
from node_agent.devices.base import Provider
from node_agent.devices.mps import MpsDaemons
from node_agent.processes.cgroups import Groups
from node_agent.processes.launcher.client import (
    Absent,
    Beside,
    Connected,
    Ended,
    Event,
    LauncherClient,
    Lost,
    NotSpawned,
    Spawned,
    Unable,
)
from node_agent.processes.launcher.spawn import LOG_FILE
from node_agent.processes.memory_watch import Limits
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Exited
from node_agent.run_state.model import Desired, LaunchSpec, RunKey, RunPhase, RunRecord, clean
from node_agent.run_state.park_state import NEVER_PARKED, ParkStage
from node_agent.run_state.reconcile import (
    Action,
    Begin,
    Go,
    Launch,
    Note,
    Park,
    Prepare,
    Refuse,
    Release,
    Stop,
    Warm,
    reconcile,
    record_after,
)
from node_agent.run_state.save_values import SaveMeans
from node_agent.runs.beginning import Beginning
from node_agent.runs.ending import Ending
from node_agent.runs.evictions import Evictions
from node_agent.runs.orphans import Orphans
from node_agent.runs.rendezvous import Rendezvous
from node_agent.runs.starting import Starting
from node_agent.runs.stopping import Stopping
from node_agent.runs.suspending import Suspending
from node_agent.sharing.packing import Packing
from node_agent.sharing.parking import host_memory
from node_agent.sharing.parking.ladder import Ladder
from node_agent.sharing.parking.parking import Node
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)


class Executor:
    """The runs of one node. All methods are called on the event loop's thread, and none of them waits.

    `failed` is called with errors in callbacks, which have no caller to receive them.
    """

    def __init__(
        self,
        spool: Spool,
        provider: Provider,
        paths: Paths,
        node: str,
        rendezvous: Rendezvous,
        reported: Callable[[], None],
        failed: Callable[[Exception], None],
        groups: Groups | None = None,
        ladder: Ladder | None = None,
        parks: Node | None = None,
        mps: MpsDaemons | None = None,
        reach: Callable[[str, str], Source] | None = None,
        copies: bool = True,
        store: CheckpointStore | None = None,
        dumps: Dumps | None = None,
    ) -> None:
        groups = groups or Groups()
        dumps = dumps or Dumps(paths, node, lambda: spool.cluster[0], provider.inventory)
        self._killing = False
        self._spool = spool
        self._holding = RunCgroups(spool, groups, self._call_guarded)
        path = self._holding.path
        self.saves = SaveMeansWatch(paths, path, lambda run: dumps.would_dump([run], path), dumps.has_files)
        ends = self._forget_run, self._free_held, lambda: self._killing, dumps.bring_home, dumps.dump_result, self._save_means
        self._ending = Ending(spool, self._holding, paths, node, reported, *ends)
        self._evictions = Evictions(paths.state, spool, groups, self._call_guarded)
        self.cleared = self._evictions.cleared
        """Set once a launcher is there, and nothing is alive any more of runs that the spool does not know."""
        told = reported, self._ending.refuse, self._may_start, self._gave_up, self._packing_environment, self._call_guarded
        moves = self._report_begin, self._ending.not_fetched, dumps, reach, copies, store
        self.starting = Starting(spool, self._holding, rendezvous, provider, paths, node, *told, *moves)
        commands = self.starting.spawn_checkpoint, self.starting.find_checkpoint
        self.stopping = Stopping(spool, self._holding, paths, *commands, dumps, self._call_guarded, self.saves.find_means_of)
        self._packing = Packing(spool, provider.inventory, mps, self.starting.launch, self._call_guarded)
        parks = parks or Node(host_memory.capacity(None, provider.inventory.memory_mib))
        parks = parks._replace(uses_mps=self._packing.uses_mps)
        stops = self._press, self.stopping.signal, self.stopping.relent
        acts = self.starting.launch, self.starting.waits, *stops, reported, self._call_guarded
        self.suspending = Suspending(spool, self._holding, paths, ladder or Ladder(), parks, *acts)
        self._paths = paths
        self._rendezvous = rendezvous
        self._failed = failed
        self._then: list[Callable[[], None]] = []
        self._uploads = None if store is None else CheckpointUploads(store, CheckpointFolders(paths, node))
        self._orphans = Orphans(spool, self._holding, paths, self._ending.finish, self._call_guarded)
        follows = self._then_do, self.suspending.handle_start, self._press, self._orphans.watch
        self._beginning = Beginning(spool, self._holding, self.starting, reported, *follows)

    def connect(self, launcher: LauncherClient) -> None:
        self.starting.connect(launcher)

    def obey(self, wanted: Iterable[Desired]) -> None:
        """Bring about the desired states of runs; harmless to repeat."""
        with self._write_together():
            for action in reconcile(wanted, self._spool.runs, time.monotonic()):
                self._accept(action)

    def hear(self, events: Iterable[Event]) -> None:
        """Handle the launcher's events."""
        with self._write_together():
            for event in events:
                self._hear(event)

    @contextmanager
    def _write_together(self) -> Iterator[None]:
        """Write all changes inside in one transaction. Calls in `_then` are made once that is committed, or never.

        They look their run up again, since later writes in the same transaction count.
        """
        try:
            with self._spool.write_together():
                yield
            acts, self._then = self._then, []
        except BaseException:
            self._then = []
            raise
        for act in acts:
            act()

    def _then_do(self, act: Callable[[], None]) -> None:
        self._then.append(act)

    def _call_guarded(self, act: Callable[..., None], *arguments: object) -> None:
        """Call a function for the event loop."""
        try:
            act(*arguments)
        except Exception as error:
            self._failed(error)

    def _may_start(self, key: RunKey) -> bool:
        """Whether a run that is to start has its devices, and the daemon through which it shares them."""
        return self._packing.may_start(key) and self.suspending.slices.may_start(key)

    def _gave_up(self, key: RunKey) -> None:
        self.suspending.slices.gave_up(key)

    def _packing_environment(self, launch: LaunchSpec) -> Mapping[str, str]:
        return self._packing.environment(launch)

    def _accept(self, action: Action) -> None:
        key = action.key
        before = self._spool.runs.get(key)
        record = record_after(action, before)
        match action:
            case Launch(launch) | Prepare(launch) | Warm(launch):
                log_path = clean(f"{self._paths.folder(key)}/{LOG_FILE}")
                limit, kills = launch.memory_mib, self._holding.kills_so_far()
                self._spool.remember([replace(record, log_path=log_path, memory_mib=limit, oom_kills=kills)])
                self._then.append(partial(self.starting.launch, key))
            case Begin():
                self._spool.remember([record])
                self._then.append(partial(self.starting.launch, key))
            case Go() | Park():
                self._spool.remember([record])
                shared = None if before is None else before.share
                if record.park != NEVER_PARKED or record.to_park or record.share is not None or shared is not None:
                    self._then.append(partial(self.suspending.settle, key))
                if shared is not None and shared != record.share:
                    self._then.append(partial(self.suspending.handle_departure, shared.group))
            case Stop():
                self._spool.remember([record])
                self._then.append(partial(self._press, key))
            case Release():
                self._ending.finish(record, Exited(yielded=True))
            case Refuse():
                log.info("run %s: it is to be stopped, and is not here; it will not start", key)
                self._ending.finish(record, Exited(signal=signal.SIGTERM))
            case Note():
                self._spool.remember([record])
            case _:
                assert_never(action)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Connected):
            self._then.append(partial(self._recover, event))
            return
        if isinstance(event, Beside):
            self._then.append(partial(self.stopping.checkpointing.hear, event.event))
            return
        record = self._spool.runs.get(event.key)
        if record is None or record.phase is RunPhase.ENDED:
            return
        match event:
            case Ended(_, code, signum):
                # Without a pid, the answer to spawn or find is still to come, and says the same: start goes before end.
                if record.pid:
                    self._ending.finish(record, Exited(code, signum))
            case Spawned():
                if not record.pid:
                    self._beginning.handle_spawn(record, event)
            case NotSpawned(_, error):
                self._ending.refuse(record, error)
            case Unable(_, error):
                if not record.pid:
                    self.starting.retries.retry_later(record.key, error)
            case Absent():
                of_gang = record.launch is not None and record.launch.gang is not None
                self._ending.finish(record, Exited(yielded=True) if of_gang else Exited(signal=signal.SIGTERM))
            case Lost():
                self._ending.finish(record, Exited(unknown=True))

    def would_dump(self, job_id: int) -> bool:
        """Whether CRIU would dump the job's run here if it had to move."""
        records = [record for record in self._spool.live() if record.key.job_id == job_id]
        return self.starting.dumps.would_dump(records, self._holding.path)

    def kill_all(self) -> None:
        """Kill all runs immediately, without grace, and launch none from here on."""
        self._killing = True
        self.starting.cease()
        for record in self._spool.live():
            if record.pid:
                self.stopping.signal(record, signal.SIGKILL)

    def close(self) -> None:
        """Stop watching. Runs keep running."""
        self.starting.close()
        self._orphans.close()
        self.stopping.close()
        self.suspending.close()
        self._packing.close()
        self._evictions.close()
        self._holding.close()
        self._rendezvous.close()
        if self._uploads is not None:
            self._uploads.close()

    # Starting.

    def _report_begin(self, record: RunRecord) -> None:
        """Report that a process that was warm runs the program of its job."""
        with self._write_together():
            self._beginning.report_begin(record)

    # Beginning, and beginning again.

    def _recover(self, connected: Connected) -> None:
        """Resume with a launcher, the old one or a new one, perhaps after a restart of this agent."""
        self._evictions.begin(connected)
        self._packing.tidy()
        if self._uploads is not None:
            self._uploads.recover(self._spool.cluster[0])
        self.starting.make_spare_soon()
        for record in self._spool.live():
            if not record.pid:
                if record.key in connected.runs:
                    self.suspending.slices.expect(record.key)
                self.starting.launch(record.key)
            elif record.key not in connected.runs:
                self._orphans.watch(record.key)
            if record.pid and record.phase in (RunPhase.WARMING, RunPhase.STARTING):
                self.starting.launch(record.key)
            self._holding.adopt(record)
            if record.phase is not RunPhase.STOPPING:
                self.suspending.settle(record.key)
            if record.out_of_memory:
                self.stopping.signal(record, signal.SIGKILL)
            if record.key not in self.stopping.deadlines or record.checkpoint_asked:
                self._press(record.key)

    # Stopping.

    def _press(self, key: RunKey) -> None:
        """Stop a run that was told to stop: now if it has a process, else once it has one."""
        record = self._spool.runs[key]
        if record.phase is not RunPhase.STOPPING or record.stop_deadline is None:
            return
        if record.pid:
            if record.park.stage is not ParkStage.EXECUTES or record.share is not None:
                self.stopping.kill_at(record, record.stop_deadline)
                self.stopping.tell_why(record, record.stop_deadline)
                if self.suspending.awakes(record):
                    return  # `_press` is called again once it has resumed
            self.stopping.press(record, record.stop_deadline)
        else:  # only its launcher knows whether the run has a process; if not, its answer ends the run
            self.starting.drop(key)
            self.starting.launch(key)

    def limits(self) -> Limits:
        """Runs that have a process and a memory limit that the kernel does not enforce."""
        return self._holding.limits

    # Ending.

    def _forget_run(self, key: RunKey) -> None:
        """Forget everything that is awaited for a run that has ended."""
        self.stopping.forget(key)
        self.starting.retries.forget(key)
        self._orphans.forget(key)
        self._rendezvous.release(key)
        self.starting.transfers.send_result(key)
        self.starting.drop(key)

    def _save_means(self, key: RunKey) -> SaveMeans:
        return self.stopping.means.get(key, SaveMeans.UNKNOWN)

    def _free_held(self, record: RunRecord, event: Exited) -> None:
        """Free what a run has held once its end is kept."""
        if self._uploads is not None and event.yielded and record.pid and not record.key.task:
            self._then.append(partial(self._uploads.upload_ended_run, self._spool.cluster[0], record.key))
        self.suspending.handle_end(record)
        self._packing.handle_end(record.key)
