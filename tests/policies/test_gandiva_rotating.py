"""Jobs of a server change places, so that all get the same part of its devices."""

from collections import Counter
from itertools import pairwise

import pytest

from scheduler_service.core.messages import RunExited
from scheduler_service.core.model import RunPhase
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.sharing.equations import time_share
from scheduler_service.policies.gandiva.memos import memo_of
from scheduler_service.policies.gandiva.row_rotation import rotation_subject
from tests.core.test_migrate import of, target, warm
from tests.policies.fairest import fairest_anywhere
from tests.policies.introspected import Introspected


def six(**own: float) -> tuple[Introspected, list[int]]:
    """Six jobs on four devices."""
    d = Introspected("n1", packing=0, **own)
    return d, [d.begin() for _ in range(6)]


def passes(d: Introspected, minutes: int) -> None:
    """Whoever is told to move does so at once."""
    for _ in range(minutes):
        d.step(after=60)
        for job in sorted(d.state.operation_of):
            arrives(d, job)


def arrives(d: Introspected, job: int) -> None:
    warm(d, job)
    d.exit(job, yielded=True, told=True)
    d.step(d.started(job))


def users(d: Introspected) -> list[int]:
    """Of each device."""
    return sorted(Counter(run.devices for run in d.state.runs.rows.values()).values())


def test_the_one_that_has_got_the_least_has_a_device_alone() -> None:
    d, jobs = six(rotate=300)
    assert users(d) == [1, 1, 2, 2]
    alone = {job for job in jobs if not d.run(job).group}
    passes(d, 4)
    assert {job for job in jobs if not d.run(job).group} == alone, "it is too soon"
    taken = d.step(after=120)
    (moves,) = d.state.operation_of
    stays = next(job for job in jobs if job != moves and d.run(job).group == d.run(moves).group)
    goes_to = target(d, moves)
    assert goes_to.phase is RunPhase.WARMING
    arrives(d, moves)
    assert users(d) == [1, 1, 2, 2]
    assert not d.run(stays).group
    (host,) = [job for job in alone if d.run(job).devices == goes_to.devices]
    assert d.run(host).group == d.run(moves).group != 0
    assert f"takes turns with job {host}" in " ".join(line.text for line in taken.log if line.job_id == moves)


def test_each_job_has_a_device_alone_for_as_long_as_the_others() -> None:
    d, jobs = six(rotate=300)
    alone: Counter[int] = Counter()
    for _ in range(120):
        passes(d, 1)
        alone.update(job for job in jobs if not d.run(job).group)
        assert users(d) == [1, 1, 2, 2]
    assert sum(alone.values()) == 240
    assert all(abs(alone[job] - 40) <= 10 for job in jobs), alone


def test_places_change_more_slowly_than_turns_so_that_nobody_waits_for_longer_than_a_cycle() -> None:
    d, jobs = six(rotate=60, moves_per_hour=1000)
    moved, waited, longest = list[int](), Counter[int](), Counter[int]()
    for _ in range(240):
        d.switches(*(job for job in jobs if d.run(job).group), park=4, resume=4, after=60)
        for job in sorted(d.state.operation_of):
            moved.append(d.now // SECOND)
            arrives(d, job)
        for job in jobs:
            waited[job] = 0 if has_executed(d, job, 60) else waited[job] + 60
            longest[job] = max(longest[job], waited[job])
    assert {d.period_of(job) for job in jobs if d.run(job).group} == {600}
    assert len(moved) > 10
    assert all(later - earlier >= 600 for earlier, later in pairwise(moved[1:])), "once that the turns are so long"
    assert max(longest.values()) <= 600, longest


def has_executed(d: Introspected, job: int, seconds: int) -> bool:
    """Whether a turn of the job was in the last seconds, if nodes had the present rows all the time."""
    group, now = d.group_of(job), d.now // SECOND
    if group is None:
        return True
    place = next(number for number, row in enumerate(group.rows) if d.run(job).key in row.runs)
    cycle = group.period_us // SECOND
    return any(at % cycle * len(group.rows) // cycle == place for at in range(now - seconds, now))


def test_a_job_that_takes_turns_has_an_idle_device_of_its_server() -> None:
    d, jobs = six(rotate=300)
    first = next(job for job in jobs if not d.run(job).group)
    d.leaves(first)
    passes(d, 3)
    assert users(d) == [1, 1, 1, 2]


@pytest.mark.parametrize("own", [{"rotate": 0}, {"migration": 0}])
def test_nobody_changes_places_if_that_is_turned_off(own: dict[str, float]) -> None:
    d, jobs = six(**own)
    before = {job: d.run(job) for job in jobs}
    passes(d, 15)
    assert {job: d.run(job) for job in jobs} == before


def test_jobs_that_get_the_same_stay_and_nothing_is_remembered() -> None:
    d = Introspected("n1", packing=0, rotate=300)
    jobs = [d.begin() for _ in range(8)]
    passes(d, 15)
    assert {d.run(job).run for job in jobs} == {1}
    assert memo_of(d.state, rotation_subject("", 1)) is None


def test_a_destination_that_fails_leaves_all_as_they_were() -> None:
    d, _ = six(rotate=300)
    before = users(d)
    while not d.state.operation_of:
        d.step(after=60)
    (moves,) = d.state.operation_of
    d.step(of(d, target(d, moves), RunExited, exit_signal=9))
    assert users(d) == before
    assert moves not in d.state.operation_of


def parts_in_the_long_run(d: Introspected, jobs: list[int], minutes: int) -> list[float]:
    """The part of the time in which each job executes, by its turns."""
    got = dict.fromkeys(jobs, 0.0)
    for _ in range(minutes):
        passes(d, 1)
        for job in jobs:
            group = d.group_of(job)
            got[job] += 1 if group is None else float(time_share(group.rows, d.run(job).key))
    return [got[job] / minutes for job in jobs]


@pytest.mark.parametrize(
    "sizes",
    [(2, 2, 2), (2, 1, 1, 1), (1,) * 5, (2, 2, 1, 1), (2, 2, 2, 1), (2, 2, 2, 2, 2), (4, 2, 2)],
)
def test_jobs_of_any_sizes_get_what_is_fair_in_the_long_run(sizes: tuple[int, ...]) -> None:
    """Within two points of what is possible if jobs could change their devices all the time."""
    d = Introspected("n1", packing=0, growth=0, rotate=60, move_pause=60)
    jobs = [d.begin(size) for size in sizes]
    passes(d, 5)
    parts = parts_in_the_long_run(d, jobs, 100)
    best = fairest_anywhere(sizes, 4)
    assert max(abs(part - fair) for part, fair in zip(parts, best, strict=True)) <= 0.02, (parts, [float(b) for b in best])
