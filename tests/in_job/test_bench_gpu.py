"""The bench for GPUs: its models, its programs, and what it says where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import cluster
from benchmarks.gpu.cluster import steps_at
from benchmarks.gpu.driver import BEFORE, BETWEEN, checkpoints
from benchmarks.gpu.program import started
from benchmarks.gpu.used import reader, seconds_until
from ebb_inject.ebb_hook import control
from tests.in_job.programs import ROOT


@pytest.fixture(scope="module")
def torch(training_packages: None) -> Any:
    import torch

    torch.set_num_threads(1)
    return torch


def test_the_models_are_those_of_the_papers(torch: Any) -> None:
    from benchmarks.gpu.models import GPT, ResNet50, gpt_blocks

    with torch.device("meta"):
        image, language = ResNet50(), GPT(48)
        assert image(torch.empty(2, 3, 224, 224)).shape == (2, 1000)
        assert language(torch.zeros(1, 7, dtype=torch.long)).shape == (1, 7, 50257)
    assert sum(parameter.numel() for parameter in image.parameters()) == 25_557_032
    size = 16 * sum(parameter.numel() for parameter in language.parameters())
    assert 24e9 < size < 26e9
    assert gpt_blocks(size) == 48
    assert gpt_blocks(size - 1) == 47
    assert gpt_blocks(1) == 1


def test_a_program_of_the_bench_is_parked(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with started("cpu", "gpt", "cpu", "2") as program:
        who, used = reader("cpu", "", program.process.pid)
        assert who == "the kernel"
        assert used() > 1 << 20
        assert seconds_until(used, 1 << 40) < 10
        assert program.ask(control.PREPARE)[0]["state"] == control.PREPARED
        parked, _ = program.ask(control.PARK)
        assert parked["bytes"] > 4 * 4 * 150_000, "weights, gradients, and two averages"
        program.ask(control.RESUME)
        assert program.line()["loss"] > 0


DRIVER = """
import sys
from node_agent.devices.checkpoint_helper import serve

class Driver:
    states = {}
    def state(self, pid): return self.states.get(pid, "running")
    def lock(self, pid, timeout_ms): self.states[pid] = "locked"
    def checkpoint(self, pid): self.states[pid] = "checkpointed"
    def restore(self, pid, gpu_pairs): self.states[pid] = "locked"
    def unlock(self, pid): self.states[pid] = "running"

print('{"unusable": ""}', flush=True)
serve(Driver(), sys.stdin, sys.stdout)
"""


def test_a_program_is_checkpointed_and_its_losses_are_compared(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    rows = checkpoints("cpu", "", 1, "gpt", "GPT", "2", helper=(sys.executable, "-c", DRIVER))
    values = {name: value for name, value, _, _ in rows}
    assert values["GPT, at any moment: suspend"] > 0
    assert values["GPT, after a park by the hook: the park before"] > 0
    same = [value for name, value in values.items() if "losses" in name]
    assert same == [BEFORE + BETWEEN] * 3


def test_the_steps_of_a_time_lie_between_two_lines() -> None:
    lines = [{"steps": 10, "at": 100.0}, {"steps": 20, "at": 104.0}, {"steps": 30, "at": 200.0}]
    assert [steps_at(lines, at) for at in (99.0, 100.0, 102.0, 104.0, 152.0, 300.0)] == [0, 10, 15, 20, 25, 30]


@pytest.mark.long
def test_jobs_of_a_whole_ebb_are_packed(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ALONE", 1.0)
    with cluster.site("cpu", cluster.WITHOUT) as here:
        rows = cluster.packing(here, cluster.WITHOUT, "vae", "VAE", 2, "1GiB", "2")
    values = {name: value for name, value, _, _ in rows}
    assert values["VAE on node plain, 1 job"] > 0
    assert values["VAE on node plain, 2 jobs packed"] > 0


def test_parts_about_the_driver_are_left_out_without_a_gpu(torch: Any) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--only", "driver", "waves", "nvml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("is left out: it is about NVIDIA's driver") == 3


def test_without_a_gpu_it_says_so_and_has_a_status_of_its_own(torch: Any) -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.endswith("sees no GPU, so there is nothing to measure.\n")


def test_without_pytorch_it_says_so(tmp_path: Path) -> None:
    code = f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; sys.path.insert(0, {str(ROOT)!r}); "
    code += "import runpy; runpy.run_module('benchmarks.gpu', run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "has no PyTorch. Name a Python that has it" in done.stderr
