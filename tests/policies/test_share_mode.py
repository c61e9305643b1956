"""A user changes how a job that asks for a part of a device holds it."""

import json

import pytest

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import RequeueRequested, Step, Submitted, UpdateRequested
from scheduler_service.core.model import EventKind, JobSpec, JobState, ShareMode
from scheduler_service.store.mapping import sparse_fields
from tests.core.driver import Driver, spec
from tests.core.parts import PACKED, SLICED, ask, part, places
from tests.policies.test_parts import TWO, site

EXCLUSIVE = ShareMode.EXCLUSIVE
RUNNING, QUEUED = JobState.RUNNING, JobState.QUEUED


def update(d: Driver, job: int, mode: ShareMode) -> list[str]:
    """What the story says."""
    taken: Step = d.step(UpdateRequested(job, share=mode))
    return [line.text for line in taken.log if line.kind is EventKind.UPDATED]


def again(d: Driver, *jobs: int) -> None:
    """They stop and begin again."""
    for job in jobs:
        d.step(RequeueRequested(job))
        d.step(d.exited(job, yielded=True))
        d.start(job)


def test_a_job_that_shares_its_device_with_nobody_has_it_alone_at_once() -> None:
    d = site()
    job = ask(d, part(0.5, 4000))
    assert update(d, job, EXCLUSIVE) == ["share sliced -> exclusive, from now on"]
    run = d.run(job)
    assert (run.group, run.part_ppm, run.run) == (0, 0, 1)
    assert not d.state.share_groups.rows
    other = ask(d, part(0.5, 4000))
    assert d.job(other).state is QUEUED
    assert update(d, job, EXCLUSIVE) == [], "it is so already"


def test_of_two_that_share_a_device_one_has_another_alone_from_its_next_launch_on() -> None:
    d = site(TWO)
    first, second = ask(d, part(0.5, 4000)), ask(d, part(0.5, 4000))
    assert places(d, first, second) == [("n1", 0)] * 2
    assert update(d, second, EXCLUSIVE) == ["share sliced -> exclusive, from its next launch on"]
    assert d.job(second).spec.share is SLICED
    assert d.run(second).group == d.run(first).group != 0
    again(d, second)
    assert d.job(second).spec.share is EXCLUSIVE
    assert places(d, first, second) == [("n1", 0), ("n1", 1)]
    assert d.run(second).group == 0
    assert update(d, second, SLICED) == ["share exclusive -> sliced, from its next launch on"]
    again(d, second)
    assert places(d, second) == [("n1", 0)]
    assert d.run(second).part_ppm == 500_000


def test_the_change_is_taken_back_before_it_counts() -> None:
    d = site()
    first, _ = ask(d, part(0.5, 4000)), ask(d, part(0.5, 4000))
    update(d, first, EXCLUSIVE)
    assert update(d, first, SLICED) == ["share exclusive -> sliced"]
    assert d.job(first).share_next is None


def test_a_job_that_waits_has_the_change_at_once_and_its_submission_stays_what_it_was() -> None:
    d = site()
    ask(d, spec(1))
    waits = ask(d, part(0.5, 4000, share=PACKED))
    assert update(d, waits, SLICED) == ["share packed -> sliced"]
    job = d.job(waits)
    assert (job.spec.share, job.as_submitted().share) == (SLICED, PACKED)
    update(d, waits, EXCLUSIVE)
    assert (d.job(waits).spec.share, d.job(waits).as_submitted().share) == (EXCLUSIVE, PACKED)


@pytest.mark.parametrize(
    ("what", "mode", "why"),
    [
        (spec(1), SLICED, "cannot be made sliced: it asks for whole devices"),
        (part(memory=4000), SLICED, "cannot be made sliced: it asks for memory of a device"),
    ],
)
def test_what_cannot_be_is_refused_in_words(what: JobSpec, mode: ShareMode, why: str) -> None:
    d = site()
    job = ask(d, what)
    refused = d.reply(UpdateRequested(job, share=mode))
    assert isinstance(refused, FailedPrecondition)
    assert why in str(refused)
    assert d.job(job).state is RUNNING


def test_a_repeated_submission_is_known_after_the_change() -> None:
    d = site()
    what = part(0.5, 4000)
    answer = d.reply(Submitted("ann", "once", what))
    update(d, answer.job_id, EXCLUSIVE)  # type: ignore[union-attr]
    assert d.reply(Submitted("ann", "once", what)) == answer


def test_a_new_leader_knows_of_the_change() -> None:
    d = site(TWO)
    first, second = ask(d, part(0.5, 4000)), ask(d, part(0.5, 4000))
    update(d, second, EXCLUSIVE)
    again(d, second)
    update(d, first, PACKED)
    for job in (d.job(first), d.job(second)):
        submitted = sparse_fields.to_spec(json.loads(json.dumps(sparse_fields.of_spec(job.as_submitted()))))
        state = sparse_fields.to_job(json.loads(json.dumps(sparse_fields.of_job(job))))
        assert submitted["share"] is SLICED
        assert (state.get("share_now"), state.get("share_next")) == (job.share_now, job.share_next)
