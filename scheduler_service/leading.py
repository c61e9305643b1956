"""One leadership: the state is loaded, served from, and dropped again."""

import asyncio
import contextlib
import logging
import os
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

from sqlalchemy import Engine

from scheduler_service import recording
from scheduler_service.config import Config
from scheduler_service.core.allocation.startup_repair import repair_at_startup
from scheduler_service.core.cells.queries import has_level
from scheduler_service.core.handlers.skipped_numbers import SKIPPED, skipping
from scheduler_service.core.messages import NodeSilent
from scheduler_service.core.model import Cluster as ClusterRow
from scheduler_service.core.model import JobState
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.virtual_clusters import VcPolicy
from scheduler_service.core.state.journal import Change, net
from scheduler_service.core.state.load_check import contradictions
from scheduler_service.core.state.state import State
from scheduler_service.database import Engines, Lease, Writer, live_rows, load
from scheduler_service.policies import registry
from scheduler_service.policies.options import FitGppSettings
from scheduler_service.policies.stages import Stages, order_of, stages
from scheduler_service.rpc.backend import Backend, Leading
from scheduler_service.rpc.seals import Seals
from scheduler_service.run.dispatch import Dispatch
from scheduler_service.run.invariant_sampling import watch_state
from scheduler_service.run.leadership import Renewal
from scheduler_service.run.service import NotLeading, Service
from scheduler_service.run.view import View
from scheduler_service.store import RENEWALS
from scheduler_service.store.twin.memory import Memory

log = logging.getLogger(__name__)

_CLOCK_SLACK_US = 60_000_000
SHOWN = 5
"""Contradictions that are told."""
STOP_LIMIT = 5.0
"""Seconds that the engine may take to end its step when leadership ends."""


class ClockBehind(Exception):
    """The clock of this machine is more than a minute behind the last commit: it must not lead."""


class Contradiction(Exception):
    """The database holds what cannot be: to schedule by it would be to give a device away twice."""


class Outrun(Exception):
    """An agent of this cluster knows more than the database; the next epoch is to be above `epoch`."""

    def __init__(self, epoch: int, why: str) -> None:
        super().__init__(why)
        self.epoch = epoch


def stages_of(config: Config) -> Stages:
    """Where there are virtual clusters, each is scheduled by its own policy; the site's is what one gets that names none."""
    if config.virtual_clusters:
        return stages("cells", FitGppSettings(), exchange=config.exchange)
    settings = FitGppSettings(config.fitgpp_s, config.fitgpp_cap, config.fitgpp_trials_in_flight)
    return stages(config.policy, settings, config.backfill, own=config.policy_settings)


def settings_of(config: Config) -> Settings:
    """The part of the settings that the engine itself needs."""
    return Settings(
        default_grace_us=micros(config.default_grace),
        earmark_ttl_us=micros(config.earmark_ttl),
        aging_us=micros(config.aging),
        min_run_us=micros(config.min_run),
        gang_start_us=micros(config.gang_start),
        retry_pause_us=micros(config.retry_pause),
        fault_retries=config.fault_retries,
        blame_nodes=config.blame_nodes,
        bad_node_strikes=config.bad_node_strikes,
        reclaim_grace_us=micros(config.reclaim_grace),
        host_percent=config.host_percent,
        pools=tuple(pool.plan() for pool in config.pools) if config.virtual_clusters else None,
    )


def vc_policy_of(config: Config) -> VcPolicy:
    """Of virtual clusters that name none: the site's, where it is one for them."""
    name = config.policy if config.policy in registry.for_virtual_clusters() else "fifo"
    own = tuple(sorted(config.policy_settings.items())) if name == config.policy else ()
    return VcPolicy(name, config.fitgpp_s, config.fitgpp_cap, config.fitgpp_trials_in_flight, settings=own)


def clock(last_us: int, accept: bool = False) -> Callable[[], int]:
    """Microseconds since 1970: the wall clock now, moved on by monotonic time. Raises ClockBehind, unless it is to `accept`
    that the last leader's clock was ahead: then time goes on from the last commit."""
    wall, began = time.time_ns() // 1000, time.monotonic_ns() // 1000
    if (behind := last_us - wall) > _CLOCK_SLACK_US:
        said = f"the clock of this machine is {behind / 1e6:.0f} s behind the last commit"
        if not accept:
            raise ClockBehind(
                f"{said}: set it, then start again. If it is right, the last leader's was ahead: "
                "then start once with --accept-clock, and all times go on from that commit until it is past"
            )
        log.warning("%s, and is taken as right: until it has caught up, times that are told are ahead by so much", said)
        wall = last_us
    return lambda: wall + time.monotonic_ns() // 1000 - began


