"""Elastic jobs grow into idle devices of their server, and give them back at once (Gandiva, Figure 11)."""

from dataclasses import replace

from scheduler_service.core.model import EventKind, JobSpec, JobState, StopReason
from tests.core.driver import spec
from tests.policies.introspected import SERVER, Introspected
from tests.policies.sharing_runs import gang_of

AFTER = 300
"""Seconds: the default."""


def elastic(tasks: int = 1, most: int = 4) -> JobSpec:
    """Of one device for each task."""
    return gang_of(tasks, 1, min_tasks=1, max_tasks=most)


class Growing(Introspected):
    def begins(self, job: int) -> None:
        """Its tasks come up, if it was placed."""
        runs = self.state.runs_of(job)
        if runs and runs[0].started_us is None:
            self.step(*(self.ready(job, run.task) for run in runs))
            self.step(*(self.started(job, run.task) for run in runs))

    def stops(self, job: int) -> None:
        """It saves, leaves as it was told, and begins again."""
        self.step(*(self.exited(job, run.task, yielded=True) for run in self.state.runs_of(job)))
        self.begins(job)

    def pass_minutes(self, minutes: int) -> list[str]:
        """What the stories say of resizes."""
        return [line.text for _ in range(minutes) for line in self.step(after=60).log if line.kind is EventKind.UPDATED]


def grown(d: Growing, most: int = 4) -> int:
    """A job that has grown from 1 to 4 devices of n1."""
    job = d.submit(elastic(most=most))
    d.begins(job)
    d.pass_minutes(7)
    d.stops(job)
    return job


def test_a_job_grows_after_the_devices_have_been_idle_for_some_time() -> None:
    d = Growing("n1")
    job = d.submit(elastic())
    d.begins(job)
    assert d.pass_minutes(AFTER // 60) == []
    assert d.pass_minutes(2) == ["tasks 1 -> 4: it grows: devices of n1 were idle for 300 s"]
    assert {run.stop_reason for run in d.state.runs_of(job)} == {StopReason.RESIZED}
    d.stops(job)
    assert [run.devices for run in d.state.runs_of(job)] == [(0,), (1,), (2,), (3,)]
    assert d.job(job).state is JobState.RUNNING
    assert d.pass_minutes(20) == []


def test_a_job_without_time_to_save_does_not_grow() -> None:
    d = Growing("n1")
    d.begins(d.submit(replace(elastic(), grace_us=0)))
    assert d.pass_minutes(12) == []


def test_it_gives_back_what_a_job_needs_and_no_more_and_nobody_takes_turns() -> None:
    d = Growing("n1")
    job = grown(d)
    two = d.submit(spec(2))
    assert d.job(job).resize_to == 2
    assert d.job(two).state is JobState.QUEUED
    d.stops(job)
    d.all_begin()
    assert (len(d.state.runs_of(job)), d.job(two).state) == (2, JobState.RUNNING)
    one = d.submit(spec(1))
    assert d.job(job).resize_to == 1
    d.stops(job)
    d.all_begin()
    assert (len(d.state.runs_of(job)), d.job(one).state) == (1, JobState.RUNNING)
    assert not d.state.share_groups.rows
    d.begin(1)
    assert d.state.share_groups.rows, "below its own size nobody shrinks it: from here on, jobs take turns"


def test_nobody_grows_beyond_a_server_or_the_bounds_of_the_job_or_while_somebody_waits() -> None:
    d = Growing("n1", "n2")
    assert len(d.state.runs_of(grown(d))) == 4
    d = Growing("n1")
    assert len(d.state.runs_of(grown(d, most=2))) == 2
    d = Growing("n1", oversubscription=1)
    job = d.submit(elastic())
    d.begins(job)
    waits = d.submit(spec(4))
    assert d.pass_minutes(10) == []
    d.cancel(waits)
    assert len(d.pass_minutes(8)) == 1


def test_devices_that_are_used_in_between_were_not_idle() -> None:
    d = Growing("n1")
    job = d.submit(elastic())
    d.begins(job)
    d.pass_minutes(4)
    other = d.begin(3)
    d.pass_minutes(2)
    d.leaves(other)
    assert d.pass_minutes(5) == []
    assert len(d.pass_minutes(3)) == 1


def test_of_two_jobs_the_one_that_gains_most_for_each_device_grows() -> None:
    d = Growing("n1")
    large, small = d.submit(elastic(2)), d.submit(elastic(1))
    d.begins(large)
    d.begins(small)
    d.pass_minutes(8)
    assert (d.job(large).resize_to, d.job(small).resize_to) == (0, 2)


def test_growth_can_be_turned_off() -> None:
    d = Growing("n1", growth=0)
    d.begins(d.submit(elastic()))
    assert d.pass_minutes(20) == []
    d.join("n2", SERVER)


def two_jobs(d: Growing, fast: int) -> tuple[int, int]:
    """Two elastic jobs, the first of which has had two devices before, with mini-batches of so many ms instead of 100; an idle
    device is left."""
    first, filler = d.submit(elastic(most=2)), d.begin(2)
    d.begins(first)
    d.profile({first: 100})
    d.pass_minutes(7)
    d.stops(first)
    assert len(d.state.runs_of(first)) == 2
    d.profile({first: fast})
    other = d.submit(elastic(most=2))
    d.stops(first)
    d.begins(other)
    assert [len(d.state.runs_of(job)) for job in (first, other)] == [1, 1]
    d.leaves(filler)
    return first, other


def test_of_two_jobs_the_one_whose_measured_progress_is_worth_more_grows_first() -> None:
    d = Growing("n1", packing=0)
    first, other = two_jobs(d, fast=90)
    assert any(text.startswith("tasks 1 -> 2") for text in d.pass_minutes(7))
    assert d.job(other).resize_to == 2
    assert d.job(first).resize_to == 0
    d = Growing("n1", packing=0)
    first, other = two_jobs(d, fast=50)
    d.pass_minutes(7)
    assert d.job(first).resize_to == 2


def test_a_job_that_was_no_faster_with_more_tasks_does_not_grow() -> None:
    d = Growing("n1", packing=0)
    first, other = two_jobs(d, fast=100)
    d.leaves(other)
    assert d.pass_minutes(12) == []
    assert len(d.state.runs_of(first)) == 1
