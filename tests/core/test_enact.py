"""Plans: each refusal has a reason and leaves the state as it was."""

from random import Random

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Proposals, step
from scheduler_service.core.messages import AddEarmark, DropEarmark, Place, Plan, Preempt, Rng, Spot, Wait
from scheduler_service.core.model import Decision, JobState, Reason, RunKey, RunPhase
from scheduler_service.core.model.values import ZERO, Vector
from scheduler_service.core.state.journal import net
from scheduler_service.core.state.state import State
from tests.core.driver import NODE, Driver

DECISION = Decision(0, 0, ZERO, "by hand", 0, 0, 0, 0, 0, ())


def idle(_state: State, _rng: Rng) -> Proposals:
    """A policy that does nothing."""
    yield from ()


class Desk(Driver):
    """Carries out plans by hand."""

    def __init__(self) -> None:
        super().__init__(idle)
        self.settles = False

    def do(self, *plan: object) -> None:
        def policy(_state: State, _rng: Rng) -> Proposals:
            refused = yield plan  # type: ignore[misc]
            assert refused is None, refused

        self.policy = policy
        self.state.pending.policies = True
        self.step()
        self.policy = idle

    def place(self, job: int, node: int, *devices: int) -> int:
        self.do(Place(job, (Spot(node, devices),)))
        return job


def desk() -> Desk:
    """Two nodes. n1: best-effort runs 1 (4 devices), 2 (2), 3 (2); n2: a trial, 4 (8). 5 is a waiting trial, 6 waits too."""
    d = Desk()
    d.join("n1")
    d.join("n2")
    for devices in (4, 2, 2):
        d.submit(devices=devices)
    d.trial(8)
    d.trial(4)
    d.submit(devices=1)
    d.place(1, 1, 0, 1, 2, 3)
    d.place(2, 1, 4, 5)
    d.place(3, 1, 6, 7)
    d.place(4, 2, *range(8))
    return d


def preempt(job: int, trial: int = 5, cap: int = 1) -> Preempt:
    return Preempt(job, trial, cap, DECISION)


def earmark(devices: int, *victims: int, job: int = 5, node: int = 1) -> AddEarmark:
    return AddEarmark(job, node, Vector(1000, 1024, devices), tuple(RunKey(v, 1) for v in victims), DECISION)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ((Place(99, (Spot(1, (0,)),)),), "job 99 does not stand in a queue"),
        ((Place(1, (Spot(1, (0,)),)),), "job 1 does not stand in a queue"),
        ((Place(6, (Spot(9, (0,)),)),), "node 9 is not open"),
        ((Place(6, (Spot(1, (0,)),)),), "job 6 does not fit on n1"),
        ((preempt(99),), "job 99 does not run"),
        ((preempt(4),), "job 4 is not best-effort"),
        ((preempt(1, cap=0),), "job 1 was preempted 0 times already"),
        ((preempt(1, trial=6),), "job 6 is not a waiting trial"),
        ((preempt(1, trial=4),), "job 4 is not a waiting trial"),
        ((preempt(1), preempt(1)), "job 1 does not run"),
        ((preempt(1), preempt(2), preempt(4)), "job 4 is not best-effort"),
        ((earmark(4, 1),), "run 1.1 is not leaving node 1"),
        ((preempt(1), earmark(4, 1, node=2)), "run 1.1 is not leaving node 2"),
        ((preempt(2), earmark(4, 2)), "what leaves node 1 is not enough for job 5"),
        ((preempt(2), earmark(4, 2, 2)), "run 2.1 is named twice"),
        ((preempt(1), earmark(4, 1), earmark(4, 1)), "job 5 has an earmark there already"),
        ((preempt(1), earmark(4, 1), earmark(1, 1, job=6)), "run 1.1 is promised to another job already"),
        ((earmark(4, job=4),), "job 4 is not queued"),
        ((earmark(4, node=9),), "node 9 is not open"),
        ((DropEarmark(1, "so"),), "there is no earmark 1"),
        ((Wait(1, Reason.NO_ROOM),), "job 1 is not queued"),
        ((Wait(99, Reason.NO_ROOM),), "job 99 is not queued"),
    ],
)
def test_a_refused_plan_changes_nothing(plan: Plan, why: str) -> None:
    d = desk()
    before, log = d.state.snapshot(), list(d.state.log)
    assert enact(d.state, plan, d.now) == why
    assert d.state.snapshot() == before
    assert d.state.log == log
    assert not net(d.state.journal.entries)


