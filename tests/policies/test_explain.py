"""Why a job does not run: each reason with its numbers, and when it may start."""

from random import Random

from scheduler_service.core.engine import step
from scheduler_service.core.messages import DrainRequested, HoldRequested, Submitted, SuspendRequested
from scheduler_service.core.model import Array, Dependency, DependencyKind, JobSpec, JobState, Reason, Retry, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import Blocker, Estimate, Explanation, explain
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages
from tests.core.driver import Driver, spec

FITGPP = stages("fitgpp", PreemptionSettings())
FIFO = stages("fifo", PreemptionSettings())


def cluster(chosen: Stages = FITGPP, nodes: int = 1) -> Driver:
    d = Driver(chosen.policy)
    for number in range(nodes):
        d.join(f"n{number + 1}")
    return d


def running(d: Driver, devices: int, *, estimate: int = 0, limit: int = 0, trial: bool = False, grace: int = 10) -> int:
    what = with_changes(spec(devices, trial, grace), estimate_us=estimate * SECOND, time_limit_us=limit * SECOND)
    job = d.submit(what)
    d.start(job)
    return job


def why(d: Driver, job: int, chosen: Stages = FITGPP) -> Explanation:
    """Explains, and sees that nothing was changed by it."""
    before = d.state.snapshot()
    found = explain(d.state, d.job(job), d.now, Random(0), chosen)
    assert d.state.snapshot() == before
    return found


def reasons(found: Explanation) -> list[Reason]:
    return [blocker.reason for blocker in found.blockers]


# ---- what keeps a job out of its queue -------------------------------------------------------------------------------------


def test_held_and_waiting_for_others_and_both_are_said() -> None:
    d = cluster()
    first = running(d, 1)
    job = d.submit(with_changes(spec(), dependencies=(Dependency(first, DependencyKind.AFTER_OK),)))
    d.step(HoldRequested(job))
    held, dependency = why(d, job).blockers
    assert held.reason is Reason.HELD
    assert (dependency.reason, dependency.cause_job) == (Reason.DEPENDENCY, first)
    assert dependency.detail == f"after-ok job {first}, which is RUNNING"


def test_a_retry_says_when() -> None:
    d = cluster()
    job = d.submit(with_changes(spec(), retry=Retry(3)))
    d.start(job)
    d.exit(job, exit_code=1)
    found = why(d, job)
    assert (reasons(found), found.blockers[0].detail) == ([Reason.RETRYING], "run 1 left with exit code 1; retry 1 of 3")
    assert found.estimate is not None
    assert found.estimate.at_us == d.now + SECOND


def test_a_suspended_job_and_one_that_runs_and_an_array_at_its_limit() -> None:
    d = cluster()
    job = running(d, 1)
    assert why(d, job) == Explanation()
    d.step(SuspendRequested(job))
    d.exit(job, yielded=True)
    assert reasons(why(d, job)) == [Reason.SUSPENDED]
    array = d.submit(with_changes(spec(), array=Array(3, 1)))
    assert why(d, array).blockers == (
        Blocker(Reason.ARRAY_LIMIT, "1 of its elements have begun and not ended, as many as may at once"),
    )
    (element,) = d.state.elements_of[array]
    d.start(element)
    d.step(SuspendRequested(element))
    d.exit(element, yielded=True)
    (blocker,) = why(d, array).blockers
    assert blocker.detail == "1 of its elements have begun and not ended, as many as may at once; 1 of them suspended"


# ---- room ----------------------------------------------------------------------------------------------------------------


def test_no_room_names_the_node_that_comes_closest() -> None:
    d = cluster(nodes=3)
    running(d, 8), running(d, 6), running(d, 7)
    d.silence("n3")
    job = d.submit(devices=4)
    (blocker,) = why(d, job).blockers
    assert (blocker.reason, blocker.need) == (Reason.NO_ROOM, Vector(1000, 1024, 4))
    assert (blocker.node, blocker.free.devices) == (2, 2)
    assert (blocker.nodes, blocker.usable, blocker.large_enough) == (3, 2, 3)


def test_too_large_says_so() -> None:
    d = Driver(FITGPP.policy)
    job = d.submit(devices=9)
    d.join()
    (blocker,) = why(d, job).blockers
    assert (blocker.reason, blocker.large_enough, blocker.node) == (Reason.TOO_LARGE, 0, 1)
    assert "even when empty" in blocker.detail


