"""FIFO with backfill: jobs behind the head may start where they do not delay it (EASY backfill, with vectors and nodes).

The head gets a reservation: the soonest time at which it fits, given how long the running jobs are expected to run, and the
nodes on which it does so then. A job behind it may start now if it has left by then, for certain, or leaves the reserved nodes
what the head needs. "For certain" means a time limit. When a running job ends is taken from its estimate, else its limit: the
sooner, the less is backfilled. Where nobody knows, nothing is.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Plan, Rng
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.model.values import Micros, Vector
from scheduler_service.core.state.free_resources import pack
from scheduler_service.core.state.holdings import first_of_each, holding, runs_together
from scheduler_service.core.state.queue_keys import OWN_LANES, Lane, own_lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.options import Options
from scheduler_service.policies.order.fifo import fifo, head_of
from scheduler_service.policies.placing.first_fit import (
    no_room,
    offered_to,
    place,
    place_on_earmarks,
    start_on_earmarks,
    take_promised,
)
from scheduler_service.policies.remaining_time import remaining_together
from scheduler_service.policies.stages import Stages

LOOKED_AT = 100
"""Jobs behind the head that are looked at in one step."""


def backfill(state: State, _rng: Rng) -> Proposals:
    """Both classes in one queue."""
    yield from start_on_earmarks(state, place_on_earmarks)
    yield from serve(state, OWN_LANES)


def stages(options: Options) -> Stages:
    """FIFO, with backfill or without."""
    return Stages(backfill if options.backfill else fifo)


def serve(state: State, lanes: Sequence[Lane]) -> Proposals:
    """As `fifo.serve`; behind a head that does not fit, those that do not delay it.

    What was backfilled may move others to nodes on which they are in nobody's way: it ends when nothing more is.
    """
    while (yield from _pass(state, lanes)):
        pass


def _pass(state: State, lanes: Sequence[Lane]) -> Generator[Plan, str | None, bool]:
    """Whether something was backfilled."""
    skipped = dict.fromkeys(lanes, 0)
    reservation: Reservation | None = None
    looked_at, backfilled = 0, False
    while looked_at < LOOKED_AT and (job := head_of(state, skipped)) is not None:
        action = _place_beside(state, job, reservation)
        if action is not None:
            if (yield (action,)) is None:
                if reservation is not None:
                    reservation.take(state, job, action)
                    backfilled = True
                continue
        elif reservation is None:
            wait = no_room(state, job)
            if (yield (wait,)) is None and wait.reason is Reason.TOO_LARGE:
                continue  # it has left the queue
            if wait.reason is not Reason.TOO_LARGE:
                found = [one for way in job.in_each_configuration() if (one := reserve(state, way)) is not None]
                reservation = min(found, key=lambda one: one.at, default=None)
                if reservation is None:  # nobody knows when it can start: whatever starts now may delay it
                    return False
        looked_at += reservation is not None
        skipped[own_lane(job)] += 1
    return backfilled


def _place_beside(state: State, job: Job, reservation: "Reservation | None") -> Place | None:
    """In the first of the job's configurations that has room and does not delay the head."""
    places = (place(state, one) for one in job.in_each_configuration())
    return next((one for one in places if one and (reservation is None or reservation.allows(state, job, one))), None)


class Reservation:
    """When and where the head starts, and what its nodes have beside it then."""

    def __init__(self, at: Micros, spare: NDArray[np.int64], nodes: frozenset[int]) -> None:
        self.at = at
        self._spare = spare
        self.nodes = nodes

    def allows(self, state: State, job: Job, action: Place) -> bool:
        """Whether the head can start there then all the same."""
        if self._is_gone(state, job):
            return True
        left = self._spare.copy()
        _take(left, job, action)
        return bool((left[:, list(self.nodes)] >= 0).all())

    def take(self, state: State, job: Job, action: Place) -> None:
        if not self._is_gone(state, job):
            _take(self._spare, job, action)

    def _is_gone(self, state: State, job: Job) -> bool:
        """Whether the job, started now, has certainly left when the head starts."""
        limit = job.time_limit_us
        return bool(limit) and state.cluster.clock_us + max(limit - job.ran_us, 0) + job.spec.grace_us <= self.at


def _take(offered: NDArray[np.int64], job: Job, action: Place) -> None:
    for spot, demand in zip(action.spots, job.spec.configured(action.configuration).tasks(), strict=True):
        offered[:, spot.node] -= demand


def reserve(state: State, head: Job) -> Reservation | None:
    """The soonest time at which the head fits in its only configuration, if the running jobs end when they are expected to.
    None: nobody knows."""
    now = state.cluster.clock_us
    offered = offered_to(state, head)
    take_promised(state, head, offered)
    ends = sorted(
        (now + left + (state.jobs.rows[job_id].spec.grace_us if left == 0 else 0), job_id)
        for job_id in first_of_each(state, state.active)
        if (left := remaining_together(state, state.jobs.rows[job_id], now)) is not None
    )
    leaving = [[run for run in runs_together(state, job_id) if state.is_usable(head.spec, run.node)] for _, job_id in ends]
    nodes = np.array([run.node for runs in leaving for run in runs], np.intp)
    demands = np.array([holding(state, run) for runs in leaving for run in runs], np.int64).reshape(-1, len(offered)).T
    counts = list(accumulate(map(len, leaving)))

    def after(end: int) -> NDArray[np.int64]:
        """What is offered once this job, and those before it, have left."""
        then = offered.copy()
        for row, demand in zip(then, demands, strict=True):
            np.add.at(row, nodes[: counts[end]], demand[: counts[end]])
        return then

    # To pack the head after each end would cost runs times nodes. What it needs at least is there once, and stays.
    needs = head.spec.tasks()
    each = Counter(needs)
    soonest = bisect_left(range(len(ends)), True, key=lambda end: _may_suffice(each, after(end)))
    for end in range(soonest, len(ends)):
        beside = after(end)
        packed = pack(needs, beside)
        if packed is not None:
            return Reservation(ends[end][0], beside, frozenset(packed))
    return None


def _may_suffice(needs: Mapping[Vector, int], offered: NDArray[np.int64]) -> bool:
    """Whether there is room for all tasks of each size, were there no others. Where not, `pack` finds none for them."""
    return all(_seats(need, count, offered) >= count for need, count in needs.items())


def _seats(need: Vector, most: int, offered: NDArray[np.int64]) -> int:
    """How many tasks of a size there is room for on the nodes, counting no more than `most` on each."""
    seats = np.full(offered.shape[1], most)
    for want, have in zip(need, offered, strict=True):
        np.minimum(seats, have // want if want else np.where(have < 0, 0, most), out=seats)
    seats[0] = 0  # no node
    return int(seats.clip(0).sum())
