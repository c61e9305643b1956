"""AlloX as a policy: the paper's examples in time, fairness between users, and what else holds."""

import heapq
import pickle
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.engine import step
from scheduler_service.core.messages import (
    Accepted,
    FenceRequested,
    HoldRequested,
    NodeDeleteRequested,
    PlanReady,
    ReleaseRequested,
    Step,
    Submitted,
)
from scheduler_service.core.model import Configuration, EventKind, JobClass, JobSpec, JobState, Reason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.allox.configuration_times import Known
from scheduler_service.policies.allox.matching_input import count_considered, progress
from scheduler_service.policies.allox.site_scope import Site
from scheduler_service.policies.allox.slots import Kinds
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages
from tests.core.driver import EPOCH, Driver
from tests.thorough import examples

QUEUED, STARTING = JobState.QUEUED, JobState.STARTING
ON_GPU, ON_CPU = Vector(1000, 1, 1), Vector(4000, 1, 0)
GPU_NODE, CPU_NODE = Vector(1000, 100, 1), Vector(4000, 100, 0)


def allox(**own: float) -> Stages:
    return stages("allox", PreemptionSettings(), own=own)


def driver(gpus: int, cpus: int, **own: float) -> Driver:
    """So many nodes of one GPU, and of one bundle of CPUs."""
    made = allox(**{"alpha": 1, **own})
    d = Driver(made.policy, order=order_of(made))
    for number in range(gpus):
        d.join(f"gpu-{number}", GPU_NODE)
    for number in range(cpus):
        d.join(f"cpu-{number}", CPU_NODE)
    return d


def either(on_gpu: float, on_cpu: float, **more: object) -> JobSpec:
    """A job that takes so many seconds on a GPU, and on CPUs."""
    other = Configuration(ON_CPU, estimate_us=round(on_cpu * SECOND))
    return JobSpec(("true",), ON_GPU, estimate_us=round(on_gpu * SECOND), alternatives=(other,), **more)  # type: ignore[arg-type]


def submit(d: Driver, *specs: JobSpec, user: str = "ann") -> list[int]:
    """All in one step."""
    replies = d.step(*(Submitted(user, "", spec) for spec in specs)).replies
    return [reply.job_id for reply in replies if isinstance(reply, Accepted)]


def play(d: Driver, specs: Sequence[JobSpec]) -> tuple[int, Mapping[int, int]]:
    """Runs all jobs to their ends, each for as long as it was estimated: the sum of the completion times in seconds, and the
    configuration of each."""
    jobs = submit(d, *specs)
    ends: list[tuple[int, int]] = []
    completed: dict[int, int] = {}
    while len(completed) < len(jobs):
        for job in jobs:
            if job not in d.ended and d.job(job).state is STARTING:
                d.start(job)
                heapq.heappush(ends, (d.now + d.job(job).launch_spec.estimate_us, job))
        at, job = heapq.heappop(ends)
        d.now = at
        d.exit(job)
        completed[job] = (at - EPOCH) // SECOND
    return sum(completed.values()), {job: d.ended[job].configuration for job in jobs}


TABLE_1 = ((10, 15), (8, 10), (10, 50), (5, 75), (10, 15), (10, 15))
"""Minutes on a GPU and on a CPU."""


@pytest.mark.parametrize(
    ("gpus", "cpus", "jobs", "total"),
    [
        (2, 2, TABLE_1, 75),
        (2, 2, ((40, 50), (40, 50), (40, 160), (40, 160)), 180),
        (2, 2, ((10, 20), (10, 20), (20, 90), (20, 90)), 80),
        (1, 1, ((3, 4), (4, 6), (5, 10)), 17),
    ],
    ids=["table-1", "figure-4", "figure-5", "three-jobs"],
)
def test_the_papers_examples_played_in_time(gpus: int, cpus: int, jobs: Sequence[tuple[int, int]], total: int) -> None:
    """Each event makes a matching of its own, and they end with the cost of the first one."""
    assert play(driver(gpus, cpus), [either(60 * on_gpu, 60 * on_cpu) for on_gpu, on_cpu in jobs])[0] == 60 * total