def test_no_open_node_at_all_and_why_that_is() -> None:
    d = cluster()
    running(d, 1)
    d.step(DrainRequested("n1", "", "op"))
    found = why(d, d.submit())
    (blocker,) = found.blockers
    assert (blocker.usable, blocker.nodes, blocker.node) == (0, 1, 0)
    assert blocker.detail == "no node is up and open: 1 node is drained"
    assert found.estimate == Estimate(None, "it waits for an open node that is large enough"), (
        "what runs there is in nobody's way"
    )
    for chosen in (FITGPP, stages("fitgpp", PreemptionSettings(in_order=True))):
        d = cluster(chosen)
        running(d, 8)
        d.step(DrainRequested("n1", "", "op"))
        trial = d.trial(1)
        assert (d.job(trial).reason, d.job(trial).detail) == (Reason.NO_ROOM, "no node is up and open")
        assert reasons(why(d, trial, chosen)) == [Reason.NO_ROOM], "whoever would leave could not make room"
    d = cluster(nodes=4)
    d.step(DrainRequested("n1", "", "op"))
    d.silence("n1"), d.silence("n2"), d.silence("n3"), d.silence("n4")
    (blocker,) = why(d, d.submit()).blockers
    assert blocker.detail == "no node is up and open: 1 node is drained, 3 nodes are silent"
    d = Driver(FITGPP.policy)
    (blocker,) = why(d, d.submit()).blockers
    assert (blocker.detail, blocker.nodes) == ("the cluster has no node yet", 0)


def test_of_a_gang_the_task_that_finds_no_room_is_named() -> None:
    d = cluster()
    running(d, 4)
    large, small = Vector(1000, 1024, 3), Vector(500, 512, 2)
    gang = with_changes(spec(), gang=(TaskGroup(1, small), TaskGroup(1, large)), demand=Vector(1500, 1536, 5))
    (blocker,) = why(d, d.submit(gang)).blockers
    assert (blocker.need, blocker.free.devices) == (small, 1), "the larger has its place: 1 device remains"


# ---- who is before it ----------------------------------------------------------------------------------------------------


def test_those_before_it_are_counted_and_named() -> None:
    d = cluster()
    running(d, 8)
    first, second = d.submit(devices=8), d.submit(devices=8)
    last = d.submit()
    found = why(d, last)
    assert (found.ahead, found.ahead_jobs) == (2, (first, second))
    assert (found.blockers[0].reason, found.blockers[0].cause_job) == (Reason.BEHIND, first)


def test_trials_are_before_best_effort_jobs_but_not_those_that_wait_for_their_victims() -> None:
    d = cluster()
    running(d, 4), running(d, 4, trial=True)
    job = d.submit(devices=4)
    waits, stuck = d.trial(4), d.trial(8)
    assert d.job(waits).reason is Reason.WAITING_FOR_VICTIMS
    assert why(d, job).ahead_jobs == (stuck,)
    assert why(d, stuck).ahead_jobs == ()


def test_a_job_that_no_node_can_take_is_before_nobody() -> None:
    d = Driver(FIFO.policy)
    large = d.submit(devices=9)
    d.join()
    running(d, 8, limit=100)
    job = d.submit(devices=4)
    found = why(d, job, FIFO)
    assert large not in found.ahead_jobs
    assert found.estimate is not None
    assert found.estimate.at_us == d.now + 100 * SECOND


# ---- whom it would preempt -------------------------------------------------------------------------------------------------


def test_a_trial_that_waits_says_for_whom_and_how_long_at_the_longest() -> None:
    d = cluster()
    job = running(d, 8, grace=30)
    trial = d.trial(4)
    d.step(after=10)
    found = why(d, trial)
    assert reasons(found) == [Reason.WAITING_FOR_VICTIMS]
    assert [victim.key.job_id for victim in found.victims] == [job]
    assert found.estimate is not None
    assert found.estimate.at_us == d.now + 20 * SECOND


def test_a_trial_with_nothing_to_preempt_says_so_with_what_it_lacks() -> None:
    d = cluster()
    running(d, 8, trial=True)
    found = why(d, d.trial(4))
    assert reasons(found) == [Reason.NO_ROOM, Reason.NOTHING_TO_PREEMPT]
    assert (found.decision, found.victims) == (None, ())


