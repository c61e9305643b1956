"""Carries out what `reconcile` decides, and reports what becomes of it.

Everything is written to the spool before it is done, and can be done again: an agent that is killed between the two goes
on from the spool when a launcher is connected (`_recover`), which is also how it begins and how it survives the launcher.
"""

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from node_agent.devices.base import Provider
from node_agent.errors import UnknownDevice
from node_agent.jobs import leftovers
from node_agent.jobs.environment import LOG, Paths, environment
from node_agent.jobs.launcher import EXIT_FILE, kill_group, start_ticks
from node_agent.jobs.launching import (
    Absent,
    Connected,
    Ended,
    Event,
    Launching,
    Lost,
    NotSpawned,
    Spawned,
    SpawnRequest,
    Unable,
)
from node_agent.jobs.meeting import Meeting
from node_agent.jobs.memory import Limits, OomKills
from node_agent.jobs.model import Exited, Order, Process, Ready, RunKey, RunPhase, RunRecord, Started, StartOrder, clean
from node_agent.jobs.reconcile import Action, Launch, Prepare, Refuse, Release, Stop, reconcile, waits
from node_agent.jobs.spool import Spool
from node_agent.jobs.watch import GroupWatch

log = logging.getLogger(__name__)

LAUNCH_ERROR_LIMIT = 2048
"""Bytes. What is reported must fit wherever the scheduler keeps it."""
_FIRST_RETRY = 0.5
_LONGEST_RETRY = 30.0
"""Seconds between two tries to launch a run while the node is at fault."""


