"""FitGpp where gangs run, and where the trial is one (docs/adr/0012)."""

from functools import reduce
from math import sqrt
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler_service.core.enact import enact
from scheduler_service.core.invariants import check
from scheduler_service.core.messages import AddEarmark, Plan, Preempt
from scheduler_service.core.model import Job, JobClass, JobSpec, JobState, Run, RunPhase, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import ZERO, Vector, add, fits
from scheduler_service.core.state.indices.runs import refresh_candidate
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.lrtp import lrtp_victims
from scheduler_service.policies.fitgpp.policy import fitgpp_victims, score
from scheduler_service.policies.fitgpp.rand import rand_victims
from scheduler_service.policies.fitgpp.victim_search import field_for
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver
from tests.core.test_gangs import SMALL, begun, gang
from tests.policies.cluster import AMOUNTS, Builder, seeded
from tests.policies.made import fitgpp

SETTINGS = st.builds(lambda s, cap: PreemptionSettings(s, cap), st.sampled_from((0.0, 1.0, 4.0)), st.integers(0, 2))
NEEDS = st.lists(AMOUNTS, min_size=1, max_size=4)


@st.composite
def clusters(draw: st.DrawFn) -> State:
    """Nodes with runs of one task, and with gangs over several nodes or more tasks on one."""
    built = Builder()
    shapes = st.builds(Vector, st.integers(3, 12), st.integers(3, 12), st.integers(1, 8))
    nodes = [built.node(capacity) for capacity in draw(st.lists(shapes, min_size=1, max_size=4))]
    for _ in range(draw(st.integers(0, 9))):
        grace, count = draw(st.sampled_from((0, 1, 5))), draw(st.integers(0, 1))
        if draw(st.booleans()):
            places = draw(st.lists(st.tuples(st.sampled_from(nodes), AMOUNTS), min_size=2, max_size=4))
            built.gang(places, grace=grace, count=count)
        else:
            phase = draw(st.sampled_from((RunPhase.RUNNING, RunPhase.RUNNING, RunPhase.STOPPING)))
            built.run(draw(st.sampled_from(nodes)), draw(AMOUNTS), grace=grace, count=count, phase=phase)
    if draw(st.booleans()):
        built.silence(draw(st.sampled_from(nodes)))
    state = built.state
    state.adopt()
    return state


# ---- the oracle ----------------------------------------------------------------------------------------------------------


def candidates(state: State) -> dict[int, list[Run]]:
    """J: best-effort jobs all of whose tasks run on nodes that are up."""
    up = {node.id for node in state.nodes.rows.values() if state.free_resources.is_open(node.id)}
    j: dict[int, list[Run]] = {}
    for run in state.runs.rows.values():
        if state.jobs.rows[run.job_id].spec.job_class is JobClass.BEST_EFFORT:
            j.setdefault(run.job_id, []).append(run)
    return {job: runs for job, runs in j.items() if all(r.phase is RunPhase.RUNNING and r.node in up for r in runs)}


def size(state: State, runs: list[Run]) -> float:
    """Eqn 1, summed over the tasks."""
    return sum(
        sqrt(sum((d / c) ** 2 for d, c in zip(run.demand, state.nodes.rows[run.node].capacity, strict=True) if c))
        for run in runs
    )


def held(runs: list[Run], node: int) -> Vector:
    return reduce(add, (run.demand for run in runs if run.node == node), ZERO)


def scores(state: State, s: float) -> dict[int, float]:
    j = candidates(state)
    sizes = {job: size(state, runs) for job, runs in j.items()}
    graces = {job: state.jobs.rows[job].spec.grace_us for job in j}
    max_size, max_grace = max(sizes.values(), default=0), max(graces.values(), default=0)
    return {job: (sizes[job] / max_size if max_size else 0) + (s * graces[job] / max_grace if max_grace else 0) for job in j}


def sufficient(state: State, need: Vector, runs: list[Run]) -> bool:
    """Eqn 2 on some node: with all that the job holds there gone, the task fits."""
    return any(fits(need, add(held(runs, node), state.free_resources.free(node))) for node in {run.node for run in runs})


# ---- one task wants room where gangs run -----------------------------------------------------------------------------------


def a_trial(*needs: Vector) -> Job:
    total = reduce(add, needs, ZERO)
    groups = tuple(TaskGroup(1, need) for need in needs) if len(needs) > 1 else ()
    return Job(999, JobSpec(("true",), total, JobClass.TRIAL, gang=groups), "ann", "", 0)


def chosen(plan: Plan | None) -> list[int]:
    return [action.job_id for action in plan or () if isinstance(action, Preempt)]


@given(clusters(), AMOUNTS, SETTINGS)
def test_a_gang_is_one_candidate_with_the_size_of_the_whole(state: State, need: Vector, settings: PreemptionSettings) -> None:
    field, expected = field_for(state, a_trial(need), settings.cap), scores(state, settings.s)
    assert (field is None) == (not expected)
    if field is None:
        return
    found = score(field, settings.s).score
    assert set(field.job.tolist()) == set(expected)
    for place, job in enumerate(field.job.tolist()):
        assert found[place] == pytest.approx(expected[job], abs=1e-9)


@given(clusters(), AMOUNTS, SETTINGS)
def test_the_victim_is_that_of_least_score_among_those_that_suffice(
    state: State, need: Vector, settings: PreemptionSettings
) -> None:
    j, worth = candidates(state), scores(state, settings.s)
    allowed = [
        job
        for job, runs in j.items()
        if sufficient(state, need, runs) and state.jobs.rows[job].preempted_for_trial < settings.cap
    ]
    plan = fitgpp_victims(state, a_trial(need), settings, seeded())
    if allowed:
        (victim,) = chosen(plan)
        assert victim in allowed
        assert worth[victim] <= min(worth[job] for job in allowed) + 1e-9
    else:
        assert len(chosen(plan)) != 1


