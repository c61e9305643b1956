"""Jobs migrate between agents that share no storage: real processes, each of which is killed in each phase."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Client, Job, JobEventKind, JobReason, JobState, SaveOutcome
from examples.cluster import Cluster
from tests.harness import LIMIT, ROOT, leftovers
from tests.harness import run as run_program
from tests.harness.site import quick_cluster
from tests.store.fixtures import short_dir
from tests.store.waiting import wait_for

STEPPER = str(ROOT / "tests" / "e2e" / "stepper.py")


class Pair:
    """A scheduler and two nodes, each with checkpoints of its own."""

    def __init__(self, folder: Path) -> None:
        self.cluster: Cluster = quick_cluster(folder)
        self.folder = self.cluster.folder
        self.cluster.start_scheduler()
        for node in ("n1", "n2"):
            self.cluster.start_agent(node, "dgx-a100", "--checkpoints", str(self.folder / node / "checkpoints"))
        self.client = Client(self.cluster.address, timeout=LIMIT)
        self.jobs = 0
        wait_for(lambda: len(self.client.nodes()) == 2, LIMIT)

    def submit(self, held: bool = False) -> tuple[Job, "Trace"]:
        self.jobs += 1
        trace = Trace(self.folder / f"job-{self.jobs}")
        if not held:
            trace.release()
        environment = {**trace.environment, "PYTHONPATH": f"{ROOT}"}
        job = self.client.submit([sys.executable, STEPPER], env=environment, devices=1, grace=60)
        trace.wait("step")
        return job, trace

    def where(self, job: Job) -> str:
        return self.client.get(job).node

    def story(self, job: Job) -> list[JobEventKind]:
        return [event.kind for event in self.client.story(job.id)]

    def restart(self, name: str) -> None:
        if name == "scheduler":
            self.cluster.start_scheduler()
        else:
            self.cluster.restart_agent(name)

    def close(self) -> None:
        self.client.close()
        self.cluster.close()


class Trace:
    """What a job has written down."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._end, self._hold, self._evidence = folder / "end", folder / "hold", folder / "evidence"
        self._evidence.touch()
        self.environment = {"EVIDENCE": str(self._evidence), "END": str(self._end), "HOLD": str(self._hold)}

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self._evidence.read_text().split("\n")[:-1])  # the last one may still be written
        return [line for line in lines if line["event"] == event]

    def wait(self, event: str, node: str = "", run: int = 0) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [one for one in self.lines(event) if node in ("", one["node"]) and run in (0, one["run"])]

        return wait_for(found, LIMIT)[0]

    def release(self) -> None:
        self._hold.touch()

    def end(self) -> None:
        self._end.touch()

    def check(self) -> None:
        """Each step was taken once, in order, whichever node took it."""
        steps = [line["step"] for line in self.lines("step")]
        assert steps == list(range(1, len(steps) + 1))
        assert self.lines("end") == [{**self.lines("end")[0], "step": steps[-1]}]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with short_dir() as folder:
        made = Pair(folder / "pair")
        try:
            yield made
        finally:
            made.close()
        assert not leftovers(made.folder)


