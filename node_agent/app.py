"""Wires the agent together: the state directory, the spool, devices, the launcher, the executor and the link."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import ebb_inject
from ebb_common.notify import Notifier
from node_agent.build_devices import Opened, open_devices
from node_agent.checkpoints.criu import PROGRAM, unusable
from node_agent.checkpoints.criu_dumps import Dumps
from node_agent.checkpoints.folders import CheckpointFolders
from node_agent.checkpoints.store import CheckpointStore, StoredExpiry
from node_agent.config import Settings
from node_agent.devices.driver_checkpoint import DriverCheckpoint
from node_agent.devices.mps import MpsDaemons
from node_agent.errors import (
    AgentError,
    AsRoot,
    Forgetful,
)
from node_agent.local_node import LocalNode
from node_agent.measuring.device_memory import DeviceMemoryWatch
from node_agent.measuring.observations import Observing
from node_agent.measuring.step_watch import StepWatch
from node_agent.node_lock import lock_node, node_keys
from node_agent.processes.cgroups import Groups, set_up_groups
from node_agent.processes.launcher.client import Event, LauncherClient
from node_agent.processes.logs import Logs
from node_agent.processes.memory_watch import MemoryWatch
from node_agent.processes.run_paths import RUNS, Paths
from node_agent.run_state.model import RunRecord
from node_agent.runs import past_runs
from node_agent.runs.executor import Executor
from node_agent.runs.rendezvous import Rendezvous
from node_agent.runs.spool_opening import open_spool
from node_agent.runs.warming import last_modules
from node_agent.sharing.parking import host_memory
from node_agent.sharing.parking.ladder import Ladder
from node_agent.sharing.parking.parking import Node
from node_agent.spool.spool import Spool
from node_agent.state_directory import check_folder, claim, state_directory, withhold_devices
from node_agent.transport import link
from node_agent.transport.checkpoint_client import CheckpointSource
from node_agent.transport.checkpoint_server import CheckpointServer
from node_agent.user_files.folder_expiry import remove_expired
from node_agent.user_files.snapshots import Snapshots

log = logging.getLogger(__name__)

_PRUNE_INTERVAL = 3600.0
_PATIENCE = 10.0
"""Seconds until the agent says that it does not connect, and why."""


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Jobs keep running, unless `stop_jobs_on_exit` is set."""
    if os.geteuid() == 0 and not settings.allow_root:
        raise AsRoot
    systemd = Notifier()
    with state_directory(settings.state) as state:
        check_folder("state", state / RUNS)
        check_folder("checkpoints", settings.checkpoint_root)
        async with lock_node(settings.scheduler, settings.node):
            held = claim(settings, state)
            groups = set_up_groups(settings.control_groups, settings.memory_limit == "enforce")  # before there is any child
            devices = withhold_devices(await open_devices(settings, state, held), settings, state)
            criu_unusable = await _criu_unusable(settings)
            while await _serve(settings, state, devices, groups, systemd, criu_unusable):
                pass


async def _criu_unusable(settings: Settings) -> str:
    """Return why CRIU is not used on this node; empty: it is used. A node can do without it."""
    if settings.criu == "off":
        return "criu is off on this node"
    if why := await unusable():
        log.warning("criu: %s. Programs that do not save their work lose it when they are stopped", why)
    return why


