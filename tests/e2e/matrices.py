"""A NumPy job that counts its steps: python matrices.py TOTAL PAUSE GO.

Each step multiplies matrices for STEP_SECONDS. The program pauses after PAUSE steps until the file GO is there. It saves when
it is stopped and goes on from there.
"""

import os
import sys
import time

import numpy as np

from client_sdk import training

total, pause, go, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(os.environ["STEP_SECONDS"])
generator = np.random.default_rng(0)
matrix = generator.random((32, 32))
with training.Checkpointer() as checkpoint:
    state = checkpoint.load(lambda: {"step": 0, "work": matrix})
    steps = training.steps(total=total, done=state["step"])
    while state["step"] < total:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            state["work"] = np.tanh(matrix @ state["work"])
        state["step"] += 1
        steps.advance()
        while state["step"] == pause and not os.path.exists(go):  # noqa: PTH110
            checkpoint.at_boundary(lambda: state)
            time.sleep(0.01)
        checkpoint.at_boundary(lambda: state)
