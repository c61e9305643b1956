"""FitGpp's choice against the paper's equations, written out plainly here (section 3.2)."""

from itertools import combinations
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.messages import AddEarmark, Plan, Preempt
from scheduler_service.core.model import Job, JobClass, JobSpec, NodeState, Run, RunKey, RunPhase
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.indices.runs import refresh_candidate
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.plan_from_victims import SHOWN, Scores
from scheduler_service.policies.fitgpp.policy import fitgpp_victims, score
from scheduler_service.policies.fitgpp.victim_search import Field, field_for
from scheduler_service.policies.options import PreemptionSettings
from tests.policies.cluster import AMOUNTS, Builder, clusters, seeded

SETTINGS = st.builds(PreemptionSettings, st.sampled_from((0.0, 0.5, 1.0, 4.0)), st.integers(0, 3))

# ---- the oracle ----------------------------------------------------------------------------------------------------------


def runs_in_j(state: State) -> dict[RunKey, tuple[Run, Job]]:
    """J: best-effort runs that are starting or running on nodes that are up, at the cap or not."""
    return {
        key: (run, state.jobs.rows[key.job_id])
        for key, run in state.runs.rows.items()
        if state.jobs.rows[key.job_id].spec.job_class is JobClass.BEST_EFFORT
        and run.phase in (RunPhase.STARTING, RunPhase.RUNNING)
        and state.nodes.rows[run.node].state is NodeState.UP
    }


def unallocated(state: State, node: int) -> list[int]:
    """N: the capacity of the node less what its runs own."""
    owned = [run.demand for run in state.runs.rows.values() if run.node == node]
    return [c - sum(demand[i] for demand in owned) for i, c in enumerate(state.nodes.rows[node].capacity)]


def eqn_1(demand: Vector, capacity: Vector) -> float:
    return sqrt(sum((d / c) ** 2 for d, c in zip(demand, capacity, strict=True) if c > 0))


def eqn_2(state: State, trial: Vector, together: list[Run]) -> bool:
    free = unallocated(state, together[0].node)
    return all(trial[i] <= sum(run.demand[i] for run in together) + free[i] for i in range(3))


def eqn_3(state: State, s: float) -> dict[RunKey, float]:
    j = runs_in_j(state)
    sizes = {key: eqn_1(run.demand, state.nodes.rows[run.node].capacity) for key, (run, _) in j.items()}
    graces = {key: job.spec.grace_us for key, (_, job) in j.items()}
    max_size, max_grace = max(sizes.values(), default=0), max(graces.values(), default=0)
    return {key: (sizes[key] / max_size if max_size else 0) + (s * graces[key] / max_grace if max_grace else 0) for key in j}


def eqn_4(state: State, trial: Vector, settings: PreemptionSettings) -> list[RunKey]:
    """The runs of least score, to within rounding, that suffice and are under the cap."""
    scores, j = eqn_3(state, settings.s), runs_in_j(state)
    allowed = [key for key, (run, job) in j.items() if eqn_2(state, trial, [run]) and job.preempted_for_trial < settings.cap]
    least = min((scores[key] for key in allowed), default=0)
    return [key for key in allowed if scores[key] <= least + 1e-12]


def victim_sets(state: State, trial: Vector, cap: int) -> set[frozenset[RunKey]]:
    """Every set of runs of one node, under the cap, that makes room and has none too many."""
    sets: set[frozenset[RunKey]] = set()
    allowed = [run for run, job in runs_in_j(state).values() if job.preempted_for_trial < cap]
    for node in {run.node for run in allowed}:
        here = [run for run in allowed if run.node == node]
        for count in range(1, len(here) + 1):
            for together in combinations(here, count):
                keys = frozenset(run.key for run in together)
                if eqn_2(state, trial, list(together)) and not any(smaller < keys for smaller in sets):
                    sets.add(keys)
    return sets


# ---- the choice ------------------------------------------------------------------------------------------------------------