def test_a_trial_that_may_not_preempt_yet_says_whom_it_would() -> None:
    """One trial in flight: the second waits for its turn, though it has a victim."""
    one = stages("fitgpp", PreemptionSettings(trials_in_flight=1))
    d = cluster(one)
    jobs = [running(d, 4), running(d, 4)]
    first, second = d.trial(4), d.trial(4)
    assert d.job(first).reason is Reason.WAITING_FOR_VICTIMS
    found = why(d, second, one)
    assert found.decision is not None
    (victim,) = found.victims
    assert victim.key.job_id in jobs
    assert d.job(victim.key.job_id).state is JobState.RUNNING


def test_best_effort_jobs_that_are_served_all_the_same_are_not_behind_the_trials_that_wait() -> None:
    """As the settings say: another trial's victims leave first, and so nobody holds up best-effort jobs."""
    for settings in (PreemptionSettings(trials_in_flight=1), PreemptionSettings(in_order=True)):
        one = stages("fitgpp", settings)
        d = cluster(one)
        running(d, 4), running(d, 3)
        first, second, job = d.trial(4), d.trial(8), d.submit(devices=2)
        assert d.states(first, second, job) == [JobState.QUEUED] * 3
        assert d.job(first).reason is Reason.WAITING_FOR_VICTIMS
        assert reasons(why(d, job, one)) == [Reason.NO_ROOM]
        assert d.job(job).reason is Reason.NO_ROOM, "it was its turn"
    d = cluster(one)
    running(d, 8, trial=True)
    waits, job = d.trial(4), d.submit()
    (blocker, _) = why(d, job, one).blockers
    assert (blocker.reason, blocker.cause_job) == (Reason.BEHIND, waits)


# ---- when ------------------------------------------------------------------------------------------------------------------


def at(d: Driver, job: int, chosen: Stages = FIFO) -> float | None:
    """Seconds from now."""
    found = why(d, job, chosen).estimate
    assert found is not None
    return None if found.at_us is None else (found.at_us - d.now) / SECOND


def test_when_what_runs_ends() -> None:
    d = cluster(FIFO)
    running(d, 4, estimate=100)
    running(d, 4, limit=60)
    small, large = d.submit(devices=4), d.submit(devices=8)
    assert at(d, small) == 60
    assert at(d, large) is None, "nobody knows how long the one before it takes"


def test_those_before_it_take_their_time() -> None:
    """8 devices until 100; then 4 until 150 and 4 until 130; then all 8 at 150."""
    d = cluster(FIFO)
    running(d, 8, estimate=100)
    for seconds in (50, 30):
        d.submit(with_changes(spec(4), estimate_us=seconds * SECOND))
    assert at(d, d.submit(devices=8)) == 150


def test_an_array_before_it_takes_the_time_of_all_its_elements() -> None:
    d = cluster(FIFO, nodes=2)
    d.submit(with_changes(spec(8), array=Array(20), estimate_us=600 * SECOND))
    assert at(d, d.submit(devices=8)) == 10 * 600


def test_an_array_at_its_limit_begins_the_next_element_before_those_behind_it() -> None:
    d = cluster(FIFO, nodes=2)
    d.submit(with_changes(spec(8), array=Array(4, 1), estimate_us=100 * SECOND))
    both = with_changes(spec(), gang=(TaskGroup(2, Vector(1000, 1024, 8)),), demand=Vector(2000, 2048, 16))
    job = d.submit(both)
    assert at(d, job) == 400
    d.step(HoldRequested(min(d.state.jobs.rows)))
    assert at(d, job) == 100, "it begins no more"


def test_an_array_of_more_than_can_be_looked_at_is_not_foreseen() -> None:
    d = cluster(FIFO)
    d.submit(with_changes(spec(8), array=Array(10_000), estimate_us=SECOND))
    found = why(d, d.submit(devices=8), FIFO).estimate
    assert found == Estimate(None, "too much is before it to be foreseen: 1 job ahead")


def test_a_job_before_it_of_unknown_length_is_waited_for_in_vain() -> None:
    d = cluster(FIFO)
    running(d, 8, estimate=40)
    d.submit(devices=8)
    found = why(d, d.submit(devices=8), FIFO).estimate
    assert found == Estimate(None, "it waits for the end of 1 job ahead of unknown length")


