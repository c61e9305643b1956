"""Other scores for the choice of victims, none of which needs to know how long a job will run (docs/scores.md).

Each adds to FitGpp's score (Eqn 3), or to its rule, one thing that these leave out. They exist for the simulator, where users
can evaluate them on their own jobs. Of the scores that were tried only `thrifty` is offered to sites.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.messages import Plan, Preempt, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.model.values import add, fits
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.plan_from_victims import Scores, plan_for
from scheduler_service.policies.fitgpp.policy import fitgpp_victims, least_score, score
from scheduler_service.policies.fitgpp.preemption_stages import Choice
from scheduler_service.policies.fitgpp.victim_search import Field, field_for
from scheduler_service.policies.options import PreemptionSettings

Term = Callable[[Field], NDArray[np.float64]]
"""A value for each place of a field, from 0, for the best victim, to 1, which weighs as much as the full size."""

SOON = 3
"""How many runs that would make room are expected to end in time: 5 % end too late if they end independently."""


def with_term(name: str, term: Term) -> Choice:
    """FitGpp with an additional term in its score."""

    def choice(state: State, trial: Job, settings: PreemptionSettings, rng: Rng) -> Plan | None:
        field = field_for(state, trial, settings.cap)
        if field is None:
            return None
        plain = score(field, settings.s)
        return least_score(field, plain._replace(score=plain.score + term(field)), settings, rng, name)

    return choice


# ---- terms -------------------------------------------------------------------------------------------------------------


def age(field: Field) -> NDArray[np.float64]:
    """The age of the run, 1/2 for the median: young runs have the least work to lose if a checkpoint fails; and if few jobs run
    for very long, these are among the old ones, which should keep their preemptions."""
    state = field.state
    keys = [state.candidates.keys[slot] for slot in field.slots.tolist()]
    began = np.array([state.runs.rows[key].placed_us for key in keys if key is not None], dtype=np.float64)
    ages = state.cluster.clock_us - began
    middle = max(float(np.median(ages)), 1.0)
    share: NDArray[np.float64] = np.divide(ages, ages + middle)
    return share


def youth(field: Field) -> NDArray[np.float64]:
    """The opposite of age: if jobs take about the same time, an old run would soon have ended anyway."""
    return 1 - age(field)


def waste(field: Field) -> NDArray[np.float64]:
    """Size times grace period: the resources that are idle while the run exits."""
    return _shares(field.size * field.grace)


def leftover(field: Field) -> NDArray[np.float64]:
    """Fragments: what the run would release, with what is free there, beyond the needs of the trial's largest task."""
    rank = field.ranks()[0]
    beyond = np.zeros(len(field.job))
    for resource, need in enumerate(field.need(rank)):
        left = field.demand[resource] + field.offered[resource].take(field.node) - need
        beyond += _shares(np.maximum(left, 0).astype(np.float64)) / 3
    return beyond


def stranding(field: Field) -> NDArray[np.float64]:
    """1 for a run that fits on no other node now, and so could not resume immediately."""
    room = np.ones((len(field.job), field.offered.shape[1]), dtype=np.bool_)
    for resource in range(3):
        room &= field.offered[resource][None, :] >= field.demand[resource][:, None]
    room[:, 0] = False
    room[np.arange(len(field.job)), field.node] = False
    stays: NDArray[np.float64] = np.where(room.any(axis=1), 0.0, 1.0)
    return stays


def _shares(amounts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of the largest amount."""
    most = float(amounts.max())
    shares: NDArray[np.float64] = amounts / most if most > 0 else np.zeros(len(amounts))
    return shares


# ---- rules -------------------------------------------------------------------------------------------------------------


def pair_victims(state: State, trial: Job, settings: PreemptionSettings, rng: Rng) -> Plan | None:
    """Two runs of one node, if both their sizes and the longer of their grace periods score less than the best single run.
    Gangs, as trials and as victims, are left to FitGpp."""
    single = fitgpp_victims(state, trial, settings, rng)
    field = field_for(state, trial, settings.cap)
    if field is None or trial.spec.gang:
        return single
    scores = score(field, settings.s)
    pair, least = _best_pair(field, scores, settings.s)
    if pair is None or (single is not None and _score_of(single) <= least):
        return single
    for place in pair:
        field.release(place)
    field.place_task(0)
    return plan_for(field, scores, settings, "pair")


def _best_pair(field: Field, scores: Scores, s: float) -> tuple[tuple[int, int] | None, float]:
    places = np.nonzero(field.free_to_go() & ~field.gangs)[0]
    places = places[np.argsort(field.job[places])]
    a, b = np.nonzero(np.triu(field.node[places][:, None] == field.node[places][None, :], 1))
    a, b = places[a], places[b]
    enough = np.ones(len(a), dtype=np.bool_)
    for resource, need in enumerate(field.need(0)):
        here = field.offered[resource].take(field.node[a])
        enough &= field.demand[resource][a] + field.demand[resource][b] + here >= need
    a, b = a[enough], b[enough]
    if not len(a):
        return None, 0.0
    size = (field.size[a] + field.size[b]) / (scores.max_size or 1)
    total = size + s * np.maximum(field.grace[a], field.grace[b]) / (scores.max_grace_us or 1)
    best = np.lexsort((-field.job[a], -field.job[b], total))[0]
    return (int(a[best]), int(b[best])), float(total[best])


def _score_of(plan: Plan) -> float:
    """The score of the job that FitGpp chose, with all tasks of a gang as one; several jobs are never less than a pair."""
    decision = next(act for act in plan if isinstance(act, Preempt)).decision
    chosen = {c.key.job_id: c.score for c in decision.candidates if c.chosen}
    return min(chosen.values()) if len(chosen) == 1 else float("inf")


def patient_victims(state: State, trial: Job, settings: PreemptionSettings, rng: Rng) -> Plan | None:
    """No victims, if enough runs are expected to end by themselves before FitGpp's victims have exited.

    How long runs will still hold their nodes is not known, but in a steady state as many will end within the next minutes as
    began within the last ones. Best-effort jobs are held back meanwhile, because they would take the freed resources. The trial
    is not considered again when that time has passed, but only at the next event: late, if runs are long.
    """
    plan = fitgpp_victims(state, trial, settings, rng)
    if plan is None or trial.spec.gang:
        return plan
    takes = max((state.jobs.rows[act.job_id].spec.grace_us for act in plan if isinstance(act, Preempt)), default=0)
    since, soon = state.cluster.clock_us - takes, 0
    for run in state.runs.rows.values():
        if run.placed_us > since and not run.phase.exits_soon and state.free_resources.is_open(run.node):
            soon += fits(trial.spec.demand, add(run.demand, state.free_resources.free(run.node)))
    return None if soon >= SOON else plan


CHOICES: dict[str, Choice] = {
    "young": with_term("young", age),
    "old": with_term("old", youth),
    "waste": with_term("waste", waste),
    "snug": with_term("snug", leftover),
    "movable": with_term("movable", stranding),
    "pairs": pair_victims,
    "patient": patient_victims,
}
"""The choices by the policies' names."""
