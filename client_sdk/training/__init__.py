"""Checkpoints and a step counter for training scripts.

One line and a loop, for PyTorch and other frameworks:

    from client_sdk.training import job

    job.checkpointable(model=model, optimizer=optimizer, every_steps=1000)
    for epoch in job.epochs(10):
        for batch in job.steps(loader):
            train_one_step(batch)

Checkpoints of your own state: saved when the scheduler preempts the job, and loaded in the next run.

    from client_sdk.training import Checkpointer

    with Checkpointer(every_seconds=600) as checkpoint:
        state = checkpoint.load(fresh)                # what was saved last, or fresh() on the first run
        while state.step < total:
            train_one_step(state)
            checkpoint.at_boundary(lambda: state)     # cheap; when asked to stop: saves, and ends the program

`device()` returns the device of the run, which a job with several configurations does not know in advance.

Steps: count them, and Ebb shows the step, the rate and the remaining time.

    from client_sdk import training

    for batch in training.count(loader, total=epochs * len(loader)):
        train_one_step(batch)

`parameters()` returns the parameters that a member of a sweep tries, and `report(loss)` reports its result.

`park_point()` marks a point at which a program may be parked, for programs that PyTorch's hook does not support.

All of this needs only Python, works unchanged outside of Ebb, and saves everything that `pickle` can save: NumPy
arrays, random generators, plain objects.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client_sdk.training._data.resumable import ResumableLoader
    from client_sdk.training._job import Job, job
    from client_sdk.training._park_point import park_point
    from client_sdk.training._run.device import Device, device
    from client_sdk.training._run.process_exit import OBEYED, RESIZED
    from client_sdk.training._storing.files import CheckpointError
    from client_sdk.training._storing.folders import read_folder
    from client_sdk.training.checkpoint import Checkpointer
    from client_sdk.training.step_counter import count, steps
    from client_sdk.training.sweep import parameters, report
    from ebb_inject.ebb_hook.steps import Steps

__all__ = [
    "OBEYED",
    "RESIZED",
    "CheckpointError",
    "Checkpointer",
    "Device",
    "Job",
    "ResumableLoader",
    "Steps",
    "count",
    "device",
    "job",
    "parameters",
    "park_point",
    "read_folder",
    "report",
    "steps",
]

_MODULES = {
    "Checkpointer": "client_sdk.training.checkpoint",
    "CheckpointError": "client_sdk.training._storing.files",
    "Device": "client_sdk.training._run.device",
    "Job": "client_sdk.training._job",
    "OBEYED": "client_sdk.training._run.process_exit",
    "RESIZED": "client_sdk.training._run.process_exit",
    "ResumableLoader": "client_sdk.training._data.resumable",
    "Steps": "ebb_inject.ebb_hook.steps",
    "count": "client_sdk.training.step_counter",
    "device": "client_sdk.training._run.device",
    "job": "client_sdk.training._job",
    "parameters": "client_sdk.training.sweep",
    "park_point": "client_sdk.training._park_point",
    "read_folder": "client_sdk.training._storing.folders",
    "report": "client_sdk.training.sweep",
    "steps": "client_sdk.training.step_counter",
}
"""The module of each public name. No module may have the name of one of them, which it would shadow."""


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that a script imports only what it uses."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
