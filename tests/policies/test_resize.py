"""A resize to a size that does not fit waits, says for what, and is subject to the quota of its virtual cluster."""

from random import Random
from typing import Any

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import Accepted, ResizeRequested, Submitted
from scheduler_service.core.model import JobState, Reason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec
from tests.policies.tenants import Tenants, request

FITGPP = stages("fitgpp", PreemptionSettings())


def elastic(what: Any, tasks: int, most: int) -> Any:
    task = Vector(1_000, 1_024, 1)
    total = Vector(*(part * tasks for part in task))
    return with_changes(what, gang=(TaskGroup(tasks, task),), demand=total, min_tasks=1, max_tasks=most)


def test_a_job_that_grew_too_large_waits_and_is_told_for_what() -> None:
    d = Driver(FITGPP.policy)
    d.join("n1", Vector(8_000, 16_384, 4))
    d.start(other := d.submit(spec(2)))
    job = d.submit(elastic(spec(), 2, 4))
    d.step(d.ready(job, 0), d.ready(job, 1))
    d.step(d.started(job, 0), d.started(job, 1))
    d.step(ResizeRequested(job, 4))
    d.step(d.exited(job, 0, yielded=True), d.exited(job, 1, yielded=True))
    assert d.job(job).state is JobState.QUEUED
    found = explain(d.state, d.job(job), d.now, Random(0), FITGPP)
    assert [blocker.reason for blocker in found.blockers] == [Reason.NO_ROOM]
    d.step(d.exited(other))
    assert (d.job(job).state, len(d.state.runs_of(job))) == (JobState.STARTING, 4)


def test_a_larger_size_is_subject_to_the_quota() -> None:
    t = Tenants({"a": "FOUR", "b": "FOUR"})
    pool = next(iter(t.state.pools.pools)) if t.state.pools is not None else "FOUR"
    t.vc("A", (pool, "node", 1))
    t.vc("B", (pool, "node", 1))
    answer = t.reply(Submitted("ann", "", elastic(request("A", 1), 2, 8)))
    assert isinstance(answer, Accepted)
    job = answer.job_id
    t.begin(job)
    held = t.ask("A", 2)
    refused = t.reply(ResizeRequested(job, 5))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "NEVER_IN_QUOTA"
    t.step(ResizeRequested(job, 4))
    t.leave(job)
    assert t.waits(job) is Reason.RESIZED, "the node of B is idle, and not its virtual cluster's"
    t.end(held)
    assert (t.job(job).state, len(t.at(job)), t.guaranteed(job)) == (JobState.RUNNING, 4, True)
