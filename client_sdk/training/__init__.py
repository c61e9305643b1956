"""Checkpoints inside a job: save when the scheduler asks for room, and go on from there in the next run.

    from client_sdk.training import Checkpointer

    with Checkpointer(every_seconds=600) as checkpoint:
        state = checkpoint.load(fresh)                # what was saved last, or fresh() on the first run
        while state.step < total:
            train_one_step(state)
            checkpoint.at_boundary(lambda: state)     # cheap; when asked to stop: saves, and ends the program

`device()` says what the run computes with, which a job that has several configurations does not know before.

It needs nothing but Python, works unchanged outside of Ebb, and keeps whatever `pickle` keeps: NumPy arrays, random
generators, plain objects.
"""

from client_sdk.training._device import Device, device
from client_sdk.training._files import CheckpointError
from client_sdk.training.checkpoint import OBEYED, Checkpointer

__all__ = ["OBEYED", "CheckpointError", "Checkpointer", "Device", "device"]
