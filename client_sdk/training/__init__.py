"""For training scripts: checkpoints, and a step counter.

Checkpoints: save when the scheduler preempts the job, and resume from there in the next run.

    from client_sdk.training import Checkpointer

    with Checkpointer(every_seconds=600) as checkpoint:
        state = checkpoint.load(fresh)                # what was saved last, or fresh() on the first run
        while state.step < total:
            train_one_step(state)
            checkpoint.at_boundary(lambda: state)     # cheap; when asked to stop: saves, and ends the program

`device()` says what the run computes with, which a job that has several configurations does not know before.

Steps: count them, and Ebb shows the step, the rate and the remaining time.

    from client_sdk import training

    for batch in training.count(loader, total=epochs * len(loader)):
        train_one_step(batch)

`park_point()` says where a program may be parked, if PyTorch's hook does not know that.

All of this needs nothing but Python, works unchanged outside of Ebb, and keeps whatever `pickle` keeps: NumPy
arrays, random generators, plain objects.
"""

from client_sdk.training._device import Device, device
from client_sdk.training._files import CheckpointError
from client_sdk.training.checkpoint import OBEYED, Checkpointer
from client_sdk.training.park_point import park_point
from client_sdk.training.step_counter import count, steps
from ebb_inject.ebb_hook.steps import Steps

__all__ = ["OBEYED", "CheckpointError", "Checkpointer", "Device", "Steps", "count", "device", "park_point", "steps"]
