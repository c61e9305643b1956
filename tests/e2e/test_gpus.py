"""A node with GPUs, as its jobs, users and operators meet it: agent, scheduler and pynvml are real, the GPUs are played.

A job writes its pid and the GPUs that it was given, waits for a file, and leaves with the exit code that is in there.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import Job, JobEventKind, JobReason, JobState, MemoryCycle
from node_agent.devices.reading import Reading
from tests.harness import LIMIT, Site, leftovers
from tests.nvml.conftest import PlugIn, library, plug_in  # noqa: F401 (fixtures)
from tests.nvml.shim import Shim
from tests.store.waiting import wait_for

MACHINE = Path(__file__).parents[1] / "nvml" / "machines" / "pcie-8.json"
JOB = """
printf '%s %s\\n' $$ "$CUDA_VISIBLE_DEVICES" > "$0.$EBB_RUN.new" && mv "$0.$EBB_RUN.new" "$0.$EBB_RUN"
until [ -e "$0.$EBB_RUN.leave" ]; do sleep 0.05; done
exit $(cat "$0.$EBB_RUN.leave")
"""


class Machine:
    """One node with eight GPUs."""

    def __init__(self, site: Site, shim: Shim, uuids: list[str]) -> None:
        self.site = site
        self.shim = shim
        self.uuids = uuids

    def submit(self, name: str, devices: int = 1) -> Job:
        job = self.site.submit(["sh", "-c", JOB, self.site.file(name)], name=name, devices=devices)
        return self.site.until(job, JobState.RUNNING)

    def told(self, job: Job, run: int = 1) -> tuple[int, list[int]]:
        """The job's pid, and the places of its GPUs."""
        path = self.site.file(f"{job.spec.name}.{run}")
        pid, given = wait_for(lambda: path.exists() and path.read_text(), LIMIT).split()
        return int(pid), [self.uuids.index(uuid) for uuid in given.split(",")]

    def leave(self, job: Job, code: int, run: int = 1) -> None:
        path = self.site.file(f"{job.spec.name}.{run}.leave")
        path.with_suffix(".new").write_text(str(code))
        path.with_suffix(".new").rename(path)

    def ebb(self, *arguments: str) -> str:
        program = "from client_sdk.cli import main; main()"
        command = [sys.executable, "-c", program, "--address", self.site.cluster.address, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT).stdout

    def faults(self) -> dict[int, str]:
        return {device.index: device.fault for device in self.site.client.node("n1").devices if device.fault}


@pytest.fixture
def machine(plug_in: PlugIn, folder: Path) -> Iterator[Machine]:  # noqa: F811
    reading = Reading.model_validate(json.loads(MACHINE.read_text())["reading"])
    shim = plug_in(reading)
    with Site(folder / "site", nodes=("n1",), devices=("nvml", "--memory-rate", "20")) as site:
        wait_for(lambda: site.client.node("n1").observations, LIMIT)  # what happened before the agent looked, it does not know
        yield Machine(site, shim, [gpu.uuid for gpu in sorted(reading.gpus, key=lambda gpu: gpu.pci)])
        site.check_all_ended()
    assert not leftovers(folder)


def test_a_job_whose_gpu_breaks_goes_on_upon_another(machine: Machine) -> None:
    job = machine.submit("job")
    _, (broken,) = machine.told(job)
    whole = machine.submit("other", devices=7)
    machine.shim.xid(broken, 13)  # which is the job's own doing, and means nothing for the GPU
    machine.shim.xid(broken, 79)
    faults = wait_for(machine.faults, LIMIT)
    assert list(faults) == [broken]
    assert faults[broken].startswith("XID 79")
    machine.leave(job, 1)
    back = machine.site.until(job, JobState.QUEUED)
    assert back.reason is JobReason.DEVICE_FAULT
    machine.leave(whole, 0)
    pid, (other,) = machine.told(job, run=2)
    assert other != broken
    assert pid
    node = machine.site.client.node("n1")
    assert node.free.devices == 6  # one is the job's, and one is nobody's
    machine.leave(job, 0, run=2)
    machine.site.succeeded(job, whole)
    story = machine.site.client.story(job.id)
    assert JobEventKind.DEVICE_FAULT in [event.kind for event in story]
    assert "XID 79" in machine.ebb("node", "show", "n1")
    assert "7/8 (1 faulty)" in machine.ebb("node", "list")
    assert " DRAINED" in machine.ebb("node", "drain", "n1")


def test_the_wave_of_a_run_is_seen_by_its_user(machine: Machine) -> None:
    """Period, least and most memory of a training loop, read by the driver's count of one process."""
    job = machine.submit("waves")
    pid, (gpu,) = machine.told(job)
    machine.shim.processes(gpu, {pid: 9_000})
    machine.shim.wave(gpu, 0.8, 2_000, 9_000)

    def seen() -> MemoryCycle | None:
        observed = machine.site.client.node("n1").observations
        found = [c for c in observed.cycles if c.period is not None] if observed else []
        return found[0] if found else None

    cycle = wait_for(seen, LIMIT)
    assert (cycle.job_id, cycle.run, cycle.device) == (job.id, 1, gpu)
    assert cycle.period is not None
    assert cycle.period.total_seconds() == pytest.approx(0.8, rel=0.05)
    assert 1_900 <= cycle.minimum_mib <= 3_000
    assert 8_000 <= cycle.maximum_mib <= 9_100
    assert f"{job.id}.1" in machine.ebb("node", "show", "n1")
    machine.leave(job, 0)
    machine.site.succeeded(job)


def test_a_lost_gpu_is_not_used_until_it_is_back(machine: Machine) -> None:
    holding = machine.submit("holding", devices=7)
    _, held = machine.told(holding)
    (idle,) = set(range(8)) - set(held)
    machine.shim.lose(idle)
    assert list(wait_for(machine.faults, LIMIT)) == [idle]
    waiting = machine.site.submit(["true"], name="waiting", devices=1)
    assert machine.site.client.get(waiting.id).state is JobState.QUEUED
    machine.shim.lose(idle, lost=False)
    machine.site.succeeded(waiting)
    assert machine.faults() == {}
    machine.leave(holding, 0)
    machine.site.succeeded(holding)
