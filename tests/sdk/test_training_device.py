"""What a run computes with, by its environment."""

from pathlib import Path

import pytest

from client_sdk.training import Device, device
from client_sdk.training._run import device as module

NAMES = ("EBB_DEVICES", "EBB_DEVICE_MODEL", "EBB_DEVICE_MEMORY_MIB", "EBB_CONFIGURATION", "CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("environment", "driver", "found"),
    [
        (
            {"EBB_DEVICES": "1,3", "EBB_DEVICE_MODEL": "A100", "EBB_DEVICE_MEMORY_MIB": "40960", "EBB_CONFIGURATION": "2"},
            False,
            Device("cuda", 2, "A100", 40_960, 2),
        ),
        ({"EBB_DEVICES": "0"}, False, Device("cuda", 1, "", 0, 0)),
        ({"EBB_DEVICES": "", "EBB_DEVICE_MODEL": "", "EBB_CONFIGURATION": "1"}, True, Device("cpu", 0, "", 0, 1)),
        ({}, True, Device("cuda", 1, "", 0, 0)),
        ({"CUDA_VISIBLE_DEVICES": "2"}, True, Device("cuda", 1, "", 0, 0)),
        ({"CUDA_VISIBLE_DEVICES": ""}, True, Device("cpu", 0, "", 0, 0)),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, True, Device("cpu", 0, "", 0, 0)),
        ({}, False, Device("cpu", 0, "", 0, 0)),
    ],
)
def test_what_there_is(
    environment: dict[str, str], driver: bool, found: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "nvidiactl"
    if driver:
        file.touch()
    monkeypatch.setattr(module, "_DRIVER", str(file))
    assert device() == found
