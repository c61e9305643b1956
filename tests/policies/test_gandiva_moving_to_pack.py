"""A job moves to the devices of another one to be packed with it: the next GPU and the next job (Gandiva, section 4.2.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import UpdateRequested
from scheduler_service.core.model import EventKind, JobEvent, JobState, RunKey
from scheduler_service.core.model.sharing import Row
from scheduler_service.policies.explain.launch import why_it_holds_devices_so
from tests.core.driver import spec
from tests.policies.introspected import Introspected
from tests.policies.test_gandiva_rotating import arrives
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)

ALONE = 100
"""Milliseconds of a mini-batch."""


Placement = tuple[tuple[Row, ...], tuple[tuple[RunKey, int], ...]]


class Site(Introspected):
    """One server of four devices. Jobs have one device and are of different kinds."""

    def __init__(self, *used: int, **own: float) -> None:
        super().__init__("n1", **{"rotate": 0, "pack_moves": 1, **own})
        self.jobs = [self.begin(what=replace(spec(1), name=chr(ord("a") + number))) for number in range(len(used))]
        for job, percent in zip(self.jobs, used, strict=True):
            self.profile({job: ALONE}, utilisation=percent)
        self.told_of: list[str] = []
        self.story: list[JobEvent] = []
        self.before: dict[int, Placement] = {}
        """Of share groups, before the last probe."""
        self.restored = 0

    def minutes(self, count: int, slow: Mapping[frozenset[int], int] | None = None, else_ms: int = 110) -> None:
        """Whoever is told to move does. Packed jobs take so many milliseconds a mini-batch, by who they are."""
        for _ in range(count):
            for times in ({}, self._packed(slow or {}, else_ms)):
                groups = self.groups()
                taken = self.measure(times, after=30)
                self.story += taken.log
                lines = [line for line in taken.log if line.kind in (EventKind.PROBED, EventKind.MIGRATING)]
                self.told_of += [f"{line.job_id}: {line.text}" for line in lines]
                self._check_undone(groups, [(line.job_id, line.text) for line in lines])
            for job in sorted(self.state.operation_of):
                arrives(self, job)

    def groups(self) -> dict[int, Placement]:
        """Of each share group the rows, and what its members may use of each device."""
        runs = self.state.runs.rows
        return {
            number: (group.rows, tuple((key, runs[key].device_memory_mib) for key in group.members()))
            for number, group in self.state.share_groups.rows.items()
        }

    def _check_undone(self, before: Mapping[int, Placement], lines: Sequence[tuple[int, str]]) -> None:
        """A probe that is undone leaves rows and limits as they were, if nobody has come or gone meanwhile."""
        now = self.groups()
        tried = {self.run(job).group for job, text in lines if "is tried" in text}
        undone = {self.run(job).group for job, text in lines if "is undone" in text}
        for number in undone - tried:
            if dict(now[number][1]).keys() == dict(self.before.get(number, ((), ()))[1]).keys():
                assert now[number] == self.before[number]
                self.restored += 1
        self.before |= {number: before[number] for number in tried - undone if number in before}
        self.before = {number: was for number, was in self.before.items() if number not in tried & undone}

    def until(self, text: str, slow: Mapping[frozenset[int], int] | None = None, limit: int = 60) -> None:
        """Until the story says this anew."""
        for _ in range(limit):
            seen = len(self.told_of)
            self.minutes(1, slow, 210 if slow else 110)
            if any(text in line for line in self.told_of[seen:]):
                return
        raise AssertionError(f"{text!r} is not told: {self.told_of}")

    def _packed(self, slow: Mapping[frozenset[int], int], else_ms: int) -> dict[int, int]:
        rows = {frozenset(row) for job in self.jobs if job in self.state.active for row in self.rows_of(job) if len(row) > 1}
        return {job: slow.get(row, else_ms) for row in rows for job in row if job not in self.state.operation_of}

    def moves(self) -> list[str]:
        return [line for line in self.told_of if "to be packed" in line]

    def places(self) -> list[list[int]]:
        """The jobs of each device."""
        on: dict[tuple[int, ...], list[int]] = {}
        for job in self.jobs:
            if job in self.state.active:
                on.setdefault(self.run(job).devices, []).append(job)
        return sorted(on.values())


def test_jobs_alone_on_their_devices_are_packed_and_one_that_took_turns_has_what_they_leave() -> None:
    d = Site(90, 10, 20, 90, 90)
    a, b, c, e4, e = d.jobs
    assert d.places() == [[a, e], [b], [c], [e4]]
    d.minutes(20, {frozenset((a, e)): 210})
    (move,) = d.moves()
    assert move.endswith(
        "it is to be packed with job 3 on device 2 of n1, as they use their devices to 10% and 20%; it leaves its own to one "
        "that takes turns or waits"
    )
    assert d.rows_of(b) == [[b, c]]
    assert d.places() == sorted([[a], [e], [b, c], [e4]])


def test_a_job_that_takes_turns_moves_to_one_that_has_its_device_alone() -> None:
    """One move does: the other one stays, and the mate of the one that moves has its device alone."""
    d = Site(90, 20, 90, 90, 10)
    a, b, c, e4, e = d.jobs
    assert d.places() == [[a, e], [b], [c], [e4]]
    d.minutes(20, {frozenset((a, e)): 210})
    (move,) = d.moves()
    assert move.startswith(f"{e}: ")
    assert move.endswith("packed with job 2 on device 1 of n1, as they use their devices to 10% and 20%; it leaves its own to "
                         "those who take turns with it")  # fmt: skip
    assert d.places() == [[a], [b, e], [c], [e4]]
    assert d.rows_of(e) == [[b, e]]


def test_jobs_that_share_their_devices_are_packed_there_if_that_pair_comes_first() -> None:
    d = Site(10, 30, 90, 90, 20)
    a, b, _, _, e = d.jobs
    d.minutes(20)
    assert d.rows_of(a) == [[a, e]]
    assert d.moves() == [], "nobody takes turns any more"
    assert d.run(b).group == 0


def test_after_a_failure_the_next_gpu_is_tried_and_after_a_success_the_next_job() -> None:
    d = Site(90, 10, 20, 30, 90, 90, 80, 80)
    _, b, c, x, *_ = d.jobs
    assert d.places() == [[1, 5], [2, 6], [3, 7], [4, 8]]
    pays = {frozenset((b, x)): 110}
    d.until("to be packed", pays)
    (first,) = d.moves()
    assert first.startswith(f"{b}: ")
    assert f"with job {c} " in first
    assert d.rows_of(b) == [[b], [c], [7]], "it takes turns until its packing is tried"
    d.until(f"packing is tried: jobs {b} and {c}", pays)
    d.until(f"{b}: packing is undone", pays)
    d.until(f"{b}: to n1, which makes itself ready: it is to be packed with job {x} ", pays)
    d.until(f"{b}: packing is kept", pays)
    assert any({b, x} <= set(row) for row in d.rows_of(b))
    d.until(f"{c}: to n1, which makes itself ready: it is to be packed with job ", pays)


def test_where_no_pair_pays_moves_come_to_an_end() -> None:
    d = Site(10, 20, 30, 40, 50, 60, rotate=300)
    d.minutes(240, else_ms=250)
    count = len(d.moves())
    assert 1 <= count <= 15, "a move for each pair at most"
    d.minutes(120, else_ms=250)
    assert len(d.moves()) == count
    assert sorted(map(len, d.places())) == [1, 1, 2, 2]


def test_nobody_moves_more_often_than_may_be() -> None:
    d = Site(10, 20, 30, 40, 50, 60)
    moved: dict[int, list[int]] = {}
    for _ in range(200):
        seen = len(d.told_of)
        d.minutes(1, else_ms=250)
        for line in d.told_of[seen:]:
            if "makes itself ready" in line:
                moved.setdefault(int(line.partition(":")[0]), []).append(d.state.cluster.clock_us)
    assert len(moved) >= 2
    assert all(later - sooner >= 600_000_000 for times in moved.values() for sooner, later in pairwise(times))
    few = Site(10, 20, 30, 40, 50, 60, moves_per_hour=1)
    few.minutes(50, else_ms=250)
    assert len(few.moves()) <= 1


@pytest.mark.parametrize("own", [{"migration": 0}, {"pack_moves": 0}, {"packing": 0}, {"moves_per_hour": 0}])
def test_nobody_moves_if_that_is_turned_off(own: dict[str, float]) -> None:
    d = Site(90, 10, 20, 90, 90, **own)
    d.minutes(30, {frozenset((1, 5)): 210})
    assert d.moves() == []


def test_jobs_that_nobody_has_measured_or_that_use_much_are_not_brought_together() -> None:
    d = Site(99, 80, 80, 99, 99)
    d.minutes(30, {frozenset((1, 5)): 210})
    assert d.moves() == []
    d = Site(90)
    d.jobs += [d.begin() for _ in range(4)]
    d.minutes(30)
    assert d.moves() == []


def test_jobs_of_kinds_that_paid_are_brought_together_whatever_they_use() -> None:
    d = Site(80, 99, 99, 99, 80)
    d.minutes(5)
    d.leaves(1)
    d.leaves(5)
    a, e = (d.begin(what=replace(spec(1), name=name)) for name in "ae")
    d.jobs += [a, e]
    d.profile({a: ALONE, e: ALONE}, utilisation=80)
    assert d.places() == [[2, e], [3], [4], [a]]
    d.minutes(12, else_ms=210)
    (move,) = d.moves()
    assert move.startswith(f"{e}: ")
    assert f"with job {a} " in move


@pytest.mark.parametrize("what", ["no time to save", "trial", "another priority", "memory"])
def test_who_may_not_move_or_be_packed_stays(what: str) -> None:
    d = Site(90, 10, 20, 90, 90)
    for job in (2, 3):
        if what == "no time to save":
            d.step(UpdateRequested(job, grace_us=0))
        elif what == "memory":
            d.profile({job: ALONE}, memory=20_000, utilisation=10)
        elif what == "another priority":
            d.step(UpdateRequested(job, priority=job))
        else:
            d.leaves(job)
            d.jobs.append(d.begin(what=replace(spec(1, trial=True), name=f"trial-{'ab'[job % 2]}")))
            d.profile({d.jobs[-1]: ALONE}, utilisation=10)
    d.minutes(30, {frozenset((1, 5)): 210})
    kept = {2: 3, 3: 2} if what != "trial" else {6: 7, 7: 6}
    for one, other in kept.items():
        assert not any(move.startswith(f"{one}: ") and f"with job {other} " in move for move in d.moves())
    if what in ("no time to save", "trial"):
        assert not any(move.startswith(f"{job}: ") for move in d.moves() for job in kept)


def test_nobody_gives_up_a_device_that_is_for_nobody() -> None:
    d = Site(10, 20, 30, 40)
    d.minutes(30)
    assert d.moves() == []


def test_a_device_is_given_up_for_a_job_that_waits() -> None:
    d = Site(90, 10, 20, 90, oversubscription=1)
    waits = d.submit(replace(spec(1), name="waits"))
    assert d.job(waits).state is JobState.QUEUED
    d.jobs.append(waits)
    d.until("to be packed")
    d.all_begin()
    assert d.job(waits).state is JobState.RUNNING
    assert d.run(waits).group == 0
    d.minutes(5)
    assert d.rows_of(2) == [[2, 3]]


def test_a_new_leader_goes_on() -> None:
    d = Site(90, 10, 20, 90, 90)
    slow = {frozenset((1, 5)): 210}
    while not d.state.operation_of:
        d.step(after=60)
        d.measure({job: 210 for job in (1, 5) if d.rows_of(1) == [[1, 5]]}, after=1)
    d.state = d.state.rebuild()
    for job in sorted(d.state.operation_of):
        arrives(d, job)
    d.state = d.state.rebuild()
    d.minutes(5, slow)
    assert d.rows_of(2) == [[2, 3]]


def test_explain_says_which_stage_decided_and_why() -> None:
    d = Site(90, 20, 90, 90, 10)
    slow = {frozenset((1, 5)): 210}

    def why(job: int) -> str:
        return why_it_holds_devices_so(d.job(job), [line for line in d.story if line.job_id == job])

    assert why(5) == ""
    d.until("5: to n1", slow)
    assert why(5).startswith(
        "introspection (moves): to n1, which makes itself ready: it is to be packed with job 2 on device 1"
    )
    d.until("5: packing is kept", {frozenset((2, 5)): 110})
    assert why(5) == why(2) != ""
    assert why(2).startswith("introspection (packing): packing is kept: the devices do 1.82 times the work")
    assert why(3) == "", "it has had its device alone since it was placed"


TIMES = st.sampled_from((110, 150, 210, 300))


@settings(max_examples=examples(6), deadline=None)
@given(
    used=st.lists(st.sampled_from((5, 20, 60, 95)), min_size=5, max_size=9),
    packed=st.lists(TIMES, min_size=36, max_size=36),
)
def test_whatever_pays_rows_are_restored_and_moves_come_to_an_end(used: list[int], packed: list[int]) -> None:
    """For any utilisation of the jobs, and any speed of each pair."""
    d = Site(*used, rotate=300)
    pairs = [frozenset(pair) for pair in combinations(d.jobs, 2)]
    slow = dict(zip(pairs, packed, strict=False))
    d.minutes(90, slow, else_ms=500)
    assert len(d.moves()) <= len(pairs)
    by_job = [line.partition(":")[0] for line in d.moves()]
    assert all(by_job.count(job) <= 9 for job in by_job), "ten minutes between two moves of a job"
    devices = {run.devices for run in d.state.runs.rows.values()}
    assert len(devices) == 4, "no device is left idle while jobs take turns"


def test_a_packed_job_has_a_device_that_is_for_nobody_else() -> None:
    d = Site(90, 10, 20, 90, 90)
    d.minutes(20, {frozenset((1, 5)): 210})
    assert d.rows_of(2) == [[2, 3]]
    d.leaves(1)
    d.minutes(12)
    assert sorted(map(len, d.places())) == [1, 1, 1, 1]
    assert any("it is packed with others, and devices of n1 are idle that nobody waits for" in line for line in d.told_of)
    d.jobs.append(d.begin(what=replace(spec(1), name="x")))
    d.profile({d.jobs[-1]: ALONE}, utilisation=90)
    d.minutes(12, {frozenset((4, 6)): 210})
    assert d.rows_of(2) == [[2, 3]], "it paid, so they are packed again when there are more jobs than devices"
