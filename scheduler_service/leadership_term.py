"""One leadership: the state is loaded, served from, and dropped again."""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from scheduler_service import recording
from scheduler_service.config import Config
from scheduler_service.core.handlers.skipped_job_ids import SKIPPED
from scheduler_service.core.messages import NodeSilent
from scheduler_service.database import Engines, Lease, load_and_open
from scheduler_service.engine_settings import stages_of
from scheduler_service.rpc.backend import Backend, Leading
from scheduler_service.rpc.epoch_seals import Seals
from scheduler_service.rpc.file_expiry import expire_files
from scheduler_service.run.dispatch import Dispatch
from scheduler_service.run.engine_thread import EngineThread, NotLeading
from scheduler_service.run.invariant_sampling import watch_state
from scheduler_service.run.leadership import Renewal
from scheduler_service.run.planner_process import Planner
from scheduler_service.startup import clock, left_over, load_state
from scheduler_service.store import RENEWALS

log = logging.getLogger(__name__)

STOP_LIMIT = 5.0
"""Seconds that the engine may take to end its step when leadership ends."""


class Outrun(Exception):
    """An agent of this cluster knows more than the database; the next epoch is to be above `epoch`."""

    def __init__(self, epoch: int, why: str) -> None:
        super().__init__(why)
        self.epoch = epoch


Announce = Callable[[bool], Awaitable[None]]
"""Tells the world whether this scheduler leads."""


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
    """Lead until `ending` is done, or the engine stops by itself. Each leadership loads the state from the database.

    Raises what made it impossible to begin, what stopped the engine, and Outrun.
    """
    state, view, writer = await asyncio.to_thread(load_state, partial(load_and_open, engines.writer, epoch), config, forgetful)
    dispatch = Dispatch()
    now = clock(state.cluster.clock_us, config.accept_clock)
    recorder = await asyncio.to_thread(recording.begin, config, stages_of, state, view.commit_no)
    policy = stages_of(config).policy
    planner = Planner(lambda event: service.handle(event))
    service = EngineThread(
        state, view, policy, writer, lambda orders: dispatch.send(view, orders), now, recorder, planner.take_delegated
    )

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
    watchers.append(asyncio.create_task(expire_files(backend, config.keep_files)))
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
        await planner.close()
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

    def note_lost() -> None:
        loop.call_soon_threadsafe(taken.set)

    renewal = Renewal(lease, epoch, config.lease, config.lease / RENEWALS, note_lost)

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
