"""What is said of queued jobs: the one that others are said to be behind is in their way."""

from scheduler_service.core.engine import Policy
from scheduler_service.core.messages import (
    DrainRequested,
    FenceRequested,
    HoldRequested,
    NodeDeleteRequested,
    ReleaseRequested,
    UndrainRequested,
)
from scheduler_service.core.model import JobState, Reason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.queueing.backfill import backfill
from scheduler_service.run.queue_heads import heads_of
from scheduler_service.run.read_model import View
from tests.core.driver import Driver, spec
from tests.policies.made import fitgpp
from tests.policies.tenants import OPPORTUNISTIC, Tenants

LARGE = Vector(32_000, 65_536, 16)


def cluster(policy: Policy | None = None) -> Driver:
    d = Driver(policy or fitgpp(PreemptionSettings()))
    d.join()
    return d


def listed(d: Driver, job: int) -> tuple[Reason, int]:
    view = View([("job", row.id, row) for row in d.state.jobs.rows.values()], commit_no=1)
    view.heads = heads_of(d.state)
    shown = view.job(job)
    assert shown is not None
    return shown.job.reason, shown.job.cause_job


def running(d: Driver, devices: int, trial: bool = False) -> int:
    job = d.submit(devices=devices, trial=trial)
    d.start(job)
    return job


def test_nobody_is_behind_a_job_that_no_node_can_take() -> None:
    d = Driver(fifo)
    large = d.submit(devices=9)
    d.join()
    running(d, 8)
    waits = d.submit(devices=4)
    assert listed(d, large)[0] is Reason.TOO_LARGE
    assert listed(d, waits) == (Reason.NO_ROOM, 0)


def test_a_job_that_a_new_node_can_take_waits_for_those_before_it() -> None:
    d = Driver(fifo)
    gang = with_changes(spec(), gang=(TaskGroup(2, Vector(1_000, 64, 5)),), demand=Vector(2_000, 128, 10))
    large, wide, larger = d.submit(devices=16), d.submit(gang), d.submit(devices=17)
    d.join()
    running(d, 8)
    first = d.submit(with_changes(spec(8), priority=1))
    assert listed(d, first)[0] is Reason.NO_ROOM
    assert {listed(d, job)[0] for job in (large, wide, larger)} == {Reason.TOO_LARGE}
    d.step(DrainRequested("n1", "", "op"))
    d.step(d.seen("n2", LARGE), DrainRequested("n2", "", "op"))
    assert [listed(d, job) for job in (large, wide)] == [(Reason.BEHIND, first)] * 2
    assert listed(d, larger)[0] is Reason.TOO_LARGE
    d.step(UndrainRequested("n2"))
    assert d.states(first, large) == [JobState.STARTING, JobState.QUEUED]
    assert listed(d, large)[0] is Reason.NO_ROOM


def test_in_a_virtual_cluster_who_is_before_is_said_and_not_what_was_wrong_before() -> None:
    t = Tenants({"f1": "FOUR", "f2": "FOUR"})
    t.vc("A", ("four-2x2", "node", 2))
    first, never, second, third = t.ask("A", 2), t.ask("A", 4, 4), t.ask("A", 2), t.ask("A", 2)
    assert listed(t, second) == (Reason.BEHIND, never)
    t.change("A", ("four-2x2", "node", 1))
    assert (listed(t, never)[0], listed(t, third)) == (Reason.NEVER_IN_QUOTA, (Reason.BEYOND_QUOTA, 0))
    fourth = t.ask("A", 2)
    assert listed(t, fourth) == (Reason.BEHIND, third)
    urgent = t.ask("A", 4, priority=1)
    t.end(second)
    assert (listed(t, urgent), listed(t, third)) == ((Reason.BEYOND_QUOTA, 0), (Reason.BEHIND, urgent))
    t.end(first)
    assert t.job(urgent).state is JobState.RUNNING
    assert (listed(t, third), listed(t, fourth)) == ((Reason.BEYOND_QUOTA, 0), (Reason.BEHIND, third))


def test_jobs_that_no_node_can_take_are_not_looked_at_again() -> None:
    """They stand in no queue: each step would cost as much as there are of them."""
    for policy in (fifo, backfill, fitgpp(PreemptionSettings()), fitgpp(PreemptionSettings(in_order=True))):
        d = Driver(policy)
        jobs = [d.submit(devices=9), d.submit(devices=9, trial=True)]
        d.join()
        assert {listed(d, job) for job in jobs} == {(Reason.TOO_LARGE, 0)}
        assert not any(len(queue) for queue in d.state.site_queues.values())
        d.cancel(jobs[0])
        d.step(HoldRequested(jobs[1]), ReleaseRequested(jobs[1]))
        assert listed(d, jobs[1]) == (Reason.TOO_LARGE, 0)


def test_nobody_is_behind_a_trial_that_waits_for_its_victims() -> None:
    d = cluster()
    running(d, 4), running(d, 4, trial=True)
    waits, stuck, other = d.trial(4), d.trial(8), d.submit()
    assert listed(d, waits)[0] is Reason.WAITING_FOR_VICTIMS
    assert listed(d, other) == (Reason.BEHIND, stuck)


def test_a_job_that_is_held_back_by_a_trial_is_not_said_to_have_no_room() -> None:
    d = cluster()
    job, _ = running(d, 4), running(d, 4, trial=True)
    waits = d.submit(devices=2)
    assert listed(d, waits)[0] is Reason.NO_ROOM
    stuck = d.submit(with_changes(spec(8, trial=True), priority=-5))
    d.exit(job)
    assert d.free().devices == 4
    assert listed(d, waits) == (Reason.BEHIND, stuck)


def test_a_trial_whose_earmark_is_dropped_behind_one_that_is_stuck_waits_for_that() -> None:
    d = cluster()
    d.join("n2")
    running(d, 8), running(d, 8, trial=True)
    trial = d.trial(4)
    stuck = d.submit(with_changes(spec(8, trial=True), priority=5))
    assert listed(d, trial)[0] is Reason.WAITING_FOR_VICTIMS
    d.step(DrainRequested("n1", "", "op"))
    assert listed(d, trial) == (Reason.BEHIND, stuck)


def test_a_job_that_has_run_and_that_no_node_can_take_any_more_says_so() -> None:
    d = Driver(fifo)
    d.join("n1", LARGE), d.join("n2")
    large = running(d, 16)
    d.silence("n1")
    d.step(FenceRequested("n1", "op"))
    assert listed(d, large)[0] is Reason.NODES_CLOSED
    assert d.job(large).detail == "waits for node n1, which is silent"
    d.step(NodeDeleteRequested("n1"))
    running(d, 8)
    assert listed(d, large)[0] is Reason.TOO_LARGE
    assert listed(d, d.submit()) == (Reason.NO_ROOM, 0)


def test_who_is_behind_whom_for_idle_cells_follows_the_order_in_which_they_are_served() -> None:
    """Trials first, where the virtual cluster's rule preempts for them."""
    t = Tenants({"f1": "FOUR"})
    t.vc("A", ("four-2x2", "node", 1))
    t.vc("B", policy=VcPolicy("fitgpp"))
    running = t.ask("A", 4)
    plain, trial, later = (t.ask("B", 4, guarantee=OPPORTUNISTIC, trial=trial) for trial in (False, True, True))
    assert listed(t, trial) == (Reason.NO_ROOM, 0)
    assert [listed(t, job) for job in (plain, later)] == [(Reason.BEHIND, trial)] * 2
    t.end(running)
    assert t.states(plain, trial) == [JobState.QUEUED, JobState.RUNNING]
