"""What policies remember: memos that sort queues, that come due, and that go with their jobs."""

from random import Random

from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Proposals, step
from scheduler_service.core.messages import Accepted, CancelRequested, Remember, Rng, Submitted
from scheduler_service.core.model import Job, JobState
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.queue_order import QueueKey, QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from tests.core.driver import EPOCH, Driver, spec


def _by_memo(job: Job, memo: Memo | None, _settings: Settings) -> QueueKey:
    return (int(memo.value[0]) if memo else 0, job.id)


BY_USER = QueueOrder(_by_memo, policy="test", subject=lambda job: job.user)
RUNS_TOO = QueueOrder(_by_memo, Claim.REORDER, policy="test")


class Writing:
    """First come, first served by the order's key. It writes the memos that a test gives it, and renews each that is due."""

    def __init__(self) -> None:
        self.writes: tuple[Remember, ...] = ()
        self.turned: set[int] = set()
        """All that the policy was told since a test cleared it."""

    def __call__(self, state: State, rng: Rng) -> Proposals:
        self.turned |= state.pending.jobs
        if self.writes:
            yield self.writes
        for at in sorted(state.due_memos):
            memo = state.memos.rows[at]
            yield (Remember(*at, (int(memo.value[0]) + 10,), memo.job_id),)
        yield from fifo(state, rng)
        self.turned |= state.pending.jobs  # whom it has started itself


def driver(order: QueueOrder) -> tuple[Driver, Writing]:
    policy = Writing()
    return Driver(policy, order=lambda _: order), policy


def submit(d: Driver, user: str) -> int:
    answer = d.reply(Submitted(user, "", spec()))
    assert isinstance(answer, Accepted)
    return answer.job_id


def waiting(d: Driver) -> list[int]:
    return [key[-1] for queue in d.state.site_queues.values() for key in queue]


def test_a_memo_sorts_the_jobs_that_it_is_about_and_no_others() -> None:
    d, policy = driver(BY_USER)
    first, second, third = (submit(d, user) for user in ("ann", "bob", "ann"))
    assert waiting(d) == [first, second, third]
    policy.writes = (Remember("test", "ann", (1,)),)
    fourth = submit(d, "bob")
    assert waiting(d) == [second, fourth, first, third]
    policy.writes = (Remember("test", "ann", None), Remember("another", "bob", (5,)))
    submit(d, "cid")
    assert waiting(d)[:4] == [first, second, third, fourth]
    assert set(d.state.memos.rows) == {("another", "bob")}


def test_a_due_memo_has_the_policy_asked_though_nothing_else_happens() -> None:
    d, policy = driver(BY_USER)
    job = submit(d, "ann")
    policy.writes = (Remember("test", "ann", (3,), job, EPOCH + 60 * SECOND),)
    submit(d, "bob")
    policy.writes = ()
    d.step(after=59)
    assert d.state.memos.rows == {("test", "ann"): Memo("test", "ann", (3,), job, EPOCH + 60 * SECOND)}
    d.step(after=1)
    assert d.state.memos.rows == {("test", "ann"): Memo("test", "ann", (13,), job)}
    assert not d.state.due_memos


def test_a_memo_goes_with_its_job() -> None:
    d, policy = driver(BY_USER)
    job = submit(d, "ann")
    policy.writes = (Remember("test", "ann", (3,), job), Remember("test", "bob", (4,)))
    submit(d, "bob")
    policy.writes = ()
    d.cancel(job)
    assert set(d.state.memos.rows) == {("test", "bob")}
    assert not d.state.memos_of


def test_a_memo_about_a_job_that_is_not_live_is_refused() -> None:
    d, _ = driver(BY_USER)
    assert enact(d.state, (Remember("test", "ann", (3,), 99),), d.now) == "job 99 is not live"
    assert not d.state.memos.rows


def test_what_is_remembered_already_is_not_written_again() -> None:
    d, _ = driver(BY_USER)
    write = Remember("test", "ann", (3,))
    assert enact(d.state, (write,), d.now) is None
    entries = len(d.state.journal.entries)
    assert enact(d.state, (write,), d.now) is None
    assert len(d.state.journal.entries) == entries


def test_jobs_that_run_are_kept_in_order_if_the_policy_may_stop_them_for_others() -> None:
    d, policy = driver(RUNS_TOO)
    d.join()
    first, second, third = jobs = [d.submit() for _ in range(3)]
    d.start(*jobs)
    assert [key[-1] for key in d.state.running[""]] == jobs
    policy.writes = (Remember("test", f"job/{first}", (7,), first),)
    fourth = d.submit(devices=8)
    policy.writes = ()
    assert [key[-1] for key in d.state.running[""]] == [second, third, first]
    for job in jobs:
        d.exit(job)
    assert [key[-1] for key in d.state.running[""]] == [fourth]


def test_a_policy_that_remembers_hears_who_began_or_ceased_to_run() -> None:
    d, policy = driver(RUNS_TOO)
    d.join()
    first = d.submit()
    d.start(first)
    second = d.submit(devices=8)
    assert policy.turned == {first, second}
    policy.turned.clear()
    d.exit(first)
    assert policy.turned == {first, second}
    assert d.job(second).state is JobState.STARTING
    assert not d.state.pending.jobs


def test_an_undone_step_tells_a_policy_of_nobody_else_afterwards() -> None:
    d, policy = driver(RUNS_TOO)
    d.join()
    runs = d.submit()
    d.start(runs)
    taken = step(d.state, (CancelRequested(runs),), d.now, Random(0), policy)
    assert taken.changes
    d.state.undo()
    policy.turned.clear()
    d.step()
    assert policy.turned == set()


def test_of_other_orders_nothing_more_is_kept() -> None:
    d = Driver(fifo)
    d.join()
    d.start(d.submit())
    assert not d.state.pending.jobs
    assert not d.state.running
    assert not d.state.subjects
