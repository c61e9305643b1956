"""Parks in cells: a parked run gives its cells back, and has only what goes with no device."""

from typing import Any

import pytest

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import ResumeRequested, RunParked, RunResumed, SuspendRequested
from scheduler_service.core.model import JobState, OperationPhase
from scheduler_service.policies.hived.opportunistic import place_opportunistic
from scheduler_service.policies.placing.resume_placement import resuming_elsewhere
from tests.policies.tenants import OPPORTUNISTIC, Tenants

FOURS = "four-2x2"
GIB = 1 << 30


def site(host_percent: int = 50, nodes: int = 1, quota: int = 1) -> Tenants:
    t = Tenants({f"n{n}": "FOUR" for n in range(1, nodes + 1)}, host_percent=host_percent)
    t.vc("A", (FOURS, "node", quota))
    t.vc("B")
    return t


def told(t: Tenants, kind: Any, job: int, **facts: Any) -> None:
    for run in t.state.runs_of(job):
        node = t.where(job, run.task)
        t.step(kind(node.name, node.boot_id, t._next(node), run.key, **facts))


def park(t: Tenants, job: int, gib: int = 4) -> None:
    t.step(SuspendRequested(job, park_only=True))
    told(t, RunParked, job, rung="driver", moved_bytes=gib * GIB)
    for other in sorted(t.state.jobs.rows):
        t.begin(other)


def resume(t: Tenants, job: int) -> None:
    t.step(ResumeRequested(job))
    told(t, RunResumed, job)


def test_a_guaranteed_job_gives_its_cells_back_and_has_cells_again_when_it_resumes() -> None:
    t = site()
    job = t.ask("A", 4)
    assert t.guaranteed(job)
    park(t, job)
    assert (t.owned(), t.job(job).state) == ({}, JobState.SUSPENDED)
    resume(t, job)
    assert (t.guaranteed(job), t.owned()) == (True, {(FOURS, "node", 1): "A"})


def test_its_cells_are_for_others_of_its_virtual_cluster_and_it_waits_for_them() -> None:
    t = site()
    job, waits = t.ask("A", 4), t.ask("A", 4)
    park(t, job)
    assert t.guaranteed(waits), "it has all that goes with its devices, whatever is parked"
    t.step(ResumeRequested(job))
    assert t.state.operations.rows[t.state.operation_of[job]].phase is OperationPhase.WAITING
    t.end(waits)
    told(t, RunResumed, job)
    assert t.guaranteed(job)


@pytest.mark.parametrize("saves", [True, False])
def test_a_job_whose_cells_are_taken_goes_on_in_idle_cells_if_it_can_save(saves: bool) -> None:
    t = site(nodes=2)
    t.policy = resuming_elsewhere(t.policy, place_opportunistic)
    job, waits = t.ask("A", 4), t.ask("A", 4)
    t.step(SuspendRequested(job, park_only=True))
    told(t, RunParked, job, rung="cooperative", moved_bytes=4 * GIB, saves=saves)
    t.begin(waits)
    assert t.guaranteed(waits)
    t.step(ResumeRequested(job))
    operation = t.state.operations.rows[t.state.operation_of[job]]
    if not saves:
        assert operation.phase is OperationPhase.WAITING
        return
    assert operation.phase is OperationPhase.WARMING
    (target,) = [run for run in t.state.runs.rows.values() if run.awaits]
    assert (t.state.nodes.rows[target.node].name, target.guaranteed) == ("n2", False)


def test_opportunistic_jobs_are_reclaimed_from_its_cells_as_from_any() -> None:
    t = site()
    job = t.ask("A", 4)
    park(t, job)
    guest = t.ask("B", 4, guarantee=OPPORTUNISTIC)
    other = t.ask("A", 4)
    assert t.job(guest).state is JobState.STOPPING
    t.leave(guest)
    assert t.guaranteed(other)


@pytest.mark.parametrize("percent", [0, 5])
def test_where_nothing_goes_with_no_device_nothing_is_parked(percent: int) -> None:
    t = site(host_percent=percent)
    job = t.ask("A", 4)
    if percent:
        park(t, job, gib=4)
        assert t.job(job).state is JobState.RUNNING, "5 % of 64 GiB are not enough"
        return
    refusal = t.reply(SuspendRequested(job, park_only=True))
    assert isinstance(refusal, FailedPrecondition)
    assert "too little memory or CPUs beside what goes with its devices" in str(refusal)


def test_an_opportunistic_job_resumes_as_such() -> None:
    t = site()
    job = t.ask("B", 2, guarantee=OPPORTUNISTIC)
    park(t, job)
    resume(t, job)
    assert not t.guaranteed(job)
    assert t.job(job).state is JobState.RUNNING