def test_a_free_slot_stays_idle_if_the_job_is_done_sooner_elsewhere() -> None:
    d = driver(1, 1)
    first, second = submit(d, either(10, 100), either(10, 100))
    assert d.states(first, second) == [STARTING, QUEUED]
    assert (d.job(second).reason, d.job(first).configuration) == (Reason.NO_ROOM, 0)
    d.start(first)
    d.step(after=5)
    (third,) = submit(d, either(200, 40))
    assert (d.states(second, third), d.job(third).configuration) == ([QUEUED, STARTING], 1)
    d.exit(first)
    assert (d.job(second).state, d.job(second).configuration) == (STARTING, 0)


def test_a_slot_that_is_late_does_not_start_anything_by_itself() -> None:
    """The GPU's job takes longer than it said: the next one goes on waiting for it, and starts when it ends."""
    d = driver(1, 1)
    first, second = submit(d, either(10, 1000), either(10, 1000))
    d.start(first)
    d.step(after=500)
    assert d.job(second).state is QUEUED
    d.exit(first)
    assert d.job(second).state is STARTING


# ---- fairness ----------------------------------------------------------------------------------------------------------


def received(d: Driver) -> dict[str, float]:
    known = Known(SECOND)
    return progress(Site(d.state, known, 0).holders(), known, Kinds(d.state, known, 0).share)


def test_progress_is_the_share_of_the_fastest_configuration_discounted_elsewhere() -> None:
    """The paper's example (3.3.2): capacity (8 CPUs, 2 GPUs, 64), configurations (1, 4, 20) and (1, 2, 5): 1/2 and 1/8."""
    made = allox(alpha=1, reserved_cpus=0)
    d = Driver(made.policy, order=order_of(made))
    d.join("both", Vector(8000, 64, 2))
    other = Configuration(Vector(1000, 4, 0), estimate_us=20 * SECOND)
    spec = JobSpec(("true",), Vector(0, 2, 1), estimate_us=5 * SECOND, alternatives=(other,))
    jobs = submit(d, spec, user="ann")
    assert received(d) == {"ann": 0.5}
    jobs += submit(d, spec, user="bob")
    assert received(d) == {"ann": 0.5, "bob": 0.5}
    jobs += submit(d, *[spec] * 12, user="cat")
    on_cpus = [job for job in jobs if d.job(job).state is STARTING and d.job(job).configuration == 1]
    assert len(on_cpus) >= 1
    assert received(d)["cat"] == len(on_cpus) / 8


def test_how_many_users_are_considered() -> None:
    counts = [count_considered(*case) for case in ((20, 0.3), (20, 0), (1, 0.1), (20, 1), (7, 0.5))]
    assert counts == [6, 1, 1, 20, 4]


def test_the_user_with_the_lowest_progress_is_served_before_shorter_jobs_of_others() -> None:
    def first_to_start(alpha: float) -> str:
        d = driver(2, 0, alpha=alpha)
        (running,) = submit(d, JobSpec(("true",), ON_GPU, estimate_us=100 * SECOND), user="greedy")
        (blocking,) = submit(d, JobSpec(("true",), ON_GPU, estimate_us=100 * SECOND), user="other")
        d.start(running, blocking)
        submit(d, JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND), user="greedy")
        (long,) = submit(d, JobSpec(("true",), ON_GPU, estimate_us=90 * SECOND), user="new")
        d.exit(blocking)
        return "new" if d.job(long).state is STARTING else "greedy"

    assert (first_to_start(0), first_to_start(1)) == ("new", "greedy")


def test_more_users_are_considered_while_slots_would_be_idle() -> None:
    """The user of lowest progress has jobs for GPUs alone; the CPUs go to the other one."""
    d = driver(1, 1, alpha=0)
    gpu_only = JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND)
    submit(d, gpu_only, gpu_only, user="ann")
    (on_cpus,) = submit(d, JobSpec(("true",), ON_CPU, estimate_us=1000 * SECOND), user="bob")
    assert d.job(on_cpus).state is STARTING