def test_a_run_of_unknown_length_is_counted_and_waited_for_in_vain() -> None:
    d = cluster(FIFO, nodes=2)
    running(d, 8), running(d, 8, estimate=40)
    job = d.submit(devices=8)
    found = why(d, job, FIFO).estimate
    assert found is not None
    assert (found.at_us, found.unknown) == (d.now + 40 * SECOND, 1)
    behind = why(d, d.submit(devices=8), FIFO).estimate
    assert behind is not None
    assert (behind.at_us, behind.unknown) == (None, 1)
    assert "unknown length" in behind.basis


def test_runs_that_may_not_be_preempted_yet_are_counted() -> None:
    d = Driver(FITGPP.policy, Settings(min_run_us=20 * SECOND))
    d.join("n1"), d.join("n2")
    running(d, 6), running(d, 2, trial=True), running(d, 8)
    d.step(after=3)
    trial = d.submit(trial=True, devices=8)
    found = why(d, trial)
    guarded = "2 runs are within the guaranteed run time (min_run), the first for 17 s more"
    assert reasons(found) == [Reason.NO_ROOM, Reason.NOTHING_TO_PREEMPT]
    each = (
        "job 1 has not run for its guaranteed time yet (min_run); job 2 is a trial, too; "
        "job 3 has not run for its guaranteed time yet (min_run)"
    )
    assert found.blockers[1].detail == f"every run that may be preempted, together, would not make room; {guarded}; {each}"
    assert found.estimate == Estimate(None, f"it waits until a run ends or may be preempted: {guarded}", 3)
    d.faulty({7: "XID 79"}), d.faulty({7: "XID 79"}, "n2")
    assert why(d, trial).estimate == Estimate(None, "it waits for an open node that is large enough", 3)


def test_what_no_end_makes_room_for_waits_for_nodes() -> None:
    d = cluster(FIFO, nodes=3)
    running(d, 2), running(d, 8)
    d.silence("n3")
    gang = d.submit(with_changes(spec(), gang=(TaskGroup(3, Vector(1000, 1024, 6)),), demand=Vector(3000, 3072, 18)))
    assert why(d, gang, FIFO).estimate == Estimate(None, "it waits for open nodes that are large enough", 2)
    behind = why(d, d.submit(devices=8), FIFO).estimate
    assert behind == Estimate(None, "it waits for the end of 2 runs of unknown length", 2), "nobody waits for the gang"
    d = cluster(FIFO, nodes=2)
    running(d, 2), running(d, 8)
    d.faulty({7: "XID 79"})
    d.step(DrainRequested("n2", "", "op"))
    assert why(d, d.submit(devices=8), FIFO).estimate == Estimate(None, "it waits for an open node that is large enough", 1)


def test_what_is_promised_to_a_trial_is_not_free_for_others() -> None:
    d = cluster()
    running(d, 8, estimate=1000, grace=30)
    trial = d.trial(6)
    job = d.submit(devices=4)
    assert d.job(trial).reason is Reason.WAITING_FOR_VICTIMS
    assert at(d, job, FITGPP) is None


# ---- what a submit would do --------------------------------------------------------------------------------------------------


def test_asking_what_a_submit_would_do_leaves_nothing_behind() -> None:
    """As validate_only does: the step is taken and undone, and the same submit then does the same."""
    d = cluster()
    running(d, 8)
    before = d.state.snapshot()
    what: JobSpec = spec(4, trial=True)
    asked = step(d.state, [Submitted("ann", "r", what)], d.now, Random(7), d.policy)
    assert any(change.table == "earmark" for change in asked.changes)
    d.state.undo()
    assert d.state.snapshot() == before
    assert not d.state.log
    assert d.submit(what, "r") == asked.replies[0].job_id  # type: ignore[union-attr]


def test_a_trial_that_waits_for_its_victims_is_behind_nobody() -> None:
    """It starts when they have left, whoever stands before it and is stuck."""
    d = cluster()
    job = running(d, 8)
    trial = d.trial(4)
    stuck = d.submit(with_changes(spec(8, trial=True), priority=5))
    assert reasons(why(d, trial)) == [Reason.WAITING_FOR_VICTIMS]
    d.exit(job, yielded=True)
    assert d.states(trial, stuck) == [JobState.STARTING, JobState.QUEUED]
