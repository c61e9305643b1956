"""Inside virtual clusters, jobs move and change places in cells of their own kind, and others have their cells as before."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import MiniBatchMeasured, Step, VcRequested
from scheduler_service.core.model import EventKind, Reason
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from tests.core.test_migrate import target, warm
from tests.policies.tenants import OPPORTUNISTIC
from tests.policies.test_gandiva_cells_growing import POOL, RUN, Elastic
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)


class Moving(Elastic):
    """`a` introspects. Whoever is to move does so at once."""

    def __init__(self, *more: str, quota: int = 1, **own: float) -> None:
        super().__init__(*more, quota=quota)
        self.step(VcRequested("a", False, policy=VcPolicy("gandiva", settings=tuple(sorted({"packing": 0.0, **own}.items())))))
        self.moves: list[str] = []

    def minutes(self, count: int) -> None:
        for _ in range(count):
            taken = self.step(after=60)
            self._note(taken)
            self.settled()

    def _note(self, taken: Step) -> None:
        self.moves += [line.text for line in taken.log if line.kind is EventKind.MIGRATING]

    def settled(self) -> None:
        for job in sorted(self.state.operation_of):
            warm(self, job)
        super().settled()

    def measure(self, times: dict[int, int], percent: int = 20) -> None:
        events = (
            MiniBatchMeasured(self.where(job).name, self.run(job).key, ms * 1000, 20, 990_000, 2000, percent * 10_000)
            for job, ms in times.items()
        )
        self._note(self.step(*events, after=60))

    def is_packed(self, job: int) -> bool:
        group = self.state.share_groups.rows.get(self.run(job).group)
        return group is not None and any(self.run(job).key in row.runs and len(row.runs) > 1 for row in group.rows)

    def nodes(self, *jobs: int) -> list[str]:
        return [self.where(job).name for job in jobs]

    def users(self, node: str) -> list[int]:
        """Of each device of the node."""
        on = (run for run in self.state.runs.rows.values() if self.state.nodes.rows[run.node].name == node)
        return sorted(Counter(run.devices for run in on).values())


def test_six_jobs_on_four_devices_change_places_in_their_cells() -> None:
    d = Moving(rotate=300)
    jobs = [d.ask("a", 1) for _ in range(6)]
    other = d.ask("b", 3)
    node, (place,) = d.where(jobs[0]).name, d.at(other)
    alone: Counter[int] = Counter()
    for _ in range(90):
        d.minutes(1)
        assert d.users(node) == [1, 1, 2, 2]
        alone.update(job for job in jobs if not d.run(job).group)
    assert len(d.moves) > 10
    assert max(alone[job] for job in jobs) - min(alone[job] for job in jobs) <= 15, alone
    assert all(d.guaranteed(job) for job in jobs)
    assert d.at(other) == [place]


def test_jobs_come_together_to_be_packed_in_their_cells_and_in_no_others() -> None:
    d = Moving(packing=1, pack_moves=1, rotate=0)
    jobs = [d.ask("a", 1, user=f"user-{'abcde'[number]}") for number in range(5)]
    other, borrowed = d.ask("b", 3), d.ask("b", 1, user="borrower")
    places = {job: d.at(job) for job in (other, borrowed)}
    low, first, last = jobs[1:3], jobs[0], jobs[4]
    assert d.at(first) == d.at(last)
    for job in jobs:
        for _ in range(2):
            d.measure({job: 100}, percent=10 if job in low else 90)
    d.measure({borrowed: 100}, percent=1)
    for _ in range(15):
        d.minutes(1)
        packed = [job for job in jobs if d.is_packed(job)]
        d.measure({job: 110 if job in low else 300 for job in packed})
        d.settled()
    (move, *_) = d.moves
    assert f"it is to be packed with job {low[1]} " in move
    assert d.at(low[0]) == d.at(low[1])
    assert d.users(d.where(low[0]).name) == [1, 1, 1, 2]
    assert all(d.guaranteed(job) for job in jobs)
    assert {job: d.at(job) for job in places} == places


def test_a_job_that_takes_turns_has_cells_of_its_own_that_came_free() -> None:
    d = Moving("n3", quota=2)
    jobs = [d.ask("a", 4) for _ in range(3)]
    mates = [job for job in jobs if d.run(job).group]
    (single,) = [job for job in jobs if job not in mates]
    d.minutes(11)
    assert d.moves == []
    free = d.where(single).name
    d.end(single)
    d.minutes(2)
    assert len(d.moves) == 1
    assert sorted(d.nodes(*mates)) == sorted({free, *d.nodes(*mates)})
    assert free in d.nodes(*mates)
    assert not d.state.share_groups.rows
    assert all(d.guaranteed(job) for job in mates)
    assert "has devices" in d.moves[0]


def test_nobody_takes_idle_cells_of_others_out_of_turns() -> None:
    d = Moving("n3")
    jobs = [d.ask("a", 4) for _ in range(2)]
    d.minutes(15)
    assert d.moves == []
    assert d.state.share_groups.rows, jobs


@pytest.mark.parametrize("quota", [1, 2])
def test_a_job_that_its_neighbours_slow_down_goes_to_an_empty_server_of_its_virtual_cluster(quota: int) -> None:
    d = Moving("n3", quota=quota, defragment_free=100, growth=0)
    slow, other = d.ask("a", 1), d.ask("a", 1)
    assert len(set(d.nodes(slow, other))) == 1
    for _ in range(3):
        d.measure({slow: 100, other: 100})
    for _ in range(3):
        d.measure({slow: 150, other: 100})
    d.minutes(12)
    if quota == 1:
        assert d.moves == [], "its virtual cluster owns no other server"
        return
    assert len(d.moves) == 1
    assert "it takes 150 ms a mini-batch beside others, and 100 ms at best" in d.moves[0]
    assert len(set(d.nodes(slow, other))) == 2
    assert d.guaranteed(slow)
    assert len(d.owned()) == 2


def opportunistic() -> tuple[Moving, int, int]:
    """Two opportunistic jobs of one device, each on a server of its own."""
    d = Moving("n3", "n4", quota=1)
    full = d.ask("a", 4)
    there = [d.ask("a", 3, guarantee=OPPORTUNISTIC), d.ask("a", 1, guarantee=OPPORTUNISTIC)]
    moved = d.ask("a", 1, guarantee=OPPORTUNISTIC)
    assert d.nodes(there[0]) == d.nodes(there[1]) != d.nodes(moved)
    d.end(there[1])
    assert d.guaranteed(full)
    return d, there[0], moved


def test_an_opportunistic_job_leaves_a_server_that_is_mostly_free() -> None:
    d, stays, moved = opportunistic()
    d.minutes(12)
    assert len(d.moves) == 1
    assert "3 of 4 devices of" in d.moves[0]
    assert d.nodes(moved) == d.nodes(stays)
    assert not d.guaranteed(moved)


def test_no_opportunistic_job_moves_while_anybody_waits_for_idle_cells() -> None:
    d, _, moved = opportunistic()
    before = d.at(moved)
    d.ask("b", 4, guarantee=OPPORTUNISTIC)
    waits = d.ask("b", 4, guarantee=OPPORTUNISTIC)
    assert d.waits(waits) is Reason.NO_ROOM
    d.minutes(12)
    assert (d.moves, d.at(moved)) == ([], before)


def test_a_destination_gives_way_to_whoever_owns_it() -> None:
    d, stays, moved = opportunistic()
    for _ in range(20):
        d.step(after=60)
        if d.state.operation_of:
            break
    goes_to = target(d, moved)
    assert goes_to.awaits
    assert not goes_to.guaranteed
    assert goes_to.node == d.run(stays).node
    d.change("b", (POOL, "node", 3))
    mine = [d.ask("b", 4) for _ in range(3)]
    d.settled()
    d.settled()
    assert [d.job(job).state for job in mine] == [RUN] * 3
    assert all(d.guaranteed(job) for job in mine)


def test_an_opportunistic_job_goes_to_an_empty_server_if_its_neighbours_slow_it_down() -> None:
    d = Moving("n3", "n4", defragment_free=100, growth=0)
    d.ask("a", 4)
    slow, other = (d.ask("a", 1, guarantee=OPPORTUNISTIC) for _ in range(2))
    assert len(set(d.nodes(slow, other))) == 1
    for ms in (100, 100, 100, 150, 150, 150):
        d.measure({slow: ms, other: 100})
    d.minutes(12)
    assert len(d.moves) == 1
    assert len(set(d.nodes(slow, other))) == 2
    assert not d.guaranteed(slow)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(("mine", "mine", "mine", "borrow", "theirs", "end", "time", "time")), st.integers(0, 11)),
    min_size=6,
    max_size=16,
)


@settings(max_examples=examples(12), deadline=None)
@given(ACTIONS)
def test_whoever_moves_the_other_virtual_cluster_has_its_cells_at_once(actions: list[tuple[str, int]]) -> None:
    d = Moving("n3", quota=2, rotate=60, move_pause=60)
    for what, n in actions:
        live = sorted(d.state.active)
        if what == "mine":
            d.ask("a", (1, 1, 2, 3)[n % 4])
        elif what == "borrow":
            d.ask("a", n % 3 + 1, guarantee=OPPORTUNISTIC)
        elif what == "theirs":
            d.ask("b", n % 4 + 1)
        elif what == "end" and live:
            d.end(live[n % len(live)])
        elif what == "time":
            d.minutes(3)
        d.settled()
    for job in [job for job, row in d.state.jobs.rows.items() if row.spec.vc == "b"]:
        d.cancel(job)
        d.settled()
    mine = d.ask("b", 4)
    d.settled()
    assert d.job(mine).state is RUN
    assert d.guaranteed(mine)
