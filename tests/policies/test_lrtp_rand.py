"""The other choices of victims: the longest remaining, and random ones."""

from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler_service.core.messages import AddEarmark, Plan, Preempt
from scheduler_service.core.model import Job, JobClass, JobSpec, JobState, Reason, Run, RunKey
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.fitgpp.lrtp import lrtp_victims
from scheduler_service.policies.fitgpp.rand import rand_victims
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.remaining_time import remaining
from tests.core.driver import Driver, spec
from tests.policies.cluster import AMOUNTS, PHASES, Builder, seeded
from tests.policies.test_fitgpp_victims import eqn_2, runs_in_j, victim_sets

NOW = 100
NEEDS = st.builds(Vector, st.integers(1, 8), st.integers(1, 8), st.integers(1, 6))


@st.composite
def timed_clusters(draw: st.DrawFn) -> State:
    """Runs of which some are expected to take long, some short, and of some nobody knows."""
    built = Builder()
    nodes = [built.node(Vector(8, 8, 6)) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, 10))):
        key = built.run(
            draw(st.sampled_from(nodes)), draw(AMOUNTS), count=draw(st.integers(0, 1)), phase=draw(st.sampled_from(PHASES))
        )
        built.expect(
            key,
            estimate=draw(st.sampled_from((0, 10, 150, 400))),
            limit=draw(st.sampled_from((0, 120, 300))),
            ran=draw(st.sampled_from((0, 50))),
            began=draw(st.sampled_from((0, 60, NOW))),
        )
    state = built.state
    state.put(state.cluster_table, 0, with_changes(state.cluster, clock_us=NOW * SECOND))
    state.adopt()
    return state


def left_of(state: State, key: RunKey) -> int:
    """Seconds that it is expected to take from now on, as the oracle has it; -1 where nobody knows."""
    job, run = state.jobs.rows[key.job_id], state.runs.rows[key]
    known = [us for us in (job.spec.estimate_us, job.time_limit_us) if us]
    if not known:
        return -1
    ran = job.ran_us + (NOW * SECOND - run.started_us if run.started_us is not None else 0)
    return max(min(known) - ran, 0) // SECOND


def victims(plan: Plan | None) -> list[int]:
    return [action.job_id for action in plan or () if isinstance(action, Preempt)]


def a_trial(demand: Vector) -> Job:
    return Job(999, JobSpec(("true",), demand, JobClass.TRIAL), "ann", "", 0)


@given(timed_clusters(), NEEDS)
def test_those_with_most_before_them_leave_first(state: State, demand: Vector) -> None:
    """Oracle: take runs of longest remaining time, the last submitted among equals, on nodes where all together would do,
    until one node has room; then spare, in that order, whom the node does not need."""
    assume(state.free_resources.first_fit(demand) is None)
    j = {key: pair for key, pair in runs_in_j(state).items() if pair[1].preempted_for_trial < 1}
    on = {node: [run for run, _ in j.values() if run.node == node] for node in state.nodes.rows}
    useful = [run for runs in on.values() if runs and eqn_2(state, demand, runs) for run in runs]
    # 0 and unknown are alike: neither is known to be long
    drawn: dict[int, list[Run]] = {}
    expected: list[int] = []
    for run in sorted(useful, key=lambda run: (-max(left_of(state, run.key), 0), -run.job_id)):
        here = drawn.setdefault(run.node, [])
        here.append(run)
        if eqn_2(state, demand, here):
            kept = list(here)
            for one in here:
                without = [other for other in kept if other is not one]
                if without and eqn_2(state, demand, without):
                    kept = without
            expected = [run.job_id for run in kept]
            break
    assert victims(lrtp_victims(state, a_trial(demand), PreemptionSettings())) == expected


@given(timed_clusters(), NEEDS)
def test_the_decision_says_how_long(state: State, demand: Vector) -> None:
    plan = lrtp_victims(state, a_trial(demand), PreemptionSettings())
    for action in plan or ():
        if isinstance(action, AddEarmark):
            assert action.decision.rule == "lrtp"
            for candidate in action.decision.candidates:
                assert candidate.score == -max(left_of(state, candidate.key), 0)


def test_how_long_a_job_has_left() -> None:
    built = Builder()
    node = built.node(Vector(8, 8, 8))
    keys = [built.run(node, Vector(1, 1, 1)) for _ in range(5)]
    for key, (estimate, limit, ran, began) in zip(
        keys, ((200, 0, 0, 0), (0, 300, 50, 40), (200, 150, 0, 0), (50, 0, 0, 0), (0, 0, 0, 0)), strict=True
    ):
        built.expect(key, estimate=estimate, limit=limit, ran=ran, began=began)
    state = built.done()
    found = [remaining(state, state.jobs.rows[key.job_id], NOW * SECOND) for key in keys if key is not None]
    assert found == [100 * SECOND, (300 - 50 - 60) * SECOND, 50 * SECOND, 0, None]


# ---- random ones -------------------------------------------------------------------------------------------------------


def ten() -> State:
    """Two nodes with five runs each, one of each at the cap, and one that nobody may preempt."""
    built = Builder()
    for node in (built.node(Vector(10, 10, 5)), built.node(Vector(10, 10, 5))):
        for i in range(4):
            built.run(node, Vector(1, 1, 1), count=int(i == 0))
        built.run(node, Vector(1, 1, 1), trial=True)
    return built.done()


def test_every_run_that_may_go_is_chosen_by_some_seed_and_no_other() -> None:
    state = ten()
    chosen = [
        tuple(victims(rand_victims(state, a_trial(Vector(1, 1, 1)), PreemptionSettings(), seeded(seed)))) for seed in range(300)
    ]
    allowed = {(key.job_id,) for key, (_, job) in runs_in_j(state).items() if job.preempted_for_trial < 1}
    assert set(chosen) == allowed
    assert len(allowed) == 6
    assert all(chosen.count(one) > 20 for one in allowed), "each is as likely as any other: 50 of 300"


def test_every_set_that_may_be_chosen_is() -> None:
    state, demand = ten(), Vector(1, 1, 3)
    found = {
        frozenset(RunKey(job, 1) for job in victims(rand_victims(state, a_trial(demand), PreemptionSettings(), seeded(seed))))
        for seed in range(300)
    }
    assert found == victim_sets(state, demand, 1)


@given(timed_clusters(), NEEDS, st.integers(0, 99))
def test_nobody_leaves_for_nothing(state: State, demand: Vector, seed: int) -> None:
    assume(state.free_resources.first_fit(demand) is None)
    sets = victim_sets(state, demand, 1)
    for plan in (
        rand_victims(state, a_trial(demand), PreemptionSettings(), seeded(seed)),
        lrtp_victims(state, a_trial(demand), PreemptionSettings()),
    ):
        found = frozenset(RunKey(job, 1) for job in victims(plan))
        assert found in sets if found else not sets


def test_as_policies() -> None:
    for name in ("lrtp", "rand"):
        d = Driver(stages(name, PreemptionSettings()).policy, cap=1)
        d.join()
        long, short = (
            d.submit(with_changes(spec(4), estimate_us=1000 * SECOND)),
            d.submit(with_changes(spec(4), estimate_us=SECOND)),
        )
        d.start(long, short)
        trial = d.trial(4)
        assert d.job(trial).reason is Reason.WAITING_FOR_VICTIMS
        leaving = [job for job in (long, short) if d.job(job).state is JobState.STOPPING]
        assert leaving == [long] if name == "lrtp" else len(leaving) == 1
        d.exit(leaving[0], yielded=True)
        assert d.job(trial).state is JobState.STARTING
