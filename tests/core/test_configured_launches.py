"""What a job with several configurations keeps from one launch to the next, and how it waits."""

from dataclasses import replace

from scheduler_service.core.invariants import check
from scheduler_service.core.messages import (
    AddEarmark,
    FenceRequested,
    NodeDeleteRequested,
    RequeueRequested,
    SuspendRequested,
)
from scheduler_service.core.model import (
    Array,
    EarmarkPhase,
    JobClass,
    JobSpec,
    JobState,
    NodeSelector,
    Reason,
    Retry,
    TaskGroup,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import Options, PreemptionSettings
from scheduler_service.policies.queueing.backfill import backfill, reserve
from scheduler_service.policies.remaining_time import remaining, work_left
from tests.core.configured import LARGE, SMALL, either, explained, on_cpus, site
from tests.core.driver import orders_to_start, spec
from tests.core.test_enact import DECISION, Desk
from tests.policies.made import fitgpp

# ---- from launch to launch -----------------------------------------------------------------------------------------------


def test_a_preempted_job_starts_again_in_another_configuration_and_its_times_add_up() -> None:
    d = site(min_run_us=0)
    job = d.submit(either(8, on_cpus(estimate_us=200 * SECOND), estimate_us=100 * SECOND))
    d.start(job)
    d.step(after=40)
    trial = d.trial(8)
    assert d.job(job).state is JobState.STOPPING
    d.step(after=2)
    taken = d.exit(job, yielded=True)
    assert orders_to_start(taken) == [d.run(trial).key, d.run(job).key]
    assert (d.job(job).configuration, d.job(job).run, d.where(job).name) == (1, 2, "n2")
    assert (d.job(job).ran_us, d.job(job).ran_in) == (42 * SECOND, (42 * SECOND, 0))
    d.start(trial, job)
    d.step(after=30)
    assert remaining(d.state, d.job(job), d.now) == (116 - 30) * SECOND, "58 % of 200 s were left"
    d.step(SuspendRequested(job))
    d.exit(job, yielded=True)
    assert d.job(job).ran_in == (42 * SECOND, 30 * SECOND)
    assert d.job(job).ran_us == 72 * SECOND
    assert (work_left(d.job(job), 0), work_left(d.job(job), 1)) == (43 * SECOND, 86 * SECOND)


def test_without_an_estimate_of_a_configuration_its_time_counts_as_the_other_s() -> None:
    d = site()
    job = with_changes(
        d.job(d.submit(either(8, estimate_us=100 * SECOND))), ran_in=(10 * SECOND, 20 * SECOND), ran_us=30 * SECOND
    )
    assert (work_left(job, 0), work_left(job, 1)) == (70 * SECOND, None)
    late = with_changes(job, ran_in=(150 * SECOND, 0))
    assert work_left(late, 0) == -50 * SECOND


def test_a_failed_job_is_tried_again_in_another_configuration() -> None:
    d = site(retry_pause_us=SECOND)
    job = d.submit(either(8, retry=Retry(2)))
    d.start(job)
    d.step(after=5)
    d.exit(job, exit_code=3)
    other = d.submit(spec(1))
    d.step(after=2)
    assert (d.job(job).configuration, d.where(job).name, d.where(other).name) == (1, "n2", "n1")
    assert d.job(job).ran_in == (5 * SECOND, 0)
    d.start(job)
    d.step(after=7)
    d.exit(job, exit_code=3)
    d.cancel(other)
    d.exit(other)
    d.step(after=3)
    assert (d.job(job).configuration, d.job(job).ran_in) == (0, (5 * SECOND, 7 * SECOND))
    d.start(job)
    d.step(after=1)
    d.exit(job)
    assert (d.job(job).state, d.job(job).ran_in) == (JobState.SUCCEEDED, (6 * SECOND, 7 * SECOND))
    assert d.job(job).ran_us == sum(d.job(job).ran_in)


def test_a_lost_run_is_placed_again_where_there_is_room() -> None:
    d = site()
    job = d.submit(either(8))
    d.start(job)
    d.silence("n1")
    assert d.job(job).configuration == 0
    d.step(FenceRequested("n1", "op"))
    assert (d.job(job).state, d.job(job).configuration, d.where(job).name) == (JobState.STARTING, 1, "n2")
    d.join("n1", boot="b")
    d.start(job)
    assert d.states(job) == [JobState.RUNNING]


def test_a_gang_beside_a_single_task() -> None:
    """Both ways: a gang that becomes one task, and one task that becomes a gang."""
    d = site(gang_start_us=60 * SECOND)
    task = Vector(1_000, 1_024, 4)
    gang = with_changes(spec(8), demand=Vector(2_000, 2_048, 8), gang=(TaskGroup(2, task),), alternatives=(on_cpus(),))
    job = d.submit(gang)
    for rank in range(2):
        d.step(d.ready(job, rank))
    assert (len(d.state.runs_of(job)), len(d.job(job).task_nodes), bool(d.job(job).rendezvous)) == (2, 2, True)
    for rank in range(2):
        d.step(d.started(job, rank))
    trial = d.trial(8)
    for rank in range(2):
        d.exit(job, task=rank, yielded=True)
    row = d.job(job)
    assert (row.configuration, row.task_nodes, row.rendezvous, row.start_by_us) == (1, (), "", None)
    assert len(d.state.runs_of(job)) == 1
    d.start(job, trial)
    assert d.states(job, trial) == [JobState.RUNNING] * 2
    d.exit(trial)
    d.step(RequeueRequested(job))
    d.exit(job, yielded=True)
    assert (d.job(job).configuration, len(d.state.runs_of(job)), d.job(job).start_by_us) == (0, 2, d.now + 60 * SECOND)


def test_each_element_of_an_array_has_its_own_configuration() -> None:
    d = site()
    array = d.submit(either(4, array=Array(5)))
    elements = sorted(d.state.elements_of[array])
    assert [d.job(job).configuration for job in elements] == [0, 0, 1]
    assert all(d.job(job).spec.alternatives == d.job(array).spec.alternatives for job in elements)
    d.start(*elements)
    d.step(after=3)
    d.exit(elements[2])
    assert d.ended[elements[2]].ran_in == (0, 3 * SECOND)
    fourth = max(d.state.elements_of[array])
    assert d.job(fourth).configuration == 1
    d.exit(elements[0])
    assert d.job(max(d.state.elements_of[array])).configuration == 0
    assert (d.job(array).ran_in, d.job(array).configuration) == ((), 0)


# ---- what is kept --------------------------------------------------------------------------------------------------------


def test_what_is_kept_is_for_the_configuration_for_which_runs_leave() -> None:
    """A trial that may run on devices or on CPUs: nobody may be preempted for devices."""
    d = site(min_run_us=0)
    holds, victim = d.trial(8), d.submit(spec(0, cpu=4_000))
    d.start(holds, victim)
    trial = d.submit(with_changes(either(8), job_class=JobClass.TRIAL))
    kept = d.earmark(trial)
    assert kept is not None
    assert (kept.configuration, kept.node, kept.want, kept.phase) == (1, 2, Vector(4_000, 1024), EarmarkPhase.VACATING)
    assert kept.victims == (d.run(victim).key,)
    taken = d.exit(victim, yielded=True)
    assert orders_to_start(taken) == [d.run(trial).key]
    assert (d.job(trial).configuration, d.where(trial).name) == (1, "n2")


def test_a_job_with_something_kept_starts_there_though_its_node_has_other_labels_by_then() -> None:
    d = Desk()
    d.join("n1", LARGE)
    d.step(replace(d.seen("n2", SMALL), labels=(("zone", "a"),)))
    d.submit(either(8, on_cpus(nodes=NodeSelector(labels=(("zone", "a"),)))))
    d.do(AddEarmark(1, 2, Vector(4_000, 1024), (), DECISION, configuration=1))
    d.step(replace(d.seen("n2", SMALL), labels=(("zone", "b"),)))
    d.policy = fitgpp(PreemptionSettings())
    d.state.pending.policies = True
    d.step()
    assert (d.job(1).configuration, d.where(1).name) == (1, "n2")


# ---- jobs that fit nowhere -------------------------------------------------------------------------------------------------


def test_a_job_of_which_no_configuration_fits_any_more_says_why_for_each_and_starts_when_one_does() -> None:
    d = site()
    asks = either(8, on_cpus(cells=CellRequest()), nodes=NodeSelector(names=("n1",)))
    asks = with_changes(asks, alternatives=(on_cpus(nodes=NodeSelector(names=("n2",))),))
    jobs = [d.submit(asks) for _ in range(3)]
    d.start(*jobs[:2])
    for name in ("n1", "n2"):
        d.silence(name)
        d.step(FenceRequested(name, "op"))
        d.step(NodeDeleteRequested(name))
    d.join("n3", Vector(1_000, 1024))
    for job in jobs:
        assert (d.job(job).state, d.job(job).reason) == (JobState.QUEUED, Reason.TOO_LARGE)
        assert d.job(job).detail == (
            "configuration 0: there is no node that is named n1; configuration 1: there is no node that is named n2"
        )
    d.join("n2", SMALL, boot="b")
    assert [d.job(job).reason for job in jobs] == [Reason.NONE, Reason.NO_ROOM, Reason.NONE]
    assert (d.job(jobs[0]).state, d.job(jobs[0]).configuration) == (JobState.STARTING, 1)
    d.join("n1", boot="b")
    assert (d.job(jobs[1]).state, d.job(jobs[1]).configuration) == (JobState.STARTING, 0)
    assert d.job(jobs[2]).state is JobState.QUEUED


def test_why_it_waits_is_told_for_each_configuration() -> None:
    d = site()
    d.start(d.submit(spec(2)))
    d.start(d.submit(spec(0, cpu=4_000)))
    job = d.submit(either(8, on_cpus(2, nodes=NodeSelector(names=("n2",))), on_cpus(3)))
    found = explained(d, job)
    assert [blocker.reason for blocker in found.blockers] == [Reason.NO_ROOM] * 3
    assert [blocker.detail for blocker in found.blockers] == [
        "configuration 0",
        "configuration 1; it needs a node that is named n2",
        "configuration 2",
    ]
    assert [(blocker.need.devices, blocker.nodes, blocker.large_enough) for blocker in found.blockers] == [
        (8, 2, 1),
        (0, 1, 1),
        (0, 2, 2),
    ]


# ---- backfill ------------------------------------------------------------------------------------------------------------


def timed(what: JobSpec, seconds: int) -> JobSpec:
    return with_changes(what, time_limit_us=seconds * SECOND, grace_us=0)


def test_backfill_reserves_for_the_configuration_that_has_room_soonest() -> None:
    d = site(backfill)
    n2 = NodeSelector(names=("n2",))
    d.start(d.submit(timed(spec(8), 100)), d.submit(timed(with_changes(spec(0, cpu=4_000), nodes=n2), 20)))
    head = d.submit(either(8, on_cpus(nodes=n2)))
    assert d.job(head).reason is Reason.NO_ROOM
    [first, second] = [reserve(d.state, way) for way in d.job(head).in_each_configuration()]
    assert first is not None
    assert second is not None
    assert (first.at, second.at) == (d.now + 100 * SECOND, d.now + 20 * SECOND)
    assert (first.nodes, second.nodes) == (frozenset({1}), frozenset({2}))
    longer = d.submit(timed(spec(0, cpu=1_000), 1_000))
    assert (d.job(longer).state, d.where(longer).name) == (JobState.STARTING, "n1"), "it is in nobody's way there"
    options = Options(PreemptionSettings(), backfill=True)
    found = explained(d, head, stages("fifo", options.fitgpp))
    assert found.estimate is not None
    assert found.estimate.at_us == d.now + 20 * SECOND


def test_what_would_delay_the_soonest_configuration_waits() -> None:
    d = site(backfill)
    n2 = NodeSelector(names=("n2",))
    d.start(d.submit(timed(spec(8), 100)), d.submit(timed(with_changes(spec(0, cpu=2_000), nodes=n2), 20)))
    head = d.submit(either(8, on_cpus(nodes=n2)))
    late, soon = (d.submit(timed(with_changes(spec(0, cpu=2_000), nodes=n2), seconds)) for seconds in (30, 20))
    assert [d.job(job).state for job in (head, late, soon)] == [JobState.QUEUED, JobState.QUEUED, JobState.STARTING]


def test_a_backfilled_job_takes_the_configuration_that_delays_nobody() -> None:
    d = site(backfill)
    d.start(d.submit(timed(spec(4), 100)))
    head = d.submit(spec(8))
    job = d.submit(either(4))
    assert d.job(head).reason is Reason.NO_ROOM
    assert d.job(job).state is JobState.STARTING
    assert (d.job(job).configuration, d.where(job).name) == (1, "n2")


# ---- a new leader --------------------------------------------------------------------------------------------------------


def test_the_state_made_of_the_rows_alone_goes_on_where_it_was() -> None:
    """A new leader loads rows in the order of tables, and has every index as it was."""
    d = site(min_run_us=0)
    first = d.submit(either(8))
    second = d.submit(either(8))
    d.start(first, second)
    assert d.job(second).configuration == 1
    waits = d.submit(either(8, on_cpus(nodes=NodeSelector(excluded=("n1",)))))
    trial = d.trial(8)
    again = d.state.rebuild()
    assert again.snapshot() == d.state.snapshot()
    check(again)
    assert again.jobs.rows[second].launch_spec == d.job(second).launch_spec
    assert again.suitable_for(d.job(waits).spec.in_configuration(1)).bits == 0b100  # type: ignore[union-attr]
    d.state = again
    d.exit(first, yielded=True)
    assert d.states(trial) == [JobState.STARTING]
