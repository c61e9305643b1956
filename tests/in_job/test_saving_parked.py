"""Programs that save their checkpoint while they are parked, without the memory of their tensors."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import ebb_inject
from client_sdk.training import read_folder
from ebb_inject.ebb_hook import control
from tests.in_job.programs import ROOT, Program, started, until
from tests.in_job.scripts import JOB, OWN

pytestmark = pytest.mark.usefixtures("training_packages")


def environment(folder: Path, run: int = 1) -> dict[str, str]:
    files = {"EBB_CHECKPOINT_DIR": "checkpoints", "EBB_YIELD_FILE": "yielded", "EBB_DONE_FILE": "done"}
    named = {name: str(folder / file) for name, file in files.items()}
    return named | {"EBB_RUN": str(run), "PYTHONPATH": f"{ebb_inject.FOLDER}:{ROOT}"}


def training(folder: Path, *arguments: str, run: int = 1, code: str = JOB) -> AbstractContextManager[Program]:
    return started(folder, code, *arguments, **environment(folder, run))


def leaves(program: Program) -> None:
    control.send(program.control, control.LEAVE)
    assert program.ended() == 143


def folders(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "checkpoints").iterdir() if path.is_dir())


def test_a_parked_program_saves_and_another_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    with training(moved, "1") as program:
        until(lambda: program.counted() > 20, "steps")
        parked = program.parked()
        assert parked["saves"] is True
        program.stop()
        program.go_on()
        saved = program.ask(control.SAVE)
        assert (saved["state"], saved["step"]) == (control.SAVED, parked["step"]), saved
        (folder,) = folders(moved)
        assert read_folder(folder)["job"]["step"] == parked["step"]
        assert program.ask(control.SAVE)["state"] == control.SAVED
        assert folders(moved) == [folder], "what is saved already is not saved again"
        assert sum(file.stat().st_size for file in folder.iterdir()) < 1 << 20, "the folder has no other memory of the program"
        assert not (moved / "yielded").exists()
        leaves(program)
        assert (moved / "yielded").read_text() == "1\n"
    with training(moved, "1", run=2) as program:
        (found,) = program.results()
    with training(tmp_path / "alone", "1") as program:
        (expected,) = program.results()
    assert len(expected) == 1000
    assert found == expected


def test_a_program_that_has_saved_may_resume_all_the_same(tmp_path: Path) -> None:
    with training(tmp_path, "1") as program:
        until(lambda: program.counted() > 20, "steps")
        program.parked()
        assert program.ask(control.SAVE)["state"] == control.SAVED
        program.resumed()
        at = program.parked(at_step=program.counted() + 5)["step"]
        assert program.ask(control.SAVE)["state"] == control.SAVED
        assert {read_folder(folder)["job"]["step"] for folder in folders(tmp_path)} >= {at}
        program.resumed()
        (found,) = program.results()
    assert len(found) == 1000


def test_a_program_that_cannot_save_stays_parked_and_resumes(tmp_path: Path) -> None:
    with training(tmp_path, code=OWN) as program:
        until(lambda: program.counted() > 5, "steps")
        parked = program.parked()
        assert parked["saves"] is False
        answer = program.ask(control.SAVE)
        assert answer["state"] == control.PARKED
        assert "job.checkpointable" in answer["reason"]
        assert program.ask(control.LEAVE)["state"] == control.PARKED, "it has not saved"
        program.resumed()
        until(lambda: program.counted() > parked["step"] + 5, "steps")


def test_gradients_that_are_accumulated_are_not_saved(tmp_path: Path) -> None:
    with training(tmp_path, "1", "3") as program:
        until(lambda: program.counted() > 5, "steps")
        for rest in (0, 1, 2):
            step = (program.counted() // 3 + 30) * 3 + rest
            parked = program.parked(at_step=step)
            assert (parked["step"], parked["saves"]) == (step, rest == 0)
            program.resumed()


def test_a_disk_that_takes_nothing_costs_no_work(tmp_path: Path) -> None:
    with training(tmp_path, "1") as program:
        until(lambda: program.counted() > 20, "steps")
        program.parked()
        (tmp_path / "checkpoints").rmdir()
        (tmp_path / "checkpoints").write_text("in the way")
        answer = program.ask(control.SAVE)
        assert answer["state"] == control.PARKED
        assert "it is not saved: " in answer["reason"]
        (tmp_path / "checkpoints").unlink()
        assert program.ask(control.SAVE)["state"] == control.SAVED
        program.resumed()
        (found,) = program.results()
    assert len(found) == 1000


HIDDEN = """
import torch
from client_sdk.training import job


class Hidden:
    def __init__(self):
        self.tensor = torch.ones(1000)


model = torch.nn.Linear(100, 100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job.checkpointable(model=model, hidden=(lambda: Hidden(), lambda state: None), kept=(lambda: kept, lambda state: None))
kept = Hidden()
for epoch in job.epochs(1000):
    for _ in job.steps(range(1000)):
        optimizer.zero_grad()
        model(torch.ones(1, 100)).sum().backward()
        optimizer.step()
"""


def test_an_object_that_holds_parked_tensors_is_refused_before_they_are_read(tmp_path: Path) -> None:
    with training(tmp_path, code=HIDDEN) as program:
        until(lambda: program.counted() > 5, "steps")
        parked = program.parked()
        answer = program.ask(control.SAVE)
        assert (answer["state"], answer["step"]) == (control.PARKED, parked["step"])
        assert "a Hidden holds tensors that cannot be saved while they are parked" in answer["reason"]
        program.resumed()
        until(lambda: program.counted() > parked["step"] + 5, "steps")
