"""The FitGpp paper's words where a service does better than its letter: whom LRTP and RAND preempt, and the order of trials.

"Both LRTP and RAND continue the preemption process until they can prepare enough resource for the incoming TE job" (4.1).
"""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler_service.config import Config
from scheduler_service.core.enact import enact
from scheduler_service.core.invariants import check
from scheduler_service.core.messages import AddEarmark, Plan, Preempt
from scheduler_service.core.model import Job, JobClass, JobSpec, JobState, Reason, Run
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from scheduler_service.engine_settings import stages_of
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.fitgpp.lrtp import lrtp_victims
from scheduler_service.policies.fitgpp.policy import fitgpp_victims
from scheduler_service.policies.fitgpp.rand import rand_victims
from scheduler_service.policies.options import AS_PUBLISHED, PreemptionSettings
from tests.core.driver import Driver, spec
from tests.policies.cluster import Builder, clusters, seeded
from tests.policies.test_fitgpp_victims import SETTINGS, eqn_2, eqn_4, runs_in_j
from tests.policies.test_gang_victims import NEEDS, candidates
from tests.policies.test_gang_victims import a_trial as of_tasks
from tests.policies.test_gang_victims import clusters as clusters_with_gangs
from tests.policies.test_lrtp_rand import left_of, timed_clusters

DEMANDS = st.builds(Vector, st.integers(1, 8), st.integers(1, 8), st.integers(1, 6))
SMALL = Vector(8_000, 8_192, 2)


def a_trial(demand: Vector) -> Job:
    return Job(999, JobSpec(("true",), demand, JobClass.TRIAL), "ann", "", 0)


def victims(plan: Plan | None) -> list[int]:
    return [action.job_id for action in plan or () if isinstance(action, Preempt)]


def earmark(plan: Plan) -> AddEarmark:
    (found,) = [action for action in plan if isinstance(action, AddEarmark)]
    return found


def under_cap(state: State, cap: int = 1) -> list[Run]:
    return [run for run, job in runs_in_j(state).values() if job.preempted_for_trial < cap]


def makes_room(state: State, demand: Vector, gone: list[Run]) -> set[int]:
    """The nodes on which the trial fits when these are gone."""
    nodes = {run.node for run in gone}
    return {node for node in nodes if eqn_2(state, demand, [run for run in gone if run.node == node])}


# ---- whom they preempt -----------------------------------------------------------------------------------------------------


@given(timed_clusters(), DEMANDS)
def test_lrtp_preempts_from_the_longest_on_until_the_trial_fits(state: State, demand: Vector) -> None:
    assume(state.free_resources.first_fit(demand) is None)
    order = sorted(under_cap(state), key=lambda run: (-max(left_of(state, run.key), 0), -run.job_id))
    enough = (count for count in range(1, len(order) + 1) if makes_room(state, demand, order[:count]))
    expected = order[: next(enough, 0)]
    plan = lrtp_victims(state, a_trial(demand), AS_PUBLISHED)
    assert victims(plan) == [run.job_id for run in expected]
    if plan is not None:
        assert makes_room(state, demand, expected) == {earmark(plan).node}
        assert earmark(plan).victims == tuple(run.key for run in expected if run.node == earmark(plan).node)


@given(timed_clusters(), DEMANDS, st.integers(0, 99))
def test_rand_preempts_whatever_it_draws_until_the_trial_fits(state: State, demand: Vector, seed: int) -> None:
    assume(state.free_resources.first_fit(demand) is None)
    runs = {run.job_id: run for run in under_cap(state)}
    plan = rand_victims(state, a_trial(demand), AS_PUBLISHED, seeded(seed))
    drawn = [runs[job] for job in victims(plan)]
    assert len(drawn) == len(set(victims(plan)))
    if plan is None:
        assert not makes_room(state, demand, list(runs.values())), "all of them together would have made room"
    else:
        assert makes_room(state, demand, drawn) == {drawn[-1].node} == {earmark(plan).node}
        assert not makes_room(state, demand, drawn[:-1]), "it went on although the trial fitted"


