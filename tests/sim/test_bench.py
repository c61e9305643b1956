"""The bench of the Philly trace: what it is told of others' files is looked at before it measures anything."""

from pathlib import Path
from typing import NoReturn

import pytest

from benchmarks import sim_philly


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    def measured(*_: object) -> NoReturn:
        raise AssertionError("it measures")

    monkeypatch.setattr(sim_philly, "apart", measured)
    (tmp_path / "philly.csv.gz").touch()
    monkeypatch.setenv("EBB_PHILLY", str(tmp_path / "philly.csv.gz"))
    monkeypatch.delenv("EBB_TIRESIAS", raising=False)
    return monkeypatch


@pytest.mark.parametrize("folder", ["nowhere", "", "philly.csv.gz"])
def test_a_simulator_that_is_not_there_is_told_at_once(told: pytest.MonkeyPatch, tmp_path: Path, folder: str) -> None:
    told.setenv("EBB_TIRESIAS", str(tmp_path / folder))
    with pytest.raises(FileNotFoundError) as refused:
        sim_philly.run()
    there = f"EBB_TIRESIAS names {tmp_path / folder}, in which there is no run_sim.py"
    assert str(refused.value) == f"{there}: name the folder `simulator` of Tiresias, or leave it unset"


def test_a_trace_that_is_not_there_is_told_at_once(told: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told.setenv("EBB_PHILLY", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"EBB_PHILLY names {tmp_path}, which is no file"):
        sim_philly.run()


def test_without_them_there_is_the_small_slice(told: pytest.MonkeyPatch) -> None:
    told.delenv("EBB_PHILLY")
    with pytest.raises(AssertionError, match="it measures"):
        sim_philly.run()
