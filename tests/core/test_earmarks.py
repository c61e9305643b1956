"""Earmarks: free + owned + earmarked = capacity (`Driver` checks it after each step), and when they begin and end."""

from scheduler_service.core.model import EarmarkPhase, EventKind, JobState, Reason, RunKey
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, ZERO, Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import NODE, Driver, kinds, orders_to_start
from tests.core.test_enact import desk, earmark, preempt
from tests.policies.made import fitgpp

TTL = 60


def waiting_trial(free: int = 0, victims: tuple[int, ...] = (8,)) -> tuple[Driver, list[int], int]:
    """One node; best-effort runs hold all but `free` devices; a trial of 8 devices waits for all of them."""
    d = Driver(fitgpp(PreemptionSettings()), Settings(earmark_ttl_us=TTL * SECOND))
    d.join()
    jobs = [d.submit(devices=n) for n in victims]
    d.start(*jobs)
    assert d.free().devices == free
    return d, jobs, d.trial(8)


def test_it_keeps_what_is_free_and_is_promised_the_rest() -> None:
    d, (job,), trial = waiting_trial(free=3, victims=(5,))
    kept = d.earmark(trial)
    assert kept is not None
    assert kept.kept == Vector(1000, 1024, 3)
    assert kept.victims == (RunKey(job, 1),)
    assert (kept.phase, kept.deadline_us) == (EarmarkPhase.VACATING, None)
    assert d.free() == Vector(30_000, 63_488, 0)
    assert d.job(trial).reason is Reason.WAITING_FOR_VICTIMS


def test_what_it_keeps_is_nobody_else_s() -> None:
    d, _, trial = waiting_trial(free=3, victims=(5,))
    other = d.submit(devices=1)
    assert d.states(trial, other) == [JobState.QUEUED] * 2


def test_it_is_filled_by_each_victim_s_exit_before_anybody_else() -> None:
    d, (first, second), trial = waiting_trial(victims=(4, 4))
    waiting = d.submit(devices=1)
    d.exit(first, yielded=True)
    kept = d.earmark(trial)
    assert kept is not None
    assert kept.kept.devices == 4
    assert kept.victims == (RunKey(second, 1),)
    assert d.free().devices == 0
    step = d.exit(second, yielded=True)
    assert orders_to_start(step) == [RunKey(trial, 1)]
    assert EventKind.EARMARK_DROPPED not in kinds(step, trial)
    assert d.run(trial).devices == tuple(range(8))
    assert d.states(first, second, waiting) == [JobState.QUEUED] * 3
    assert d.earmark(trial) is None


def test_what_a_victim_leaves_beyond_it_is_free() -> None:
    d = Driver(fitgpp(PreemptionSettings()))
    d.join()
    job = d.submit(devices=8)
    d.start(job)
    trial = d.trial(2)
    waiting = d.submit(devices=6)
    d.exit(job, yielded=True)
    assert d.states(trial, waiting, job) == [JobState.STARTING, JobState.QUEUED, JobState.QUEUED], "the preempted one is first"
    assert d.free().devices == 6


def test_it_expires_some_time_after_its_last_part_and_never_before() -> None:
    """Filled while nobody serves the queue, so that the trial does not start."""
    d = desk()
    d.do(preempt(2), preempt(3), earmark(4, 2, 3))
    d.step(after=10 * TTL)
    d.exit(2, yielded=True)
    d.step(after=10 * TTL)
    kept = d.earmark(5)
    assert kept is not None
    assert kept.deadline_us is None
    d.exit(3, yielded=True)
    kept = d.earmark(5)
    assert kept is not None
    assert (kept.phase, kept.victims) == (EarmarkPhase.READY, ())
    assert kept.deadline_us == d.now + d.state.settings.earmark_ttl_us
    free = d.free("n1")
    d.now = kept.deadline_us - 1
    d.step()
    assert d.earmark(5) is not None
    d.now += 1
    step = d.step()
    assert d.earmark(5) is None
    assert kinds(step, 5) == [EventKind.EARMARK_DROPPED]
    assert d.free("n1").devices == free.devices + 4


def test_one_that_needs_nobody_s_leave_is_ready_at_once() -> None:
    d = desk()
    d.exit(2)
    d.do(earmark(2))
    kept = d.earmark(5)
    assert kept is not None
    assert (kept.phase, kept.kept.devices) == (EarmarkPhase.READY, 2)
    assert kept.deadline_us == d.now + d.state.settings.earmark_ttl_us