@given(clusters(), DEMANDS, SETTINGS, st.integers(0, 9))
def test_fitgpp_s_random_ones_are_drawn_like_that_too(
    state: State, demand: Vector, chosen: PreemptionSettings, seed: int
) -> None:
    literal = chosen._replace(sparing=False)
    assume(state.free_resources.first_fit(demand) is None and not eqn_4(state, demand, literal))
    plan = fitgpp_victims(state, a_trial(demand), literal, seeded(seed))
    runs = {run.job_id: run for run in under_cap(state, literal.cap)}
    drawn = [runs[job] for job in victims(plan)]
    assert (plan is None) == (not makes_room(state, demand, list(runs.values())))
    assert plan is None or makes_room(state, demand, drawn) == {drawn[-1].node}
    assert not makes_room(state, demand, drawn[:-1])


def two_nodes(large: int) -> Builder:
    """On the first node nobody may be preempted for a trial of 2 devices; on the second, `large` runs of one device each."""
    built = Builder()
    first, second = built.node(Vector(8, 8, 2)), built.node(Vector(8, 8, large))
    built.run(first, Vector(1, 1, 1), trial=True)
    built.run(first, Vector(1, 1, 1))
    for _ in range(large):
        built.run(second, Vector(1, 1, 1))
    return built


def test_also_those_are_drawn_that_can_make_no_room() -> None:
    """That is what makes LRTP and RAND preempt ten times as many jobs as FitGpp; by default nobody leaves for nothing."""
    state = two_nodes(large=3).done()
    useless = next(run.job_id for run in under_cap(state) if run.node == 1)
    published = [set(victims(rand_victims(state, a_trial(Vector(1, 1, 2)), AS_PUBLISHED, seeded(i)))) for i in range(200)]
    sparing = [set(victims(rand_victims(state, a_trial(Vector(1, 1, 2)), PreemptionSettings(), seeded(i)))) for i in range(200)]
    assert {len(drawn) for drawn in published} == {2, 3}
    assert 50 < sum(useless in drawn for drawn in published) < 150, "it is among the first two of four, or the third of them"
    assert {len(drawn) for drawn in sparing} == {2}
    assert not any(useless in drawn for drawn in sparing)


@given(clusters_with_gangs(), NEEDS, st.integers(0, 9), st.sampled_from(("fitgpp", "lrtp", "rand")))
def test_a_plan_with_gangs_can_be_carried_out(state: State, needs: list[Vector], seed: int, rule: str) -> None:
    """A gang that is drawn for what it has on several nodes is told once."""
    cluster = state.cluster
    trial = with_changes(of_tasks(*needs), id=cluster.next_job)
    state.put(state.cluster_table, 0, with_changes(cluster, next_job=trial.id + 1))
    state.put(state.jobs, trial.id, trial)
    choose = stages(rule, AS_PUBLISHED._replace(cap=2)).victims.choose
    assert choose is not None
    plan = choose(state, trial, seeded(seed))
    assume(plan is not None)
    assert plan is not None
    assert len(set(victims(plan))) == len(victims(plan))
    assert set(victims(plan)) <= set(candidates(state))
    before = state.savepoint()
    assert enact(state, plan, 0) is None
    check(state)
    assert state.snapshot() == state.rebuild().snapshot()
    state.undo(before)


# ---- in which order trials are served --------------------------------------------------------------------------------------


def waiting(settings: PreemptionSettings, name: str = "fitgpp") -> tuple[Driver, list[int], int, int]:
    """A large trial waits for two best-effort runs to leave, and a small one came after it; one device is free."""
    d = Driver(stages(name, settings).policy, cap=settings.cap)
    d.join()
    jobs = [d.submit(devices=3), d.submit(devices=3)]
    d.start(*jobs)
    return d, jobs, d.trial(8), d.trial(1)


