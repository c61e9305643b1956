"""The grace period of a job follows from what its saves take, or is what its user says."""

from typing import Any

import pytest

from scheduler_service.core.errors import AlreadyExists, FailedPrecondition
from scheduler_service.core.handlers.grace import is_more
from scheduler_service.core.messages import (
    Accepted,
    GraceWanted,
    SaveFailed,
    StepTooLong,
    Stopped,
    Submitted,
    SuspendRequested,
    UpdateRequested,
)
from scheduler_service.core.model import Array, EventKind, Job, JobSpec, RunKey
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import DEFAULTS
from scheduler_service.core.model.values import SECOND
from tests.core.driver import Driver, spec


def submitted(d: Driver, given: bool = False, **more: Any) -> int:
    """A job whose grace period is that of the site, 30 s, or of its user."""
    asked = Submitted("ann", "once", with_changes(spec(grace=30), **more), given)
    reply = d.reply(asked)
    assert isinstance(reply, Accepted)
    return reply.job_id


def running(given: bool = False, **more: Any) -> tuple[Driver, int]:
    d = Driver(settings=DEFAULTS._replace(grace_limit_us=100 * SECOND))
    d.join("n1")
    job = submitted(d, given, **more)
    d.step(d.started(job))
    return d, job


def asks(d: Driver, job: int, seconds: float, node: str = "n1") -> list[str]:
    """A run asks for so much. What the story says of it."""
    took = d.step(GraceWanted(node, RunKey(job, 1), round(seconds * SECOND)))
    longer = (EventKind.UPDATED, "-> ")
    assert all((longer[1] in entry.text) is (entry.kind is longer[0]) for entry in took.log)
    assert all(entry.kind in (EventKind.UPDATED, EventKind.GRACE_TOO_SHORT) for entry in took.log)
    return [entry.text for entry in took.log]


def grace(d: Driver, job: int) -> float:
    return d.job(job).spec.grace_us / SECOND


def test_a_job_gets_what_its_saves_ask_for_and_is_stopped_with_it() -> None:
    d, job = running()
    assert asks(d, job, 45) == ["grace period 30 s -> 45 s: its saves take so long"]
    assert grace(d, job) == 45
    assert asks(d, job, 45) == asks(d, job, 50) == asks(d, job, 20) == []
    assert asks(d, job, 60) == ["grace period 45 s -> 60 s: its saves take so long"]
    (stop,) = [order.desired for order in d.step(SuspendRequested(job)).orders]
    assert isinstance(stop, Stopped)
    assert stop.grace_us == 60 * SECOND
    assert d.job(job).as_submitted() == spec(grace=30)


def test_the_candidates_for_preemption_have_it_at_once() -> None:
    d, job = running()
    asks(d, job, 45)
    assert [found[2] for found in d.state.candidates.snapshot().values()] == [45 * SECOND]


def test_above_the_limit_of_the_site_a_job_keeps_what_it_has_and_its_story_says_so_once() -> None:
    d, job = running()
    (said,) = asks(d, job, 101)
    assert said == (
        "its saves ask for a grace period of 101 s, the site allows 100 s, and it keeps 30 s: save periodically, or set one by "
        "`ebb update --grace`"
    )
    assert grace(d, job) == 30
    assert asks(d, job, 101) == asks(d, job, 90) == []
    assert d.job(job).grace_wanted_us == 101 * SECOND


def test_what_a_user_has_given_stays() -> None:
    d, job = running(given=True)
    assert asks(d, job, 45) == ["its saves ask for a grace period of 45 s, and its user has given it 30 s"]
    assert grace(d, job) == 30
    d.step(UpdateRequested(job, grace_us=50 * SECOND))
    assert grace(d, job) == 50
    assert d.job(job).as_submitted() == spec(grace=30)


def test_a_user_has_it_follow_again() -> None:
    d, job = running(given=True)
    asks(d, job, 45)
    told = d.step(UpdateRequested(job, grace_follows=True))
    assert [entry.text for entry in told.log] == ["grace period 30 s -> 45 s, which follows from its saves"]
    assert grace(d, job) == 45
    assert not d.step(UpdateRequested(job, grace_follows=True)).log, "it does so already"
    d.step(UpdateRequested(job, grace_us=5 * SECOND))
    assert not d.job(job).grace_follows
    assert grace(d, job) == 5


def test_a_request_that_is_repeated_is_the_same_after_a_change() -> None:
    d, job = running()
    asks(d, job, 45)
    assert submitted(d) == job
    assert isinstance(d.reply(Submitted("ann", "once", spec(grace=45))), AlreadyExists)


