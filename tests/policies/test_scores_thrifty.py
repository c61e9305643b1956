"""Thrifty: a trial is promised what leaves for nobody, where FitGpp would preempt once more."""

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from scheduler_service.core.enact import enact
from scheduler_service.core.invariants import check
from scheduler_service.core.messages import AddEarmark, NodeSilent, Plan, Preempt, Submitted
from scheduler_service.core.model import (
    Decision,
    Job,
    JobClass,
    JobSpec,
    JobState,
    NodeState,
    Reason,
    RunKey,
    RunPhase,
    StopReason,
    TaskGroup,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector, add, fits
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.fitgpp.policy import fitgpp_victims
from scheduler_service.policies.fitgpp.thrifty import thrifty_victims
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.placing.first_fit import place
from tests.core.driver import Driver, orders_to_stop, spec
from tests.policies.cluster import Builder, seeded

SETTINGS = PreemptionSettings()
SMALL = st.builds(Vector, st.integers(1, 4), st.integers(1, 4), st.integers(0, 3))


def one_leaves_for_nobody(policy: str = "thrifty", grace: int = 10) -> tuple[Driver, list[int]]:
    """Four jobs hold the node's 8 devices. The last was told to leave for a trial, which then started where the first ended."""
    d = Driver(stages(policy, SETTINGS).policy, cap=1)
    d.join()
    jobs = [d.submit(devices=2, grace=grace) for _ in range(4)]
    d.start(*jobs)
    trial = d.trial(2)
    d.exit(jobs[0])
    assert d.states(*jobs[1:], trial) == [JobState.RUNNING, JobState.RUNNING, JobState.STOPPING, JobState.STARTING]
    assert not d.state.earmarks.rows
    return d, jobs


# ---- by hand -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "told"), [("thrifty", 0), ("fitgpp", 1)])
def test_nobody_more_is_told_to_leave(policy: str, told: int) -> None:
    d, jobs = one_leaves_for_nobody(policy)
    trial = d.state.cluster.next_job
    step = d.step(Submitted("ann", "", spec(2, trial=True)), after=1)
    assert len(orders_to_stop(step)) == told
    d.exit(jobs[3], yielded=True)
    assert d.job(trial).state is JobState.STARTING


def test_the_story_tells_what_it_waits_for() -> None:
    d, jobs = one_leaves_for_nobody()
    trial = d.trial(2)
    earmark = d.earmark(trial)
    assert earmark is not None
    assert earmark.victims == (RunKey(jobs[3], 1),)
    found = explain(d.state, d.job(trial), d.now, seeded(), stages("thrifty", SETTINGS))
    assert [victim.key for victim in found.victims] == [RunKey(jobs[3], 1)]
    second = d.state.cluster.next_job
    step = d.step(Submitted("ann", "", spec(2, trial=True)))
    assert [key.job_id for key in orders_to_stop(step)] == [jobs[2]], "what is promised is promised once"
    decisions = {line.decision.rule for line in step.log if line.decision is not None and line.job_id == second}
    assert decisions == {"fitgpp"}


def test_a_victim_that_would_be_gone_sooner_is_preempted() -> None:
    d, _ = one_leaves_for_nobody(grace=10)
    quick = d.submit(devices=0, cpu=26_000, grace=3)
    d.start(quick)
    step = d.step(Submitted("ann", "", spec(0, trial=True, cpu=20_000)))
    assert [key.job_id for key in orders_to_stop(step)] == [quick], "those of the devices leave no CPUs"
    d, jobs = one_leaves_for_nobody(grace=10)
    d.exit(jobs[2])
    sooner = d.submit(devices=2, grace=5)
    d.start(sooner)
    step = d.step(Submitted("ann", "", spec(2, trial=True)), after=4)
    assert [key.job_id for key in orders_to_stop(step)] == [sooner], "in 5 s, not in 6"


def test_as_soon_is_soon_enough() -> None:
    d, jobs = one_leaves_for_nobody(grace=10)
    d.exit(jobs[2])
    d.start(d.submit(devices=2, grace=5))
    assert not orders_to_stop(d.step(Submitted("ann", "", spec(2, trial=True)), after=5)), "in 5 s either way"


def test_what_another_trial_would_have_had_is_not_taken_from_it() -> None:
    """The first waits for 100 s: it starts when something leaves before. Were that promised to the second, one of the two
    would wait for 100 s; so another is told to leave, for 20 s."""
    d = Driver(stages("thrifty", SETTINGS).policy)
    d.join()
    slow, quick, other = (d.submit(devices=devices, grace=grace) for devices, grace in ((4, 100), (2, 20), (2, 10)))
    d.start(slow, quick, other)
    first = d.trial(4)
    assert d.job(slow).state is JobState.STOPPING
    d.cancel(other)
    second = d.state.cluster.next_job
    step = d.step(Submitted("ann", "", spec(2, trial=True)))
    assert [key.job_id for key in orders_to_stop(step)] == [quick]
    assert d.states(first, second) == [JobState.QUEUED, JobState.QUEUED]


def test_one_that_was_cancelled_leaves_for_nobody_too() -> None:
    d = Driver(stages("thrifty", SETTINGS).policy)
    d.join()
    jobs = [d.submit(devices=2) for _ in range(4)]
    d.start(*jobs)
    d.cancel(jobs[1])
    trial = d.trial(2)
    assert d.states(*jobs) == [JobState.RUNNING, JobState.STOPPING, JobState.RUNNING, JobState.RUNNING]
    d.exit(jobs[1], yielded=True)
    assert d.job(trial).state is JobState.STARTING


def test_one_that_is_told_to_leave_is_promised_at_once_to_a_trial_that_could_preempt_nobody() -> None:
    d = Driver(stages("thrifty", SETTINGS).policy)
    d.join()
    higher = d.submit(replace(spec(8), priority=1))
    d.start(higher)
    trial = d.trial(2)
    assert d.job(trial).reason is Reason.NOTHING_TO_PREEMPT
    d.cancel(higher)
    assert d.job(trial).reason is Reason.WAITING_FOR_VICTIMS
    earmark = d.earmark(trial)
    assert earmark is not None
    assert earmark.victims == (RunKey(higher, 1),)


def test_a_broken_device_and_a_silent_node_release_nothing() -> None:
    d, jobs = one_leaves_for_nobody()
    (broken, _) = d.run(jobs[3]).devices
    d.faulty({broken: "XID 79"})
    assert len(orders_to_stop(d.step(Submitted("ann", "", spec(2, trial=True))))) == 1
    d, _ = one_leaves_for_nobody()
    d.step(NodeSilent("n1"))
    trial = d.trial(2)
    assert not d.state.earmarks_of.get(trial)


@pytest.mark.parametrize(("late", "told"), [(59, 0), (60, 1)])
def test_one_that_should_have_been_gone_for_a_minute_is_not_waited_for(late: int, told: int) -> None:
    """It cannot be killed, or its agent is in trouble: a trial that were promised it might wait for ever."""
    d, jobs = one_leaves_for_nobody(grace=10)
    step = d.step(Submitted("ann", "", spec(2, trial=True)), after=10 + late)
    assert sum(key.job_id != jobs[3] for key in orders_to_stop(step)) == told, "it is told again itself"


def test_a_gang_waits_on_two_nodes() -> None:
    d = Driver(stages("thrifty", SETTINGS).policy)
    for name in ("n1", "n2"):
        d.join(name, Vector(8_000, 8_192, 2))
    jobs = [d.submit(devices=1) for _ in range(4)]
    d.start(*jobs)
    d.cancel(jobs[1])
    d.cancel(jobs[2])
    alike = (TaskGroup(2, Vector(1_000, 1_024, 1)),)
    gang = with_changes(spec(2, trial=True, cpu=2_000, memory=2_048), gang=alike)
    trial = d.state.cluster.next_job
    assert not orders_to_stop(d.step(Submitted("ann", "", gang)))
    assert {d.state.earmarks.rows[i].victims for i in d.state.earmarks_of[trial]} == {
        (RunKey(jobs[1], 1),),
        (RunKey(jobs[2], 1),),
    }
    d.exit(jobs[1], yielded=True)
    assert d.job(trial).state is JobState.QUEUED
    d.exit(jobs[2], yielded=True)
    assert d.job(trial).state is JobState.STARTING
    assert [run.node for run in d.state.runs_of(trial)] == [1, 2]


# ---- against an oracle -----------------------------------------------------------------------------------------------------


@st.composite
def states(draw: st.DrawFn) -> State:
    """Runs of which some leave, told at different times, and some of these for a trial."""
    built = Builder()
    nodes = [built.node(Vector(6, 6, 4)) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(6, 16))):
        leaves = draw(st.booleans())
        grace = draw(st.integers(0, 9))
        node, phase = draw(st.sampled_from(nodes)), RunPhase.STOPPING if leaves else RunPhase.RUNNING
        key = built.run(node, draw(SMALL), grace=grace, phase=phase)
        if key is not None and leaves:
            run = built.state.runs.rows[key]
            told = with_changes(run, stop_grace_us=grace * SECOND, stop_us=-draw(st.integers(0, 5)) * SECOND)
            built.state.put(built.state.runs, key, told)
            if draw(st.integers(0, 3)) == 0:
                waiting = built.trial(run.demand)
                promise = AddEarmark(waiting.id, node, run.demand, (key,), _decision(waiting))
                if enact(built.state, (promise,), 0) is not None:
                    built.state.put(built.state.jobs, waiting.id, with_changes(waiting, state=JobState.CANCELLED))
    if draw(st.integers(0, 4)) == 0:
        built.silence(draw(st.sampled_from(nodes)))
    return built.done()


