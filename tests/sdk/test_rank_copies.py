"""A data-parallel job saves one copy of what its ranks have in common, however many they are."""

from pathlib import Path

import pytest

from benchmarks.rank_copies import saves


@pytest.mark.usefixtures("training_packages")
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_ranks_save_as_many_bytes_as_one_alone(tmp_path: Path, ranks: int) -> None:
    alone = saves(tmp_path / "1", 1, 4)
    together = saves(tmp_path / str(ranks), ranks, 4)
    assert alone.size > 4_000_000
    assert abs(together.size - alone.size) < alone.size / 100
    assert {path.name.split("-")[0] for path in (tmp_path / str(ranks) / "saved").glob("*.ckpt")} == {"checkpoint.all"}
