"""The start of a leadership: the state in the database, the clock, and warnings to the operator about both."""

import logging
import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import islice

from scheduler_service.config import Config
from scheduler_service.core.allocation.startup_repair import repair_at_startup
from scheduler_service.core.cells.queries import has_level
from scheduler_service.core.handlers.skipped_job_ids import skipping
from scheduler_service.core.model import Cluster, JobState
from scheduler_service.core.state.journal import Change, net
from scheduler_service.core.state.load_check import contradictions
from scheduler_service.core.state.state import State
from scheduler_service.database import Writer, live_rows
from scheduler_service.engine_settings import settings_of, stages_of
from scheduler_service.policies.chosen_stages import order_of
from scheduler_service.run.read_model import View
from scheduler_service.store import Loaded

log = logging.getLogger(__name__)

Open = Callable[[], tuple[Loaded, Writer]]
"""Gives what the database holds, and what writes to it in the epoch of this leadership."""
_CLOCK_SLACK_US = 60_000_000
SHOWN = 5
"""Contradictions that are told."""


class ClockBehind(Exception):
    """The clock of this machine is more than a minute behind the last commit: it must not lead."""


class Contradiction(Exception):
    """The database is inconsistent: scheduling from it could give a device away twice."""


def clock(last_us: int, accept: bool = False) -> Callable[[], int]:
    """Return a clock in microseconds since 1970: the wall clock now, advanced by monotonic time. Raises ClockBehind, unless it
    is to `accept` that the last leader's clock was ahead: then time continues from the last commit."""
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


def load_state(opened: Open, config: Config, forgetful: bool = False) -> tuple[State, View, Writer]:
    """Load the state from the database; an empty database gets a new cluster. Rows that other settings left behind
    and that mean nothing now are repaired and committed first: a leader and a replay of its recording begin with the same rows.

    Raises Contradiction if rows are inconsistent.

    `forgetful`: the database is known to lack commits that were acted on, as after a backup was restored.
    """
    loaded, writer = opened()
    commit_no, cluster = loaded.commit_no, loaded.cluster
    if cluster is None:
        cluster = Cluster(str(uuid.uuid4()), secrets.randbits(62))
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
        return load_state(opened, config)
    return state, View([*rows, *(("run", run.key, run) for run in loaded.last_runs)], commit_no), writer


def left_over(state: State) -> Iterator[str]:
    """Yield warnings about jobs that were submitted under another configuration and get nothing under this one."""
    pools = state.pools
    kind = "of virtual clusters" if pools is None else "without a virtual cluster"
    jobs = [job for job in state.jobs.rows.values() if not state.serves(job)]
    if waiting := [job.id for job in jobs if job.state is JobState.QUEUED]:
        yield f"{len(waiting)} jobs {kind} wait forever, the first is {min(waiting)}: cancel them"
    if others := [job.id for job in jobs if job.state is not JobState.QUEUED]:
        guaranteed = "nobody is guaranteed anything" if pools is None else "they leave when somebody wants cells of its own"
        yield (
            f"{len(others)} jobs {kind} run, or are suspended, the first is {min(others)}: {guaranteed}, and once one has left "
            "it waits forever. Let them end, or cancel them and submit them anew"
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
