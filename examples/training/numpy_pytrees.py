"""Pure functions and pytrees of NumPy arrays, in the style of JAX: `python examples/training/numpy_pytrees.py`.

With JAX, `get` returns `jax.device_get(state)`, and `put` stores what it is given.
"""

import os
from typing import Any

import numpy as np

from client_sdk.training import job

STEPS = int(os.environ.get("STEPS", "600"))
State = dict[str, Any]


def init(seed: int) -> State:
    rng = np.random.default_rng(seed)
    layers = [(rng.standard_normal((8, 32)) / 3, np.zeros(32)), (rng.standard_normal((32, 1)) / 6, np.zeros(1))]
    return {"layers": layers, "momentum": [(np.zeros_like(w), np.zeros_like(b)) for w, b in layers]}


def update(state: State, x: Any, y: Any) -> tuple[State, float]:
    """One step of gradient descent with momentum; returns the new state and the loss."""
    (w1, b1), (w2, b2) = state["layers"]
    inner = np.tanh(x @ w1 + b1)
    error = inner @ w2 + b2 - y
    back = error * (2 / len(x))
    through = (back @ w2.T) * (1 - inner * inner)
    slopes = [(x.T @ through, through.sum(0)), (inner.T @ back, back.sum(0))]
    momentum = [(0.9 * mw - 0.05 * w, 0.9 * mb - 0.05 * b) for (mw, mb), (w, b) in zip(state["momentum"], slopes, strict=True)]
    layers = [(w + mw, b + mb) for (w, b), (mw, mb) in zip(state["layers"], momentum, strict=True)]
    return {"layers": layers, "momentum": momentum}, float(np.mean(error * error))


def main() -> None:
    np.random.seed(0)
    state = init(1)

    def put(restored: State) -> None:
        nonlocal state
        state = restored

    job.checkpointable(state=(lambda: state, put), every_steps=100)
    for _ in job.epochs(1):
        for step in job.steps(range(STEPS)):
            x = np.random.standard_normal((64, 8))
            state, loss = update(state, x, np.sin(x).sum(1, keepdims=True))
            print(f"step {step + 1} loss {loss.hex()}", flush=True)


if __name__ == "__main__":
    main()
