"""Real jobs under the hook: their processes, and programs that count themselves."""

from pathlib import Path

import pytest

import ebb_inject
from tests.in_job.programs import ROOT, started

pytestmark = pytest.mark.usefixtures("training_packages")


JOB = """
import json, os, sys, torch
torch.set_num_threads(1)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, at):
        return torch.full((4,), float(at))


if __name__ == "__main__":
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for x in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if "fork" in sys.argv and not (child := os.fork()):
        for _ in range(5):
            optimizer.step()
        os._exit(0)
    elif "fork" in sys.argv:
        assert os.waitpid(child, 0)[1] == 0
    print(json.dumps([os.getpid(), sorted(name for name in sys.modules if name.startswith(("ebb", "client_sdk")))]))
    sys.stdin.readline()
"""


def test_a_program_of_which_no_line_knows_ebb(tmp_path: Path) -> None:
    """The workers of its DataLoader, and a child that steps while the parent holds the file, publish nothing."""
    with started(tmp_path, JOB, "fork") as program:
        path = program.control
        program.tell()
        ((pid, modules),) = program.results()
        assert path.startswith(f"{program.park}/{pid}-")
        record = program.published()
        assert (record.pid, record.first + record.counted) == (pid, 20)
        there = {file.stem for file in Path(ebb_inject.FOLDER, "ebb_hook").glob("[!_]*.py")}
        hooked = there - {"warm"}  # which a process that was started before its run runs, and no other
        assert modules == sorted(["ebb_hook", *(f"ebb_hook.{module}" for module in hooked)])


COUNTS = f"""
import json, sys, torch
sys.path.append({str(ROOT)!r})
from client_sdk import training
torch.set_num_threads(1)
weight = torch.ones(2, requires_grad=True)
weight.grad = torch.ones(2)
optimizer = torch.optim.SGD([weight], lr=0.1)
if "late" in sys.argv:
    for _ in range(7):
        optimizer.step()
    with training.Checkpointer("here") as checkpoint:
        checkpoint.save(1)
steps = training.steps(total=50, done=10)
for _ in range(3):
    for _ in range(4):
        optimizer.step()
    steps.advance()
print(json.dumps([steps.step]))
"""


@pytest.mark.parametrize("when", ["early", "late"])
def test_a_program_that_counts_itself_wins(when: str, tmp_path: Path) -> None:
    with started(tmp_path, COUNTS, when) as program:
        assert program.results() == [[13]]
        record = program.published()
        assert (record.first + record.counted, record.total) == (13, 50)
