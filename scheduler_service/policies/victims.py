"""Which runs must leave so that a trial can start: the port, and FitGpp's choice (papers: Eqns 1-4).

Who may preempt whom, of the table in the design: here a trial may preempt any best-effort run that was preempted fewer
than P times. A choice is a plan; nothing has changed until it is carried out.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.candidates import Candidates
from scheduler_service.core.job import CandidateScore, Decision, Job, RunKey
from scheduler_service.core.messages import Earmark, Plan, Preempt, Rng
from scheduler_service.core.state import State
from scheduler_service.core.values import Vector, add, fits, sub

SHOWN = 16
"""How many candidates a decision keeps for the story."""


class FitGppSettings(NamedTuple):
    """Parameters of the paper. `s` weighs the grace period against the size (Eqn 3); `cap` is P (Eqn 4).

    `trials_in_flight` bounds how many trials may wait for victims at once; None is no bound, 1 is the papers' setting.
    """

    s: float = 4.0
    cap: int = 1
    trials_in_flight: int | None = None


class Scores(NamedTuple):
    """Columns over the candidate slots that are in J, the runs that the trial may preempt."""

    slots: NDArray[np.intp]
    score: NDArray[np.float64]
    sufficient: NDArray[np.bool_]
    under_cap: NDArray[np.bool_]
    max_size: float
    max_grace_us: int


def fitgpp_victims(state: State, trial: Job, settings: FitGppSettings, rng: Rng) -> Plan | None:
    """Eqn 4: the run of least score among those that suffice alone; else random runs until they suffice; None if none do.

    One pass over the running best-effort jobs, in C.
    """
    scores = score(state, trial.spec.demand, settings)
    if scores is None:
        return None
    eligible = scores.sufficient & scores.under_cap
    if eligible.any():
        best = scores.score[eligible].min()
        ties = scores.slots[eligible & (scores.score == best)]
        # Equal scores: the job that was submitted last, so that the order of the queue is disturbed least.
        victim = state.candidates.keys[int(ties[state.candidates.job[ties].argmax()])]
        assert victim is not None  # a slot in J is in use
        return _plan(state, trial, (victim,), scores, settings, "fitgpp")
    victims = _random_victims(state, trial.spec.demand, scores, rng)
    return _plan(state, trial, victims, scores, settings, "random") if victims else None


def score(state: State, demand: Vector, settings: FitGppSettings) -> Scores | None:
    """Eqn 3 for every run in J: running best-effort jobs on nodes that are up, whatever their preemption count.

    Maxima are over J; a zero maximum contributes 0. `sufficient` is Eqn 2, `D_TE <= D_BE + N`.
    """
    c = state.candidates
    used = slice(0, c.used)
    offered = state.room.offered()
    node = c.node[used]
    slots = np.nonzero((c.job[used] > 0) & (offered[2, node] >= 0))[0]
    if not len(slots):
        return None
    size, grace, node = c.size[slots], c.grace[slots], node[slots]
    max_size, max_grace = float(size.max()), int(grace.max())
    total = size / max_size if max_size > 0 else np.zeros(len(slots))
    if max_grace > 0:
        total = total + settings.s * (grace / max_grace)
    sufficient = np.ones(len(slots), dtype=np.bool_)
    for resource, need in enumerate(demand):
        sufficient &= c.demand[resource, slots] + offered[resource, node] >= need
    return Scores(slots, total, sufficient, c.count[slots] < settings.cap, max_size, max_grace)


def _random_victims(state: State, demand: Vector, scores: Scores, rng: Rng) -> tuple[RunKey, ...]:
    """Random runs under the cap until those of one node make room there; the others are spared, and so is any not needed.

    The paper preempts "a random BE job" when no single one suffices. Runs on several nodes would not add up to room, so
    draws are grouped by node. Nobody is preempted when all of them together would not make room.
    """
    drawn: dict[int, list[RunKey]] = {}
    room: dict[int, Vector] = {}
    pool = _pool(state, demand, scores)
    while pool:
        draw = rng.randrange(len(pool))
        pool[draw], pool[-1] = pool[-1], pool[draw]
        key = state.candidates.keys[pool.pop()]
        assert key is not None  # a slot in J is in use
        run = state.runs.rows[key]
        drawn.setdefault(run.node, []).append(key)
        room[run.node] = add(room.get(run.node, state.room.free(run.node)), run.demand)
        if fits(demand, room[run.node]):
            return _needed(state, demand, room[run.node], drawn[run.node])
    return ()


def _pool(state: State, demand: Vector, scores: Scores) -> list[int]:
    """The slots to draw from, in order of their jobs: runs under the cap on nodes where, all together, they make room."""
    c, offered = state.candidates, state.room.offered()
    slots = scores.slots[scores.under_cap]
    slots = slots[c.job[slots].argsort()]
    node = c.node[slots]
    enough = np.ones(offered.shape[1], dtype=np.bool_)
    for resource, need in enumerate(demand):
        together = np.bincount(node, weights=c.demand[resource, slots], minlength=offered.shape[1])
        enough &= together + offered[resource] >= need
    pool: list[int] = slots[enough[node]].tolist()
    return pool


def _needed(state: State, demand: Vector, room: Vector, drawn: list[RunKey]) -> tuple[RunKey, ...]:
    """Leaves out, first drawn first, every run without which there is room all the same."""
    kept = []
    for key in drawn:
        without = sub(room, state.runs.rows[key].demand)
        if fits(demand, without):
            room = without
        else:
            kept.append(key)
    return tuple(kept)


def _plan(state: State, trial: Job, victims: tuple[RunKey, ...], scores: Scores, settings: FitGppSettings, rule: str) -> Plan:
    node = state.runs.rows[victims[0]].node
    decision = Decision(
        trial=trial.id,
        node=node,
        demand=trial.spec.demand,
        rule=rule,
        s=settings.s,
        cap=settings.cap,
        max_size=scores.max_size,
        max_grace_us=scores.max_grace_us,
        considered=len(scores.slots),
        candidates=_shown(state, state.candidates, scores, victims),
    )
    preemptions = tuple(Preempt(key, trial.id, settings.cap, decision) for key in victims)
    return (*preemptions, Earmark(trial.id, node, trial.spec.demand, victims, decision))


def _shown(state: State, c: Candidates, scores: Scores, victims: tuple[RunKey, ...]) -> tuple[CandidateScore, ...]:
    """The chosen runs and those of lowest score, lowest first."""
    chosen = np.isin(c.job[scores.slots], [key.job_id for key in victims])
    shown = np.nonzero(_lowest(scores.score, -c.job[scores.slots]) | chosen)[0]
    rows = []
    for i in shown[np.lexsort((-c.job[scores.slots[shown]], scores.score[shown]))].tolist():
        slot = int(scores.slots[i])
        key = c.keys[slot]
        assert key is not None  # a slot in J is in use
        run = state.runs.rows[key]
        rows.append(
            CandidateScore(
                key=key,
                node=run.node,
                demand=run.demand,
                node_free=state.room.free(run.node),
                size=float(c.size[slot]),
                grace_us=int(c.grace[slot]),
                score=float(scores.score[i]),
                preempted_for_trial=int(c.count[slot]),
                sufficient=bool(scores.sufficient[i]),
                chosen=key in victims,
            )
        )
    return tuple(rows)


def _lowest(score: NDArray[np.float64], tie: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which are the SHOWN of lowest (score, tie). Sorts none of them, for there may be thousands."""
    if len(score) <= SHOWN:
        return np.ones(len(score), dtype=np.bool_)
    bound = np.partition(score, SHOWN - 1)[SHOWN - 1]
    below, level = score < bound, np.nonzero(score == bound)[0]
    missing = SHOWN - int(below.sum())
    below[level[np.argpartition(tie[level], missing - 1)[:missing]]] = True
    lowest: NDArray[np.bool_] = below
    return lowest