def choice(state: State, demand: Vector, settings: PreemptionSettings, seed: int = 0) -> tuple[str, tuple[RunKey, ...]]:
    """("", ()) where nobody is preempted."""
    plan = fitgpp_victims(state, a_trial(demand), settings, seeded(seed))
    return _read(plan) if plan else ("", ())


def scored(state: State, demand: Vector, settings: PreemptionSettings) -> tuple[Field, Scores] | None:
    field = field_for(state, a_trial(demand), settings.cap)
    return None if field is None else (field, score(field, settings.s))


def a_trial(demand: Vector) -> Job:
    return Job(999, JobSpec(("true",), demand, JobClass.TRIAL), "ann", "", 0)


def _read(plan: Plan) -> tuple[str, tuple[RunKey, ...]]:
    *preemptions, earmark = plan
    assert isinstance(earmark, AddEarmark)
    keys = earmark.victims
    assert [action.job_id for action in preemptions if isinstance(action, Preempt)] == [key.job_id for key in keys]
    assert len(keys) == len(preemptions)
    assert all(action.decision is earmark.decision for action in preemptions if isinstance(action, Preempt))
    return earmark.decision.rule, keys


@given(clusters(), AMOUNTS, SETTINGS)
def test_the_scores_are_the_paper_s(state: State, demand: Vector, settings: PreemptionSettings) -> None:
    found, expected, j = scored(state, demand, settings), eqn_3(state, settings.s), runs_in_j(state)
    if found is None:
        assert not expected
        return
    field, scores = found
    keys = [state.candidates.keys[slot] for slot in field.slots]
    assert {k for k in keys if k} == set(expected)
    for i, key in enumerate(keys):
        assert key is not None
        run, job = j[key]
        assert scores.score[i] == pytest.approx(expected[key], abs=1e-12)
        assert bool(field.sufficient(0)[i]) == eqn_2(state, demand, [run])
        assert bool(field.under_cap[i]) == (job.preempted_for_trial < settings.cap)


@given(clusters(), AMOUNTS, SETTINGS)
def test_the_victim_is_the_paper_s(state: State, demand: Vector, settings: PreemptionSettings) -> None:
    rule, victims = choice(state, demand, settings)
    least = eqn_4(state, demand, settings)
    if not least:
        assert rule != "fitgpp"
        return
    assert rule == "fitgpp"
    assert len(victims) == 1
    assert victims[0] in least
    alike = {(state.runs.rows[k].demand, state.runs.rows[k].node, state.jobs.rows[k.job_id].spec.grace_us) for k in least}
    if len(alike) == 1:
        assert victims[0] == max(least), "the one that was submitted last"


@given(clusters(), AMOUNTS, SETTINGS, st.integers(0, 99))
def test_where_none_suffices_alone_random_ones_do_together(
    state: State, demand: Vector, settings: PreemptionSettings, seed: int
) -> None:
    if eqn_4(state, demand, settings):
        return
    rule, victims = choice(state, demand, settings, seed)
    sets = victim_sets(state, demand, settings.cap)
    assert (rule, frozenset(victims) in sets) == (("random", True) if sets else ("", False))
    assert choice(state, demand, settings, seed) == (rule, victims), "seeded"


# ---- by hand ---------------------------------------------------------------------------------------------------------------


def by_hand() -> tuple[State, dict[str, RunKey]]:
    """Two nodes of 32 cores, 256 GiB (here 256) and 8 GPUs."""
    built = Builder()
    one, two = built.node(Vector(32, 256, 8)), built.node(Vector(32, 256, 8))
    keys = {
        "a": built.run(one, Vector(8, 64, 2), grace=60),
        "b": built.run(one, Vector(16, 128, 4), grace=30),
        "c": built.run(two, Vector(16, 64, 4), grace=120),
        "d": built.run(two, Vector(8, 64, 3), grace=0, count=1),
    }
    return built.done(), {name: key for name, key in keys.items() if key}


