"""What a run that ends after a stop signal means for its job: an exit with 0 does not say that the work is done."""

from collections.abc import Callable

import pytest

from scheduler_service.core.messages import CancelRequested, DrainRequested, Event, RequeueRequested, SuspendRequested
from scheduler_service.core.model import EventKind, Exit0AfterStop, JobSpec, JobState, Reason, Retry, StopReason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec
from tests.policies.made import fitgpp

SMALL = Vector(4_000, 8_192, 2)
TASK = Vector(1_000, 1_024, 1)
DONE_ANYWAY = with_changes(spec(), exit_0_after_stop=Exit0AfterStop.DONE)
Ask = Callable[[int], Event]


def cluster(nodes: int = 1, settings: Settings = Settings()) -> Driver:  # noqa: B008 (immutable)
    d = Driver(fitgpp(PreemptionSettings()), settings)
    for number in range(nodes):
        d.join(f"n{number + 1}", SMALL)
    return d


def running(d: Driver, what: JobSpec | None = None) -> int:
    job = d.submit(what or spec())
    for task in range(len(d.job(job).launch_spec.tasks())):
        if d.job(job).launch_spec.gang:
            d.step(d.ready(job, task))
    for task in range(len(d.job(job).launch_spec.tasks())):
        d.step(d.started(job, task))
    return job


def gang(tasks: int = 3, **more: object) -> JobSpec:
    total = Vector(*(tasks * part for part in TASK))
    return with_changes(spec(), gang=(TaskGroup(tasks, TASK),), demand=total, **more)


STOPS: list[tuple[Ask | None, JobState, StopReason]] = [
    (None, JobState.QUEUED, StopReason.PREEMPTED),
    (SuspendRequested, JobState.SUSPENDED, StopReason.SUSPENDED),
    (RequeueRequested, JobState.STARTING, StopReason.REQUEUED),
    (lambda _: DrainRequested("n1", "", "ann", evict=True), JobState.QUEUED, StopReason.DRAINED),
]
"""Who stops the run (None: a trial), and where the job is once it has left."""


TOOK = {JobState.SUSPENDED: "; it took 0.00 s to stop"}
"""What the story says beside that of a stop that is an operation."""


def stop(d: Driver, job: int, ask: Ask | None) -> None:
    if ask is None:
        d.trial(2)
    else:
        d.step(ask(job))


@pytest.mark.parametrize(("ask", "state", "why"), STOPS)
def test_an_exit_with_0_after_a_stop_signal_means_stopped(ask: Ask | None, state: JobState, why: StopReason) -> None:
    d = cluster()
    job = running(d)
    stop(d, job, ask)
    assert d.run(job).stop_reason is why
    step = d.exit(job, told=True)
    assert d.job(job).state is state
    texts = [event.text for event in step.log if event.kind in (EventKind.VACATED, EventKind.SUSPENDED)]
    said = "exited with code 0 after the stop signal, without a word that its work is done: it was stopped"
    assert texts == [said + TOOK.get(state, "")]


@pytest.mark.parametrize(("ask", "_state", "_why"), STOPS)
@pytest.mark.parametrize(
    ("what", "outcome", "rule"),
    [
        (spec(), {"told": True, "done": True}, "it had said in EBB_DONE_FILE that its work is done"),
        (DONE_ANYWAY, {"told": True}, "the job says that this means done (exit_0_after_stop)"),
        (spec(), {}, "before the stop signal reached it"),
    ],
)
def test_a_run_that_is_done_has_finished_and_the_story_says_by_which_rule(
    ask: Ask | None, _state: JobState, _why: StopReason, what: JobSpec, outcome: dict[str, bool], rule: str
) -> None:
    d = cluster()
    job = running(d, what)
    stop(d, job, ask)
    step = d.exit(job, **outcome)
    assert (d.job(job).state, d.job(job).exit_code) == (JobState.SUCCEEDED, 0)
    (ended,) = [event for event in step.log if event.kind is EventKind.ENDED and event.job_id == job]
    assert rule in ended.text
    assert rule in d.job(job).detail


def test_a_job_of_which_an_exit_with_0_means_done_is_still_stopped_by_any_other_exit() -> None:
    d = cluster()
    job = running(d, DONE_ANYWAY)
    d.step(SuspendRequested(job))
    d.exit(job, told=True, exit_signal=15)
    assert d.job(job).state is JobState.SUSPENDED


def test_cancel_and_time_limit_keep_their_own_meaning() -> None:
    d = cluster()
    cancelled, limited = running(d), running(d, with_changes(spec(), time_limit_us=SECOND))
    d.step(CancelRequested(cancelled), after=1)
    d.step(d.exited(cancelled, told=True), d.exited(limited, told=True))
    assert d.states(cancelled, limited) == [JobState.CANCELLED, JobState.SUCCEEDED]


def test_a_stopped_job_whose_time_is_over_has_timed_out() -> None:
    d = cluster()
    job = running(d, with_changes(spec(), time_limit_us=60 * SECOND))
    d.step(RequeueRequested(job), after=30)
    d.now += 30 * SECOND
    d.exit(job, told=True)
    assert d.job(job).state is JobState.TIMED_OUT