@settings(max_examples=examples(6))
@given(st.permutations(["ann", "bob", "cat"]), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=6))
def test_the_names_of_users_decide_nothing(names: list[str], asked: list[tuple[int, int]]) -> None:
    """The jobs start in the same order, whatever their users are called: of users with equal progress one is drawn."""

    def started(names: Sequence[str]) -> list[tuple[int, int]]:
        d = driver(1, 1, alpha=0.1)
        jobs = [job for user, seconds in asked for job in submit(d, either(seconds, 2 * seconds), user=names[user])]
        order: list[tuple[int, int]] = []
        while running := [job for job in jobs if job not in d.ended and d.job(job).state is STARTING]:
            order += [(job, d.job(job).configuration) for job in running]
            for job in running:
                d.start(job)
                d.exit(job)
        return order

    assert started(names) == started(["ann", "bob", "cat"])
    assert len(started(names)) == len(asked)


def test_users_with_equal_progress_are_served_in_a_random_order() -> None:
    def first(seed: int) -> str:
        d, alike = driver(1, 0, alpha=0), JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND)
        d.taken = 1000 * seed  # which the randomness of a step follows from
        full = submit(d, alike)[0]
        jobs = {submit(d, alike, user=user)[0]: user for user in ("ann", "bob", "cat")}
        d.start(full)
        d.exit(full)
        return next(user for job, user in jobs.items() if d.job(job).state is STARTING)

    assert {first(seed) for seed in range(12)} == {"ann", "bob", "cat"}


def test_alpha_0_is_envy_free_for_jobs_that_are_alike_within_each_user() -> None:
    """Lemma 3.4, as far as jobs are divisible: users with equal jobs have as many running, one more or less."""
    d = driver(6, 0, alpha=0)
    for user in ("ann", "bob", "cat"):
        submit(d, *[JobSpec(("true",), ON_GPU, estimate_us=60 * SECOND)] * 6, user=user)
    running: dict[str, int] = {}
    for job in list(d.state.active):
        running[d.job(job).user] = running.get(d.job(job).user, 0) + 1
    assert running == {"ann": 6}, "when ann came, nobody else was there"
    for job in sorted(d.state.active):
        d.start(job)
    for job in sorted(d.state.active):
        d.exit(job)
    running = {}
    for job in d.state.active:
        running[d.job(job).user] = running.get(d.job(job).user, 0) + 1
    assert sorted(running) == ["bob", "cat"]
    assert sorted(running.values()) == [3, 3]


# ---- what else holds ---------------------------------------------------------------------------------------------------


def test_higher_priority_and_trials_come_first_and_are_not_delayed_by_those_behind() -> None:
    d = driver(1, 0)
    (running,) = submit(d, JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND))
    d.start(running)
    short, long, trial = submit(
        d,
        JobSpec(("true",), ON_GPU, estimate_us=1 * SECOND),
        JobSpec(("true",), ON_GPU, estimate_us=500 * SECOND, priority=5),
        JobSpec(("true",), ON_GPU, JobClass.TRIAL, estimate_us=900 * SECOND),
    )
    order = []
    for job in (running, trial, long):
        d.exit(job)
        (now,) = d.state.active
        order.append(now)
        d.start(now)
    assert order == [trial, long, short]


def test_a_gang_gets_a_slot_with_room_for_all_its_tasks() -> None:
    d = driver(3, 1)
    gang = (TaskGroup(3, ON_GPU),)
    spec = JobSpec(("true",), Vector(3000, 3, 3), gang=gang, estimate_us=10 * SECOND)
    (running,) = submit(d, JobSpec(("true",), ON_GPU, estimate_us=5 * SECOND))
    d.start(running)
    (job,) = submit(d, spec)
    assert d.job(job).state is QUEUED
    d.exit(running)
    assert d.job(job).state is STARTING
    assert len(d.state.runs_of(job)) == 3


