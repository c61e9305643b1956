"""Victims of a policy that re-orders what runs: jobs behind the one that waits, the last in the order first.

Jobs are preempted one after the other until the waiting job fits; those that turn out not to be needed are spared.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.messages import AddEarmark, Plan, Preempt, Rng
from scheduler_service.core.model import Decision, Job
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.values import ZERO, Vector, add, fits
from scheduler_service.core.state.holdings import holding, jobs_together, runs_together
from scheduler_service.core.state.preemption_rights import claim_of, spared_reason, why_not
from scheduler_service.core.state.queue import NOBODY
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.core.state.state import State
from scheduler_service.policies.stages import Ranked, Victims, in_any_configuration

NO_CAP = 2**31 - 1


def victims_by_queue_order(rule: str, spares: Callable[[State, Job], bool] = lambda _state, _job: False) -> Victims:
    """Victims for an order whose claim is `Claim.REORDER`. `rule` is the name of the choice in the story; `spares` says which
    jobs the policy's own budget spares."""

    def choose(state: State, job: Job, _rng: Rng) -> Plan | None:
        others = (
            other for other in running_behind(state, job) if not any(spares(state, one) for one in _jobs_with(state, other))
        )
        return make_room(state, job, others, rule)

    return Victims(in_any_configuration(choose), last_first, spares=spares)


def last_first(state: State, _job: Job, able: Sequence[Job], _rng: Rng) -> Ranked:
    """Those that are last in the order of their queue first."""
    return Ranked(sorted(able, key=state.place_of, reverse=True))


def running_behind(state: State, job: Job) -> Iterator[Job]:
    """Jobs that run and may be preempted for this one because they are behind it in the order of the queue, the last in the
    order first. Costs what is looked at."""
    if claim_of(state, job) is not Claim.REORDER:
        return
    place = state.place_of(job)
    for key in reversed(state.running.get(job.spec.vc, NOBODY)):
        if key <= place:
            return
        other = state.jobs.rows[key[-1]]
        if may_preempt(state, job, other):
            yield other


def _jobs_with(state: State, job: Job) -> list[Job]:
    """The job, and those that are preempted with it."""
    return [state.jobs.rows[job_id] for job_id in jobs_together(state, job.id)]


def may_preempt(state: State, job: Job, other: Job) -> bool:
    """Whether all runs of the other, and of those that are preempted with it, may be preempted for the job now."""
    return all(_may_preempt(state, job, one) for one in _jobs_with(state, other))


def _may_preempt(state: State, job: Job, other: Job) -> bool:
    claim, runs = claim_of(state, job), state.runs_of(other.id)
    return (
        claim is not None
        and why_not(state, claim, job, other, runs) is None
        and other.id not in state.unreachable
        and all(spared_reason(state, run, other) is None for run in runs)
    )


def make_room(state: State, job: Job, order: Iterable[Job], rule: str) -> Plan | None:
    """Preempts jobs in this order until the job fits on the nodes, and keeps what they release. None: all of them together do
    not make room. Of those that were chosen the ones that came last in the order are spared first, if they are not needed."""
    tasks = job.spec.tasks()
    offered = state.free_resources.offered_resources(state.suitable_for(job.spec)).copy()
    chosen: list[Job] = []
    going: set[int] = set()
    for other in order:
        if other.id in going:  # it shares devices with one that was chosen
            continue
        going.update(jobs_together(state, other.id))
        nodes = _change(state, offered, job, other, 1)
        chosen.append(other)
        if (len(tasks) > 1 or any(fits(tasks[0], _resources_at(offered, node)) for node in nodes)) and _fits(tasks, offered):
            break
    else:
        return None
    for other in reversed(chosen[:]):
        _change(state, offered, job, other, -1)
        if _fits(tasks, offered):
            chosen.remove(other)
        else:
            _change(state, offered, job, other, 1)
    return _plan(state, job, tasks, offered, chosen, rule)


def _fits(tasks: tuple[Vector, ...], offered: NDArray[np.int64]) -> bool:
    return pack(tasks, offered.copy()) is not None


def _resources_at(offered: NDArray[np.int64], node: int) -> Vector:
    return Vector(*offered[:, node].tolist())


def _change(state: State, offered: NDArray[np.int64], job: Job, other: Job, sign: int) -> list[int]:
    """Adds what the other's runs, and those that are preempted with them, hold on nodes on which the job may run, or takes it
    away; returns these nodes."""
    nodes = []
    for run in runs_together(state, other.id):
        if state.is_usable(job.spec, run.node):
            offered[:, run.node] += np.array(holding(state, run)) * sign
            nodes.append(run.node)
    return nodes


def _plan(state: State, job: Job, tasks: tuple[Vector, ...], offered: NDArray[np.int64], victims: list[Job], rule: str) -> Plan:
    nodes = pack(tasks, offered.copy())
    assert nodes is not None  # they make room
    decision = Decision(job.id, min(nodes), job.spec.demand, rule, 0.0, 0, 0.0, 0, len(victims), ())
    actions: list[Preempt | AddEarmark] = [Preempt(other.id, job.id, NO_CAP, decision) for other in victims]
    for node in sorted(set(nodes)):
        ranks = tuple(rank for rank, at in enumerate(nodes) if at == node)
        want = ZERO
        for rank in ranks:
            want = add(want, tasks[rank])
        leaving = tuple(run.key for other in victims for run in runs_together(state, other.id) if run.node == node)
        actions.append(AddEarmark(job.id, node, want, leaving, decision, ranks, configuration=job.configuration))
    return tuple(actions)
