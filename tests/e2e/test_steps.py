"""The step counter from end to end: what a plain Python loop counts is what its user sees."""

import json
import sys
from pathlib import Path
from typing import Any

from client_sdk import JobState
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