def test_it_is_dropped_when_the_trial_is_cancelled_and_its_victims_go_on_leaving() -> None:
    d, (job,), trial = waiting_trial(free=3, victims=(5,))
    step = d.cancel(trial)
    assert d.state.earmarks.rows == {}
    assert EventKind.EARMARK_DROPPED in kinds(step, trial)
    assert d.job(job).state is JobState.STOPPING
    assert d.free() == Vector(31_000, 64_512, 3)
    d.exit(job, yielded=True)
    assert d.job(job).state is JobState.STARTING


def test_it_is_dropped_when_the_trial_starts_elsewhere() -> None:
    d, (job,), trial = waiting_trial()
    step = d.join("n2")
    assert orders_to_start(step) == [RunKey(trial, 1)]
    assert kinds(step, trial) == [EventKind.EARMARK_DROPPED, EventKind.PLACED]
    assert d.where(trial).name == "n2"
    assert d.state.earmarks.rows == {}
    d.exit(job, yielded=True)
    assert d.job(job).state is JobState.STARTING


def test_a_trial_does_not_wait_for_a_node_that_fell_silent() -> None:
    d = Driver(fitgpp(PreemptionSettings()))
    d.join("n1")
    d.join("n2")
    first, second = d.submit(devices=8, grace=1), d.submit(devices=8, grace=9)
    d.start(first, second)
    trial = d.trial(8)
    assert d.job(first).state is JobState.STOPPING
    step = d.silence("n1")
    assert EventKind.EARMARK_DROPPED in kinds(step, trial)
    assert d.states(first, second) == [JobState.UNREACHABLE, JobState.STOPPING]
    kept = d.earmark(trial)
    assert kept is not None
    assert d.state.nodes.rows[kept.node].name == "n2"
    d.join("n1")
    d.exit(first, yielded=True)
    assert d.where(trial).name == "n1", "what comes first is taken"


def test_it_is_dropped_when_its_node_comes_back_as_another() -> None:
    d = desk()
    d.do(preempt(1), preempt(2), preempt(3), earmark(8, 1, 2, 3))
    d.join("n1", Vector(32_000, 65_536, 2), boot="b", known=())
    assert d.state.earmarks.rows == {}
    assert d.free("n1") == Vector(32_000, 65_536, 2)


def test_victims_that_are_lost_with_their_node_s_boot_fill_it() -> None:
    d, (job,), trial = waiting_trial()
    d.join(boot="b", known=())
    assert d.states(job, trial) == [JobState.QUEUED, JobState.STARTING]


def test_a_start_elsewhere_lets_an_earlier_trial_have_what_was_kept() -> None:
    """first waits for x; second for b1 and b2, and has what b1 held; when second starts on z, first fits there."""
    d = Driver(fitgpp(PreemptionSettings()))
    d.join("x", Vector(32_000, 65_536, 1))
    a = d.submit(devices=1, grace=0)
    d.join("y", Vector(32_000, 65_536, 4))
    b1, b2, held = d.submit(devices=2, grace=600), d.submit(devices=1, grace=600), d.trial(1)
    d.join("z", Vector(3_000, 65_536, 3))
    on_z = d.trial(3)
    d.start(a, b1, b2, held, on_z)
    first = d.trial(1, cpu=10_000)
    second = d.trial(3)
    assert d.states(a, b1, b2) == [JobState.STOPPING] * 3
    d.exit(b1, yielded=True)
    assert d.free("y").devices == 0
    d.exit(on_z)
    assert d.where(second).name == "z"
    assert d.where(first).name == "y"


def test_free_and_owned_and_earmarked_are_the_capacity() -> None:
    d, jobs, trial = waiting_trial(free=1, victims=(3, 4))
    kept = d.earmark(trial)
    assert kept is not None
    owned = [run.demand for run in d.state.runs.rows.values()]
    assert [sum(v) for v in zip(d.free(), kept.kept, *owned, strict=True)] == list(NODE)
    for job in jobs:
        d.exit(job, yielded=True)
    d.exit(trial)
    assert d.earmark(trial) is None
    assert d.free() >= ZERO
