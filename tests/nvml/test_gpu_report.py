"""`make gpu-report`, on machines that have what it looks for and on those that do not."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.nvml.conftest import ROOT, PlugIn
from tests.nvml.test_reading import machine

REPORT = ROOT / "scripts" / "gpu_report.py"

TORCH = """
class Tensor:
    def __matmul__(self, other): return self
class cuda:
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: __import__("time").sleep(0.01))
randn = lambda *size, device: Tensor()
cat = lambda made: Tensor()
"""


def report(*arguments: str, extra: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **extra}
    return subprocess.run([sys.executable, REPORT, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_without_a_driver_it_says_so_with_a_status_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("")  # also where this machine has a real one
    done = report(extra={"LD_LIBRARY_PATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (3, "")
    assert "Install the NVIDIA driver" in done.stdout


def test_without_torch_it_tells_all_but_what_a_load_shows(plug_in: PlugIn, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError")
    driver = plug_in(machine(2))
    driver.health(1, recovery=1)
    done = report("--rounds", "3", "--torch-python", sys.executable, extra={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 devices" in done.stdout
    assert "GPU 1: the driver asks for a reset of the GPU" in done.stdout
    (row,) = (line.split() for line in done.stdout.splitlines() if line.startswith("  processes"))
    assert float(row[1]) > 0
    assert row[-1] == "-"
    assert "No load, and no wave" in done.stdout


@pytest.mark.long
def test_with_torch_it_tells_the_times_under_load_and_the_wave(plug_in: PlugIn, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    driver = plug_in(machine(1))
    driver.processes(0, {4242: 5000})
    driver.wave(0, 1.6, 1000, 5000)
    arguments = ("--rounds", "3", "--seconds", "12", "--torch-python", sys.executable)
    done = report(*arguments, extra={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = (line.split() for line in done.stdout.splitlines() if line.startswith("  processes"))
    assert all(float(number) > 0 for number in row[1:])
    assert len(row) == 5
    periods = [float(period) for period in re.findall(r": a period of (\S+) s", done.stdout)]
    assert periods == [pytest.approx(1.6, rel=0.05)] * 2, done.stdout
