"""The limit of device memory inside PyTorch."""

from types import SimpleNamespace
from typing import Any

import pytest

from ebb_inject.ebb_hook import device_memory


class Cuda:
    """What the hook uses of `torch.cuda`, with two devices."""

    def __init__(self, total: int, fails: bool = False) -> None:
        self.total = total
        self.fails = fails
        self.limits: dict[int, float] = {}
        self.later: list[Any] = []

    def _lazy_call(self, act: Any) -> None:
        self.later.append(act)

    def device_count(self) -> int:
        return 2

    def get_device_properties(self, _device: int) -> SimpleNamespace:
        if self.fails:
            raise RuntimeError("no such device")
        return SimpleNamespace(total_memory=self.total)

    def set_per_process_memory_fraction(self, fraction: float, device: int) -> None:
        self.limits[device] = fraction

    def begins(self) -> None:
        for act in self.later:
            act()


def bound(monkeypatch: pytest.MonkeyPatch, limit: str, cuda: Cuda) -> None:
    monkeypatch.setenv(device_memory.LIMIT, limit)
    device_memory.set_limit(SimpleNamespace(cuda=cuda))


def test_the_limit_is_set_when_cuda_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(40_000 << 20)
    bound(monkeypatch, "10000", cuda)
    assert cuda.limits == {}, "nothing touches a device before the program does"
    cuda.begins()
    assert cuda.limits == {0: 0.25, 1: 0.25}


@pytest.mark.parametrize("limit", ["", "0", "-5", "x", "50000"])
def test_what_is_no_limit_changes_nothing(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    cuda = Cuda(40_000 << 20)
    bound(monkeypatch, limit, cuda)
    cuda.begins()
    assert cuda.limits == {}


def test_a_failure_is_not_the_programs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cuda = Cuda(1, fails=True)
    bound(monkeypatch, "10", cuda)
    cuda.begins()
    assert "no such device" in caplog.text


@pytest.mark.usefixtures("training_packages")
def test_pytorch_has_what_the_hook_uses() -> None:
    import torch

    for name in ("_lazy_call", "device_count", "get_device_properties", "set_per_process_memory_fraction"):
        assert callable(getattr(torch.cuda, name))
