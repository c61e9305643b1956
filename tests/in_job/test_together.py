"""Ranks on several nodes park after one step on which they agree, whenever their agents ask them."""

import time
from functools import partial
from pathlib import Path
from random import Random

import pytest

from ebb_inject.ebb_hook import control
from tests.in_job.programs import LIMIT, until
from tests.in_job.together import Rank, go_on, kill, ranks

pytestmark = [pytest.mark.usefixtures("training_packages"), pytest.mark.timeout(300)]
LONG = pytest.mark.long, pytest.mark.timeout(3600)
ENDED = (control.PARKED, control.REFUSED, control.RUNNING)


def asked(gang: list[Rank], park: int, random: Random | None = None) -> None:
    """At random times, in a random order."""
    order = list(gang)
    if random is not None:
        random.shuffle(order)
    for rank in order:
        rank.asked(park)
        if random is not None:
            time.sleep(random.choice((0.0, 0.0, 0.001, 0.01, 0.05)))  # no result depends on it


def all_parked(*tasks: list[Rank]) -> int:
    """The step after which all have parked. A task is stopped as soon as its processes say that they are parked, as its agent
    does."""
    left, at = list(tasks), set()
    end = time.monotonic() + LIMIT
    while left and time.monotonic() < end:
        for task in list(left):
            if all(rank.answered() is not None for rank in task):
                for rank in task:
                    at.add(rank.told(control.PARKED)["step"])
                    rank.stop()
                left.remove(task)
    assert not left, [rank.output for task in tasks for rank in task]
    assert len(at) == 1, f"they have parked after the steps {at}"
    return int(at.pop())


def resumed(gang: list[Rank]) -> None:
    for rank in gang:
        rank.go_on()
        rank.asked_back()
    for rank in gang:
        rank.told(control.RUNNING)


@pytest.mark.parametrize(
    ("of", "parks"), [((1, 1), 20), ((2, 2), 10), *(pytest.param(of, 300, marks=LONG) for of in ((1, 1), (2, 2)))]
)
def test_all_park_after_one_step_whenever_they_are_asked(tmp_path: Path, of: tuple[int, ...], parks: int) -> None:
    """And train as ranks do that nobody parks, to the last bit."""
    random = Random(sum(of))
    with ranks(tmp_path, of, "-1") as gang:
        last = 0
        for park in range(1, parks + 1):
            asked(gang, park, random)
            at = all_parked(*([rank] for rank in gang))
            assert at > last
            last = at
            resumed(gang)
            time.sleep(random.choice((0.0, 0.003, 0.02)))  # into any part of a step
        gang[0].tell()
        found = [rank.results() for rank in gang]
        goal = len(found[0][0]["losses"])
        assert goal > last
    (tmp_path / "unbroken").mkdir()
    with ranks(tmp_path / "unbroken", of, str(goal)) as others:
        assert found == [rank.results() for rank in others]


def test_a_task_of_several_ranks_is_stopped_when_all_of_them_are_parked(tmp_path: Path) -> None:
    random = Random(7)
    with ranks(tmp_path, (2, 1), "-1", in_one_task=True) as gang:
        for park in range(1, 9):
            asked(gang, park, random)
            all_parked(gang[:2], gang[2:])
            resumed(gang)


def test_programs_without_modules_park_after_one_step(tmp_path: Path) -> None:
    random = Random(5)
    with ranks(tmp_path, (1, 1), "-1", "plain") as gang:
        for park in range(1, 15):
            asked(gang, park, random)
            all_parked(*([rank] for rank in gang))
            resumed(gang)


def test_independent_tasks_park_each_at_its_next_step(tmp_path: Path) -> None:
    with ranks(tmp_path, (1, 1), "-1", "alone") as gang:
        gang[0].asked(1)
        gang[0].told(control.PARKED)
        go_on(gang[1:])
        gang[0].asked_back()
        gang[0].told(control.RUNNING)


def test_ranks_of_which_some_are_not_asked_go_on(tmp_path: Path) -> None:
    """Nobody waits for them: the training goes on until the agents take the park back, or the ranks give it up."""
    with ranks(tmp_path, (1, 1), "-1") as gang:
        gang[0].asked(1)
        go_on(gang)
        gang[0].asked_back()
        gang[0].told(control.RUNNING)
        gang[1].asked(1)
        assert "rank 0 of 2 does not park" in gang[1].told(control.REFUSED)["reason"]
        gang[0].asked(2)
        assert "rank 1 of 2 was not asked to park within 5 s" in gang[0].told(control.REFUSED)["reason"]
        go_on(gang)
        asked(gang, 3)
        all_parked(*([rank] for rank in gang))
        resumed(gang)
        go_on(gang)


def test_a_park_that_is_over_is_not_taken_up_again(tmp_path: Path) -> None:
    """An agent that has been killed asks again for what it asked for."""
    with ranks(tmp_path, (1, 1), "-1") as gang:
        asked(gang, 1)
        asked(gang, 1)
        all_parked(*([rank] for rank in gang))
        for rank in gang:
            rank.go_on()
        asked(gang, 1)
        all_parked(*([rank] for rank in gang))
        resumed(gang)
        asked(gang, 1)
        assert all("this park is over" in rank.told(control.REFUSED)["reason"] for rank in gang)
        go_on(gang)