def load_state(engine: Engine | Memory, epoch: int, config: Config, forgetful: bool = False) -> tuple[State, View, Writer]:
    """The state as the database holds it; a new cluster is made in an empty one. What other settings left behind that means
    nothing now is put right first, and that is committed: who leads, and who replays a recording, begins with the same rows.

    Raises Contradiction where rows do not go together.

    `forgetful`: the database is known to be older than what was done under it, as after a backup was restored.
    """
    loaded = load(engine)
    writer = Writer(engine, epoch, loaded.commit_no)
    commit_no = loaded.commit_no
    cluster = loaded.cluster
    if cluster is None:
        cluster = ClusterRow(str(uuid.uuid4()), secrets.randbits(62))
        commit_no = writer.commit([Change("cluster", 0, None, cluster)], [])
    elif forgetful:
        cluster = skipping(cluster)
        commit_no = writer.commit([Change("cluster", 0, loaded.cluster, cluster)], [])
    rows = live_rows(loaded)
    if wrong := list(islice(contradictions(rows), SHOWN + 1)):
        more = "; and more" if len(wrong) > SHOWN else ""
        raise Contradiction(
            f"the database holds what cannot be, and nobody leads by it: {'; '.join(wrong[:SHOWN])}{more}. Restore a backup, "
            "or set these rows right by hand; whoever leads begins as soon as they are. Jobs that run go on"
        )
    state = State(cluster, settings_of(config), order_of(stages_of(config)))
    state.restore(iter(rows))
    repair_at_startup(state)
    if changes := net(state.journal.entries):
        writer.commit(changes, state.log)
        writer.close()
        return load_state(engine, epoch, config)
    return state, View([*rows, *(("run", run.key, run) for run in loaded.last_runs)], commit_no), writer


def left_over(state: State) -> Iterator[str]:
    """What was made under another configuration, and comes to nothing under this one: for the operator."""
    pools = state.pools
    kind = "of virtual clusters" if pools is None else "without a virtual cluster"
    jobs = [job for job in state.jobs.rows.values() if not state.serves(job)]
    if waiting := [job.id for job in jobs if job.state is JobState.QUEUED]:
        yield f"{len(waiting)} jobs {kind} wait for ever, the first is {min(waiting)}: cancel them"
    if others := [job.id for job in jobs if job.state is not JobState.QUEUED]:
        guaranteed = "nobody is guaranteed anything" if pools is None else "they leave when somebody wants cells of its own"
        yield (
            f"{len(others)} jobs {kind} run, or are suspended, the first is {min(others)}: {guaranteed}, and once one has left "
            "it waits for ever. Let them end, or cancel them and submit them anew"
        )
    if pools is None:
        return
    for vc in state.vcs.rows.values():
        lost = [f"{q.cells} {q.level} of {q.pool}" for q in vc.quotas if not has_level(pools, q.pool, q.level)]
        lost += [f"pin {pin.name} in {pin.pool}" for pin in vc.pins if not has_level(pools, pin.pool, pin.level)]
        if lost:
            yield (
                f"virtual cluster {vc.name} owns cells that there are not: {', '.join(lost)}. Their nodes have not joined yet, "
                f"or their pool is called something else now; then say what it owns anew: ebb vc update {vc.name} --quota ..."
            )


def micros(seconds: float) -> int:
    """For settings, which are in seconds."""
    return round(seconds * 1_000_000)


class Announce(Protocol):
    """Tells the world whether this scheduler leads."""

    async def __call__(self, leads: bool) -> None: ...