def _decision(trial: Job) -> Decision:
    return Decision(trial.id, 1, trial.spec.demand, "test", 0, 0, 0, 0, 0, ())


def gone(state: State, key: RunKey) -> int:
    run = state.runs.rows[key]
    assert run.stop_us is not None
    return run.stop_us + run.stop_grace_us


def soonest(state: State, need: Vector) -> int | None:
    """When some node has room, if only those leave that leave for nobody; None: never."""
    promised = {key for earmark in state.earmarks.rows.values() for key in earmark.victims}
    times = []
    for node in state.nodes.rows.values():
        here = [run for run in state.runs.rows.values() if run.node == node.id and run.phase is RunPhase.STOPPING]
        free = sorted((run for run in here if run.key not in promised), key=lambda run: gone(state, run.key))
        rooms = accumulate((run.demand for run in free), add, initial=state.free_resources.free(node.id))
        if node.state is NodeState.UP:
            times += [gone(state, run.key) for run, room in zip(free, list(rooms)[1:], strict=True) if fits(need, room)][:1]
    return min(times, default=None)


@given(states(), SMALL, st.sampled_from((0, 1, 1, 1)))
def test_it_is_fitgpp_s_plan_unless_there_is_room_as_soon(state: State, demand: Vector, cap: int) -> None:
    settings = PreemptionSettings(cap=cap)
    trial = Job(10_000, JobSpec(("true",), demand, JobClass.TRIAL), "ann", "", 0)
    state.put(state.jobs, trial.id, trial)
    assume(place(state, trial) is None)
    usual = fitgpp_victims(state, trial, settings, seeded())
    plan = thrifty_victims(state, trial, settings, seeded())
    at = soonest(state, demand)
    waits = max((gone(state, key) for earmark in state.earmarks.rows.values() for key in earmark.victims), default=0)
    told = [state.jobs.rows[act.job_id].spec.grace_us for act in usual or () if isinstance(act, Preempt)]
    shares = at is not None and (usual is None or (at <= max(told) and waits <= max(told)))
    event(f"shares: {shares}, FitGpp has a plan: {usual is not None}")
    if not shares:
        assert plan == usual
        return
    assert plan is not None
    keys = victims_of(plan)
    assert max(gone(state, key) for key in keys) == at
    assert all(state.runs.rows[key].stop_reason is StopReason.CANCELLED for key in keys), "nobody new"
    assert enact(state, plan, 0) is None
    check(state)


def victims_of(plan: Plan) -> list[RunKey]:
    assert not any(isinstance(act, Preempt) for act in plan)
    return [key for act in plan if isinstance(act, AddEarmark) for key in act.victims]
