"""An elastic job is resized from end to end: real torch processes, and a scheduler and an agent that are killed meanwhile."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from client_sdk import JobEventKind, JobReason, JobState, TaskGroup
from tests.harness import LIMIT, ROOT, Site
from tests.harness import run as run_program
from tests.store.waiting import wait_for

STEPS = 3 * (22 // 4)
"""See tests/sdk/elastic_rank.py."""


@pytest.mark.usefixtures("training_packages")
def test_a_torch_job_is_resized_through_kills_and_takes_each_batch_once(site: Site) -> None:
    evidence = site.file("resized")
    evidence.touch()

    def told(event: str) -> list[dict[str, Any]]:
        lines = map(json.loads, evidence.read_text().split("\n")[:-1])  # the last one may still be written
        return [line for line in lines if line["event"] == event]

    job = site.client.submit(
        [sys.executable, str(ROOT / "tests" / "sdk" / "elastic_rank.py")],
        env={
            "EVIDENCE": str(evidence),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "OPTIONS": json.dumps({"pause": 0.5}),  # `ebb resize` has to come before the last step
        },
        tasks=[TaskGroup(count=1, devices=1)],
        min_tasks=1,
        max_tasks=4,
        grace=60,
    )
    for run, tasks in ((1, 2), (2, 1)):
        wait_for(lambda run=run: [line for line in told("step") if line["run"] == run], LIMIT)
        ebb = Path(sys.executable).with_name("ebb")
        done = run_program([ebb, "resize", str(job.id), str(tasks)], EBB_ADDRESS=site.cluster.address)
        assert f"STOPPING (resized): {run} task{'s' if run > 1 else ''}, {tasks} in its next run" in done.stdout, done.stderr
        asked = site.client.get(job.id)
        assert (asked.state, asked.reason, asked.resize_to) == (JobState.STOPPING, JobReason.RESIZED, tasks)
        if run == 1:
            site.cluster.kill("scheduler")
            site.restart_scheduler()
        else:
            before, node = [site.node(asked.node or "")], asked.node or ""
            site.cluster.kill(node)
            site.cluster.restart_agent(node)
            site.wait_connected(since=before)
    site.succeeded(job)
    site.check_now()

    ended = site.client.get(job.id)
    assert (ended.run, ended.retries, ended.resize_to) == (3, 0, 0)
    assert [(line["run"], line["world"]) for line in told("loaded") if line["rank"] == 0] == [(1, 1), (2, 2), (3, 1)]
    samples: dict[int, list[int]] = {}
    for line in told("step"):
        samples.setdefault(line["step"], []).extend(line["samples"])
    assert sorted(samples) == list(range(1, STEPS + 1))
    assert all(len(taken) == len(set(taken)) == 8 for taken in samples.values()), "each step has the samples of 4 batches"
    for epoch in range(3):
        taken = [sample for step in range(epoch * 5 + 1, epoch * 5 + 6) for sample in samples[step]]
        assert len(set(taken)) == len(taken), "no sample is taken twice in an epoch"
    story = site.client.story(job.id)
    assert [event.text for event in story if event.kind is JobEventKind.UPDATED] == ["tasks 1 -> 2", "tasks 2 -> 1"]
    assert [event.reason for event in story if event.kind is JobEventKind.REQUEUED] == [JobReason.RESIZED] * 2
