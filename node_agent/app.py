"""Wires the agent together: the state directory, the spool, devices, the launcher, the executor and the link."""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import signal
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile

from ebb_common.notify import Notifier
from node_agent.config import Settings
from node_agent.devices.base import Inventory
from node_agent.devices.opening import Opened, opened
from node_agent.errors import (
    AgentError,
    AsRoot,
    FolderUnusable,
    Forgetful,
    OtherNode,
    RunsElsewhere,
    RunsLive,
    StateInUse,
    StateUnusable,
)
from node_agent.jobs import past_runs, stray_processes
from node_agent.jobs.cgroups import Groups, found
from node_agent.jobs.environment import RUNS, Paths
from node_agent.jobs.executor import Executor
from node_agent.jobs.folder_expiry import remove_expired
from node_agent.jobs.launcher.client import Event, LauncherClient
from node_agent.jobs.logs import Logs
from node_agent.jobs.memory_watch import MemoryWatch
from node_agent.jobs.model import Desired, Process, Report
from node_agent.jobs.observations import Observations, Observing
from node_agent.jobs.processes import start_ticks
from node_agent.jobs.rendezvous import Rendezvous
from node_agent.jobs.spool.spool import Spool, open_spool
from node_agent.transport import link
from node_agent.transport.messages import Hello, LogRequest, Welcome

log = logging.getLogger(__name__)

_PRUNE_INTERVAL = 3600.0
_PATIENCE = 10.0
"""Seconds until it is said that the agent does not connect, and why."""


