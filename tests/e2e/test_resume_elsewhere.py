"""Parked jobs go on at another node when their own devices are taken: real processes, each of which is killed in each phase."""

import json
import signal
import sys
from collections.abc import Iterator

import pytest

from client_sdk import Job, JobEventKind, JobState
from node_agent.processes.job_reports import read_record
from tests.e2e.test_migrate import Pair, Trace
from tests.harness import LIMIT, ROOT, WHOLE_NODE, leftovers
from tests.in_job.scripts import JOB
from tests.store.fixtures import short_dir
from tests.store.waiting import wait_for

STEPPER = str(ROOT / "tests" / "e2e" / "parked_stepper.py")


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with short_dir() as folder:
        made = Pair(folder / "pair")
        try:
            yield made
        finally:
            made.close()
        assert not leftovers(made.folder)


def taken(pair: Pair, job: Job, devices: int = WHOLE_NODE) -> Job:
    """Parks the job, and has another one hold its devices."""
    pair.client.suspend(job, park_only=True)
    wait_for(lambda: pair.client.get(job).parked, LIMIT)
    holder = pair.client.submit(["sleep", "600"], cpus=1, memory=64, devices=devices, grace=1)
    wait_for(lambda: pair.client.get(holder).state is JobState.RUNNING, LIMIT)
    assert pair.where(holder) == pair.client.get(job).node
    return holder


def stepping(pair: Pair, held: bool, devices: int = WHOLE_NODE) -> tuple[Job, Trace]:
    pair.jobs += 1
    trace = Trace(pair.folder / f"job-{pair.jobs}")
    if not held:
        trace.release()
    environment = {**trace.environment, "PYTHONPATH": f"{ROOT}"}
    job = pair.client.submit([sys.executable, STEPPER], cpus=1, memory=1024, env=environment, devices=devices, grace=60)
    trace.wait("step")
    return job, trace


def counted(pair: Pair, job: Job) -> int:
    """The steps of its first run, as the hook publishes them."""
    file = next(pair.folder.glob(f"*/runs/*/{job.id}.1/steps"), None)
    record = None if file is None else read_record(str(file), 1 << 62)
    return 0 if record is None else record.counted


def ended(pair: Pair, holder: Job) -> None:
    pair.client.cancel(holder)
    pair.client.wait(holder, timeout=LIMIT)


@pytest.mark.usefixtures("training_packages")
def test_a_training_is_parked_and_goes_on_at_the_other_node_as_if_nothing_had_been(pair: Pair) -> None:
    script = pair.folder / "train.py"
    script.write_text(f"import os\nos.environ['EBB_PARK_DEVICES'] = 'cpu'\n{JOB}")
    environment = {"PYTHONPATH": f"{ROOT}", "OMP_NUM_THREADS": "1"}
    job = pair.client.submit(
        [sys.executable, str(script), "3"], cpus=1, memory=1024, env=environment, devices=WHOLE_NODE, grace=60
    )
    wait_for(lambda: counted(pair, job) > 10, LIMIT)
    holder = taken(pair, job)
    pair.client.resume(job)
    wait_for(lambda: pair.client.get(job).run == 2, LIMIT)
    over = pair.client.wait(job, timeout=LIMIT)
    second, first = pair.client.runs(job)
    assert (over.state, {first.node, second.node}) == (JobState.SUCCEEDED, {"n1", "n2"})
    (log,) = pair.folder.glob(f"*/runs/*/{job.id}.2/output.log")
    losses = json.loads(log.read_text().splitlines()[-1])
    assert list(losses) == [str(step) for step in range(3000)]
    (moved,) = [event.text for event in pair.client.story(job.id) if event.kind is JobEventKind.MIGRATED]
    assert moved.startswith(f"moved to {second.node}: ready in ")
    assert "while it was parked; then saved in" in moved
    assert [each.phase.name for each in first.operations] == ["PARKING", "PARKED", "WAITING", "WARMING"]
    ended(pair, holder)


def test_other_devices_of_the_node_come_first(pair: Pair) -> None:
    """There it needs no other node's copy of its checkpoint."""
    job, trace = stepping(pair, held=False, devices=WHOLE_NODE // 2)
    source, devices = pair.where(job), pair.client.get(job).devices
    holder = taken(pair, job, WHOLE_NODE // 2)
    pair.client.resume(job)
    trace.wait("step", source, run=2)
    moved = pair.client.get(job)
    assert (moved.node, set(moved.devices) & set(devices)) == (source, set())
    trace.end()
    assert pair.client.wait(job, timeout=LIMIT).state is JobState.SUCCEEDED
    trace.check()
    (line,) = [event.text for event in pair.client.story(job.id) if event.kind is JobEventKind.MIGRATED]
    assert line.startswith("moved to other devices of its node: ready in ")
    ended(pair, holder)


@pytest.mark.parametrize("victim", ["scheduler", "source", "destination"])
@pytest.mark.parametrize("phase", ["warming", "saving", "starting"])
def test_who_is_killed_in_a_phase_loses_no_step(pair: Pair, phase: str, victim: str) -> None:
    job, trace = stepping(pair, held=True)
    source = pair.where(job)
    other = {"n1": "n2", "n2": "n1"}[source]
    killed = {"scheduler": "scheduler", "source": source, "destination": other}[victim]
    holder = taken(pair, job)
    if phase == "warming":
        pair.cluster.kill(other, signal.SIGSTOP)
    pair.client.resume(job)
    if phase != "warming":
        trace.wait("asked", source)
    if phase == "starting":
        pair.cluster.kill(other, signal.SIGSTOP)
        trace.release()
        wait_for(lambda: pair.client.get(job).run == 2, LIMIT)
    pair.cluster.kill(killed)
    pair.restart(killed)
    if victim != "destination":
        pair.cluster.kill(other, signal.SIGCONT)
    trace.release()
    trace.wait("step", other)
    wait_for(lambda: pair.client.get(job).state is JobState.RUNNING, LIMIT)
    assert pair.where(job) == other
    trace.end()
    assert pair.client.wait(job, timeout=LIMIT).state is JobState.SUCCEEDED
    trace.check()
    assert {JobEventKind.MIGRATED, JobEventKind.MIGRATION_FAILED} & set(pair.story(job))
    ended(pair, holder)
