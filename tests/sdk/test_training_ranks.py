"""The checkpoints of the ranks of a gang: which are kept, which one all ranks go on from, and what is said if there is none."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from client_sdk.training import Checkpointer, CheckpointError
from client_sdk.training._gang import gang_checkpoints as together


class Launch:
    """The ranks of one run, in this process."""

    def __init__(self, directory: Path, run: int | None, world: int = 2, **more: Any) -> None:
        together._loads.clear()  # each rank is a process of its own
        self.ranks = [
            Checkpointer(directory, environment=of_rank(rank, world, run), rank_timeout=more.pop("rank_timeout", 20), **more)
            for rank in range(world)
        ]

    def load(self, *ranks: int) -> list[Any]:
        """What each of the ranks loads, or the error; all at once."""
        chosen = ranks or range(len(self.ranks))
        loaded: dict[int, Any] = {}

        def one(rank: int) -> None:
            try:
                loaded[rank] = self.ranks[rank].load(lambda: "fresh")
            except CheckpointError as error:
                loaded[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in chosen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [loaded[rank] for rank in chosen]

    def train(self, rank: int, steps: int, save_at: Sequence[int]) -> None:
        """Takes so many steps, and saves at some of them."""
        for step in range(1, steps + 1):
            self.ranks[rank]._schedule._next_boundary = self.ranks[rank]._boundaries + (1 if step in save_at else 2)
            self.ranks[rank].at_boundary(lambda: f"rank {rank} step {self.ranks[rank]._boundaries}")


def of_rank(rank: int, world: int, run: int | None) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(world)} | ({} if run is None else {"EBB_RUN": str(run)})


def files(directory: Path, rank: int) -> list[str]:
    return sorted(path.name.removeprefix(f"checkpoint.{rank}of2-") for path in directory.glob(f"checkpoint.{rank}of2-*"))


@pytest.mark.parametrize("run", [1, None])
def test_all_ranks_go_on_from_the_newest_step_that_all_of_them_have(tmp_path: Path, run: int | None) -> None:
    """Without EBB_RUN, too, as outside of Ebb."""
    first = Launch(tmp_path, run)
    assert first.load() == ["fresh", "fresh"]
    first.train(0, 50, [25, 50])
    first.train(1, 55, [25, 50, 55])
    second = Launch(tmp_path, run and run + 1)
    assert second.load() == ["rank 0 step 50", "rank 1 step 50"]
    assert [rank._boundaries for rank in second.ranks] == [50, 50], "steps count over all runs"


def test_the_same_step_of_another_run_is_another_checkpoint(tmp_path: Path) -> None:
    """The weights of a step may differ from run to run."""
    first = Launch(tmp_path, 1)
    first.train(0, 20, [10])
    first.train(1, 20, [10, 20])
    second = Launch(tmp_path, 2)
    second.load()
    second.train(0, 10, [10])  # step 20 of this run, which rank 1 does not reach
    assert Launch(tmp_path, 3).load() == ["rank 0 step 10", "rank 1 step 10"]


def test_an_old_checkpoint_is_removed_only_if_all_ranks_have_newer_ones(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, keep=1)
    launch.train(0, 40, [10, 20, 30, 40])
    assert len(files(tmp_path, 0)) == 4, "rank 1 has none of these"
    launch.train(1, 20, [10, 20])
    launch.train(0, 10, [10])
    assert files(tmp_path, 0) == [f"000001-000000{step}.ckpt" for step in (20, 30, 40, 50)]
    assert files(tmp_path, 1) == ["000001-00000020.ckpt"]


def test_a_rank_that_is_ahead_changes_nothing_for_one_that_loads(tmp_path: Path) -> None:
    """It has saved in this run, and removed what it may, before the other has read what the launch goes on from."""
    first = Launch(tmp_path, 1, keep=1)
    for rank in (0, 1):
        first.train(rank, 10, [10])
    second = Launch(tmp_path, 2, keep=1)
    read = together.Together._read
    ahead = threading.Event()

    def slow(self: together.Together, key: Any) -> tuple[Any, str]:
        if self.tag.endswith(".1of2"):
            assert not ahead.wait(0.2), "rank 0 goes on before rank 1 has read"
        return read(self, key)

    loads = second.ranks[0].load

    def load_and_save(fresh: Any) -> Any:
        state = loads(fresh)
        ahead.set()
        second.train(0, 3, [1, 2, 3])
        return state

    second.ranks[0].load = load_and_save  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together.Together, "_read", slow)
        assert second.load() == ["rank 0 step 10", "rank 1 step 10"]
    assert "000001-00000010.ckpt" in files(tmp_path, 0), "rank 1 has no newer one"


def test_the_words_of_an_earlier_launch_are_no_answer(tmp_path: Path) -> None:
    """By hand, launches have no numbers that would tell them apart."""
    first = Launch(tmp_path, None)
    first.load()
    for rank in (0, 1):
        first.train(rank, 10, [10])
    second = Launch(tmp_path, None, rank_timeout=0.3)
    (alone,) = second.load(0)
    assert isinstance(alone, CheckpointError)
    assert "within 0.3 s, so it is unknown which step all ranks have" in str(alone)


def test_a_damaged_checkpoint_of_one_rank_takes_all_ranks_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Launch(tmp_path, 1)
    for rank in (0, 1):
        first.train(rank, 20, [10, 20])
    damaged = tmp_path / "checkpoint.1of2-000001-00000020.ckpt"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    with caplog.at_level(logging.WARNING):
        assert Launch(tmp_path, 2).load() == ["rank 0 step 10", "rank 1 step 10"]
    assert f"rank 1: {damaged} is damaged" in caplog.text
    for path in tmp_path.glob("checkpoint.1of2-*"):
        path.write_bytes(b"")
    errors = Launch(tmp_path, 3).load()
    assert all(isinstance(error, CheckpointError) and "rank 1: " in str(error) for error in errors)


def test_a_rank_that_lost_its_checkpoints_is_named_with_the_directory_and_the_remedy(tmp_path: Path) -> None:
    first = Launch(tmp_path, 1)
    for rank in (0, 1):
        first.train(rank, 20, [10, 20])
    for path in tmp_path.glob("checkpoint.1of2-*"):
        path.unlink()
    errors = Launch(tmp_path, 2).load()
    for error in errors:
        assert isinstance(error, CheckpointError)
        assert f"no step of 'checkpoint' in {tmp_path} is whole on every rank: rank 0 (on " in str(error)
        assert ") has 2, the newest of run 1 and step 20; rank 1 (on " in str(error)
        assert ") has none. Bring back what is missing, or remove every file" in str(error)


def test_without_a_common_step_at_the_first_interruption_all_begin_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Launch(tmp_path, 1)
    first.train(0, 1, [1])
    with caplog.at_level(logging.WARNING):
        assert Launch(tmp_path, 2).load() == ["fresh", "fresh"]
    assert "all ranks begin from the start" in caplog.text


def test_ranks_that_share_no_directory_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Launch(tmp_path, 1)
    assert first.load(0) == ["fresh"], "a first run waits for nobody: nothing can be there"
    with caplog.at_level(logging.WARNING):
        first.train(0, 30, [10, 20, 30])
    assert f"rank 0 has saved 3 times in {tmp_path}, and rank 1 has saved nothing there" in caplog.text
    (error,) = Launch(tmp_path, 2, rank_timeout=0.2).load(0)
    assert isinstance(error, CheckpointError)
    assert "rank 0: rank 1 of 2 has not come to load its checkpoint 'checkpoint' in" in str(error)
    assert "the setting `checkpoints` of their agents" in str(error)


def test_a_rank_that_waits_for_the_others_leaves_when_it_is_asked_to(tmp_path: Path) -> None:
    Launch(tmp_path, 1).train(0, 1, [1])
    launch = Launch(tmp_path, 2)
    launch.ranks[0].request_stop()
    with pytest.raises(SystemExit, match="143"):
        launch.ranks[0].load()


def test_checkpoints_of_another_number_of_ranks_are_not_thrown_away_in_silence(tmp_path: Path) -> None:
    Launch(tmp_path, 1, world=2).train(0, 1, [1])
    (error, *_) = Launch(tmp_path, 1, world=3).load()
    assert isinstance(error, CheckpointError)
    assert "rank 0 of 3 has no checkpoint 'checkpoint'" in str(error)
    assert "some of 2 ranks: go on with as many ranks" in str(error)
    with pytest.raises(
        CheckpointError, match=r"this process, which is no rank of a gang, has no checkpoint .* some of 2 ranks"
    ):
        Checkpointer(tmp_path, environment={}).load()


def test_checkpoints_of_a_single_process_stay_readable_and_are_no_rank_s(tmp_path: Path) -> None:
    Checkpointer(tmp_path, environment={"EBB_RUN": "1"}).save("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000001-00000001.ckpt"]
    assert Checkpointer(tmp_path, environment={"EBB_RUN": "2"}).load() == "whole"
    assert Checkpointer(tmp_path, environment={"RANK": "0", "WORLD_SIZE": "1"}).load() == "whole"
    (error, _) = Launch(tmp_path, 2).load()
    assert "some of a single process" in str(error)


def test_a_rank_may_save_for_all(tmp_path: Path) -> None:
    Checkpointer(tmp_path, ranks=[0], every_seconds=60, environment=of_rank(0, 2, 1)).save("all")
    assert Checkpointer(tmp_path, ranks=[0], environment=of_rank(0, 2, 2)).load() == "all"


def test_a_replicated_state_is_written_by_rank_0_and_loaded_by_all(tmp_path: Path) -> None:
    first = Launch(tmp_path, 1, replicated=True)
    assert first.load() == ["fresh", "fresh"]
    for rank in (1, 0):
        first.train(rank, 30, [10, 20, 30])
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == [
        "checkpoint.all-000001-00000020.ckpt",
        "checkpoint.all-000001-00000030.ckpt",
    ]
    assert Launch(tmp_path, 2, replicated=True).load() == ["rank 0 step 30"] * 2
    damaged = tmp_path / "checkpoint.all-000001-00000030.ckpt"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert Launch(tmp_path, 3, replicated=True).load() == ["rank 0 step 20"] * 2


def test_a_replicated_state_may_be_loaded_by_another_number_of_ranks(tmp_path: Path) -> None:
    Launch(tmp_path, 1, world=2, replicated=True).train(0, 10, [10])
    assert Launch(tmp_path, 2, world=3, replicated=True).load() == ["rank 0 step 10"] * 3
    (error, _) = Launch(tmp_path, 3).load()
    assert isinstance(error, CheckpointError)
    assert "some of ranks with replicated state" in str(error), "each rank on its own is another kind of checkpoint"


def test_a_rank_that_is_late_in_the_first_run_does_not_load_what_rank_0_has_saved_meanwhile(tmp_path: Path) -> None:
    first = Launch(tmp_path, 1, replicated=True, rank_timeout=0.2)
    first.train(0, 10, [10])
    assert first.load(1) == ["fresh"]


def test_a_rank_that_does_not_write_says_where_the_file_is(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, replicated=True)
    assert launch.ranks[1].save("same") == launch.ranks[0].save("same")
    assert Launch(tmp_path, 2, replicated=True).load() == ["same", "same"]


def test_saves_between_boundaries_are_told_apart(tmp_path: Path) -> None:
    first = Launch(tmp_path, 1)
    for rank in first.ranks:
        rank.at_boundary(lambda: "")
        rank.save("a")
    first.ranks[0].save("b")
    assert Launch(tmp_path, 2).load() == ["a", "a"]


def test_what_cannot_be_of_a_rank_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"every_seconds=600: the ranks .* say every_steps instead"):
        Checkpointer(tmp_path, every_seconds=600, environment=of_rank(0, 2, 1))
    with pytest.raises(ValueError, match="RANK='x' and WORLD_SIZE='2' must be whole numbers"):
        Checkpointer(tmp_path, environment={"RANK": "x", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="RANK=2 must be at least 0 and less than WORLD_SIZE=2"):
        Checkpointer(tmp_path, environment=of_rank(2, 2, 1))
    with pytest.raises(ValueError, match="rank 1 of 2 must be one of them"):
        Checkpointer(tmp_path, ranks=[0], environment=of_rank(1, 2, 1))


def test_a_shared_state_takes_as_many_bytes_whatever_the_number_of_ranks(tmp_path: Path) -> None:
    """What a migration has to move does not grow with the job (Gandiva, Figure 12)."""
    sizes = {}
    for world in (1, 2, 4):
        directory = tmp_path / str(world)
        launch = Launch(directory, 1, world=world, replicated=True)
        launch.load()
        for rank in launch.ranks:
            rank.save(bytes(1 << 20))
        sizes[world] = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    assert max(sizes.values()) < 1.2 * min(sizes.values()), sizes
    assert sizes[1] >= 1 << 20
