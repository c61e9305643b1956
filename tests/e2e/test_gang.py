"""Gangs, from end to end: tasks on several nodes that start together, meet, fail and leave together."""

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from ebb.v1 import job_pb2, scheduler_pb2, scheduler_pb2_grpc

from client_sdk import JobState
from tests.harness import LIMIT, ROOT, WHOLE_NODE, Site
from tests.store.waiting import wait_for

TASK = ROOT / "tests" / "e2e" / "gang.py"


class Gang:
    """A gang that was submitted, and what its tasks have said."""

    def __init__(self, site: Site, stub: Any, job_id: int, evidence: Path) -> None:
        self.site = site
        self.stub = stub
        self.id = job_id
        self._evidence = evidence

    def told(self, event: str, run: int = 1) -> dict[int, dict[str, Any]]:
        """What each rank has said of it in a run."""
        text = self._evidence.read_text() if self._evidence.exists() else ""
        lines = [line for line in map(json.loads, text.splitlines()) if (line["event"], line["run"]) == (event, run)]
        assert len({line["rank"] for line in lines}) == len(lines), f"a task ran twice: {lines}"
        return {line["rank"]: line for line in sorted(lines, key=lambda line: int(line["rank"]))}

    def wait(self, event: str, count: int, run: int = 1) -> dict[int, dict[str, Any]]:
        return wait_for(lambda: told if len(told := self.told(event, run)) == count else {}, LIMIT)

    @property
    def job(self) -> job_pb2.Job:
        found: job_pb2.Job = self.stub.Get(scheduler_pb2.GetRequest(job_id=self.id), timeout=LIMIT).job
        return found

    def until(self, state: str) -> job_pb2.Job:
        """The job when it is seen in this state, or has ended."""
        updates = self.stub.Watch(scheduler_pb2.SchedulerWatchRequest(job_id=self.id), timeout=LIMIT)
        wanted = job_pb2.JobState.Value(f"JOB_STATE_{state}")
        job: job_pb2.Job = next(
            job for update in updates for job in update.jobs if job.state == wanted or job.HasField("end_time")
        )
        updates.cancel()
        assert job.state == wanted, (job, self.output())
        return job

    def succeeded(self) -> None:
        self.until("SUCCEEDED")

    def output(self) -> str:
        """Of all tasks, for whoever has to find out."""
        logs = sorted(self.site.folder.glob(f"*/runs/*/{self.id}.*/output.log"))
        return "\n".join(f"{log}:\n{log.read_text()}" for log in logs)


Submit = Callable[..., Gang]


@pytest.fixture
def submit() -> Iterator[Submit]:
    with ExitStack() as stack:
        yield partial(submit_over, stack)


def submit_over(
    stack: ExitStack,
    site: Site,
    devices: Sequence[int],
    *flags: str | Path,
    script: Path = TASK,
    job_class: str = "BEST_EFFORT",
) -> Gang:
    """A gang of as many tasks as there are numbers of devices."""
    stub: Any = scheduler_pb2_grpc.SchedulerStub(stack.enter_context(grpc.insecure_channel(site.cluster.address)))
    evidence = site.file(f"gang-{len(list(site.folder.glob('gang-*')))}.jsonl")
    evidence.touch()
    spec = job_pb2.JobSpec(
        command=list(map(str, (sys.executable, script, *flags))),
        resources=job_pb2.Resources(),
        environment={"GANG_EVIDENCE": str(evidence), "PYTHONPATH": str(ROOT)},
        job_class=f"JOB_CLASS_{job_class}",
        task_groups=[
            job_pb2.TaskGroup(count=1, resources=job_pb2.Resources(cpu_milli=1000, memory_mib=1024, devices=count))
            for count in devices
        ],
    )
    spec.grace_period.FromSeconds(30)
    job = stub.Submit(scheduler_pb2.SubmitRequest(spec=spec), timeout=LIMIT).job
    return Gang(site, stub, job.id, evidence)


