"""The plan that follows from a choice of victims, and the decision with its numbers for the story."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.messages import AddEarmark, Plan, Preempt
from scheduler_service.core.model import CandidateScore, Decision
from scheduler_service.core.model.values import ZERO, Vector, add
from scheduler_service.core.state.holdings import runs_together
from scheduler_service.policies.fitgpp.victim_search import Field, Mask
from scheduler_service.policies.options import PreemptionSettings

SHOWN = 16
"""How many candidates a decision keeps for the story."""


class Scores(NamedTuple):
    """`score` by place in the field (Eqn 3), and its maxima."""

    score: NDArray[np.float64]
    max_size: float
    max_grace_us: int


def plan_for(field: Field, scores: Scores, settings: PreemptionSettings, rule: str) -> Plan:
    """Preempt the victims, and keep for the trial what it needs on each of its nodes."""
    trial, state = field.trial, field.state
    nodes = sorted(set(field.task_nodes.values()))
    decision = Decision(
        trial=trial.id,
        node=nodes[0],
        demand=trial.spec.demand,
        rule=rule,
        s=settings.s,
        cap=settings.cap,
        max_size=scores.max_size,
        max_grace_us=scores.max_grace_us,
        considered=len(np.unique(field.unit)) if field.gangs.any() else len(field.job),
        candidates=_shown_candidates(field, scores),
    )
    preemptions = tuple(Preempt(job, trial.id, settings.cap, decision) for job in field.victims)
    earmarks = []
    for node in nodes:
        ranks = tuple(sorted(rank for rank, at in field.task_nodes.items() if at == node))
        want = ZERO
        for rank in ranks:
            want = add(want, field.need(rank))
        leaving = tuple(run.key for job in field.victims for run in runs_together(state, job) if run.node == node)
        earmarks.append(AddEarmark(trial.id, node, want, leaving, decision, ranks, configuration=trial.configuration))
    return (*preemptions, *earmarks)


def _shown_candidates(field: Field, scores: Scores) -> tuple[CandidateScore, ...]:
    """The chosen runs and those of lowest score, lowest first."""
    c, state = field.state.candidates, field.state
    chosen = np.isin(field.unit, field.chosen)
    alone = _suffices_alone(field)
    shown = np.nonzero(_lowest(scores.score, -field.job) | chosen)[0]
    rows = []
    for i in shown[np.lexsort((-field.job[shown], scores.score[shown]))].tolist():
        key = c.keys[int(field.slots[i])]
        assert key is not None  # a slot in J is in use
        run = state.runs.rows[key]
        rows.append(
            CandidateScore(
                key=key,
                node=run.node,
                demand=Vector(*field.demand[:, i].tolist()),
                node_free=state.free_resources.free(run.node),
                size=float(field.size[i]),
                grace_us=int(field.grace[i]),
                score=float(scores.score[i]),
                preempted_for_trial=int(c.count[int(field.slots[i])]),
                sufficient=bool(alone[i]),
                chosen=bool(chosen[i]),
            )
        )
    return tuple(rows)


def _suffices_alone(field: Field) -> Mask:
    """Eqn 2 for the trial's largest task, with what was free before any run was preempted."""
    offered = field.state.free_resources.offered_resources(field.state.suitable_for(field.trial.spec))
    enough: Mask = np.ones(len(field.job), dtype=np.bool_)
    for resource, need in enumerate(field.need(field.ranks()[0])):
        enough &= field.demand[resource] + offered[resource].take(field.node) >= need
    return enough


def _lowest(score: NDArray[np.float64], tie: NDArray[np.int64]) -> Mask:
    """Which are the SHOWN of lowest (score, tie). Sorts none of them, for there may be thousands."""
    if len(score) <= SHOWN:
        return np.ones(len(score), dtype=np.bool_)
    bound = np.partition(score, SHOWN - 1)[SHOWN - 1]
    below, level = score < bound, np.nonzero(score == bound)[0]
    missing = SHOWN - int(below.sum())
    below[level[np.argpartition(tie[level], missing - 1)[:missing]]] = True
    lowest: Mask = below
    return lowest
