"""One step: the batch, its refusals, the clock, and what a step may cost."""

from random import Random

import pytest

from benchmarks.step_cost import PAPER_NODE, Stream
from scheduler_service.core.engine import Proposals, step
from scheduler_service.core.errors import Broken, NotFound
from scheduler_service.core.invariants import check, sample
from scheduler_service.core.messages import Accepted, CancelRequested, Rng, RunStarted, Submitted, Wait
from scheduler_service.core.model import EventKind, JobState, Reason, RunKey
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from tests.core.driver import EPOCH, Driver, orders_to_start, orders_to_stop, spec


def test_a_bad_event_is_rejected_alone() -> None:
    d = Driver()
    d.join()
    replies = d.step(Submitted("ann", "", spec()), CancelRequested(99), Submitted("ann", "", spec())).replies
    assert (replies[0], replies[2]) == (Accepted(1), Accepted(2))
    assert isinstance(replies[1], NotFound)
    assert d.states(1, 2) == [JobState.STARTING] * 2


def test_an_event_that_raises_is_undone_and_rejected_alone() -> None:
    """The second event fails after it has changed the state: its node's report is counted before its run is looked up."""
    d = Driver()
    d.join()
    d.submit()
    bad = RunStarted("n1", "a", 1, key=[])  # type: ignore[arg-type]
    taken = step(d.state, (Submitted("ann", "", spec()), bad, Submitted("ann", "", spec())), d.now, Random(0), fifo)
    assert [type(reply) for reply in taken.replies] == [Accepted, TypeError, Accepted]
    assert d.node().sequence == 0
    check(d.state)
    assert sorted(d.state.jobs.rows) == [1, 2, 3]


def test_events_are_taken_in_order() -> None:
    d = Driver()
    d.join()
    taken = d.step(Submitted("ann", "", spec()), CancelRequested(1), Submitted("ann", "", spec()))
    assert d.states(1, 2) == [JobState.CANCELLED, JobState.STARTING]
    assert [(e.job_id, e.kind) for e in taken.log] == [
        (1, EventKind.SUBMITTED),
        (1, EventKind.CANCEL_REQUESTED),
        (1, EventKind.ENDED),
        (2, EventKind.SUBMITTED),
        (2, EventKind.PLACED),
    ]
    assert [c.key for c in taken.changes if c.table == "job"] == [1, 2], "one that begins and ends in a step is made durable"


def test_the_policy_acts_after_all_events() -> None:
    d = Driver()
    d.join(capacity=Vector(4_000, 8_192, 1))
    d.submit()
    d.submit()
    taken = d.step(d.exited(1), CancelRequested(2), Submitted("ann", "", spec()))
    assert orders_to_start(taken) == [RunKey(3, 1)]
    assert not orders_to_stop(taken)


def test_what_a_policy_proposed_in_vain_is_reported() -> None:
    def eager(_state: State, _rng: Rng) -> Proposals:
        answer = yield (Wait(1, Reason.NO_ROOM), Wait(7, Reason.NO_ROOM))
        assert answer == "job 7 is not queued"
        assert (yield (Wait(1, Reason.BEHIND),)) is None

    d = Driver()
    taken = step(d.state, (Submitted("ann", "", spec()),), d.now, Random(0), eager)
    assert taken.refused == ("job 7 is not queued",)
    assert d.job(1).reason is Reason.BEHIND


def test_the_policy_rests_while_nothing_could_start() -> None:
    asked = []

    def counting(state: State, rng: Rng) -> Proposals:
        asked.append(1)
        return fifo(state, rng)

    d = Driver()
    d.join()
    job = d.submit()
    started = d.started(job)
    d.step(after=1)
    step(d.state, (), d.now, Random(0), counting)
    step(d.state, (started,), d.now, Random(0), counting)
    assert not asked
    step(d.state, (CancelRequested(job), Submitted("ann", "", spec())), d.now, Random(0), counting)
    assert asked


def test_the_clock_never_goes_back() -> None:
    d = Driver()
    d.join()
    d.step(after=10)
    d.now -= 5 * SECOND
    job = d.submit()
    assert d.job(job).submitted_us == EPOCH + 10 * SECOND
    assert d.state.cluster.clock_us == EPOCH + 10 * SECOND


def test_an_empty_step_changes_the_clock_alone() -> None:
    d = Driver()
    taken = d.step(after=1)
    assert [c.table for c in taken.changes] == ["cluster"]
    assert (taken.replies, taken.orders, taken.log, taken.refused) == ((), (), (), ())


def test_a_state_made_from_its_rows_goes_on_as_the_old_one() -> None:
    d = Driver()
    d.join()
    d.submit(devices=8)
    d.submit(devices=8)
    other = d.state.rebuild()
    event = d.exited(1)
    here = step(d.state, (event,), d.now, Random(0), fifo)
    there = step(other, (event,), d.now, Random(0), fifo)
    assert (here.changes, here.orders, here.log) == (there.changes, there.orders, there.log)


@pytest.mark.parametrize("table", ["jobs", "runs", "nodes", "devices"])
def test_the_invariants_see_what_is_wrong(table: str) -> None:
    d = Driver()
    d.join()
    d.submit()
    rows = {"jobs": 1, "runs": RunKey(1, 1), "nodes": 1, "devices": (1, 0)}
    wrong = {
        "jobs": {"state": JobState.QUEUED},
        "runs": {"devices": (1,)},
        "nodes": {"capacity": Vector(1, 1, 1)},
        "devices": {"fault": "it is lost"},
    }
    at = getattr(d.state, table)
    at.rows[rows[table]] = with_changes(at.rows[rows[table]], **wrong[table])
    with pytest.raises(Broken):
        check(d.state)
    with pytest.raises(Broken):
        sample(d.state, Random(0))


def test_a_sample_comes_upon_every_job_and_node() -> None:
    """One job of many, or one node, is wrong: it is drawn sooner or later."""
    d = Driver()
    for name in ("n1", "n2", "n3"):
        d.join(name)
    for _ in range(5):
        d.submit()
    d.state.jobs.rows[4] = with_changes(d.state.jobs.rows[4], state=JobState.QUEUED)
    rng, seen = Random(1), set()
    for _ in range(100):
        try:
            sample(d.state, rng)
        except Broken as broken:
            seen.add(str(broken))
    assert len(seen) == 1
    assert seen.pop().startswith("job 4 is QUEUED")


def test_a_step_puts_as_many_rows_with_2000_live_jobs_as_with_200() -> None:
    def rows_put(live: int) -> list[int]:
        stream = Stream(20, PAPER_NODE)
        stream.fill(live)
        events = stream.events(live)
        counts = []
        for _ in range(400):
            stream.take(next(events))
            counts.append(stream.rows_put)
        return counts

    few, many = rows_put(200), rows_put(2_000)
    assert sum(many) <= 1.2 * sum(few)
    assert max(many) <= max(few) + 10
