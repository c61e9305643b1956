"""Real trainings while jobs are parked, migrated and resized, and while agents, schedulers, links and disks fail.

No job is lost, no rank is at two places, and every loss is that of a training that nothing interrupts. The moves follow from a
seed.
"""

import time
from pathlib import Path

import pytest

from tests.e2e.chaos import CHANGES, UNDER_GANDIVA, Chaos, Uninterrupted, moves
from tests.e2e.chaos_site import ChaosSite

pytestmark = pytest.mark.timeout(900)


WAVE = 8
"""Moves, after which everything heals and every job goes on."""


def play(folder: Path, seed: int, waves: int, policy: str = "fitgpp", two: bool = False) -> None:
    """With `two` schedulers, the second takes over when the leader is killed."""
    began = time.monotonic()
    with (
        Uninterrupted(folder / "alone", elastic=False) as alone,
        Uninterrupted(folder / "elastic", elastic=True) as elastic,
        ChaosSite(folder, bool(seed % 2), policy, two) as site,
    ):
        chaos = Chaos(site, began)
        chaos.say(
            f"{policy}, seed {seed}, {waves} waves, {len(site.schedulers)} schedulers"
            + ("" if site.disks else "; this user may mount no disks, so none is filled")
        )
        chaos.wait_steps()
        for number, move in enumerate(moves(seed, waves * WAVE, UNDER_GANDIVA if policy == "gandiva" else CHANGES), 1):
            chaos.make(move)
            if number % WAVE == 0 and number < waves * WAVE:
                chaos.recover()
        chaos.end()
        chaos.check_ended({"alone": alone.result(), "elastic": elastic.result()})
        chaos.say("everything has ended")


@pytest.mark.usefixtures("training_packages")
def test_trainings_in_chaos(folder: Path) -> None:
    play(folder, seed=1, waves=2)


@pytest.mark.usefixtures("training_packages")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
def test_trainings_in_long_chaos(folder: Path, seed: int) -> None:
    play(folder, seed, waves=7)


@pytest.mark.usefixtures("training_packages")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_trainings_in_turns_in_chaos(folder: Path, seed: int) -> None:
    """Parks, turns, trials, and jobs that are cancelled before their first turn; every fourth time with two schedulers."""
    play(folder, seed, waves=2, policy="gandiva", two=seed % 4 == 3)