class LocalNode:
    """The link's view of this node."""

    def __init__(
        self, name: str, spool: Spool, inventory: Inventory, logs: Logs, obeyed: Callable[[str], None] = lambda _: None
    ) -> None:
        """`obeyed` is called with the cluster that it obeys, before that orders anything."""
        self.reported = asyncio.Event()
        self._name = name
        self._spool = spool
        self._inventory = inventory
        self._logs = logs
        self._obeyed = obeyed
        self._instance = uuid.uuid4().hex
        self.executor: Executor | None = None
        self.observing: Observing | None = None

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
            spool.told(),
            _version(),
            spool.acknowledged,
            spool.seal,
            self._instance,
        )

    def observations(self) -> Observations | None:
        return None if self.observing is None else self.observing.latest

    def welcomed(self, welcome: Welcome) -> None:
        self._spool.obey(welcome.cluster_id, welcome.epoch, welcome.seal)
        self._obeyed(welcome.cluster_id)
        if welcome.acknowledged < self._spool.acknowledged:
            raise Forgetful(theirs=welcome.acknowledged, ours=self._spool.acknowledged)

    def obey(self, wanted: Sequence[Desired]) -> None:
        assert self.executor is not None
        self.executor.obey(wanted)

    def pending(self, after: int) -> list[Report]:
        return self._spool.pending(after)

    async def examined(self, reports: Sequence[Report]) -> None:
        if self.observing is not None and any(map(self._spool.failed, reports)):
            await self.observing.once_more()

    def acknowledge(self, sequence: int) -> None:
        self._spool.acknowledge(sequence)

    async def log(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(self._logs.read(request.key, request.offset, request.follow)) as pieces:
            async for piece in pieces:
                yield piece


async def run(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Jobs go on, unless the settings say otherwise."""
    if os.geteuid() == 0 and not settings.allow_root:
        raise AsRoot
    systemd = Notifier()
    with state_directory(settings.state) as state:
        _check_folder("state", state / RUNS)
        _check_folder("checkpoints", settings.checkpoint_root)
        held = _claim(settings, state)
        groups = found(settings.control_groups, settings.memory_limit == "enforce")  # before there is any child
        devices = await opened(settings, state, held)
        while await _serve(settings, state, devices, groups, systemd):
            pass


async def _serve(settings: Settings, state: Path, devices: Opened, groups: Groups, systemd: Notifier) -> bool:
    """One life of the node, with one spool. Returns whether another is to begin, as the scheduler has forgotten this one."""
    loop = asyncio.get_running_loop()
    provider = devices.provider
    spool = open_spool(state / "spool.db")
    paths = Paths(state, settings.checkpoint_root, spool.short_id)
    logs = Logs(lambda key: spool.runs.get(key), lambda key: past_runs.log_of(paths, spool.cluster[0], key))
    node = LocalNode(settings.node, spool, provider.inventory, logs, partial(past_runs.note_cluster, paths))
    ended: asyncio.Future[bool] = loop.create_future()

    def heard(events: list[Event]) -> None:
        executor.hear(events)
        # The launcher is there. The scheduler is not waited for: while that is away systemd must not kill its agents.
        systemd.ready()

    def stop() -> None:
        systemd.stopping()
        leave()

    def leave(afresh: bool = False) -> None:
        if not ended.done():
            ended.set_result(afresh)

    def fail(error: Exception) -> None:
        # Such as a write to the spool that failed. Going on would be guesswork; a restart recovers. Jobs go on.
        log.critical("the agent fails: %s", error, exc_info=None if isinstance(error, AgentError) else error)
        if not ended.done():
            ended.set_exception(error)

    def reported() -> None:
        node.reported.set()
        logs.wake()

    rendezvous = Rendezvous(settings.reached_at)
    executor = Executor(spool, provider, paths, settings.node, rendezvous, reported, fail, groups)
    launcher = LauncherClient(state, spool.short_id, heard, settings.launcher_idle)
    executor.connect(launcher)
    node.executor = executor
    node.observing = Observing(provider, spool, state, node.reported.set)
    log.info(
        "node %s: %d devices (%s), state in %s",
        settings.node,
        len(provider.inventory.devices),
        settings.devices if devices.reading else f"{settings.devices}, simulated",
        state,
    )
    for note in devices.notes:
        log.warning("devices: %s", note)
    if os.geteuid() == 0:
        log.warning("the agent runs as root, as it was allowed to: so do all jobs")

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop)
    try:
        async with asyncio.TaskGroup() as tasks:
            workers = [
                tasks.create_task(launcher.run()),
                tasks.create_task(_talk(settings, node, executor, partial(leave, afresh=True), systemd.status)),
                tasks.create_task(_prune(spool, state, settings.keep_runs)),
                tasks.create_task(node.observing.run()),
                tasks.create_task(systemd.watchdog()),
            ]
            if settings.memory_limit == "enforce":
                workers.append(tasks.create_task(MemoryWatch(executor.limits, executor.stopping.exceeded).run()))
            afresh = await ended  # where that is a fault, it leaves from here: jobs are killed by those who asked for it alone
            if settings.stop_jobs_on_exit and not afresh:
                executor.kill_all()
                await launcher.quit()
            for worker in workers:
                worker.cancel()
    finally:
        executor.close()
        logs.close()
        log.info("stopped; %d runs go on", len(spool.live()))
        spool.close()
    if afresh:
        spool.discard()
    return afresh


def _claim(settings: Settings, state: Path) -> bool:
    """Makes the spool that of this node, which nothing else is. Whether there are runs that may hold devices, for all that
    the scheduler has heard."""
    if elsewhere := stray_processes.elsewhere(state, settings.node, settings.checkpoint_root):
        where = ", ".join(f"{path} ({', '.join(sorted(runs))})" for path, runs in elsewhere.items())
        raise RunsElsewhere(node=settings.node, where=where)
    spool = open_spool(state / "spool.db")
    try:
        if settings.forget_cluster:
            spool = _forget(spool, settings)
        elif spool.node not in ("", settings.node):
            live, untold = (len({item.key for item in items}) for items in (spool.live(), spool.pending()))
            if live or untold:
                raise OtherNode(path=state, theirs=spool.node, ours=settings.node, live=live, untold=untold)
            log.warning("this was node %s, and is node %s from now on", spool.node, settings.node)
            spool.discard()
            spool = open_spool(state / "spool.db")
        spool.name(settings.node)
        return bool(spool.live() or spool.pending())
    finally:
        spool.close()


@contextlib.contextmanager
def state_directory(path: Path) -> Iterator[Path]:
    """Creates the directory and holds it for this agent alone. The lock goes with the process, however that ends."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateUnusable(path=path, why=error.strerror) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateInUse(path=path, pid=os.read(descriptor, 32).decode() or "unknown") from None
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        except OSError as error:  # the disk is full
            raise StateUnusable(path=path, why=error.strerror) from error
        yield path
    finally:
        os.close(descriptor)


_NEVER = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS}
"""What is wrong with a place, and does not pass by itself as a full disk does."""


def _check_folder(name: str, path: Path) -> None:
    """Makes the folder, and a file in it for a moment. Raises FolderUnusable where no run could ever do so."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=path).close()
    except OSError as error:
        if error.errno in _NEVER:
            raise FolderUnusable(name=name, path=path, why=error.strerror) from error
        log.warning("%s: nothing can be written in %s now: %s", name, path, error.strerror)


def _forget(spool: Spool, settings: Settings) -> Spool:
    """A new spool in place of this one, which must have no run that is alive."""
    paths = Paths(settings.state, settings.checkpoint_root, spool.short_id)
    alive = []
    for record in spool.live():
        process = Process(record.pid, record.start_ticks) if record.pid else stray_processes.process_of(paths.run(record.key))
        if process is not None and start_ticks(process.pid) == process.start_ticks:
            alive.append(str(record.key))
    if alive:
        spool.close()
        raise RunsLive(cluster=spool.cluster[0] or "(none)", runs=", ".join(alive))
    return spool.forget()


async def _talk(
    settings: Settings, node: LocalNode, executor: Executor, begin_afresh: Callable[[], None], tell: Callable[[str], None]
) -> None:
    """Hello says which runs are on this node. So it is said once nothing else lives here."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await executor.cleared.wait()
    except TimeoutError:
        why = "not connecting to the scheduler: runs that the spool does not know are still alive, or no launcher is there"
        log.error(why)
        tell(why)
        await executor.cleared.wait()
    try:
        await link.run(settings.scheduler, node, security=settings.security, tell=tell)
    except Forgetful as error:
        log.error("%s", error)
        begin_afresh()


async def _prune(spool: Spool, state: Path, keep_days: float | None) -> None:
    while True:
        if count := spool.prune(time.time()):
            log.debug("forgot %d runs that ended long ago", count)
        if keep_days is not None:
            known = {key.name for key in spool.runs}
            if count := await remove_expired(state, spool.short_id, known, time.time() - keep_days * 86400):
                log.info("removed folders of runs that ended more than %g days ago: %d", keep_days, count)
        await asyncio.sleep(_PRUNE_INTERVAL)


def _version() -> str:
    try:
        return version("ebb-cluster")
    except PackageNotFoundError:
        return "unknown"
