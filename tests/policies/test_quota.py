"""YARN-CS as the HiveD paper refines it: which node, and who leaves."""

from itertools import combinations
from random import Random

import pytest

from scheduler_service.sim.policies.quota import Choice, Low, is_within_quota, make_room, place, turns


def low(job: int, *parts: tuple[int, int]) -> Low:
    return Low(job, parts)


def least(need: int, free: list[int], runs: list[Low]) -> int | None:
    """By trying every set of runs: the fewest GPUs that have to be preempted for one task."""
    costs = [
        sum(run.gpus for run in gone)
        for count in range(len(runs) + 1)
        for gone in combinations(runs, count)
        if any(free[at] + sum(g for run in gone for n, g in run.parts if n == at) >= need for at in range(len(free)))
    ]
    return min(costs, default=None)


def drawn(rng: Random) -> tuple[list[int], list[Low]]:
    """Nodes of 8 GPUs: what is free, and what runs beyond quotas."""
    free = [8] * rng.randint(1, 4)
    runs: list[Low] = []
    for job in range(1, rng.randint(1, 10)):
        parts = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            at = rng.randrange(len(free))
            if gpus := min(rng.choice((1, 1, 2, 4)), free[at]):
                parts.append((at, gpus))
                free[at] -= gpus
        if parts:
            runs.append(Low(job, tuple(parts)))
    for at, gpus in enumerate(free):
        free[at] -= rng.randint(0, gpus)  # regular runs
    return free, runs


@pytest.mark.parametrize("seed", range(300))
def test_one_task_costs_the_least_there_is(seed: int) -> None:
    rng = Random(seed)
    free, runs = drawn(rng)
    need = rng.choice((1, 2, 4, 8))
    choice, cheapest = make_room((need,), free, runs), least(need, free, runs)
    if choice is None:
        assert cheapest is None
        return
    assert cheapest == sum(run.gpus for run in runs if run.job in choice.leave)
    fits(choice, (need,), free, runs)


@pytest.mark.parametrize("seed", range(100))
def test_several_tasks_have_their_room(seed: int) -> None:
    rng = Random(seed)
    free, runs = drawn(rng)
    needs = tuple(rng.choice((2, 4, 8)) for _ in range(rng.randint(2, 3)))
    choice = make_room(needs, free, runs)
    if choice is not None:
        fits(choice, needs, free, runs)
    everything = [have + sum(g for run in runs for n, g in run.parts if n == at) for at, have in enumerate(free)]
    assert (choice is None) <= (place(needs, everything) is None)


def fits(choice: Choice, needs: tuple[int, ...], free: list[int], runs: list[Low]) -> None:
    room = list(free)
    for run in runs:
        if run.job in choice.leave:
            for at, gpus in run.parts:
                room[at] += gpus
    for need, at in zip(needs, choice.nodes, strict=True):
        room[at] -= need
    assert min(room) >= 0
    assert len(set(choice.leave)) == len(choice.leave)


def test_jobs_are_packed_where_there_is_least_room() -> None:
    assert place((1,), (8, 3, 1, 1)) == (2,)
    assert place((2,), (8, 3, 1, 1)) == (1,)
    assert place((4, 4), (5, 8, 4)) == (2, 0)
    assert place((8, 8), (8, 7, 8)) == (0, 2), "a job of several nodes needs whole ones"
    assert place((8, 8), (8, 7, 7)) is None
    assert place((1, 8), (8, 1)) == (1, 0), "the largest task chooses first"


def test_nobody_leaves_where_there_is_room() -> None:
    assert make_room((2,), (0, 2), [low(1, (0, 8))]) == Choice((1,), ())


def test_who_leaves_is_said_by_where_the_job_goes_and_not_by_who_came_last() -> None:
    """The last one, of 8 GPUs, would make room, too: the refinement of section 5.2.1."""
    runs = [low(1, (0, 2)), low(2, (1, 1)), low(9, (2, 8))]
    assert make_room((2,), (0, 1, 0), runs) == Choice((1,), (2,))
    assert make_room((8,), (6, 1, 0), runs) == Choice((0,), (1,))


def test_a_gang_costs_all_of_its_gpus() -> None:
    runs = [low(1, (0, 1), (1, 8)), low(2, (2, 4))]
    assert make_room((1,), (0, 0, 0), runs) == Choice((2,), (2,))
    assert make_room((8,), (7, 0, 4), runs) == Choice((2,), (2,))
    assert make_room((8, 8), (7, 0, 0), runs) == Choice((0, 1), (1,)), "it leaves once, for both tasks"


def test_of_sets_that_cost_the_same_fewer_leave_and_then_the_last() -> None:
    assert make_room((2,), (0,), [low(1, (0, 1)), low(2, (0, 1)), low(3, (0, 2))]) == Choice((0,), (3,))
    assert make_room((1,), (0,), [low(1, (0, 1)), low(2, (0, 1))]) == Choice((0,), (2,))


def test_regular_runs_never_leave() -> None:
    assert make_room((8,), (3, 4), [low(1, (0, 4)), low(2, (1, 3))]) is None


def test_tenants_are_served_by_their_share() -> None:
    quotas = {"a": 8, "b": 16, "c": 8}
    assert turns({"c": 4, "b": 4, "a": 4}, quotas) == ["b", "a", "c"]
    assert turns({"d": 0, "a": 8}, quotas) == ["a", "d"], "who has no quota comes last"
    assert is_within_quota(4, 8, 4)
    assert not is_within_quota(4, 8, 5)
