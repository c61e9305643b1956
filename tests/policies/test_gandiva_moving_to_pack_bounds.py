"""Moves for packing that fail, that have no room, and of which there would be many at a look."""

from dataclasses import replace

import pytest

from scheduler_service.core.messages import RunExited
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.gandiva import migration_to_pack
from tests.core.driver import spec
from tests.core.test_migrate import of, target
from tests.policies.introspected import Introspected
from tests.policies.test_gandiva_moving_to_pack import ALONE, Site
from tests.policies.test_gandiva_rotating import arrives


def fails(d: Site) -> int:
    """The next move ends at its destination before the job begins there. Returns the job."""
    while not d.state.operation_of:
        assert d.now < Introspected().now + 7_200 * SECOND, "nobody moves"
        d.step(after=60)
    (moves,) = d.state.operation_of
    d.step(of(d, target(d, moves), RunExited, exit_signal=9))
    assert not d.state.operation_of
    return moves


def test_a_move_that_fails_is_not_made_again_at_once() -> None:
    d = Site(80, 99, 99, 99, 80)
    d.minutes(5)
    d.leaves(1)
    d.leaves(5)
    a, e = (d.begin(what=replace(spec(1), name=name)) for name in "ae")
    d.profile({a: ALONE, e: ALONE}, utilisation=80)
    began = {fails(d): d.now}
    assert began.keys() == {e}
    while d.now < began[e] + 540 * SECOND:
        d.step(after=60)
        assert e not in d.state.operation_of
    for _ in range(3):
        d.step(after=60)
    assert e in d.state.operation_of, "the pair has paid"


def test_a_packed_job_that_does_not_arrive_is_not_moved_again_at_once() -> None:
    d = Site(90, 10, 20, 90, 90)
    d.minutes(20, {frozenset((1, 5)): 210})
    d.leaves(1)
    first, began = fails(d), d.now
    assert first in (2, 3)
    while d.now < began + 540 * SECOND:
        d.step(after=60)
        assert first not in d.state.operation_of
        if d.state.operation_of:
            fails(d)


def with_memory(**uses: int) -> tuple[Introspected, list[int]]:
    """Jobs with a device each, by name: what they use of its memory. The first and the last share one."""
    d = Introspected("n1", rotate=0, pack_moves=1)
    jobs = [d.begin(what=replace(spec(1), name=name)) for name in uses]
    assert d.run(jobs[0]).group == d.run(jobs[-1]).group != 0
    for job, memory in reversed(list(zip(jobs, uses.values(), strict=True))):
        d.profile({job: ALONE}, memory=memory, utilisation=10 + 10 * (memory < 10_000))
    return d, jobs


def test_jobs_that_do_not_fit_together_keep_none_of_them_from_a_move() -> None:
    d, (a, b, _, _, e) = with_memory(a=20_000, b=4000, c=36_000, d=36_000, e=20_000)
    while not d.state.operation_of:
        assert d.now < Introspected().now + 3_600 * SECOND
        d.step(after=60)
    (moves,) = d.state.operation_of
    assert moves in (a, e)
    arrives(d, moves)
    for _ in range(2):
        d.step(after=60)
    assert d.rows_of(b) == [[*sorted((moves, b))]], "the pair that has room is packed"


def test_a_look_tries_a_few_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    d = Introspected(rotate=0, pack_moves=1, packing=1)
    d.join("n1", Vector(64_000, 1_048_576, 16))
    jobs = [d.begin(what=replace(spec(1), name=chr(97 + number))) for number in range(17)]
    d.profile(dict.fromkeys(jobs[1:-1], ALONE), utilisation=30)
    tried = 0

    def refuses(*_: object) -> bool:
        nonlocal tried
        tried += 1
        return False

    monkeypatch.setattr(migration_to_pack, "would_do", refuses)
    d.profile({jobs[0]: ALONE, jobs[-1]: ALONE}, utilisation=99)
    d.step(after=600)
    assert tried > 0
    for _ in range(3):
        tried = 0
        d.step(after=60)
        assert tried <= 2 * 8 * 2 * 2, "8 pairs, either way, with two sorts of limits, and a step is taken twice"