@pytest.mark.parametrize(("ask", "state", "why"), STOPS)
def test_a_gang_of_which_a_task_finished_while_another_was_stopped_runs_again(
    ask: Ask | None, state: JobState, why: StopReason
) -> None:
    d = cluster(nodes=2)
    job = running(d, gang())
    d.step(d.exited(job, 0))  # before anybody stopped it
    if ask is None:
        d.trial(2)
    else:
        d.step(ask(job))
    assert d.run(job, 1).stop_reason is why
    d.step(d.exited(job, 1, told=True, done=True))
    assert d.job(job).state is JobState.STOPPING
    d.step(d.exited(job, 2, told=True))
    assert d.job(job).state in (state, JobState.QUEUED)
    assert d.job(job).ended_us is None


@pytest.mark.parametrize("last", [0, 1])
def test_whichever_of_the_two_is_the_last(last: int) -> None:
    d = cluster(nodes=2)
    job = running(d, gang(2))
    d.step(SuspendRequested(job))
    outcomes = [{"told": True, "done": True}, {"told": True}]
    d.step(d.exited(job, 1 - last, **outcomes[1 - last]))
    d.step(d.exited(job, last, **outcomes[last]))
    assert d.job(job).state is JobState.SUSPENDED


def test_a_gang_of_which_every_task_ended_by_itself_has_finished() -> None:
    d = cluster(nodes=2)
    job = running(d, gang())
    d.step(d.exited(job, 0))
    d.step(SuspendRequested(job))
    d.step(d.exited(job, 1, told=True, done=True))
    d.step(d.exited(job, 2))
    assert d.job(job).state is JobState.SUCCEEDED


DEATHS: list[dict[str, int | bool]] = [
    {"exit_code": 1},
    {"exit_signal": 6},
    {"unknown": True},
    {"exit_signal": 9, "out_of_memory": True},
    {},
]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize(("ask", "_state", "_why"), STOPS)
def test_the_death_of_a_rank_after_a_stop_signal_of_its_gang_is_part_of_the_stop(
    ask: Ask | None, _state: JobState, _why: StopReason, death: dict[str, int | bool], told: bool
) -> None:
    """It dies in an all-reduce with a rank that has left, perhaps before its own agent hears of the stop."""
    d = cluster(nodes=2, settings=Settings(bad_node_strikes=1))
    job = running(d, gang(retry=Retry(1)))
    stop(d, job, ask)
    d.step(d.exited(job, 1, told=True, yielded=True))
    d.step(d.exited(job, 0, **death | {"told": told}))
    d.step(d.exited(job, 2, told=True, yielded=True))
    now = d.job(job)
    assert now.ended_us is None
    assert (now.retries, now.avoid, now.failed_on, now.verdict, now.eligible_us) == (0, (), (), Reason.NONE, None)
    assert [d.node(name).strikes for name in ("n1", "n2")] == [0, 0]


def test_an_exit_with_0_after_the_stop_of_a_gang_that_fails_does_not_make_it_succeed() -> None:
    d = cluster(nodes=2)
    job = running(d, gang())
    d.step(d.exited(job, 2, exit_code=7))
    for task in (0, 1):
        assert d.run(job, task).stop_reason is StopReason.GANG
        d.step(d.exited(job, task, told=True, done=True))
    assert (d.job(job).state, d.job(job).exit_code) == (JobState.FAILED, 7)


@pytest.mark.parametrize(("ask", "state", "why"), STOPS)
def test_the_story_says_what_came_of_the_checkpoint_signal(ask: Ask | None, state: JobState, why: StopReason) -> None:
    d = cluster()
    job = running(d, with_changes(spec(), checkpoint_signal="USR1"))
    stop(d, job, ask)
    assert d.run(job).stop_reason is why
    step = d.exit(job, told=True, exit_code=7, checkpoint="it did not exit within 27.0 s of SIGUSR1; SIGTERM followed")
    assert d.job(job).state is state
    (text,) = [event.text for event in step.log if event.kind in (EventKind.VACATED, EventKind.SUSPENDED)]
    assert text == "left with exit code 7; it did not exit within 27.0 s of SIGUSR1; SIGTERM followed" + TOOK.get(state, "")


def test_the_story_of_a_gang_says_it_for_each_task() -> None:
    d = cluster(nodes=2)
    job = running(d, gang(checkpoint_command="true"))
    stop(d, job, SuspendRequested)
    said = "its checkpoint command saved its work in 1.0 s"
    steps = [d.step(d.exited(job, task, told=True, yielded=True, checkpoint=said)) for task in range(3)]
    kinds = (EventKind.TASK_ENDED, EventKind.SUSPENDED)
    texts = [event.text for step in steps for event in step.log if event.kind in kinds]
    assert len(texts) == 3
    assert all(text.endswith(f"saved its work and left; {said}") for text in texts[:2])
    assert texts[2] == f"saved its work and left; {said}; it took 0.00 s to stop"
