"""The bench for GPUs: its models, its programs, and what it says where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.program import started
from benchmarks.gpu.used import reader, seconds_until
from ebb_inject.ebb_hook import control
from tests.in_job.programs import ROOT
from tests.torch_needed import require_torch


@pytest.fixture(scope="module")
def torch() -> Any:
    require_torch()
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