async def _serve(
    settings: Settings, state: Path, devices: Opened, groups: Groups, systemd: Notifier, criu_unusable: str
) -> bool:
    """Serve with one spool. Return whether to start again with a new one, because the scheduler has forgotten this node."""
    loop = asyncio.get_running_loop()
    provider = devices.provider
    spool = open_spool(state / "spool.db")
    hook = ebb_inject.FOLDER if settings.hook == "on" else ""
    keys = ",".join(node_keys(settings.scheduler, settings.node))
    paths = Paths(state, settings.checkpoint_root, spool.short_id, hook, keys)
    logs = Logs(lambda key: spool.runs.get(key), lambda key: past_runs.log_of(paths, spool.cluster[0], key))
    node = LocalNode(settings.node, spool, provider.inventory, logs, partial(past_runs.note_cluster, paths), settings.labels)
    ended: asyncio.Future[bool] = loop.create_future()

    def handle_events(events: list[Event]) -> None:
        executor.hear(events)
        # The launcher is there. Do not wait for the scheduler: while it is away, systemd must not kill the agents.
        systemd.ready()

    def stop() -> None:
        systemd.stopping()
        leave()

    def leave(afresh: bool = False) -> None:
        if not ended.done():
            ended.set_result(afresh)

    def fail(error: Exception) -> None:
        # For example, a write to the spool failed. Continuing would be guesswork; a restart recovers. Jobs keep running.
        log.critical("the agent fails: %s", error, exc_info=None if isinstance(error, AgentError) else error)
        if not ended.done():
            ended.set_exception(error)

    def announce_reports() -> None:
        node.reported.set()
        logs.wake()

    rendezvous = Rendezvous(settings.reachable_address)
    folders = CheckpointFolders(paths, settings.node)
    key, cluster = lambda: node.transfer_key, lambda: spool.cluster[0]

    def reach(other: str, address: str) -> CheckpointSource:
        return CheckpointSource(other, address, cluster, key, settings.security)

    watch = DeviceMemoryWatch(lambda: spool.runs, lambda *seen: executor.stopping.kill_for_device_memory(*seen))
    simulated = devices.reading is None
    observing = Observing(provider, spool, state, node.reported.set, watch.check_limits, simulated)
    driver = None if devices.reading is None else DriverCheckpoint()
    parks = Node(host_memory.capacity(settings.parked_memory_mib, provider.inventory.memory_mib))
    if devices.reading is not None:
        parks = parks._replace(on_devices=observing.memory_of)
    mps = MpsDaemons(state / "mps") if settings.mps == "packed" and devices.reading is not None else None
    of_runs = groups, Ladder(driver), parks, mps
    copies = settings.checkpoint_copies == "auto"
    store = CheckpointStore(settings.checkpoint_store) if settings.checkpoint_store else None
    dumps = Dumps(paths, settings.node, cluster, provider.inventory, "" if criu_unusable else PROGRAM, criu_unusable)
    moves = reach, copies, store, dumps
    executor = Executor(spool, provider, paths, settings.node, rendezvous, announce_reports, fail, *of_runs, *moves)
    server = CheckpointServer(folders, key, partial(last_modules, spool, paths), executor.would_dump)
    node.checkpoints_at = await _give_checkpoints(server, settings, state)
    launcher = LauncherClient(state, spool.short_id, handle_events, settings.launcher_idle)
    executor.connect(launcher)
    node.executor = executor
    node.observing = observing
    node.step_watch = StepWatch(spool, paths, settings.step_window, executor.saves.find_means)
    if store is not None and settings.keep_stored is not None:
        node.stored_expiry = StoredExpiry(store, cluster, settings.keep_stored)
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
                tasks.create_task(_prune(spool, state, settings.keep_runs, dumps.homes)),
                tasks.create_task(_expire_snapshots(Snapshots(paths))),
                tasks.create_task(node.observing.run()),
                tasks.create_task(node.step_watch.run()),
                tasks.create_task(systemd.watchdog()),
            ]
            if settings.memory_limit == "enforce":
                workers.append(tasks.create_task(MemoryWatch(executor.limits, executor.stopping.kill_for_memory).run()))
            afresh = await ended  # a fault raises here: jobs are killed only if a user asked for it
            if settings.stop_jobs_on_exit and not afresh:
                executor.kill_all()
                await launcher.quit()
            for worker in workers:
                worker.cancel()
    finally:
        await server.close()
        executor.close()
        if driver is not None:
            await driver.close()
        logs.close()
        log.info("stopped; %d runs go on", len(spool.live()))
        spool.close()
    if afresh:
        spool.discard()
    return afresh


async def _give_checkpoints(server: CheckpointServer, settings: Settings, state: Path) -> str:
    """Return HOST:PORT where other nodes fetch checkpoints; empty: this node serves none, and starts all the same."""
    if not settings.security.can_serve:
        why = "tls_ca is set, and tls_cert and tls_key are not: other nodes would fetch them unencrypted"
        log.warning("checkpoints of this node are not given to other nodes: %s", why)
        return ""
    try:
        here = settings.reachable_address()
        host = "127.0.0.1" if settings.security.tls_ca is None else "0.0.0.0"  # behind mutual TLS
        port = await server.start(host, settings.checkpoint_port, settings.security, state)
    except OSError as error:
        log.warning("checkpoints of this node are not given to other nodes: %s", error)
        return ""
    return f"[{here}]:{port}" if ":" in here else f"{here}:{port}"


async def _talk(
    settings: Settings, node: LocalNode, executor: Executor, begin_afresh: Callable[[], None], tell: Callable[[str], None]
) -> None:
    """Connect to the scheduler once no unknown run is alive here, because Hello says which runs are on this node."""
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


async def _prune(
    spool: Spool, state: Path, keep_days: float | None, homes: Callable[[Iterable[RunRecord]], Iterator[str]]
) -> None:
    while True:
        if count := spool.prune(time.time()):
            log.debug("forgot %d runs that ended long ago", count)
        if keep_days is not None:
            known = {*(key.name for key in spool.runs), *homes(spool.live())}
            if count := await remove_expired(state, spool.short_id, known, time.time() - keep_days * 86400):
                log.info("removed folders of runs that ended more than %g days ago: %d", keep_days, count)
        await asyncio.sleep(_PRUNE_INTERVAL)


async def _expire_snapshots(snapshots: Snapshots) -> None:
    while True:
        if count := await snapshots.expire():
            log.info("removed snapshots that no run has named for long: %d", count)
        await asyncio.sleep(_PRUNE_INTERVAL)
