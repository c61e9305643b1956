"""PyTorch programs that the agent parks, on CPU tensors in the place of device memory."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb

from client_sdk.training import read_folder
from node_agent.processes.job_reports import read_record
from tests.agent.conftest import AgentProcess, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler, gang, share_plan
from tests.in_job.programs import ROOT
from tests.in_job.scripts import JOB, LOOP, OWN, TRAINING

Start = Callable[..., AgentProcess]
pytestmark = pytest.mark.usefixtures("training_packages")
LIMIT = 120.0


def memory(pid: int, kind: str) -> int:
    """Bytes, as the kernel counts them."""
    (found,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{kind}:"))
    return int(found.split()[1]) << 10


def steps_of(folder: Path) -> int:
    record = read_record(str(folder / "steps"), 1 << 62)
    return 0 if record is None else record.counted


def counted(state: Path, job: int) -> int:
    return steps_of(run_directory(state, job))


def goes_on(state: Path, job: int) -> None:
    before = counted(state, job)
    until(lambda: counted(state, job) > before, LIMIT)


def script(tmp_path: Path, code: str) -> str:
    path = tmp_path / "train.py"
    path.write_text(code)
    return str(path)


def test_memory_is_gone_as_the_system_sees_it(agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path) -> None:
    """512 MiB of tensors leave the program's own memory. Less than 1 % stays, and all of it is back after the resume."""
    agent()
    scheduler.connected()
    command = sys.executable, script(tmp_path, LOOP), "big"
    told = {"environment": {"EBB_PARK_DEVICES": "cpu", "OMP_NUM_THREADS": "1"}, "devices": (0,)}
    scheduler.start(1, *command, **told)
    pid = scheduler.started(1).pid
    until(lambda: counted(state, 1) > 3, LIMIT)
    before = memory(pid, "RssAnon")
    for times in (1, 2):
        scheduler.start(1, *command, **told, park_within=60)
        parked = scheduler.event("parked", 1, times=times)
        assert parked.rung == "cooperative"
        assert parked.bytes > 512 << 20
        assert parked.residue_bytes == 0
        assert memory(pid, "RssAnon") < before - 0.99 * parked.bytes
        assert memory(pid, "RssShmem") > 0.99 * parked.bytes
        scheduler.start(1, *command, **told)
        scheduler.event("resumed", 1, times=times)
        goes_on(state, 1)
        assert memory(pid, "RssAnon") > before - 0.05 * parked.bytes


GANG = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(4, 1000)
while True:
    model(x).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_ranks_of_a_gang_park_after_one_step(agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path) -> None:
    """Two ranks that exchange gradients: one that parked a step earlier would leave the other one in a collective."""
    agent()
    scheduler.connected()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = sys.executable, script(tmp_path, GANG)
    told = {"environment": {"EBB_PARK_DEVICES": "cpu", "OMP_NUM_THREADS": "1"}, "devices": (0,)}
    ranks = [gang(rank, go=("127.0.0.1", port), size=2) for rank in (0, 1)]
    for place in ranks:
        place.nodes[:] = ["n1"]
        scheduler.start(1, *command, gang=place, **told)
    folders = [until(lambda rank=rank: next(state.glob(f"runs/*/1.1{rank}"), None)) for rank in ("", ".1")]
    for folder in folders:
        until(lambda folder=folder: steps_of(folder) > 3, LIMIT)
    for times in (1, 2, 3):
        for place in ranks:
            scheduler.start(1, *command, gang=place, **told, park_within=60)
        parked = [scheduler.event("parked", 1, task=task, times=times) for task in (0, 1)]
        assert [each.rung for each in parked] == ["cooperative", "cooperative"]
        at = {steps_of(folder) for folder in folders}
        assert len(at) == 1, "both have done the same steps"
        for place in ranks:
            scheduler.start(1, *command, gang=place, **told)
        for task in (0, 1):
            scheduler.event("resumed", 1, task=task, times=times)
        for folder in folders:
            until(lambda folder=folder, at=at: steps_of(folder) > max(at), LIMIT)


