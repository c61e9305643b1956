"""Folders that are made in advance."""

import os
from pathlib import Path

import pytest

from node_agent.devices.simulated import simulate_devices
from node_agent.processes.launcher.prepared_folders import PreparedFolder, remove
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import Gang, LaunchSpec, RunKey
from node_agent.runs.preparation import prepare


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedFolder:
    return PreparedFolder(str(tmp_path / "spare"), ("a", "b"))


def taken(prepared: PreparedFolder, path: Path) -> bool:
    """Whether it went there; its files are closed."""
    opened = prepared.move_to(str(path))
    for descriptor in opened or ():
        os.close(descriptor)
    return opened is not None


def test_it_goes_where_it_is_needed_with_its_files_open(prepared: PreparedFolder, tmp_path: Path) -> None:
    assert prepared.missing
    assert not taken(prepared, tmp_path / "there")
    for path in (tmp_path / "there", tmp_path / "empty"):
        prepared.make()
        prepared.make()
        (tmp_path / "empty").mkdir(exist_ok=True)
        opened = prepared.move_to(str(path))
        assert opened is not None
        for descriptor, name in zip(opened, ("a", "b"), strict=True):
            os.write(descriptor, name.encode())
            os.close(descriptor)
        assert {file.name: file.read_text() for file in path.iterdir()} == {"a": "a", "b": "b"}
        assert prepared.missing


def test_where_it_cannot_go_it_stays(prepared: PreparedFolder, tmp_path: Path) -> None:
    (tmp_path / "full" / "inside").mkdir(parents=True)
    (tmp_path / "file").touch()
    prepared.make()
    for name in ("full", "file", "no/parent"):
        assert not taken(prepared, tmp_path / name)
    assert not prepared.missing
    assert taken(prepared, tmp_path / "there")


def test_one_that_was_left_is_used(prepared: PreparedFolder, tmp_path: Path) -> None:
    prepared.make()
    again = PreparedFolder(prepared.path, ("a", "b"))
    again.make()
    assert taken(again, tmp_path / "there")
    assert not taken(prepared, tmp_path / "elsewhere"), "another has it"


def test_one_that_somebody_removed_is_made_anew(prepared: PreparedFolder, tmp_path: Path) -> None:
    prepared.make()
    remove(prepared.path, ("a", "b"))
    assert not taken(prepared, tmp_path / "there")
    assert prepared.missing
    prepared.make()
    assert taken(prepared, tmp_path / "there")


def test_none_is_made_where_that_is_impossible(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    prepared = PreparedFolder(str(tmp_path / "file" / "spare"), ("a",))
    prepared.make()
    assert prepared.missing


def test_removed_it_leaves_nothing(prepared: PreparedFolder, tmp_path: Path) -> None:
    prepared.make()
    mine = Path("/proc/self/fd")
    before = len(list(mine.iterdir()))
    prepared.remove()
    assert len(list(mine.iterdir())) == before - 2
    prepared.remove()
    (tmp_path / "spare").mkdir()
    remove(prepared.path, ("a", "b"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("gang", "before", "exchanged"), [(False, False, True), (False, True, False), (True, False, False)])
def test_checkpoints_are_saved_in_a_folder_that_is_never_exchanged(
    tmp_path: Path, gang: bool, before: bool, exchanged: bool
) -> None:
    """Other tasks of its gang may be in it already, and so may the process of an agent that was killed."""
    paths = Paths(tmp_path, tmp_path / "checkpoints", "s1")
    place = Path(paths.checkpoint("c1", 1))
    place.parent.mkdir(parents=True)
    if before:
        place.mkdir()
    prepared = PreparedFolder(paths.prepared_checkpoint("n1"))
    prepared.make()
    made = Path(prepared.path).stat().st_ino
    launch = LaunchSpec(RunKey(1, 1), ("true",), gang=Gang(0, 2, 0, 1, 0, ("n1", "n2"), "n1", 7) if gang else None)
    prepare(launch, {}, "n1", paths, "c1", simulate_devices("dgx-a100", "n1"), "", prepared)
    assert (place.stat().st_ino == made) is exchanged
    assert prepared.missing is exchanged