@pytest.mark.parametrize("name", ["fitgpp", "lrtp", "rand"])
def test_a_trial_that_waits_holds_up_those_behind_it(name: str) -> None:
    d, jobs, large, small = waiting(AS_PUBLISHED, name)
    d.join("n2", SMALL)
    best_effort = d.submit(devices=1)
    assert d.states(*jobs) == [JobState.STOPPING] * 2
    assert d.states(large, small, best_effort) == [JobState.QUEUED, JobState.QUEUED, JobState.STARTING]
    d.exit(jobs[0], yielded=True)
    assert d.job(small).state is JobState.QUEUED
    d.exit(jobs[1], yielded=True)
    assert d.states(large, small) == [JobState.STARTING] * 2


def test_by_default_it_is_passed_by() -> None:
    d, _, large, small = waiting(PreemptionSettings())
    d.join("n2", SMALL)
    assert d.states(large, small) == [JobState.QUEUED, JobState.STARTING]


def test_it_starts_wherever_it_fits_first() -> None:
    d, jobs, large, small = waiting(AS_PUBLISHED)
    d.join("n2")
    assert d.states(large, small) == [JobState.STARTING] * 2
    assert d.where(large).name == "n2"
    assert d.where(small).name == "n1", "what was kept there is free"
    assert d.states(*jobs) == [JobState.STOPPING] * 2, "they were told"


def test_all_that_were_drawn_leave_and_come_back() -> None:
    d = Driver(stages("lrtp", AS_PUBLISHED).policy, cap=1)
    for name in ("n1", "n2"):
        d.join(name, SMALL)
    guarded = d.trial(1)
    estimates = (900, 800, 700)
    long, longer, least = (d.submit(with_changes(spec(1), estimate_us=seconds * SECOND)) for seconds in estimates)
    d.start(guarded, long, longer, least)
    assert [d.where(job).name for job in (guarded, long, longer, least)] == ["n1", "n1", "n2", "n2"]
    trial = d.trial(2)
    assert d.states(long, longer, least) == [JobState.STOPPING] * 3, "the first makes no room, and leaves all the same"
    d.exit(long, yielded=True)
    assert d.states(long, trial) == [JobState.STARTING, JobState.QUEUED], "it comes back where it was"
    for job in (longer, least):
        d.exit(job, yielded=True)
    assert (d.job(trial).state, d.where(trial).name) == (JobState.STARTING, "n2")
    assert d.states(longer, least) == [JobState.QUEUED] * 2


def test_best_effort_jobs_are_held_back_while_nothing_can_be_preempted() -> None:
    d, _, large, small = waiting(AS_PUBLISHED._replace(cap=0))
    free = d.submit(devices=1)
    assert d.job(large).reason is Reason.NOTHING_TO_PREEMPT
    assert d.states(small, free) == [JobState.QUEUED] * 2, "they would take what it needs"
    d.cancel(large)
    assert d.states(small, free) == [JobState.STARTING] * 2


def test_a_trial_that_no_node_could_take_blocks_nobody() -> None:
    d = Driver(stages("fitgpp", AS_PUBLISHED).policy, cap=1)
    d.join("n1", SMALL)
    d.join("n2")
    blocking = d.submit(devices=8)
    large, small = d.trial(8), d.trial(1)
    assert d.states(large, small) == [JobState.QUEUED, JobState.QUEUED]
    d.join("n2", SMALL, boot="b", known=())  # it came back with fewer devices
    assert d.job(large).reason is Reason.TOO_LARGE
    assert d.states(blocking, small) == [JobState.QUEUED, JobState.STARTING]


# ---- what a service does ---------------------------------------------------------------------------------------------------


def test_a_service_is_sparing_unless_told_otherwise() -> None:
    assert PreemptionSettings() == (4.0, 1, None, True, False)
    state = two_nodes(large=3).done()
    trial = a_trial(Vector(1, 1, 2))
    for name in ("lrtp", "rand"):
        config = Config.model_validate({"database": "postgresql://nowhere/ebb", "policy": name})
        chosen, spared = stages_of(config).victims, stages(name, PreemptionSettings(sparing=True)).victims
        assert chosen is not None
        assert spared is not None
        for seed in range(20):
            assert victims(chosen.choose(state, trial, seeded(seed))) == victims(spared.choose(state, trial, seeded(seed)))
            assert len(victims(chosen.choose(state, trial, seeded(seed)))) == 2