def test_a_limit_of_host_memory_that_is_too_small(agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path) -> None:
    """The program refuses to move more. It has nothing on a device of the node, so its processes are stopped instead."""
    agent("--parked-memory-mib", "100")
    scheduler.connected()
    command = sys.executable, script(tmp_path, LOOP), "big"
    told = {"environment": {"EBB_PARK_DEVICES": "cpu", "OMP_NUM_THREADS": "1"}, "devices": (0,)}
    scheduler.start(1, *command, **told)
    pid = scheduler.started(1).pid
    until(lambda: counted(state, 1) > 3, LIMIT)
    before = memory(pid, "RssAnon")
    scheduler.start(1, *command, **told, park_within=60)
    assert scheduler.event("parked", 1).rung == "stopped"
    assert memory(pid, "RssAnon") > 0.95 * before
    scheduler.stop(1, 0)
    assert scheduler.exited(1).exit_signal == signal.SIGKILL


def test_turns_change_no_bit_of_two_trainings(agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path) -> None:
    """Two programs share a device in turns of half a second, and compute what one of them computes alone."""
    path = script(tmp_path, TRAINING)
    environment = {"EBB_PARK_DEVICES": "cpu", "OMP_NUM_THREADS": "1"}
    agent()
    scheduler.connected()
    plan = share_plan((1,), (2,), period=1.0)
    for job in (1, 2):
        scheduler.start(job, sys.executable, path, "600", environment=environment, devices=(0,), share=plan)
    seen = {}
    for job in (1, 2):
        assert scheduler.exited(job, limit=LIMIT).exit_code == 0, (run_directory(state, job) / "output.log").read_text()
    for each in scheduler.observations:
        seen |= {slices.job_id: slices for slices in each.slices}
    assert all(slices.switches > 1 for slices in seen.values())
    alone = subprocess.run(
        [sys.executable, path, "600"], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    for job in (1, 2):
        lines = (run_directory(state, job) / "output.log").read_text().splitlines()
        (found,) = (json.loads(line) for line in lines if line.startswith("["))
        assert found == json.loads(alone.stdout)


# ---- what is parked saves, and leaves --------------------------------------------------------------------------------------


def told_to_train(code: str, tmp_path: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    environment = {"EBB_PARK_DEVICES": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return (sys.executable, script(tmp_path, code), "1"), {"environment": environment, "devices": (0,)}


def parked_training(scheduler: FakeScheduler, state: Path, code: str, tmp_path: Path) -> pb.RunParked:
    command, told = told_to_train(code, tmp_path)
    scheduler.start(1, *command, **told)
    scheduler.started(1)
    until(lambda: counted(state, 1) > 20, LIMIT)
    scheduler.start(1, *command, **told, park_within=60)
    parked: pb.RunParked = scheduler.event("parked", 1)
    assert parked.rung == "cooperative"
    return parked


@pytest.mark.parametrize("dies", [False, True])
def test_a_parked_run_saves_and_exits_if_it_goes_on_elsewhere(
    agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path, dies: bool
) -> None:
    """Also if the agent is killed meanwhile."""
    first = agent()
    scheduler.connected()
    assert parked_training(scheduler, state, JOB, tmp_path).saves
    at = steps_of(run_directory(state, 1)) + 1
    scheduler.stop(1, 60, reason=pb.STOP_REASON_MIGRATED)
    if dies:
        until(lambda: (run_directory(state, 1) / "stop.json").exists())
        first.kill()
        agent()
    ended = scheduler.exited(1, limit=LIMIT)
    assert (ended.yielded, ended.told, ended.exit_code or 143) == (True, True, 143)
    (folder,) = [path for path in state.rglob("checkpoint-step-*") if path.is_dir()]
    assert read_folder(folder)["job"]["step"] == at
    command, told = told_to_train(JOB, tmp_path)
    scheduler.start(1, *command, **told, run=2)
    assert scheduler.exited(1, run=2, limit=LIMIT).exit_code == 0
    losses = json.loads((run_directory(state, 1, 2) / "output.log").read_text().splitlines()[-1])
    assert list(losses) == [str(step) for step in range(1000)]


RANKS = """
import json, os, torch, torch.distributed as dist
from client_sdk.training import job
torch.set_num_threads(1)
torch.manual_seed(3)
dist.init_process_group("gloo")
model = torch.nn.Linear(50, 50)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x, losses = torch.randn(4, 50) * (dist.get_rank() + 1), {}
job.checkpointable(model=model, optimizer=optimizer, losses=losses)
for epoch in job.epochs(1):
    for _ in job.steps(range(2000)):
        loss = model(x).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        losses[str(job.step)] = loss.item().hex()
print(json.dumps(losses))
"""


def test_the_ranks_of_a_gang_save_at_one_step_and_others_go_on(
    agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path
) -> None:
    agent()
    scheduler.connected()
    command, told = told_to_train(RANKS, tmp_path)

    def each_rank(run: int, **more: Any) -> None:
        for rank in (0, 1):
            place = gang(rank, go=("127.0.0.1", ports[run]), size=2)
            place.nodes[:] = ["n1"]
            scheduler.start(1, *command, run=run, gang=place, **told, **more)

    with socket.socket() as one, socket.socket() as two:
        for free in (one, two):
            free.bind(("127.0.0.1", 0))
        ports = {1: one.getsockname()[1], 2: two.getsockname()[1]}
    each_rank(1)
    folders = [until(lambda rank=rank: next(state.glob(f"runs/*/1.1{rank}"), None)) for rank in ("", ".1")]
    for folder in folders:
        until(lambda folder=folder: steps_of(folder) > 20, LIMIT)
    each_rank(1, park_within=60)
    assert [scheduler.event("parked", 1, task=task).saves for task in (0, 1)] == [True, True]
    for task in (0, 1):
        scheduler.stop(1, 60, reason=pb.STOP_REASON_MIGRATED, task=task)
    assert [scheduler.exited(1, task=task, limit=LIMIT).yielded for task in (0, 1)] == [True, True]
    saved = [read_folder(path)["job"]["step"] for path in state.rglob("checkpoint*-step-*") if path.is_dir()]
    assert saved == [steps_of(folders[0]) + 1] * 2
    each_rank(2)
    assert [scheduler.exited(1, run=2, task=task, limit=LIMIT).exit_code for task in (0, 1)] == [0, 0]
    for rank in ("", ".1"):
        (log,) = state.glob(f"runs/*/1.2{rank}/output.log")
        (line,) = [line for line in log.read_text().splitlines() if line.startswith("{")]
        assert list(json.loads(line)) == [str(step) for step in range(2000)]


def test_a_parked_run_that_cannot_save_stays_parked(
    agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path
) -> None:
    agent()
    scheduler.connected()
    assert not parked_training(scheduler, state, OWN, tmp_path).saves
    scheduler.stop(1, 60, reason=pb.STOP_REASON_MIGRATED)
    refused = scheduler.event("park_refused", 1)
    assert (refused.lost, refused.reason) == (False, "it cannot save while it is parked")
    command, told = told_to_train(OWN, tmp_path)
    scheduler.start(1, *command, **told)
    scheduler.event("resumed", 1)
    goes_on(state, 1)


def test_a_parked_run_whose_save_fails_stays_parked(
    agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path
) -> None:
    agent()
    scheduler.connected()
    assert parked_training(scheduler, state, JOB, tmp_path).saves
    variables = Path(f"/proc/{scheduler.started(1).pid}/environ").read_text().split("\0")
    (folder,) = [Path(one.partition("=")[2]) for one in variables if one.startswith("EBB_CHECKPOINT_DIR=")]
    folder.rmdir()
    folder.write_text("in the way")
    scheduler.stop(1, 60, reason=pb.STOP_REASON_MIGRATED)
    refused = scheduler.event("park_refused", 1)
    assert "it is not saved: " in refused.reason
    assert not (run_directory(state, 1) / "stop.json").exists()
    folder.unlink()
    scheduler.stop(1, 60, reason=pb.STOP_REASON_MIGRATED, cause=2)
    assert scheduler.exited(1, limit=LIMIT).yielded