def test_jobs_without_devices_leave_a_core_for_each_free_device() -> None:
    for reserved, starts in ((1, QUEUED), (0, STARTING)):
        made = allox(alpha=1, reserved_cpus=reserved)
        d = Driver(made.policy, order=order_of(made))
        d.join("both", Vector(8000, 100, 2))
        (small,) = submit(d, JobSpec(("true",), Vector(2000, 1, 0)))
        (job,) = submit(d, JobSpec(("true",), Vector(6000, 1, 0)))
        assert d.states(small, job) == [STARTING, starts]


def test_a_preempted_job_may_go_on_in_another_configuration() -> None:
    d = driver(1, 1)
    (job,) = submit(d, either(100, 150))
    assert d.job(job).configuration == 0
    d.start(job)
    d.silence("gpu-0")
    d.step(FenceRequested("gpu-0", "op"))
    assert (d.job(job).state, d.job(job).configuration, d.job(job).run) == (STARTING, 1, 2)


def test_a_job_that_no_node_can_take_any_more_says_so_and_starts_when_one_can() -> None:
    d = driver(1, 1)
    d.silence("gpu-0")
    (job,) = submit(d, JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND))
    assert d.job(job).reason is Reason.NODES_CLOSED
    d.step(NodeDeleteRequested("gpu-0"))
    assert d.job(job).reason is Reason.TOO_LARGE
    d.join("gpu-1", GPU_NODE)
    assert d.job(job).state is STARTING


# ---- long queues -------------------------------------------------------------------------------------------------------


def delegated(taken: Step) -> PlanReady:
    """What comes of the one question that the step delegates."""
    (one,) = taken.delegated
    return PlanReady(one.policy, one.subject, pickle.loads(pickle.dumps(one.question))())


def test_the_plan_for_a_long_queue_is_made_elsewhere_and_checked_when_it_comes() -> None:
    d = driver(2, 1, long=0, period=5)
    taken = d.step(*(Submitted("ann", "", either(10 * k, 200)) for k in (1, 2, 3, 4)))
    jobs = [reply.job_id for reply in taken.replies if isinstance(reply, Accepted)]
    assert d.states(*jobs) == [QUEUED] * 4
    plan = delegated(taken)
    d.cancel(jobs[0])
    assert d.step(after=1).delegated == (), "one question at a time"
    d.step(plan)
    assert [d.job(job).configuration for job in jobs if d.job(job).state is STARTING] == [0], "the cancelled one does not start"
    assert d.step(plan).changes == (), "nobody waits for it any more"
    d.start(*[job for job in jobs if d.job(job).state is STARTING])
    assert delegated(d.step(after=5)).plan != ()


def test_a_plan_starts_nothing_that_was_held_meanwhile() -> None:
    d = driver(1, 0, long=0)
    spec = JobSpec(("true",), ON_GPU, estimate_us=SECOND)
    taken = d.step(Submitted("ann", "", spec), Submitted("bob", "", spec))
    job, other = sorted(d.state.jobs.rows)
    d.step(HoldRequested(job))
    d.step(delegated(taken))
    assert d.states(job, other) == [QUEUED, QUEUED]
    d.step(ReleaseRequested(job))
    assert delegated(d.step(after=1)).plan == (job, 0)


def test_what_was_supposed_before_changes_no_question() -> None:
    """As a preview does it: jobs with other needs come, are looked at, and never were."""
    specs = [either(10 * k, 200 - 30 * k) for k in (1, 2, 3)]
    other = Configuration(Vector(3000, 50, 0), estimate_us=SECOND)
    found = []
    for supposes in (False, True):
        d = driver(2, 1, long=0)
        if supposes:
            with d.state.supposing():
                supposed = [JobSpec(("true",), Vector(2000, 7, 0), alternatives=(other,)), JobSpec(("true",), ON_CPU)]
                step(d.state, [Submitted("bob", "", spec) for spec in supposed], d.now, Random(0), d.policy)
        (one,) = d.step(*(Submitted("ann", "", spec) for spec in specs)).delegated
        found.append(one.question)
    assert np.array_equal(found[0].times, found[1].times)
    assert all(map(np.array_equal, found[0].free_at, found[1].free_at))