def test_the_example_by_hand() -> None:
    """Free: one has (8, 64, 2), two has (8, 128, 1). The trial wants (8, 64, 4).

        size a = sqrt((8/32)^2 + (64/256)^2 + (2/8)^2)   = sqrt(0.0625 * 3)            = 0.4330127018922193
        size b = sqrt((16/32)^2 + (128/256)^2 + (4/8)^2) = sqrt(0.25 * 3)              = 0.8660254037844386
        size c = sqrt((16/32)^2 + (64/256)^2 + (4/8)^2)  = sqrt(0.25 + 0.0625 + 0.25)  = 0.75
        size d = sqrt((8/32)^2 + (64/256)^2 + (3/8)^2)   = sqrt(0.125 + 0.140625)      = 0.515388203202208

    The largest is b's; the longest grace is c's, 120 s. With s = 4:

        score a = 0.5                  + 4 * 60/120  = 2.5
        score b = 1                    + 4 * 30/120  = 2
        score c = 0.8660254037844386   + 4 * 120/120 = 4.866...
        score d = 0.5951190357119042   + 4 * 0       = 0.595...

    All four suffice: a leaves 2 + 2 GPUs, b 4 + 2, c 4 + 1, d 3 + 1. d has the least score but was preempted once; with
    P = 1 it is b; with P = 2 it is d. With s = 0 the size alone counts, and a's is least of those under the cap.
    """
    state, keys = by_hand()
    demand = Vector(8, 64, 4)
    scored_field = scored(state, demand, PreemptionSettings(s=4.0))
    assert scored_field is not None
    field, scores = scored_field
    found = dict(zip((state.candidates.keys[slot] for slot in field.slots), scores.score.tolist(), strict=True))
    assert found[keys["a"]] == pytest.approx(2.5, abs=1e-12)
    assert found[keys["b"]] == pytest.approx(2.0, abs=1e-12)
    assert found[keys["c"]] == pytest.approx(0.75 / 0.8660254037844386 + 4, abs=1e-12)
    assert found[keys["d"]] == pytest.approx(0.515388203202208 / 0.8660254037844386, abs=1e-12)
    assert choice(state, demand, PreemptionSettings(s=4.0, cap=1)) == ("fitgpp", (keys["b"],))
    assert choice(state, demand, PreemptionSettings(s=4.0, cap=2)) == ("fitgpp", (keys["d"],))
    assert choice(state, demand, PreemptionSettings(s=0.0, cap=1)) == ("fitgpp", (keys["a"],))
    # 5 GPUs: a (2 + 2) and d (3 + 1) do not suffice; b (4 + 2) is less than c (4 + 1).
    assert choice(state, Vector(8, 64, 5), PreemptionSettings(s=4.0, cap=2)) == ("fitgpp", (keys["b"],))
    assert choice(state, Vector(8, 64, 5), PreemptionSettings(s=4.0, cap=0)) == ("", ())


def test_a_run_at_the_cap_counts_in_the_maxima() -> None:
    """Were d not in J, the maxima would be a's own, and b's score the larger."""
    built = Builder()
    node = built.node(Vector(100, 100, 100))
    a = built.run(node, Vector(0, 0, 10), grace=1)
    b = built.run(node, Vector(0, 0, 12), grace=0)
    built.run(node, Vector(0, 0, 60), grace=100, count=1)
    state = built.done()
    # with d: a = 10/60 + 4/100 = 0.2067, b = 12/60 = 0.2; without: a = 10/12 + 4, b = 1
    scores = eqn_3(state, 4.0)
    assert a is not None
    assert b is not None
    assert (scores[a], scores[b]) == (pytest.approx(10 / 60 + 0.04), pytest.approx(0.2))
    assert choice(state, Vector(0, 0, 28), PreemptionSettings()) == ("fitgpp", (b,))


def test_zero_sizes_and_graces_score_zero() -> None:
    built = Builder()
    node = built.node(Vector(4, 4, 0))
    first, last = built.run(node, Vector(0, 0, 0)), built.run(node, Vector(0, 0, 0))
    state = built.done()
    found = scored(state, Vector(0, 0, 0), PreemptionSettings())
    assert found is not None
    assert found[1].score.tolist() == [0.0, 0.0]
    assert first != last
    assert choice(state, Vector(1, 1, 0), PreemptionSettings()) == ("fitgpp", (last,))


