"""What follows from parks in the rows: actions of policies, share groups, time that counts, and what is loaded."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.invariants import check
from scheduler_service.core.messages import (
    Park,
    Place,
    ResumeRequested,
    RunParked,
    RunResumed,
    Share,
    Spot,
    SuspendRequested,
    Unpark,
)
from scheduler_service.core.model import EventKind, JobSpec, JobState, OperationPhase, RunKey, RunPhase
from scheduler_service.core.model.launch_time import executed_us, execution_time_parts, parked_us
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.operations import parking
from scheduler_service.core.state.load_check import contradictions
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.las import attained_service
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.remaining_time import remaining
from tests.core.charged import check_charges
from tests.core.driver import Driver
from tests.core.test_parking import ROOMY, desk, is_parked, park, parked, phase, running, told

Rows = dict[tuple[str, Any], Any]


# ---- actions of policies -------------------------------------------------------------------------------------------------


def refused(d: Driver, *actions: Any) -> str | None:
    """Why a plan is refused; what it does is undone."""
    before = d.state.savepoint()
    answer = enact(d.state, actions, d.now)
    d.state.undo(before)
    return answer


def acts(d: Driver, *actions: Any) -> None:
    assert enact(d.state, actions, d.now) is None


def test_a_policy_parks_a_job_and_has_it_go_on() -> None:
    d = desk()
    job = running(d)
    acts(d, Park(job, "a trial waits"))
    assert (d.run(job).phase, d.state.log[-1].text) == (RunPhase.PARKING, "a trial waits")
    d.state.adopt()
    node, run = d.where(job), d.run(job)
    event = RunParked(node.name, node.boot_id, d._next(node), run.key, "driver", 1)
    parking.run_parked(d.state, event, run, d.now)
    assert d.job(job).state is JobState.SUSPENDED
    acts(d, Unpark(job))
    assert (d.run(job).phase, d.job(job).state) == (RunPhase.RESUMING, JobState.STARTING)


def test_what_a_policy_may_not_do_is_refused() -> None:
    d = desk()
    job = running(d)
    assert refused(d, Unpark(job)) == f"job {job} is not parked"
    assert refused(d, Park(99, "")) == "there is no job 99"
    assert refused(d, Park(job, ""), Park(job, "")) == f"another operation on job {job} is under way"
    park(d, job)
    is_parked(d, job)
    assert refused(d, Unpark(job)) == f"the user of job {job} has it parked"
    d.step(ResumeRequested(job))
    assert refused(d, Unpark(job)) == f"job {job} resumes already"
    assert refused(d, Park(job, "")) == f"another operation on job {job} is under way"


def test_a_user_may_resume_what_a_policy_has_parked() -> None:
    d = desk()
    job = running(d)
    assert enact(d.state, (Park(job, "probe"),), d.now) is None
    d.state.adopt()
    d.runs[d.run(job).key] = d.run(job)
    d.told[d.run(job).key] = d.run(job).generation
    is_parked(d, job)
    assert d.job(job).suspend_requested
    d.step(ResumeRequested(job))
    assert phase(d, job) is OperationPhase.RESUMING


@pytest.mark.parametrize("resumed", [False, True])
def test_what_a_policy_has_parked_and_its_user_suspends_stays_parked_until_its_user_resumes_it(resumed: bool) -> None:
    d = desk()
    job = running(d)
    acts(d, Park(job, "for another job"))
    d.state.adopt()
    d.runs[d.run(job).key] = d.run(job)
    d.told[d.run(job).key] = d.run(job).generation
    is_parked(d, job)
    other = running(d, 4)
    if resumed:
        d.step(ResumeRequested(job))
        assert phase(d, job) is OperationPhase.WAITING
    first, again = d.step(SuspendRequested(job)), d.step(SuspendRequested(job, park=True))
    said = [line.text for line in first.log if line.kind is EventKind.SUSPEND_REQUESTED]
    assert said == ["" if resumed else "it stays parked"]
    assert not again.log, "a repeated call does nothing"
    d.exit(other)
    assert (phase(d, job), d.job(job).suspend_requested) == (OperationPhase.PARKED, True)
    assert refused(d, Unpark(job)) == f"the user of job {job} has it parked"
    d.step(ResumeRequested(job))
    assert phase(d, job) is OperationPhase.RESUMING


# ---- share groups ---------------------------------------------------------------------------------------------------------


def shared(d: Driver, job: int, memory: int) -> Share:
    key = d.run(job).key
    return Share((Row((key,)),), ((key, memory),), open=True)


def test_the_residue_of_a_parked_run_counts_in_a_share_group_on_its_devices() -> None:
    d = desk()
    parked(d, 1)
    one, two = (d.run(running(d, 1)).key for _ in range(2))
    limit = 40_960 * 92 // 100

    def together(memory: int) -> str | None:
        return refused(d, Share((Row((one,)), Row((two,))), ((one, memory), (two, memory)), open=True))

    text = f"device 0 of node n1 would have {limit + 512} MiB in use of {limit} MiB that share groups may use"
    assert together(limit) == text, "a residue of 300 MiB was reported; the site allows for more"
    assert together(limit - 512) is None
    assert refused(d, shared(d, one.job_id, limit)) is None, "a run that has the device alone finds less memory there"


def test_a_run_that_was_parked_may_take_turns_later() -> None:
    d = desk()
    job = parked(d, 1)
    d.step(ResumeRequested(job))
    d.step(told(d, RunResumed, job))
    keys = [d.run(job).key, d.run(running(d, 1)).key]
    acts(d, Share(tuple(Row((key,)) for key in keys), tuple((key, 1000) for key in keys)))
    check(d.state)
    assert d.run(job).parked_mib == 1000


def test_a_parked_run_joins_no_share_group_and_a_member_is_not_parked() -> None:
    d = desk()
    job = parked(d, 1)
    assert refused(d, shared(d, job, 1)) == "run 1.1 is parked, or is being parked or resumed"
    other = running(d, 1)
    assert "shares its devices with others" in str(refused(d, shared(d, other, 1024), Park(other, "")))


def test_nothing_is_placed_on_devices_that_a_run_has_again() -> None:
    d = desk()
    job = parked(d, 8)
    d.step(ResumeRequested(job))
    assert phase(d, job) is OperationPhase.RESUMING
    waits = d.submit(devices=8)
    assert refused(d, Place(waits, (Spot(1, tuple(range(8))),))) == f"job {waits} does not fit on n1"


# ---- time that counts ------------------------------------------------------------------------------------------------------


def shown(d: Driver, job: int) -> int:
    """The time that users are told, as they would add it up."""
    so_far, since, _ = execution_time_parts(run for key, run in d.runs.items() if key.job_id == job)
    return d.job(job).ran_us + so_far + (0 if since is None else d.now - since)


def test_parked_time_is_no_service_and_no_work() -> None:
    d = desk()
    job = running(d, 8)
    d.step(after=10)
    park(d, job)
    is_parked(d, job)
    d.step(after=1000)
    assert executed_us(d.state.runs_of(job), d.now) == shown(d, job) == 12 * SECOND
    assert attained_service(d.state, d.job(job)) == 8 * 12 * SECOND
    d.step(ResumeRequested(job))
    d.step(told(d, RunResumed, job), after=3)
    assert attained_service(d.state, d.job(job)) == 8 * 15 * SECOND
    d.step(after=5)
    assert shown(d, job) == 20 * SECOND
    d.exit(job, exit_code=1)
    assert d.job(job).ran_us == shown(d, job) == 20 * SECOND
    assert parked_us(d.runs[RunKey(job, 1)], d.now) == 1000 * SECOND


def test_nobody_knows_when_a_parked_job_ends() -> None:
    d = desk()
    job = d.submit(JobSpec(("x",), Vector(1000, 1024, 8), estimate_us=100 * SECOND))
    d.start(job)
    d.step(SuspendRequested(job, park=True), after=10)
    assert remaining(d.state, d.job(job), d.now) == 90 * SECOND
    is_parked(d, job)
    assert remaining(d.state, d.job(job), d.now) is None
    d.step(ResumeRequested(job), after=500)
    assert remaining(d.state, d.job(job), d.now) == 88 * SECOND


def test_fair_share_charges_a_parked_run_with_nothing() -> None:
    made = stages("fair", PreemptionSettings())
    d = Driver(made.policy, order=order_of(made))
    d.join("n1", ROOMY)
    job = d.submit(devices=8)
    d.start(job)
    before = dict(d.state.charged)
    d.step(SuspendRequested(job, park=True))
    is_parked(d, job)
    assert before
    assert d.state.charged == {}
    check_charges(d.state)
    d.step(ResumeRequested(job))
    assert d.state.charged == before


# ---- what is loaded ---------------------------------------------------------------------------------------------------------


def rows() -> Rows:
    d = desk()
    parked(d, 4)
    running(d, 8)
    return {(table.name, key): row for table in d.state.tables() for key, row in table.rows.items()}


@pytest.mark.parametrize(
    ("spoil", "told_so"),
    [
        (lambda r: r.update({("operation", 9): replace(r["operation", 1], id=9)}), "job 1 has two operations, 1 and 9"),
        (
            lambda r: r.update({("operation", 1): replace(r["operation", 1], job_id=7, source=RunKey(7, 1))}),
            "operation 1 is of job 7, which has ended",
        ),
        (
            lambda r: r.update({("operation", 1): replace(r["operation", 1], source=RunKey(1, 2))}),
            "operation 1 changes run 1.2, which has ended",
        ),
        (
            lambda r: r.update({("operation", 1): replace(r["operation", 1], target=RunKey(1, 2))}),
            "operation 1 goes to run 1.2, which has ended",
        ),
    ],
)
def test_operations_that_do_not_go_with_jobs_are_told(spoil: Callable[[Rows], object], told_so: str) -> None:
    spoilt = rows()
    assert not list(contradictions((table, key, row) for (table, key), row in spoilt.items()))
    spoil(spoilt)
    assert list(contradictions((table, key, row) for (table, key), row in spoilt.items())) == [told_so]


def test_a_parked_run_is_no_load_of_its_node() -> None:
    d = Driver(order=order_of(stages("gandiva", PreemptionSettings())))
    d.join("n1", ROOMY)
    job = parked(d, 2)
    assert d.state.loads().requested[1] == 0
    d.step(ResumeRequested(job))
    assert d.state.loads().requested[1] == 2
