"""Gangs that train by PyTorch are stopped at many moments, and all ranks stop at one step: real processes and real signals."""

import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.sdk.forked import Server
from tests.sdk.gang_stops import MOMENTS, TorchGang, check_moments, newest
from tests.thorough import TIMES, examples


@pytest.fixture(scope="module")
def server(training_packages: None) -> Iterator[Server]:
    made = Server("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "client_sdk.training")
    yield made
    made.close()


@pytest.mark.parametrize(("world", "replicated"), [(2, False), (4, True)])
def test_all_ranks_stop_at_one_step_whenever_the_stop_comes(
    server: Server, tmp_path: Path, world: int, replicated: bool
) -> None:
    """At each of ten moments, such as while a rank starts, evaluates, saves or is done. The stop reaches some of the ranks or
    all, by a signal or without."""
    random, moments = Random(world + 10 * TIMES), list(MOMENTS) * examples(1)
    random.shuffle(moments)
    assert check_moments(server, tmp_path, world, world, moments, replicated=replicated) == 0


@pytest.mark.long
@pytest.mark.parametrize(("world", "replicated"), [(2, False), (2, True), (4, False), (4, True)])
def test_all_ranks_stop_at_one_step_at_25_moments(server: Server, tmp_path: Path, world: int, replicated: bool) -> None:
    """A hundred moments in all."""
    random = Random(world + 10 * TIMES)
    assert check_moments(server, tmp_path, world, world, random.choices(MOMENTS, k=25), replicated=replicated) == 0


def test_a_rank_that_is_killed_while_the_others_save(server: Server, tmp_path: Path) -> None:
    gang = TorchGang(server, tmp_path / "gang", 4, pause=0.005)
    gang.launch()
    gang.until(lambda: gang.reached() >= 12)
    before = len(gang.told("saving")[3])
    for number in range(4):
        gang.stop(number)
    gang.until(lambda: len(gang.told("saving")[3]) > before)
    gang.ranks[3].kill()
    assert gang.ended() == [143, 143, 143, -signal.SIGKILL]
    step = newest(gang)
    assert step in (9, gang.reached()), "the step that all have, with or without the file that the killed rank was writing"
    losses = gang.whole()
    assert gang.loaded() == step
    assert losses == TorchGang(server, tmp_path / "unbroken", 4).whole()


def test_a_rank_that_dies_takes_its_gang_back_to_the_last_step_that_all_have_saved(server: Server, tmp_path: Path) -> None:
    gang = TorchGang(server, tmp_path / "gang", 2)
    gang.launch()
    gang.until(lambda: gang.reached() >= 12)
    gang.ranks[0].kill()
    ends = gang.ended()
    assert ends[0] == -signal.SIGKILL
    assert ends[1] in (1, 143), "it fails in the collective, or leaves at a boundary"
    losses = gang.whole()
    assert gang.loaded() == 9
    assert losses == TorchGang(server, tmp_path / "unbroken", 2).whole()


def test_a_stop_that_reaches_one_rank_stops_all_by_their_process_group(server: Server, tmp_path: Path) -> None:
    """Without anything of Ebb's: the ranks have the store of torch.distributed to agree by."""
    gang = TorchGang(server, tmp_path / "gang", 2, by_hand=True, steps=1_000_000)
    gang.launch()
    gang.until(lambda: gang.reached() >= 10)
    gang.ranks[1].send_signal(signal.SIGTERM)
    assert [rank.wait(30) for rank in gang.ranks] == [143, 143]
    assert newest(gang) == gang.reached() > 9
