"""What the tests of `Job` share."""

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from client_sdk.training import OBEYED, Job

New = Callable[[], Job]
"""The fixture `new_job`: returns the job of the next run, in the same directory."""


def run_to(job: Job, step: int, of: int = 10, work: Callable[[int], None] = lambda _item: None) -> None:
    """Trains, and stops after that step, by a real signal."""

    def train() -> None:
        for _ in job.epochs(1):
            for item in job.steps(range(of)):
                work(item)
                if job.step + 1 == step:
                    signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as left:
        train()
    assert left.value.code == OBEYED


def folders(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir())


@contextmanager
def full_disk(n: int) -> Iterator[None]:
    """Inside, no file of this process grows beyond `n` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