def test_a_job_goes_on_at_the_other_node_with_its_checkpoint(pair: Pair) -> None:
    job, trace = pair.submit()
    source = pair.where(job)
    other = {"n1": "n2", "n2": "n1"}[source]
    ebb = Path(sys.executable).with_name("ebb")
    path = ":".join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))
    done = run_program([ebb, "migrate", str(job.id), other], EBB_ADDRESS=pair.cluster.address, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    trace.wait("step", other)
    shown = wait_for(lambda: (now := pair.client.get(job)).state is JobState.RUNNING and now, LIMIT)
    assert (shown.node, shown.run) == (other, 2)
    trace.end()
    assert pair.client.wait(job, timeout=LIMIT).state is JobState.SUCCEEDED
    trace.check()
    (moved,) = [event for event in pair.client.story(job.id) if event.kind is JobEventKind.MIGRATED]
    assert "while it ran; then saved in" in moved.text
    saved = [list((pair.folder / node / "checkpoints").glob(f"*/job-{job.id}/*.ckpt")) for node in (source, other)]
    assert all(saved), "the source keeps its checkpoint"
    warmed = list((pair.folder / other).glob(f"runs/*/{job.id}.2/warm/warmed"))
    assert warmed, "the process was warm"


def test_a_program_that_saves_nothing_loses_its_work_only_if_that_is_said(pair: Pair) -> None:
    """Without a terminal nobody can be asked. What was lost is told afterwards."""
    job = pair.client.submit([sys.executable, "-c", "import time; time.sleep(600)"], cpus=1, grace=5)
    wait_for(lambda: pair.client.get(job).state is JobState.RUNNING, LIMIT)
    other = {"n1": "n2", "n2": "n1"}[pair.where(job)]
    ebb = Path(sys.executable).with_name("ebb")
    path = ":".join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))
    environment = {"EBB_ADDRESS": pair.cluster.address, "PYTHONPATH": path}
    for verb in (["suspend"], ["requeue"], ["migrate"]):
        done = run_program([ebb, *verb, str(job.id), *([other] if verb == ["migrate"] else [])], **environment)
        assert (done.returncode, "never saved" in done.stderr, "--force" in done.stderr) == (1, True, True), done.stderr
    assert (pair.client.get(job).state, pair.client.get(job).run) == (JobState.RUNNING, 1), "nothing was touched"
    done = run_program([ebb, "migrate", "--force", str(job.id), other], **environment)
    assert done.returncode == 0, done.stderr
    assert "loses the work of its run" in done.stdout
    wait_for(lambda: pair.client.get(job).run == 2 and pair.client.get(job).state is JobState.RUNNING, LIMIT)
    placed = [event.text for event in pair.client.story(job.id) if event.kind is JobEventKind.PLACED][-1]
    assert placed.startswith("it did not save (")
    (first,) = [run for run in pair.client.runs(job) if run.run == 1]
    assert first.save is not None
    assert first.save.outcome is SaveOutcome.NOT_SAVED
    pair.client.cancel(job)
    assert pair.client.wait(job, timeout=LIMIT).state is JobState.CANCELLED


def test_an_ordinary_resume_on_another_node_fetches_the_checkpoint_too(pair: Pair) -> None:
    job, trace = pair.submit()
    source = pair.where(job)
    pair.client.drain(source, evict=True)
    other = {"n1": "n2", "n2": "n1"}[source]
    trace.wait("step", other)
    pair.client.undrain(source)
    trace.end()
    assert pair.client.wait(job, timeout=LIMIT).state is JobState.SUCCEEDED
    trace.check()


def test_a_destination_that_cannot_be_ready_leaves_the_job_where_it_is(pair: Pair) -> None:
    job, trace = pair.submit()
    source = pair.where(job)
    other = {"n1": "n2", "n2": "n1"}[source]
    pair.cluster.kill(other, signal.SIGSTOP)
    pair.client.migrate(job, other)
    wait_for(lambda: JobEventKind.MIGRATION_FAILED in pair.story(job), LIMIT)  # the node falls silent
    pair.cluster.kill(other, signal.SIGCONT)
    shown = pair.client.get(job)
    assert (shown.state, shown.node, shown.run) == (JobState.RUNNING, source, 1)
    trace.end()
    assert pair.client.wait(job, timeout=LIMIT).state is JobState.SUCCEEDED
    trace.check()
    wait_for(lambda: all(node.free.devices == 8 for node in pair.client.nodes()), LIMIT)


@pytest.mark.parametrize("victim", ["scheduler", "source", "destination"])
@pytest.mark.parametrize("phase", ["warming", "saving", "starting"])
def test_who_is_killed_in_a_phase_loses_no_step(pair: Pair, phase: str, victim: str) -> None:
    job, trace = pair.submit(held=True)
    source = pair.where(job)
    other = {"n1": "n2", "n2": "n1"}[source]
    killed = {"scheduler": "scheduler", "source": source, "destination": other}[victim]
    if phase == "warming":
        pair.cluster.kill(other, signal.SIGSTOP)
    pair.client.migrate(job, other)
    if phase != "warming":
        trace.wait("asked", source)
    if phase == "starting":
        pair.cluster.kill(other, signal.SIGSTOP)
        trace.release()
        wait_for(lambda: pair.client.get(job).run == 2, LIMIT)
        assert pair.client.get(job).state is JobState.STARTING
        assert pair.client.get(job).reason is JobReason.MIGRATED
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
