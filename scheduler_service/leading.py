"""One leadership: the state is loaded, served from, and dropped again."""

import asyncio
import contextlib
import logging
import os
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy import Engine

from scheduler_service import store
from scheduler_service.config import Config
from scheduler_service.core.engine import Policy
from scheduler_service.core.job import Cluster as ClusterRow
from scheduler_service.core.journal import Change
from scheduler_service.core.messages import NodeSilent
from scheduler_service.core.state import Settings, State
from scheduler_service.database import Engines, Lease, Reader, Writer
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.fitgpp import fitgpp
from scheduler_service.policies.victims import FitGppSettings
from scheduler_service.rpc.front import Front, Leading
from scheduler_service.run.dispatch import Dispatch
from scheduler_service.run.leader import Renewal
from scheduler_service.run.service import NotLeading, Service
from scheduler_service.run.view import View

log = logging.getLogger(__name__)

_CLOCK_SLACK_US = 60_000_000
STOP_LIMIT = 5.0
"""Seconds that the engine may take to end its step when leadership ends."""


class ClockBehind(Exception):
    """The clock of this machine is more than a minute behind the last commit: it must not lead."""


def policy_of(config: Config) -> Policy:
    if config.policy == "fifo":
        return fifo
    return fitgpp(FitGppSettings(config.fitgpp_s, config.fitgpp_cap, config.fitgpp_trials_in_flight))


def clock(last_us: int) -> Callable[[], int]:
    """Microseconds since 1970: the wall clock now, moved on by monotonic time. Raises ClockBehind."""
    wall, began = time.time_ns() // 1000, time.monotonic_ns() // 1000
    if wall < last_us - _CLOCK_SLACK_US:
        raise ClockBehind(
            f"the clock of this machine is {(last_us - wall) / 1e6:.0f} s behind the last commit: set it, then start again"
        )
    return lambda: wall + time.monotonic_ns() // 1000 - began


def load_state(engine: Engine, epoch: int, config: Config) -> tuple[State, View, Writer]:
    """The state as the database holds it; a new cluster is made in an empty one."""
    with engine.connect() as connection:
        loaded = store.load(connection)
    writer = Writer(engine, epoch, loaded.commit_no)
    commit_no = loaded.commit_no
    cluster = loaded.cluster
    if cluster is None:
        cluster = ClusterRow(str(uuid.uuid4()), secrets.randbits(62))
        commit_no = writer.commit([Change("cluster", 0, None, cluster)], [])
    rows: list[tuple[str, Any, Any]] = [
        *(("node", row.id, row) for row in loaded.nodes),
        *(("device", (row.node, row.index), row) for row in loaded.devices),
        *(("job", row.id, row) for row in loaded.jobs),
        *(("run", row.key, row) for row in loaded.runs),
        *(("operation", row.id, row) for row in loaded.operations),
    ]
    state = State(cluster, Settings(micros(config.default_grace), micros(config.earmark_ttl)))
    state.restore(iter(rows))
    return state, View([*rows, *(("run", run.key, run) for run in loaded.last_runs)], commit_no), writer


def micros(seconds: float) -> int:
    """For settings, which are in seconds."""
    return round(seconds * 1_000_000)


class Announce(Protocol):
    """Tells the world whether this scheduler leads."""

    async def __call__(self, leads: bool) -> None: ...


async def lead(
    config: Config, front: Front, engines: Engines, epoch: int, ending: "asyncio.Task[None]", announce: Announce
) -> None:
    """Leads until `ending` is done, or the engine stops by itself. The state is loaded anew each time.

    Raises what made it impossible to begin, and what stopped the engine.
    """
    state, view, writer = await asyncio.to_thread(load_state, engines.writer, epoch, config)
    dispatch = Dispatch()
    service = Service(
        state, view, policy_of(config), writer, lambda orders: dispatch.send(view, orders), clock(state.cluster.clock_us)
    )

    def fell_silent(node: str) -> None:
        log.warning("node %s is silent", node)
        with contextlib.suppress(NotLeading):
            service.handle(NodeSilent(node)).add_done_callback(lambda done: done.cancelled() or done.exception())

    leading = Leading(service, dispatch, Reader(engines.reader), state.cluster.id, epoch)
    silence = asyncio.create_task(dispatch.watch_silence(view, config.silent_after, fell_silent))
    service.start()
    front.lead(leading)
    await announce(True)
    log.info("leading cluster %s in epoch %d: %d live jobs, %d nodes", state.cluster.id, epoch, len(view.jobs), len(view.nodes))
    try:
        stopped: asyncio.Future[Any] = service.stopped
        await asyncio.wait({stopped, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        front.lead(None)
        await announce(False)
        silence.cancel()
        dispatch.close_all()
        service.stop()
        guard = exit_timer(STOP_LIMIT, "the engine waits for a database that does not answer")
        why = await service.stopped
        guard.cancel()
        leading.close()
        writer.close()
    if why is not None:
        raise why


async def lead_under_lease(
    config: Config, front: Front, engines: Engines, lease: Lease, epoch: int, stop: asyncio.Event, announce: Announce
) -> None:
    """`lead`, for as long as the lease is ours. It is renewed from before the state is loaded, which may take long."""
    loop = asyncio.get_running_loop()
    taken = asyncio.Event()

    def lost() -> None:
        loop.call_soon_threadsafe(taken.set)

    renewal = Renewal(lease, epoch, config.lease, lost)

    async def until_it_ends() -> None:
        while not (stop.is_set() or taken.is_set()):
            if time.monotonic() > renewal.valid_until:
                log.error("the lease ran out: the database did not answer in time")
                return
            await asyncio.sleep(min(0.1, config.lease / 10))

    ending = asyncio.create_task(until_it_ends())
    try:
        await lead(config, front, engines, epoch, ending, announce)
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