def test_what_is_said_of_others_changes_nothing() -> None:
    d, job = running()
    d.join("n2")
    assert asks(d, job, 45, node="n2") == asks(d, job + 1, 45) == []
    d.step(d.exited(job))
    assert asks(d, job, 45) == []


def test_elements_of_an_array_have_that_of_the_array_and_ask_for_themselves() -> None:
    d = Driver()
    d.join("n1")
    job = submitted(d, array=Array(3, 1))
    d.step(UpdateRequested(job, grace_us=20 * SECOND), UpdateRequested(job, grace_follows=True))
    first = job + 1
    d.step(d.started(first))
    asks(d, first, 45)
    assert (grace(d, first), grace(d, job)) == (45, 30)
    d.step(UpdateRequested(job, grace_us=10 * SECOND))
    assert grace(d, first) == 10
    d.step(d.exited(first))
    assert grace(d, first + 1) == 10
    assert not d.job(first + 1).grace_follows


def test_steps_that_are_skipped_are_said_once_and_hold_for_elements_that_begin_later() -> None:
    d = Driver()
    d.join("n1")
    job = submitted(d, array=Array(3, 1))
    (told, element) = d.step(UpdateRequested(job, skip_steps=500)).log
    assert [told.text, element.text] == ["its next launch skips the steps up to 500"] * 2
    assert not d.step(UpdateRequested(job, skip_steps=500)).log
    first = job + 1
    d.step(d.started(first), d.exited(first))
    assert d.job(first + 1).skip_steps == 500
    assert [entry.text for entry in d.step(UpdateRequested(first + 1, skip_steps=0)).log] == ["no step is skipped"]
    assert (d.job(job).skip_steps, d.job(first + 1).skip_steps) == (500, 0)


@pytest.mark.parametrize(("more", "seconds"), [({"checkpoint_signal": "USR1@20"}, 19), ({"checkpoint_command": "save"}, 0)])
def test_too_little_for_a_checkpoint_signal_or_command_is_refused(more: dict[str, Any], seconds: int) -> None:
    d, job = running(**more)
    refused = d.reply(UpdateRequested(job, grace_us=seconds * SECOND))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "GRACE_TOO_SHORT"
    assert f"a grace period of {seconds} s leaves no time" in str(refused)
    assert isinstance(d.reply(UpdateRequested(job, grace_us=20 * SECOND)), Accepted)


def test_the_engine_hears_seldom() -> None:
    job = Job(1, spec(grace=30), "ann", "", 0, grace_wanted_us=40 * SECOND)
    assert not is_more(job, 49 * SECOND)
    assert is_more(job, 50 * SECOND)
    assert not is_more(with_changes(job, spec=spec(grace=60)), 50 * SECOND)


def test_the_spec_is_that_of_the_submission_in_every_other_field() -> None:
    asked: JobSpec = with_changes(spec(grace=30), name="x", priority=3)
    job = Job(1, asked, "ann", "", 0)
    assert job.with_grace(SECOND).with_grace(2 * SECOND).as_submitted() == asked
    assert job.with_grace(SECOND).spec == with_changes(asked, grace_us=SECOND)


@pytest.mark.parametrize(("evaluated", "what"), [(False, "a step"), (True, "an evaluation")])
def test_a_step_that_is_longer_than_the_grace_period_is_told(evaluated: bool, what: str) -> None:
    d, job = running(given=True)
    (line,) = d.step(StepTooLong("n1", RunKey(job, 1), 40 * SECOND, evaluated)).log
    said = f"{what} takes 40 s, the grace period is 30 s: a stop may end the run before it has saved"
    assert (line.kind, line.text, line.run) == (EventKind.GRACE_TOO_SHORT, said, 1)
    d.step(UpdateRequested(job, grace_us=60 * SECOND))
    assert not d.step(StepTooLong("n1", RunKey(job, 1), 40 * SECOND)).log, "it is long enough now"
    assert not d.step(StepTooLong("n1", RunKey(job, 7), 400 * SECOND)).log, "of a run that is over"


def test_a_save_that_fails_is_told() -> None:
    d, job = running()
    (line,) = d.step(SaveFailed("n1", RunKey(job, 1), "No space left on device", 900, 2)).log
    why = "it could not save, 2 times so far (No space left on device); its last checkpoint is of step 900"
    assert (line.kind, line.text) == (EventKind.SAVE_FAILED, f"{why}. It goes on, and tries again")
    assert not d.step(SaveFailed("n1", RunKey(job, 9), "No space left on device")).log