def test_tasks_of_different_size_meet_over_two_nodes(site: Site, submit: Submit) -> None:
    gang = submit(site, (8, 4, 2))
    gang.succeeded()
    met = gang.told("met")
    assert [line["sum"] for line in met.values()] == [111] * 3
    first, second = met[0]["node"], met[1]["node"]
    assert {first, second} == {"n1", "n2"}
    names = ("node", "EBB_NODE_TASK", "EBB_NODE_TASKS", "NODE_RANK", "EBB_NODES", "EBB_TASK")
    assert [tuple(line[name] for name in names) for line in met.values()] == [
        (first, "0", "1", "0", f"{first},{second}", "0"),
        (second, "0", "2", "1", f"{first},{second}", "1"),
        (second, "1", "2", "1", f"{first},{second}", "2"),
    ]
    of_device = {(line["LOCAL_RANK"], line["LOCAL_WORLD_SIZE"]) for line in met.values()}
    assert of_device == {("0", "1")}, "each task sees its own devices alone"
    devices = [set(line["EBB_DEVICES"].split(",")) for line in met.values()]
    assert [len(held) for held in devices] == [8, 4, 2]
    assert not devices[1] & devices[2]
    for rank in range(3):
        pieces = gang.stub.Logs(scheduler_pb2.LogsRequest(job_id=gang.id, task=rank, follow=True), timeout=LIMIT)
        assert b"".join(piece.data for piece in pieces) == f"rank {rank} was here\n".encode()


def test_a_task_that_fails_ends_its_gang(site: Site, submit: Submit) -> None:
    gang = submit(site, (8, 4, 2), "--fail", "1")
    ended = gang.until("FAILED")
    assert (ended.reason, ended.exit_code) == (job_pb2.JOB_REASON_EXITED, 3), gang.output()
    assert {rank: line["reason"] for rank, line in gang.told("told").items()} == {0: "gang", 2: "gang"}


def test_a_gang_that_is_a_trial_takes_both_nodes(site: Site, submit: Submit) -> None:
    release = site.file("release-gang-victims")
    hold = ("--steps", "20", "--hold", "asked", "--until", release)
    victims = [site.trainer(*hold, devices=WHOLE_NODE, grace=60) for _ in site.nodes]
    for victim in victims:
        site.until(victim, JobState.RUNNING)
        site.evidence.wait(victim, "start")
    gang = submit(site, (8, 8), job_class="TRIAL")
    for victim in victims:
        site.evidence.wait(victim, "asked")
    assert gang.job.state == job_pb2.JOB_STATE_QUEUED
    release.touch()
    gang.succeeded()
    assert {line["node"] for line in gang.told("met").values()} == {"n1", "n2"}
    site.succeeded(*victims)
    assert [site.client.get(victim.id).preempted_for_trial for victim in victims] == [1, 1]


def test_a_gang_that_is_a_victim_leaves_as_a_whole_and_goes_on(site: Site, submit: Submit) -> None:
    release = site.file("release-gang")
    gang = submit(site, (8, 8), "--until", release)
    gang.until("RUNNING")
    gang.wait("saved", 2)
    trial = site.short(job_class="trial", devices=4)
    site.succeeded(trial)
    again = gang.wait("trains", 2, run=2)
    assert again[0]["step"] == again[1]["step"] > 0
    release.touch()
    gang.succeeded()
    assert len(gang.told("end", run=2)) == 2
    assert gang.told("end") == {}
    assert gang.job.preempted_for_trial == 1


@pytest.mark.long
def test_a_gang_of_which_a_task_never_gets_ready_runs_elsewhere(folder: Path, submit: Submit) -> None:
    settings = folder / "scheduler.yaml"
    settings.write_text("gang_start: 3\nsilent_after: 60\n")
    with Site(folder / "site", ("--config", str(settings)), nodes=("n1", "n2", "n3")) as site:
        first, slow, other = (row["name"] for row in site.database.ask("SELECT name FROM node ORDER BY id"))
        site.cluster.kill(slow, signal.SIGSTOP)
        gang = submit(site, (8, 8))
        assert [task.node for task in gang.until("STARTING").tasks] == [first, slow]
        assert gang.until("STOPPING").reason == job_pb2.JOB_REASON_GANG_NOT_READY
        wait_for(lambda: site.node(first).free.devices == WHOLE_NODE, LIMIT)  # the task that was ready is released at once
        assert gang.told("met") == {}
        site.cluster.kill(slow, signal.SIGCONT)
        gang.succeeded()
        assert [task.node for task in gang.job.tasks] == [first, other]
        assert len(gang.told("met", run=2)) == 2
        site.check_all_ended()


ALL_REDUCE = """
import torch.distributed

torch.distributed.init_process_group("gloo")
total = torch.tensor([10.0 ** torch.distributed.get_rank()])
torch.distributed.all_reduce(total)
assert total.item() == 111.0, total
torch.distributed.destroy_process_group()
"""


@pytest.mark.usefixtures("training_packages")
@pytest.mark.long
def test_torch_distributed_finds_its_peers(site: Site, submit: Submit) -> None:
    script = site.file("all-reduce.py")
    script.write_text(ALL_REDUCE)
    submit(site, (8, 4, 2), script=script).succeeded()
