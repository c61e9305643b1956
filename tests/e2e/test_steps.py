"""Steps from end to end: what a plain Python loop counts, and what the hook counts in PyTorch, is what the user sees."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from client_sdk import JobState
from ebb_inject.ebb_hook import control
from tests.harness import LIMIT, Site, run
from tests.store.waiting import wait_for

LOOP = """
import os, time
from client_sdk import training

def batches():
    for number in range(10**6):
        if os.path.exists(os.environ["RELEASE"]):
            return
        yield number

for _ in training.count(batches(), total=10**6, done=1000):
    time.sleep(0.002)
with training.steps().saving():
    print(training.steps().step)
"""


def test_a_loop_that_counts_shows_its_rate(site: Site) -> None:
    def ebb(*arguments: str | Path) -> str:
        done = run([Path(sys.executable).with_name("ebb"), *arguments], EBB_ADDRESS=site.cluster.address)
        assert done.returncode == 0, done.stderr
        return done.stdout

    release = site.file("release-steps")
    script = site.file("loop.py")
    script.write_text(LOOP)
    job = ebb("submit", "-q", "-m", "64MiB", "--env", f"RELEASE={release}", "--", sys.executable, script).strip()

    def shown() -> Any:
        return json.loads(ebb("show", job, "-o", "json"))

    def measured() -> Any:
        """Once several steps are timed."""
        return next((steps for steps in shown()["steps"] if steps["measured"] > 10), None)

    seen = wait_for(measured, LIMIT)
    assert (seen["job_id"], seen["run"], seen["task"], seen["total"], seen["state"]) == (int(job), 1, 0, 10**6, "RUNNING")
    assert seen["step"] == 1000 + 1 + seen["measured"], "those of earlier runs, the first one, and the others"
    assert seen["mini_batch_time"] > 0.002
    assert 0 < seen["step_rate"] < 500
    assert seen["step_rate"] * seen["mini_batch_time"] <= 1.001
    assert seen["remaining"] > 0
    lines = ebb("show", job)
    for name in ("step", "step rate", "mini-batch", "time left"):
        assert f"\n{name} " in lines
    node = shown()["node"]
    table = ebb("node", "show", node).splitlines()[-2:]
    assert table[0].split() == ["RUN", "STEP", "OF", "STATE", "STEPS/S", "MINI-BATCH", "LEFT"]
    assert table[1].startswith(f"{job}.1 ")

    # The agent starts again in the middle, and the counter goes on.
    before = [site.node(node)]
    site.cluster.kill(node)
    site.cluster.processes[node].wait(LIMIT)
    site.cluster.restart_agent(node)
    site.wait_connected(since=before)
    later = wait_for(lambda: next((steps for steps in shown()["steps"] if steps["step"] > seen["step"]), None), LIMIT)
    assert later["step"] == 1000 + 1 + later["measured"]

    release.touch()
    ended = site.client.wait(int(job), LIMIT)
    assert ended.state is JobState.SUCCEEDED
    assert int(site.output(ended)) > later["step"]
    assert shown()["steps"] == []


TRAINING = """
import os, sys, torch
os.environ["EBB_PARK_DEVICES"] = "cpu"
torch.set_num_threads(1)
model = torch.nn.Linear(100, 100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(4, 100)
print(os.environ.get("EBB_PARK_DIR"), "ebb_hook" in sys.modules, flush=True)
while not os.path.exists(os.environ["RELEASE"]):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.usefixtures("training_packages")
def test_a_pytorch_program_of_which_no_line_knows_ebb(site: Site) -> None:
    """Its steps are shown, and it can be parked. A second one, submitted with --no-hook, is left alone."""
    release = site.file("release-training")
    script = site.file("training.py")
    script.write_text(TRAINING)
    mine = site.file("modules")

    def submit(*options: str) -> int:
        command = [Path(sys.executable).with_name("ebb"), "submit", "-q", "-m", "512MiB", *options]
        command += ["--env", f"RELEASE={release}", "--env", f"PYTHONPATH={mine}", "--", sys.executable, script]
        done = run(command, EBB_ADDRESS=site.cluster.address)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    hooked, alone = submit(), submit("--no-hook")
    (seen,) = wait_for(lambda: [steps for steps in site.client.get(hooked).steps if steps.measured > 20], LIMIT)
    assert (seen.total, seen.state.name) == (None, "RUNNING")
    folder = wait_for(lambda: site.output(site.client.get(hooked)).split(), LIMIT)
    assert folder[1] == "True"
    (path,) = control.live(folder[0])
    for command, state in ((control.PARK, control.PARKED), (control.RESUME, control.RUNNING)):
        number = control.send(path, command)
        answer = wait_for(lambda number=number: _answered(path, number), LIMIT)
        assert answer["state"] == state
        assert answer["bytes"] > 4 * 100 * 100
    assert wait_for(lambda: site.output(site.client.get(alone)), LIMIT) == "None False\n"
    assert site.client.get(alone).steps == ()
    release.touch()
    assert {site.client.wait(job, LIMIT).state for job in (hooked, alone)} == {JobState.SUCCEEDED}


def _answered(path: str, number: int) -> dict[str, Any] | None:
    found = control.answer(path)
    return found if found is not None and found["request"] == number else None