class Executor:
    """Runs of one node. All methods are called on the event loop's thread, and none of them waits.

    `failed` is called with what goes wrong in here at a time of its own choosing, when there is no caller to tell.
    """

    def __init__(
        self,
        spool: Spool,
        provider: Provider,
        paths: Paths,
        node: str,
        meeting: Meeting,
        reported: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.cleared = asyncio.Event()
        """Set once a launcher is there, and nothing lives any more of runs that the spool does not know."""
        self._spool = spool
        self._provider = provider
        self._paths = paths
        self._node = node
        self._own_environment = dict(os.environ)
        self._meeting = meeting
        self._oom_kills = OomKills()
        self._limits: dict[RunKey, tuple[int, int]] = {}
        self._killing = False
        self._reported = reported
        self._failed = failed
        self._launching: Launching | None = None
        self._then: list[Callable[[], None]] = []
        self._deadlines: dict[RunKey, asyncio.TimerHandle] = {}
        self._retries: dict[RunKey, asyncio.TimerHandle] = {}
        self._tries: dict[RunKey, int] = {}
        self._watches: dict[RunKey, GroupWatch] = {}
        self._evictions: dict[Process, GroupWatch] = {}

    def connect(self, launching: Launching) -> None:
        self._launching = launching

    @property
    def launching(self) -> Launching:
        assert self._launching is not None, "connect() comes first"
        return self._launching

    def obey(self, orders: Iterable[Order]) -> None:
        """Brings about what the orders say; harmless to repeat."""
        with self._together():
            for action in reconcile(orders, self._spool.runs, time.monotonic()):
                self._accept(action)

    def hear(self, events: Iterable[Event]) -> None:
        """Takes in what the launcher tells."""
        with self._together():
            for event in events:
                self._hear(event)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What is written inside is one transaction. What is put into `_then` is done once that is kept, or never.

        It looks its run up again: what was written later in the same transaction holds.
        """
        try:
            with self._spool.together():
                yield
            acts, self._then = self._then, []
        except BaseException:
            self._then = []
            raise
        for act in acts:
            act()

    def _guarded(self, act: Callable[..., None], *arguments: object) -> None:
        """For what the event loop calls."""
        try:
            act(*arguments)
        except Exception as error:
            self._failed(error)

    def _accept(self, action: Action) -> None:
        match action:
            case Launch(order) | Prepare(order):
                log_path = clean(f"{self._paths.folder(order.key)}/{LOG}")
                limit, kills = order.memory_mib, self._oom_kills.lately()
                record = RunRecord(order.key, RunPhase.STARTING, order, log_path=log_path, memory_mib=limit, oom_kills=kills)
                self._spool.remember([record])
                self._then.append(partial(self._launch, order.key))
            case Stop():
                record = replace(
                    self._spool.runs[action.key],
                    phase=RunPhase.STOPPING,
                    stop_received=action.received,
                    stop_deadline=action.deadline,
                    stop_reason=action.reason,
                    stop_cause=action.cause_job,
                )
                self._spool.remember([record])
                self._then.append(partial(self._press, action.key))
            case Release(key):
                self._finish(self._spool.runs[key], Exited(yielded=True))
            case Refuse(key):
                log.info("run %s: told to stop it, and it is not here; it will not start", key)
                self._finish(RunRecord(key, RunPhase.STOPPING), Exited(signal=signal.SIGTERM))

    def _hear(self, event: Event) -> None:
        if isinstance(event, Connected):
            self._then.append(partial(self._recover, event))
            return
        record = self._spool.runs.get(event.key)
        if record is None or record.phase is RunPhase.ENDED:
            return
        match event:
            case Ended(_, code, signum):
                # Without a pid, the answer to spawn or find is still to come, and says the same: start goes before end.
                if record.pid:
                    self._finish(record, Exited(code, signum))
            case Spawned():
                if not record.pid:
                    self._started(record, event)
            case NotSpawned(_, error):
                self._refuse(record, error)
            case Unable(_, error):
                if not record.pid:
                    self._launch_later(record.key, error)
            case Absent():
                of_gang = record.order is not None and record.order.gang is not None
                self._finish(record, Exited(yielded=True) if of_gang else Exited(signal=signal.SIGTERM))
            case Lost():
                self._finish(record, Exited(unknown=True))

    def kill_all(self) -> None:
        """Ends every run at once, without grace."""
        self._killing = True
        for record in self._spool.live():
            if record.pid:
                self._signal(record, signal.SIGKILL)

    def close(self) -> None:
        """Stops watching. Runs go on."""
        for timer in (*self._deadlines.values(), *self._retries.values()):
            timer.cancel()
        for watch in (*self._watches.values(), *self._evictions.values()):
            watch.close()
        self._meeting.close()

    # Starting.

    def _launch(self, key: RunKey) -> None:
        """Has a run launched that is to start; of one that was told to stop, only asks what became of it."""
        self._cancel(self._retries, key)
        record = self._spool.runs[key]
        if waits(record):
            self._get_ready(record)
            return
        if record.phase is not RunPhase.STARTING or record.order is None:
            self.launching.find(key, self._paths.folder(key))
            return
        try:
            request = self._prepare(record.order)
        except UnknownDevice as error:
            self._refuse(record, str(error))
        except OSError as error:
            self._launch_later(key, str(error))
        else:
            if record.order.gang is not None:
                self._meeting.release(key)
            self.launching.spawn(request)

    def _get_ready(self, record: RunRecord) -> None:
        """For a gang, as long as it has not been told to go; again after a restart, when the port may be another one."""
        order = record.order
        assert order is not None
        assert order.gang is not None
        try:
            _make_folder(self._paths.folder(record.key))
            port = self._meeting.keep(record.key, record.port) if order.gang.rank == 0 else 0
            ready = Ready(self._meeting.address(), port)
        except OSError as error:
            self._launch_later(record.key, str(error))
            return
        if record.phase is RunPhase.READY and port == record.port:
            return
        self._spool.report(replace(record, phase=RunPhase.READY, port=port), ready)
        self._reported()
        self._tries.pop(record.key, None)
        log.info("run %s: ready, at %s port %d", record.key, ready.address, port)

    def _launch_later(self, key: RunKey, why: str) -> None:
        """The node is at fault, and not the run: the run goes on starting while that lasts."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        delay = min(_FIRST_RETRY * 2 ** (tries - 1), _LONGEST_RETRY)
        log.error("run %s: NODE FAULT, it cannot be launched here: %s; trying again in %g s", key, why, delay)
        self._cancel(self._retries, key)
        self._retries[key] = asyncio.get_running_loop().call_later(delay, self._guarded, self._launch, key)

    def _refuse(self, record: RunRecord, error: str) -> None:
        self._finish(record, Exited(launch_error=clean(f"{error} (on node {self._node})", LAUNCH_ERROR_LIMIT)))

    def _prepare(self, order: StartOrder) -> SpawnRequest:
        key, paths = order.key, self._paths
        cpus = self._provider.cpus(order.devices)
        checkpoint = paths.checkpoint(self._spool.cluster[0], key.job_id)
        variables = environment(
            self._own_environment,
            order,
            self._node,
            paths,
            checkpoint,
            self._provider.inventory,
            self._provider.environment(order.devices),
        )
        folder = paths.folder(key)
        _make_folder(folder)
        _make_folder(str(checkpoint))
        cwd = os.path.join(paths.state, order.working_directory) if order.working_directory else folder  # noqa: PTH118
        return SpawnRequest(key, order.command, variables, cwd, folder, f"{folder}/{LOG}", cpus)

    def _started(self, record: RunRecord, event: Spawned) -> None:
        phase = RunPhase.STOPPING if record.phase is RunPhase.STOPPING else RunPhase.RUNNING
        record = replace(record, phase=phase, order=None, pid=event.pid, start_ticks=event.start_ticks)
        self._spool.report(record, Started(event.pid, record.log_path))
        self._reported()
        self._tries.pop(record.key, None)
        self._limit(record)
        log.debug("run %s: started, pid %d", record.key, record.pid)
        if phase is RunPhase.STOPPING:
            self._then.append(partial(self._press, record.key))
        if not event.child:
            self._then.append(partial(self._watch, record.key))

    # Beginning, and beginning again.

    def _recover(self, connected: Connected) -> None:
        """A launcher is there, the old one or a new one, perhaps after a restart of this agent."""
        self._evict(connected)
        for record in self._spool.live():
            if not record.pid:
                self._launch(record.key)
            elif record.key not in connected.runs:
                self._watch(record.key)
            self._limit(record)
            if record.out_of_memory:
                self._signal(record, signal.SIGKILL)
            if record.key not in self._deadlines:
                self._press(record.key)

    def _evict(self, connected: Connected) -> None:
        """Kills the runs that the spool does not know: it is not the one that they were written in."""
        strangers = {process: name for name, process in connected.others.items()}
        for key, process in connected.runs.items():
            record = self._spool.runs.get(key)
            if record is None or record.phase is RunPhase.ENDED:
                strangers[process] = str(key)
        if not self.cleared.is_set():
            strangers |= leftovers.find(self._paths.state, self._paths.spool)
        watches = {
            process: GroupWatch(*process, partial(self._guarded, self._evicted, process))
            for process in strangers
            if process not in self._evictions
        }
        self._evictions |= watches  # all of them, before the first is found gone
        for process, watch in watches.items():
            log.warning("run %s: the spool does not know it; killing it (pid %d)", strangers[process], process.pid)
            if start_ticks(process.pid) == process.start_ticks:
                kill_group(process.pid)
            watch.begin()
        self._evicted()

    def _evicted(self, process: Process | None = None) -> None:
        if process is not None:
            self._evictions.pop(process, None)
        if not self._evictions and not self.cleared.is_set():
            leftovers.settled(self._paths.state, self._paths.spool)
            self.cleared.set()

    # Stopping.

    def _press(self, key: RunKey) -> None:
        """Terminates a run that is told to stop: at once where there is a process, else when there is one."""
        record = self._spool.runs[key]
        if record.phase is not RunPhase.STOPPING or record.stop_deadline is None:
            return
        if not record.pid:
            if key in self._retries:
                self._launch(key)
            return
        self._cancel(self._deadlines, key)
        if record.stop_deadline <= time.monotonic():
            self._kill(key)
            return
        loop = asyncio.get_running_loop()
        self._deadlines[key] = loop.call_at(record.stop_deadline, self._guarded, self._kill, key)
        self._tell_why(record)
        if not record.signalled:
            log.info("run %s: terminating, %.1f s left", key, record.stop_deadline - time.monotonic())
            # Noted afterwards. Killed in between, the agent signals twice; the other way round a run might never learn
            # that it is to save its work.
            self._signal(record, signal.SIGTERM)
            self._spool.remember([replace(record, signalled=True)])

    def _tell_why(self, record: RunRecord) -> None:
        """For the run to read. It is stopped all the same where that cannot be written."""
        assert record.stop_received is not None
        assert record.stop_deadline is not None
        grace = round(record.stop_deadline - record.stop_received, 3)
        why = {"reason": record.stop_reason.name.lower(), "cause_job": record.stop_cause, "grace_s": grace}
        path = self._paths.stop(record.key)
        new = path.with_suffix(".new")
        try:
            new.write_text(json.dumps(why), encoding="utf-8")
            new.replace(path)
        except OSError as error:
            log.warning("run %s: cannot be told why it is stopped: %s", record.key, error)

    def _kill(self, key: RunKey) -> None:
        record = self._spool.runs[key]
        if record.phase is not RunPhase.ENDED:
            log.info("run %s: its grace period is over, killing it", key)
            self._signal(record, signal.SIGKILL)

    def limits(self) -> Limits:
        """The runs that have a process and asked for so much memory."""
        return self._limits

    def _limit(self, record: RunRecord) -> None:
        if record.pid and record.memory_mib:
            self._limits[record.key] = record.pid, record.memory_mib << 20

    def exceeded(self, key: RunKey, used: int) -> None:
        """A run uses more memory than it asked for."""
        record = self._spool.runs.get(key)
        if record is None or record.phase is RunPhase.ENDED:
            return
        if not record.out_of_memory:
            log.info("run %s: killing it: it uses %d MiB and asked for %d MiB", key, used >> 20, record.memory_mib)
            self._spool.remember([replace(record, out_of_memory=True)])
        self._signal(record, signal.SIGKILL)

    def _signal(self, record: RunRecord, signum: int) -> None:
        if start_ticks(record.pid) == record.start_ticks:
            kill_group(record.pid, signum)

    def _cancel(self, timers: dict[RunKey, asyncio.TimerHandle], key: RunKey) -> None:
        timer = timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    # Ending.

    def _watch(self, key: RunKey) -> None:
        """Waits for the end of a run that is no launcher's child, or that has ended already."""
        record = self._spool.runs[key]
        if record.phase is not RunPhase.ENDED and key not in self._watches:
            ended = partial(self._guarded, self._vanished, key)
            self._watches[key] = watch = GroupWatch(record.pid, record.start_ticks, ended)
            watch.begin()

    def _vanished(self, key: RunKey) -> None:
        record = self._spool.runs[key]
        if record.phase is not RunPhase.ENDED:
            self._finish(record, self._exit_file(key) or Exited(unknown=True))

    def _exit_file(self, key: RunKey) -> Exited | None:
        try:
            fields = json.loads((self._paths.run(key) / EXIT_FILE).read_text(encoding="utf-8"))
            return Exited(int(fields["code"]), int(fields["signal"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _finish(self, record: RunRecord, event: Exited) -> None:
        self._cancel(self._deadlines, record.key)
        self._cancel(self._retries, record.key)
        self._tries.pop(record.key, None)
        self._watches.pop(record.key, None)
        self._limits.pop(record.key, None)
        self._meeting.release(record.key)
        if not event.launch_error:
            event = self._explained(record, event)
        self._spool.report(replace(record, phase=RunPhase.ENDED, order=None, ended_at=time.time()), event)
        self._reported()
        # Runs that go as they should are not worth a line each: the scheduler has their story.
        level = logging.INFO if event.launch_error or event.unknown or event.out_of_memory else logging.DEBUG
        if log.isEnabledFor(level):
            log.log(level, "run %s: ended, %s", record.key, _describe(event))

    def _explained(self, record: RunRecord, event: Exited) -> Exited:
        """An end, and what the run and the kernel had to say about it."""
        if os.path.exists(self._paths.yielded(record.key)):  # noqa: PTH110
            return replace(event, yielded=True)
        if signal.SIGTERM in (event.signal, event.code - 128) and self._was_done(record):
            return Exited()
        if record.out_of_memory and (event.unknown or event.signal == signal.SIGKILL):
            return Exited(signal=signal.SIGKILL, out_of_memory=True)
        ours = record.stop_received is not None or self._killing
        if not ours and signal.SIGKILL in (event.signal, event.code - 128) and self._oom_kills.now() > record.oom_kills:
            return replace(event, out_of_memory=True)
        return event

    def _was_done(self, record: RunRecord) -> bool:
        """Whether the process that was the run has said that all of its work was done before the signal came.

        One of its children cannot say that: the run, a script, may have had more to do.
        """
        try:
            return int(Path(self._paths.done(record.key)).read_text(encoding="ascii")) == record.pid
        except (OSError, ValueError):
            return False


def _make_folder(path: str) -> None:
    """Path.mkdir(parents=True, exist_ok=True), without the Path."""
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103


def _describe(event: Exited) -> str:
    if event.launch_error:
        return event.launch_error
    if event.out_of_memory:
        return f"signal {event.signal}, out of memory"
    end = "nobody knows how" if event.unknown else f"signal {event.signal}" if event.signal else f"exit code {event.code}"
    return f"{end}, yielded" if event.yielded else end