@pytest.mark.parametrize("devices", [(0,), (0, 0), (0, 8), (0, 1, 2), (-1, 0)])
def test_the_devices_must_be_as_many_as_asked_and_of_the_node(devices: tuple[int, ...]) -> None:
    d = Desk()
    d.join()
    d.submit(devices=2)
    before = d.state.snapshot()
    assert enact(d.state, (Place(1, (Spot(1, devices),)),), d.now) is not None
    assert d.state.snapshot() == before


def test_the_devices_must_be_idle() -> None:
    d = Desk()
    d.join()
    d.submit(devices=2)
    d.submit(devices=2)
    d.place(1, 1, 0, 1)
    assert enact(d.state, (Place(2, (Spot(1, (1, 2)),)),), d.now) == "n1: a device is not idle"


def test_nothing_is_decided_on_a_silent_node() -> None:
    d = desk()
    d.silence("n1")
    assert enact(d.state, (Place(6, (Spot(1, ()),)),), d.now) == "node 1 is not open"
    assert enact(d.state, (preempt(1),), d.now) == "n1 is silent: nobody there can be told to leave"
    assert enact(d.state, (earmark(0),), d.now) == "node 1 is not open"


def test_the_whole_plan_is_carried_out() -> None:
    d = desk()
    d.do(preempt(2), preempt(3), earmark(4, 2, 3), Wait(5, Reason.WAITING_FOR_VICTIMS))
    assert [d.run(job).phase for job in (1, 2, 3)] == [RunPhase.STARTING, RunPhase.STOPPING, RunPhase.STOPPING]
    assert d.states(2, 3) == [JobState.STOPPING] * 2
    assert (d.job(2).reason, d.job(2).cause_job, d.job(2).preempted_for_trial) == (Reason.PREEMPTED, 5, 1)
    assert d.job(5).reason is Reason.WAITING_FOR_VICTIMS
    kept = d.earmark(5)
    assert kept is not None
    assert kept.kept == Vector(1000, 1024, 0)


def test_a_wait_does_not_hide_why_a_job_came_back() -> None:
    d = desk()
    d.exit(1, yielded=True)
    d.do(Wait(1, Reason.NO_ROOM), Wait(6, Reason.NO_ROOM))
    assert (d.job(1).reason, d.job(6).reason) == (Reason.YIELDED, Reason.NO_ROOM)


def test_a_place_gives_up_the_earmark_wherever_it_is() -> None:
    d = desk()
    d.do(preempt(1), earmark(4, 1))
    d.exit(4)
    d.place(5, 2, 0, 1, 2, 3)
    assert d.earmark(5) is None
    d.exit(1, yielded=True)
    assert d.free("n1") == Vector(NODE.cpu_milli - 2000, NODE.memory_mib - 2048, 4)


def test_undo_after_a_refusal_inside_a_step_keeps_what_came_before() -> None:
    d = desk()

    def policy(_state: State, _rng: Rng) -> Proposals:
        assert (yield (Wait(6, Reason.NO_ROOM),)) is None
        assert (yield (preempt(2), preempt(4))) is not None
        assert (yield (preempt(3),)) is None

    d.state.pending.policies = True
    taken = step(d.state, (), d.now, Random(0), policy)
    assert taken.refused == ("job 4 is not best-effort",)
    assert {c.key for c in taken.changes if c.table == "job"} == {6, 3}