def test_a_plan_that_never_comes_is_asked_for_again() -> None:
    d = driver(1, 1, long=0, period=5)
    taken = d.step(Submitted("ann", "", either(10, 200)))
    assert d.step(after=49).delegated == ()
    again = d.step(after=1)
    assert delegated(again) == delegated(taken)
    d.step(delegated(again))
    assert len(d.state.active) == 1


def test_a_job_of_higher_priority_does_not_wait_for_the_plan_of_a_long_queue() -> None:
    d = driver(1, 1, long=2, period=5)
    (running,) = submit(d, JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND))
    d.start(running)
    submit(d, *[JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND)] * 4)
    (urgent,) = submit(d, JobSpec(("true",), ON_CPU, priority=1))
    (trial,) = submit(d, JobSpec(("true",), ON_GPU, JobClass.TRIAL))
    assert d.states(urgent, trial) == [STARTING, QUEUED]
    d.exit(running)
    assert d.job(trial).state is STARTING


def test_a_queue_that_becomes_short_is_served_at_once_again() -> None:
    d = driver(1, 0, long=2)
    running, *others = submit(d, *[JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND)] * 2)
    d.start(running)
    taken = d.step(*(Submitted("ann", "", JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND)) for _ in range(3)))
    assert list(d.state.memos.rows) == [("allox", "/plan")]
    assert taken.delegated == (), "no slot is free"
    for reply in taken.replies[1:]:
        assert isinstance(reply, Accepted)
        d.cancel(reply.job_id)
    assert not d.state.memos.rows
    d.exit(running)
    assert d.job(others[0]).state is STARTING


def test_the_story_says_why_a_configuration_was_chosen() -> None:
    d = driver(1, 1)
    (told,) = [line for line in d.step(Submitted("ann", "", either(10, 100))).log if line.kind is EventKind.PLACED]
    assert told.text == "configuration 0 (estimated: configuration 0 10 s, configuration 1 100 s)"


def test_explain_compares_the_times() -> None:
    made = allox()
    d = driver(1, 1)
    _, second = submit(d, either(10, 100), either(10, 100))
    assert "configuration 0 10 s, configuration 1 100 s" in made.about(d.state, d.job(second))


@pytest.mark.parametrize(
    ("name", "value"), [("alpha", 1.5), ("alpha", -1), ("reserved_cpus", -1), ("unknown", 0), ("period", 0), ("beta", 1)]
)
def test_settings_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        allox(**{name: value})


def test_explain_of_a_job_that_waits_although_there_is_room() -> None:
    made = allox()
    d = driver(1, 1)
    _, second = submit(d, either(10, 100), either(10, 100))
    found = explain(d.state, d.job(second), d.now, Random(0), made)
    (blocker,) = found.blockers
    assert blocker.reason is Reason.NO_ROOM
    assert blocker.detail.startswith("there is room, but the policy keeps the job waiting")
    assert found.estimate is None


def test_a_plan_that_leaves_few_jobs_of_the_highest_level_lets_these_start_at_once() -> None:
    """While the plan was made for one GPU, another one has joined: the second trial need not wait for the next plan."""
    d = driver(1, 0, long=2, period=1)
    one_gpu = JobSpec(("true",), ON_GPU, estimate_us=SECOND)
    trial = with_changes(one_gpu, job_class=JobClass.TRIAL)
    replies = d.step(*(Submitted("ann", "", spec) for spec in (trial, trial, trial, one_gpu, one_gpu)))
    (asked,) = replies.delegated
    d.join("gpu-1", GPU_NODE)
    assert not d.state.active
    d.step(PlanReady(asked.policy, asked.subject, asked.question()))
    assert d.states(1, 2, 3) == [STARTING, STARTING, QUEUED]


def test_of_a_long_queue_all_are_told_at_once_that_no_node_can_take_them() -> None:
    d = driver(1, 0, long=2)
    running, *waiting = submit(d, *(JobSpec(("true",), ON_GPU, priority=level) for level in (9, 5, 5, 3, 3, 1)))
    d.cancel(running)
    d.join("gpu-0", CPU_NODE, boot="b")
    assert [d.job(job).reason for job in waiting] == [Reason.TOO_LARGE] * 5