async def lead(
    config: Config,
    backend: Backend,
    engines: Engines,
    epoch: int,
    ending: "asyncio.Task[None]",
    announce: Announce,
    valid_until: Callable[[], float],
    forgetful: bool,
) -> None:
    """Leads until `ending` is done, or the engine stops by itself. The state is loaded anew each time.

    Raises what made it impossible to begin, what stopped the engine, and Outrun.
    """
    state, view, writer = await asyncio.to_thread(load_state, engines.writer, epoch, config, forgetful)
    dispatch = Dispatch()
    now = clock(state.cluster.clock_us, config.accept_clock)
    recorder = await asyncio.to_thread(recording.begin, config, stages_of, state, view.commit_no)
    service = Service(state, view, stages_of(config).policy, writer, lambda orders: dispatch.send(view, orders), now, recorder)

    def fell_silent(silent: NodeSilent) -> asyncio.Future[Any] | None:
        try:
            return service.handle(silent)
        except NotLeading:
            return None

    # Epochs are so far apart only where `ebb-scheduler restored` has skipped numbers since.
    skipped_below = epoch + 1 if forgetful else epoch - SKIPPED // 2
    seals = Seals(state.cluster.id, state.cluster.seed)
    leading = Leading(service, dispatch, stages_of(config), state.cluster.id, epoch, valid_until, seals, skipped_below)
    watchers = [asyncio.create_task(dispatch.watch_silence(view, config.silent_after, fell_silent))]
    warnings = list(left_over(state))  # before the engine has it
    service.start()
    watchers.append(asyncio.create_task(watch_state(service.ask)))
    backend.lead(leading)
    try:
        await announce(True)
        for warning in warnings:
            log.warning("%s", warning)
        jobs, nodes = len(view.jobs), len(view.all_nodes())
        log.info("leading cluster %s in epoch %d: %d live jobs, %d nodes", state.cluster.id, epoch, jobs, nodes)
        stopped: asyncio.Future[Any] = service.stopped
        ends: set[asyncio.Future[Any]] = {stopped, ending, leading.outrun, *watchers}
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for watcher in done.intersection(watchers):  # what it watched is watched by nobody now
            watcher.result()
    finally:
        backend.lead(None)
        with contextlib.suppress(OSError):  # what could not be written need not be taken away
            await announce(False)
        for watcher in watchers:
            watcher.cancel()
        dispatch.close_all()
        service.stop()
        guard = exit_timer(STOP_LIMIT, "the engine waits for a database that does not answer")
        why = await service.stopped
        guard.cancel()
        writer.close()
        recorder.close()
    if why is not None:
        raise why
    if leading.outrun.done():
        raise Outrun(*leading.outrun.result())


async def lead_under_lease(
    config: Config,
    backend: Backend,
    engines: Engines,
    lease: Lease,
    epoch: int,
    stop: asyncio.Event,
    announce: Announce,
    forgetful: bool = False,
) -> None:
    """`lead`, for as long as the lease is ours. It is renewed from before the state is loaded, which may take long."""
    loop = asyncio.get_running_loop()
    taken = asyncio.Event()

    def lost() -> None:
        loop.call_soon_threadsafe(taken.set)

    renewal = Renewal(lease, epoch, config.lease, config.lease / RENEWALS, lost)

    async def until_it_ends() -> None:
        """A lease that ran out may yet be renewed, where nobody has taken it. Until then callers are refused."""
        late = False
        while not (stop.is_set() or taken.is_set()):
            over = time.monotonic() - renewal.valid_until
            if over > config.lease:
                log.error("stepping down: the lease ran out %g s ago, and the database does not answer", round(over, 1))
                return
            if over > 0 and not late:
                log.warning("the lease ran out: the database did not answer in time, or this process stood still")
            late = over > 0
            await asyncio.sleep(min(0.1, config.lease / 10))

    ending = asyncio.create_task(until_it_ends())
    try:
        await lead(config, backend, engines, epoch, ending, announce, lambda: renewal.valid_until, forgetful)
    finally:
        ending.cancel()
        await asyncio.to_thread(renewal.end)


def exit_timer(seconds: float, why: str) -> threading.Timer:
    """Ends the process by force when not cancelled in time: a thread that waits for a dead database cannot be stopped.

    Nothing is lost by it: what is not committed was answered to nobody.
    """

    def exit_now() -> None:
        log.critical("giving up after %g s: %s", seconds, why)
        os._exit(1)

    timer = threading.Timer(seconds, exit_now)
    timer.daemon = True
    timer.start()
    return timer
