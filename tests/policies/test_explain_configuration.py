"""Why a job runs in the configuration that it has: told from its story alone."""

from collections.abc import Sequence

from scheduler_service.core.messages import Submitted
from scheduler_service.core.model import Configuration, EventKind, Job, JobEvent, JobSpec, JobState
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.explain.launch import why_in_this_configuration
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver

OTHER = Configuration(Vector(4000, 1, 0), estimate_us=100 * SECOND)
SPEC = JobSpec(("true",), Vector(1000, 1, 1), estimate_us=10 * SECOND, alternatives=(OTHER,))
PLACED, PREEMPTING, DROPPED = EventKind.PLACED, EventKind.PREEMPTING, EventKind.EARMARK_DROPPED


def why(*told: tuple[EventKind, str], state: JobState = JobState.RUNNING) -> str:
    job = Job(1, SPEC, "ann", "", 0, state)
    return why_in_this_configuration(job, [JobEvent(1, at, kind, text=text) for at, (kind, text) in enumerate(told)])


def test_it_is_that_of_the_last_launch() -> None:
    first, second = (PLACED, "configuration 0 (a), on n1, n2"), (PLACED, "configuration 1 (b (c))")
    assert [why(first), why(first, second), why(second, first)] == ["a", "b (c)", "a"]
    assert why(first, (PLACED, "configuration 1")) == "", "another policy compared nothing"
    assert why((PLACED, "on n1, n2")) == ""


def test_a_job_that_waits_has_no_configuration_and_one_that_has_ended_keeps_its_last() -> None:
    told = PLACED, "configuration 0 (a)"
    assert [why(told, state=state) for state in JobState] == [
        "" if state in (JobState.QUEUED, JobState.SUSPENDED) else "a" for state in JobState
    ]


def test_a_job_for_which_others_left_was_placed_by_what_was_compared_before() -> None:
    chosen, placed = (PREEMPTING, "configuration 1 (a)"), (PLACED, "configuration 1")
    assert why(chosen, placed) == "a"
    assert why(chosen, placed, placed) == "", "the next launch had nobody leave"
    assert why(chosen, (DROPPED, "it starts on n2"), placed) == "", "it started elsewhere"
    assert why((PREEMPTING, ""), placed) == ""


def test_what_was_compared_stays_what_it_was_whatever_changes_later() -> None:
    made = stages("allox", PreemptionSettings(), own={"alpha": 1.0})
    d, story = Driver(made.policy, order=order_of(made)), list[JobEvent]()
    d.join("gpu", Vector(1000, 100, 1))
    d.join("cpu", Vector(4000, 100, 0))
    story += d.step(*(Submitted("ann", "", SPEC) for _ in range(2))).log
    first, second = sorted(d.state.jobs.rows)
    d.start(first)
    story += d.step(after=4).log
    assert _of(d, second, story) == ""
    story += d.exit(first).log
    assert _of(d, second, story) == "estimated: configuration 0 10 s, configuration 1 100 s"
    assert why_in_this_configuration(d.ended[first], [line for line in story if line.job_id == first]).startswith("estimated: ")


def test_how_long_each_configuration_would_have_waited_is_told() -> None:
    made = stages("allox", PreemptionSettings(), own={"alpha": 1.0})
    d = Driver(made.policy, order=order_of(made))
    d.join("gpu", Vector(1000, 100, 1))
    d.join("cpu", Vector(4000, 100, 0))
    first = d.submit(SPEC)
    d.start(first)
    d.step(after=4)
    story = d.step(Submitted("ann", "", JobSpec(("true",), SPEC.demand, estimate_us=200 * SECOND, alternatives=(OTHER,)))).log
    assert _of(d, first + 1, story) == "estimated: configuration 0 200 s after a wait of 6 s, configuration 1 100 s"


def _of(d: Driver, job_id: int, story: Sequence[JobEvent]) -> str:
    return why_in_this_configuration(d.job(job_id), [line for line in story if line.job_id == job_id])