@pytest.mark.parametrize(("seed", "parks"), [(0, 12), pytest.param(1, 100, marks=LONG)])
def test_agents_that_give_up_in_the_middle(tmp_path: Path, seed: int, parks: int) -> None:
    """A node takes the park back at a random moment. No rank waits for it: they all park after one step, or some refuse."""
    random = Random(seed)
    ends = {"parked": 0, "refused": 0}
    with ranks(tmp_path, (1, 1), "-1") as gang:
        for park in range(1, parks + 1):
            order = random.sample(gang, 2)
            asked(order, park)
            time.sleep(random.choice((0.0, 0.002, 0.004, 0.008, 0.016)))  # the moment is random, and no result depends on it
            quitter, other = order
            quitter.asked_back()
            begin = time.monotonic()
            quitter.told(control.RUNNING)
            answer = other.told(*ENDED)
            # A request that is taken back before its process has seen it is none: the other waits for it, and trains on.
            unseen = "was not asked" in answer.get("reason", "")
            assert unseen or time.monotonic() - begin < 4.0, "nobody waits for a limit"
            ends[answer["state"]] += not unseen
            other.asked_back()
            other.told(control.RUNNING)
            go_on(gang)
    assert sum(ends.values()) > parks // 3, ends


def test_no_rank_is_parked_if_one_refuses_at_the_common_step(tmp_path: Path) -> None:
    """As one does whose node has no host memory left. The others have their memory back, and all go on at once."""
    with ranks(tmp_path, (1, 1), "-1") as gang:
        for park in range(1, 5):
            able, unable = gang if park % 2 else gang[::-1]
            began = time.monotonic()
            able.asked(park)
            unable.asked(park, most_bytes=1)
            assert "would be moved" in unable.told(control.REFUSED)["reason"]
            assert "does not park" in able.told(control.REFUSED)["reason"]
            assert time.monotonic() - began < 4.0, "nobody waits for a limit"
            go_on(gang)


@pytest.mark.parametrize(("of", "parks"), [((1, 2), 10), pytest.param((2, 2), 200, marks=LONG)])
def test_all_ranks_park_or_none_does_whoever_refuses(tmp_path: Path, of: tuple[int, ...], parks: int) -> None:
    random = Random(parks)
    with ranks(tmp_path, of, "-1") as gang:
        for park in range(1, parks + 1):
            unable = random.sample(gang, random.choice((0, 1, 1, 2, len(gang))))
            for rank in random.sample(gang, len(gang)):
                rank.asked(park, most_bytes=rank in unable)
                time.sleep(random.choice((0.0, 0.001, 0.02)))  # no result depends on it
            if unable:
                for rank in gang:
                    rank.told(control.REFUSED)
            else:
                all_parked(*([rank] for rank in gang))
                resumed(gang)
            go_on(gang)


def test_no_rank_is_parked_before_all_have_moved_their_memory(tmp_path: Path) -> None:
    """One that is stopped sooner may still have to send what another one waits for on its device."""
    with ranks(tmp_path, (1, 1), "-1", "slow") as gang:
        asked(gang, 1)
        until(gang[0].answered, "it answers")
        assert gang[1].output.splitlines() == ["moves", "moved"]
        all_parked(*([rank] for rank in gang))
        resumed(gang)
        asked(gang, 2)
        until(lambda: gang[1].output.splitlines()[2:] == ["moves"], "it moves")
        gang[0].asked_back()
        gang[0].told(control.RUNNING)
        assert "does not park" in gang[1].told(control.REFUSED)["reason"]
        go_on(gang)


def test_another_park_ends_the_one_before(tmp_path: Path) -> None:
    with ranks(tmp_path, (1, 1), "-1") as gang:
        gang[0].asked(1)
        go_on(gang)
        gang[0].asked(2)
        gang[1].asked(2)
        all_parked(*([rank] for rank in gang))
        resumed(gang)


def test_a_rank_that_is_killed_keeps_nobody_waiting(tmp_path: Path) -> None:
    """The others fail in their collective, or refuse. None parks for ever."""
    with ranks(tmp_path, (1, 2), "-1") as gang:
        gang[0].asked(1)
        gang[1].asked(1)
        kill(gang[2])
        for rank in gang[:2]:
            until(partial(ended_or_answered, rank), "it ends, or answers")


def ended_or_answered(rank: Rank) -> bool:
    try:
        return rank.answered() is not None
    except (AssertionError, OSError):
        return rank.process.poll() is not None


def test_a_rank_without_the_hook(tmp_path: Path) -> None:
    with ranks(tmp_path, (1, 1), "-1", without_hook=[1]) as gang:
        gang[0].asked(1)
        assert "rank 1 of 2 is not there: it runs without the hook" in gang[0].told(control.REFUSED)["reason"]
        go_on(gang[:1])


def test_a_rank_that_cannot_park_says_so_to_the_others(tmp_path: Path) -> None:
    """They need not find out by waiting."""
    with ranks(tmp_path, (1, 1), "-1", "thread") as gang:
        for park in (1, 2):
            asked(gang, park)
            began = time.monotonic()
            reasons = {rank.told(control.REFUSED)["reason"] for rank in gang}
            assert time.monotonic() - began < 4.0
            assert any("main thread" in reason for reason in reasons), reasons
            go_on(gang)


def test_a_process_that_does_not_know_its_nodes_refuses(tmp_path: Path) -> None:
    with ranks(tmp_path, (2,), "-1") as gang:
        gang[0].asked(1)
        assert "EBB_NODES is not set" in gang[0].told(control.REFUSED)["reason"]
