"""Which jobs are moved, where, and how often. What a move does is the migration's (`tests/core/test_migrate.py`)."""

from dataclasses import replace

import pytest

from scheduler_service.core.enact import _HANDLERS
from scheduler_service.core.messages import Migrate, NodeSeen, Spot, UpdateRequested
from scheduler_service.core.model import EventKind, JobClass, RunPhase
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from tests.core.driver import spec
from tests.policies.introspected import SERVER, Introspected
from tests.policies.sharing_runs import gang_of

PAUSE = 600


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[Migrate]:
    """What policies have proposed and was carried out, in supposition or not; nothing moves."""
    asked: list[Migrate] = []

    def note(_state: State, action: Migrate, _now: Micros) -> None:
        asked.append(action)

    monkeypatch.setitem(_HANDLERS, Migrate, note)
    return asked


def after_a_pause(d: Introspected, moves: list[Migrate], minutes: int = 2) -> list[Migrate]:
    """The different moves that are proposed once all jobs have stayed for long enough."""
    moves.clear()
    d.step(after=PAUSE)
    for _ in range(minutes):
        d.step(after=60)
    return list(dict.fromkeys(moves))


def test_a_job_that_takes_turns_has_a_vacated_device_to_itself(moves: list[Migrate]) -> None:
    d = Introspected("n1", "n2", packing=0)
    first = [d.begin() for _ in range(4)]
    others = [d.begin() for _ in range(4)]
    extra = d.begin()
    assert d.nodes_of(extra) == ["n1"]
    d.leaves(others[1])
    (moved, *_) = after_a_pause(d, moves)
    assert moved.job_id in (extra, first[0])
    assert moved.spots == (Spot(2, (1,)),)
    assert moved.why == "it takes turns on n1, and has devices of n2 to itself"


def test_a_gang_on_two_servers_goes_to_one_that_has_room(moves: list[Migrate]) -> None:
    d = Introspected("n1", "n2", "n3", defragment_free=100)
    blockers = [d.begin(2), d.begin(2), d.begin(2), d.begin(2), d.begin(4)]
    d.leaves(blockers[0])
    d.leaves(blockers[2])
    gang = d.submit(gang_of(2, 2))
    d.step(*(d.ready(gang, task) for task in (0, 1)))
    d.step(*(d.started(gang, task) for task in (0, 1)))
    assert {d.where(gang, task).name for task in (0, 1)} == {"n1", "n2"}
    d.leaves(blockers[4])
    (moved,) = after_a_pause(d, moves)
    assert (moved.job_id, moved.spots) == (gang, (Spot(3, (0, 1)), Spot(3, (2, 3))))


def test_a_job_that_is_slower_beside_others_goes_to_an_empty_server_once(moves: list[Migrate]) -> None:
    d = Introspected("n1", "n2", defragment_free=100)
    alone = d.begin(2)
    d.measure({alone: 100}, after=30)
    beside = d.begin(2)
    d.measure({alone: 120, beside: 100})
    assert after_a_pause(d, moves) == [], "20 % are not enough"
    d.measure({alone: 140, beside: 100})
    (moved,) = set(moves)
    assert (moved.job_id, moved.spots) == (alone, (Spot(2, (0, 1)),))
    assert moved.why == "it takes 140 ms a mini-batch beside others, and 100 ms at best, and n2 is empty"
    assert after_a_pause(d, moves) == []


def emptied(**own: float) -> Introspected:
    """n1 and n2 have one job of one device each."""
    d = Introspected("n1", "n2", **own)
    jobs = [d.begin() for _ in range(5)]
    for job in jobs[1:4]:
        d.leaves(job)
    assert d.nodes_of(jobs[0], jobs[4]) == ["n1", "n2"]
    return d


def test_a_server_that_is_mostly_free_is_emptied_and_only_one_of_two(moves: list[Migrate]) -> None:
    assert [(move.job_id, move.spots) for move in after_a_pause(emptied(), moves)] == [(5, (Spot(1, (1,)),))]
    assert after_a_pause(emptied(defragment_free=80), moves) == []


def test_a_job_without_time_to_save_is_not_moved(moves: list[Migrate]) -> None:
    d = emptied()
    d.step(*(UpdateRequested(job, grace_us=0) for job in (1, 5)))
    assert after_a_pause(d, moves) == []


def test_a_move_is_a_migration() -> None:
    d = emptied()
    told = [line for _ in range(14) for line in d.step(after=60).log if line.kind is EventKind.MIGRATING]
    assert [(line.job_id, line.text.partition(": ")[2]) for line in told] == [
        (5, "3 of 4 devices of n2 are idle, and n1 has room")
    ]
    assert [(run.phase, run.node) for run in d.state.runs.rows.values() if run.job_id == 5] == [
        (RunPhase.RUNNING, 2),
        (RunPhase.WARMING, 1),
    ]


def test_moves_are_bounded_for_a_job_and_in_an_hour(moves: list[Migrate]) -> None:
    d = emptied()
    d.step(after=60)
    assert moves == [], "it has not stayed for long enough"
    d.step(after=PAUSE)
    assert len(set(moves)) == 1
    moves.clear()
    for _ in range(9):
        d.step(after=60)
    assert moves == [], "it has just been moved"
    assert after_a_pause(emptied(moves_per_hour=0), moves) == []
    assert after_a_pause(emptied(migration=0), moves) == []


def test_nobody_moves_while_a_job_waits_nor_trials_nor_over_to_other_devices(moves: list[Migrate]) -> None:
    d = emptied(oversubscription=1)
    d.submit(replace(spec(4), priority=-1))
    d.submit(replace(spec(4), priority=-2))
    d.submit(replace(spec(4), priority=-3))
    assert after_a_pause(d, moves) == []
    d = Introspected("n1", "n2")
    trials = [d.begin(what=replace(spec(1), job_class=JobClass.TRIAL)) for _ in range(5)]
    for job in trials[1:4]:
        d.leaves(job)
    assert after_a_pause(d, moves) == []
    assert d.free("n1").devices == SERVER.devices - 1


def in_pairs() -> Introspected:
    """A server with four switches of two devices."""
    d = Introspected(defragment_free=100)
    devices = tuple(Device(i, f"n1-{i}", "gpu", 1, (i // 2,)) for i in range(8))
    d.step(NodeSeen("n1", "a", Inventory(SERVER._replace(devices=8), ("switch",), devices)))
    return d


def test_a_job_moves_to_devices_of_its_server_that_are_closer(moves: list[Migrate]) -> None:
    d = in_pairs()
    singles = [d.begin() for _ in range(8)]
    on = {d.state.runs_of(job)[0].devices[0]: job for job in singles}
    d.leaves(on[1])
    d.leaves(on[3])
    pair = d.begin(2)
    assert d.state.runs_of(pair)[0].devices == (1, 3)
    d.leaves(on[4])
    assert after_a_pause(d, moves) == []  # there is one device
    d.leaves(on[6])
    assert after_a_pause(d, moves) == []  # these two are no closer
    d.leaves(on[5])
    (moved, *_) = after_a_pause(d, moves)
    assert (moved.job_id, moved.spots) == (pair, (Spot(1, (4, 5)),))
    assert moved.why == "its devices share no more than the node, and idle ones of n1 share a switch"


def test_a_job_does_not_move_to_devices_that_are_as_close(moves: list[Migrate]) -> None:
    d = in_pairs()
    d.begin(2)
    d.begin(3)
    assert after_a_pause(d, moves) == []