# ---- the trial is a gang ---------------------------------------------------------------------------------------------------


@given(clusters(), NEEDS, SETTINGS, st.integers(0, 9), st.sampled_from(("fitgpp", "lrtp", "rand")))
def test_the_plan_makes_room_for_every_task(
    state: State, needs: list[Vector], settings: PreemptionSettings, seed: int, rule: str
) -> None:
    assume(len(needs) > 1 or state.free_resources.first_fit(needs[0]) is None)  # else nobody need leave
    trial = a_trial(*needs)
    plan = {
        "fitgpp": lambda: fitgpp_victims(state, trial, settings, seeded(seed)),
        "lrtp": lambda: lrtp_victims(state, trial, settings),
        "rand": lambda: rand_victims(state, trial, settings, seeded(seed)),
    }[rule]()
    j = candidates(state)
    if plan is None:
        allowed = [runs for job, runs in j.items() if state.jobs.rows[job].preempted_for_trial < settings.cap]
        for node in {run.node for runs in allowed for run in runs}:
            together = reduce(add, (held(runs, node) for runs in allowed), state.free_resources.free(node))
            assert len(needs) > 1 or not fits(needs[0], together), "a single task would have had room"
        return
    victims = chosen(plan)
    assert len(set(victims)) == len(victims)
    assert all(job in j and state.jobs.rows[job].preempted_for_trial < settings.cap for job in victims)
    seated: list[int] = []
    for action in plan:
        if not isinstance(action, AddEarmark):
            continue
        leaving = reduce(add, (held(j[job], action.node) for job in victims), ZERO)
        want = reduce(add, (needs[rank] for rank in action.tasks), ZERO)
        assert action.want == want
        assert fits(want, add(state.free_resources.free(action.node), leaving)), f"no room on {action.node}"
        assert {key.job_id for key in action.victims} == {job for job in victims if any(r.node == action.node for r in j[job])}
        seated += action.tasks
    assert sorted(seated) == list(range(len(needs)))


@given(clusters(), NEEDS, st.integers(0, 9), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_history_of_the_slots(
    state: State, needs: list[Vector], seed: int, order: Random
) -> None:
    """To the last bit of the scores: a size is a sum of fractions, one of each task."""
    other = State(state.cluster)
    other.restore((t.name, key, row) for t in state.tables() if t.name != "cluster" for key, row in t.rows.items())
    keys = sorted(other.runs.rows)
    order.shuffle(keys)
    for key in keys:
        other.candidates.drop(key)
    for key in keys:
        refresh_candidate(other, key)
    for rule in (fitgpp_victims, rand_victims):
        plans = [rule(of, a_trial(*needs), PreemptionSettings(), seeded(seed)) for of in (state, other)]
        assert plans[0] == plans[1]


@given(clusters(), NEEDS, st.integers(0, 9))
def test_the_plan_can_be_carried_out(state: State, needs: list[Vector], seed: int) -> None:
    """And what it keeps and promises adds up."""
    cluster = state.cluster
    trial = with_changes(a_trial(*needs), id=cluster.next_job)
    state.put(state.cluster_table, 0, with_changes(cluster, next_job=trial.id + 1))
    state.put(state.jobs, trial.id, trial)
    plan = fitgpp_victims(state, trial, PreemptionSettings(cap=2), seeded(seed))
    assume(plan is not None)
    assert plan is not None
    before = state.savepoint()
    assert enact(state, plan, 0) is None
    check(state)
    assert state.snapshot() == state.rebuild().snapshot()
    state.undo(before)


# ---- by hand -------------------------------------------------------------------------------------------------------------


def test_a_gang_trial_with_room_on_one_node_and_victims_on_another() -> None:
    """What is free is kept beside what is promised, and neither lapses before all of it is there."""
    d = Driver(fitgpp(PreemptionSettings()), cap=1)
    for name in ("n1", "n2"):
        d.join(name, SMALL)
    one, two, three = (d.submit() for _ in range(3))
    d.start(one, two, three)
    trial = d.submit(gang(3, job_class=JobClass.TRIAL))
    assert d.job(trial).state is JobState.QUEUED
    leaving = [job for job in (one, two, three) if d.job(job).state is JobState.STOPPING]
    assert len(leaving) == 2
    assert {earmark.deadline_us for earmark in d.state.earmarks.rows.values()} == {None}
    d.step(after=3600)
    d.exit(leaving[0], yielded=True)
    assert d.job(trial).state is JobState.QUEUED
    d.exit(leaving[1], yielded=True)
    assert (d.job(trial).state, len(d.state.runs_of(trial))) == (JobState.STARTING, 3)


def test_nobody_is_preempted_where_a_gang_trial_would_not_fit_all_the_same() -> None:
    d = Driver(fitgpp(PreemptionSettings()), cap=1)
    for name in ("n1", "n2"):
        d.join(name, SMALL)
    guarded, free_to_go = d.trial(2), d.submit()
    trial = d.submit(gang(3, job_class=JobClass.TRIAL))
    assert d.states(guarded, free_to_go, trial) == [JobState.STARTING, JobState.STARTING, JobState.QUEUED]


def test_a_gang_with_a_task_on_a_silent_node_cannot_be_preempted() -> None:
    d = Driver(fitgpp(PreemptionSettings()), cap=1)
    for name in ("n1", "n2"):
        d.join(name, SMALL)
    job = begun(d, tasks=3)
    d.silence("n2")
    trial = d.trial(2)
    assert d.states(job, trial) == [JobState.UNREACHABLE, JobState.QUEUED]
