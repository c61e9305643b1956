"""FIFO with backfill: jobs behind the head may start where they do not delay it (EASY backfill, with vectors and nodes).

The head gets a reservation: the soonest time at which it fits, given how long the running jobs are expected to run, and the
nodes on which it does so then. A job behind it may start now if it has left by then, for certain, or leaves the reserved nodes
what the head needs. "For certain" means a time limit. When a running job ends is taken from its estimate, else its limit: the
sooner, the less is backfilled. If it is unknown when the head starts, a job behind it starts only if it takes nothing that the
head could use (`precedence`).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Micros, Vector
from scheduler_service.core.state.holdings import first_of_each, holding, runs_together
from scheduler_service.core.state.queue_keys import OWN_LANES, Lane
from scheduler_service.core.state.resources.free_resources import Kept
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import offered_to, place, place_on_earmarks, start_on_earmarks, take_promised
from scheduler_service.policies.queueing.in_order import serve_in_order
from scheduler_service.policies.queueing.jobs_behind import serve_behind
from scheduler_service.policies.queueing.precedence import Precedence, parts_of
from scheduler_service.policies.remaining_time import remaining_together

MOST_RESERVATIONS = 8
"""The most waiting jobs for which it is worked out when they start; they wait for different nodes."""


def backfill(state: State, _rng: Rng) -> Proposals:
    """Serve both classes in one queue, with backfill."""
    yield from start_on_earmarks(state, place_on_earmarks)
    yield from serve(state, OWN_LANES)


def serve(state: State, lanes: Sequence[Lane]) -> Proposals:
    """As `in_order.serve`; those behind the head may also take what it could use, if that does not delay it.

    What was backfilled may move others to nodes on which they are in no other's way: it ends when nothing more is.
    """
    while (head := (yield from serve_in_order(state, lanes))) is not None:
        before = Reservations()
        before.add(state, head)
        yield from serve_behind(state, lanes, before)
        if not before.has_placed:
            return


class Reservations(Precedence):
    """The jobs that wait, each with its reservation. One for which it is unknown when it can start has precedence on all nodes
    that it could use. One that could use only nodes that those before it could has neither, as in EASY."""

    def __init__(self) -> None:
        super().__init__()
        self.has_placed = False
        """Whether a job has started."""
        self._reservations: list[Reservation] = []
        self._had_room = False
        """There was room for the job that was looked at last, if it delayed no other."""

    def add(self, state: State, job: Job) -> None:
        self.jobs.add(job.id)
        if not self.reaches_beyond(state, job):
            return
        found: list[Reservation] = []
        if len(self._reservations) < MOST_RESERVATIONS:
            found = [one for way in job.in_each_configuration() if (one := reserve(state, way)) is not None]
        if not found:
            super().add(state, job)
            return
        self._reservations.append(min(found, key=lambda one: one.at))
        for part in parts_of(state, job):
            self.nodes |= part.bits

    def place(self, state: State, job: Job) -> Place | None:
        """Place the job in the first of its configurations that has room and delays no other."""
        self._had_room = False
        for one in job.in_each_configuration():
            if (action := place(state, one)) is None:
                continue
            self._had_room = True
            if self.leaves_enough(state, one, action) and all(r.allows(state, one, action) for r in self._reservations):
                return action
            action = self._place_beside(state, one, self._kept_from(state, one))
            if action is not None:
                return action
        return None

    def _kept_from(self, state: State, job: Job) -> list[Kept]:
        """Resources kept from this job, if it does not leave enough where it has room first: of reserved nodes, all."""
        reserved = 0
        for reservation in self._reservations:
            if not reservation.is_gone(state, job):
                for node in reservation.nodes:
                    reserved |= 1 << node
        kept = [part._replace(bits=part.bits & ~reserved) for part in self.kept]
        return [*kept, Kept(reserved, None)] if reserved else kept

    def is_hopeless(self) -> bool:
        return not (self._had_room and self._reservations)

    def note_placed(self, state: State, job: Job, action: Place) -> None:
        self.has_placed = True
        for reservation in self._reservations:
            reservation.take_resources(state, job, action)


class Reservation:
    """The time and nodes at which the head starts, and what else its nodes have free then."""

    def __init__(self, at: Micros, spare: NDArray[np.int64], nodes: frozenset[int]) -> None:
        self.at = at
        self._spare = spare
        self.nodes = nodes

    def allows(self, state: State, job: Job, action: Place) -> bool:
        """Whether the head can start there then all the same."""
        if self.is_gone(state, job):
            return True
        left = self._spare.copy()
        _take_resources(left, job, action)
        return bool((left[:, list(self.nodes)] >= 0).all())

    def take_resources(self, state: State, job: Job, action: Place) -> None:
        if not self.is_gone(state, job):
            _take_resources(self._spare, job, action)

    def is_gone(self, state: State, job: Job) -> bool:
        """Whether the job, started now, has certainly left when the head starts."""
        limit = job.time_limit_us
        return bool(limit) and state.cluster.clock_us + max(limit - job.ran_us, 0) + job.spec.grace_us <= self.at


def _take_resources(offered: NDArray[np.int64], job: Job, action: Place) -> None:
    for spot, demand in zip(action.spots, job.spec.in_configuration(action.configuration).tasks(), strict=True):
        offered[:, spot.node] -= demand


def reserve(state: State, head: Job) -> Reservation | None:
    """The soonest time at which the head fits in its only configuration, if the running jobs end when they are expected to.
    None: that is unknown."""
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

    def offered_after(end: int) -> NDArray[np.int64]:
        """Resources that are offered once this job, and those before it, have left."""
        then = offered.copy()
        for row, demand in zip(then, demands, strict=True):
            np.add.at(row, nodes[: counts[end]], demand[: counts[end]])
        return then

    # To pack the head after each end would cost runs times nodes. What it needs at least is there once, and stays.
    needs = head.spec.tasks()
    each = Counter(needs)
    soonest = bisect_left(range(len(ends)), True, key=lambda end: _may_suffice(each, offered_after(end)))
    for end in range(soonest, len(ends)):
        beside = offered_after(end)
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