def test_equal_scores_take_the_job_submitted_last() -> None:
    built = Builder()
    nodes = [built.node(Vector(4, 4, 4)) for _ in range(3)]
    keys = [built.run(node, Vector(4, 4, 4), grace=1) for node in reversed(nodes)]
    assert choice(built.done(), Vector(1, 1, 1), PreemptionSettings()) == ("fitgpp", (keys[-1],))


# ---- the random fallback -----------------------------------------------------------------------------------------------------


def two_nodes() -> State:
    """Nine runs of one GPU on two nodes of five, one of them at the cap, and a trial run that may not go."""
    built = Builder()
    one, two = built.node(Vector(10, 10, 5)), built.node(Vector(10, 10, 5))
    for node in (one, two):
        for i in range(4):
            built.run(node, Vector(1, 1, 1), count=int(node == two and i == 0))
    built.run(one, Vector(1, 1, 1))
    built.run(two, Vector(1, 1, 1), trial=True)
    return built.done()


@pytest.mark.parametrize("devices", [2, 3, 4, 5])
def test_every_set_that_may_be_chosen_is(devices: int) -> None:
    state, demand = two_nodes(), Vector(1, 1, devices)
    expected = victim_sets(state, demand, 1)
    found = {frozenset(choice(state, demand, PreemptionSettings(), seed)[1]) for seed in range(600)}
    assert found == expected
    assert all(len(victims) == devices for victims in found)


def test_nobody_goes_where_all_together_would_not_do() -> None:
    assert choice(two_nodes(), Vector(1, 1, 6), PreemptionSettings()) == ("", ())
    assert choice(two_nodes(), Vector(1, 1, 2), PreemptionSettings(cap=0)) == ("", ())


def test_the_draw_does_not_depend_on_slots() -> None:
    """Two states of the same rows, whose candidates came in different order."""
    state = two_nodes()
    other = State(state.cluster)
    other.restore((t.name, k, row) for t in state.tables() if t.name != "cluster" for k, row in reversed(t.rows.items()))
    for run in reversed(other.runs.rows.values()):
        other.candidates.drop(run.key)
    for run in reversed(other.runs.rows.values()):
        refresh_candidate(other, run.key)
    assert other.candidates.keys != state.candidates.keys
    for seed in range(20):
        trial = a_trial(Vector(1, 1, 3))
        assert fitgpp_victims(state, trial, PreemptionSettings(), seeded(seed)) == fitgpp_victims(
            other, trial, PreemptionSettings(), seeded(seed)
        )


# ---- the decision that is kept -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alike", [False, True])
def test_the_decision_shows_the_lowest_scores_and_the_chosen(alike: bool) -> None:
    built = Builder()
    big = built.node(Vector(1000, 1000, 100))
    for i in range(40):
        built.run(big, Vector(1, 1, 1), grace=1 if alike else 40 - i // 2)
    one = built.node(Vector(10, 10, 10))
    chosen = built.run(one, Vector(1, 1, 10), grace=100)
    state = built.done()
    trial = a_trial(Vector(1, 1, 100))
    assert fitgpp_victims(state, trial, PreemptionSettings(cap=0), seeded()) is None
    trial = a_trial(Vector(1, 1, 62))
    plan = fitgpp_victims(state, trial, PreemptionSettings(), seeded())
    assert plan is not None
    earmark = plan[-1]
    assert isinstance(earmark, AddEarmark)
    decision = earmark.decision
    assert (decision.considered, decision.rule, decision.node) == (41, "random" if len(plan) > 2 else "fitgpp", big)
    scores = eqn_3(state, 4.0)
    ordered = sorted(scores, key=lambda key: (round(scores[key], 12), -key.job_id))
    assert [c.key for c in decision.candidates][:SHOWN] == ordered[:SHOWN]
    assert {c.key for c in decision.candidates if c.chosen} == set(earmark.victims)
    for candidate in decision.candidates:
        assert candidate.score == pytest.approx(scores[candidate.key], abs=1e-12)
        assert candidate.node_free == Vector(*unallocated(state, candidate.node))
    assert chosen is not None
