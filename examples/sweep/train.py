"""A member of the sweep: a small network, trained with the parameters that the sweep gives it. It runs on NumPy alone.

It reports its loss on validation data every REPORT steps, and resumes at its next turn.
"""

import os
from functools import partial

import numpy as np
from numpy.typing import NDArray

from client_sdk import training
from client_sdk.training import Checkpointer

Array = NDArray[np.float64]
INPUTS, SAMPLES, BATCH, REPORT = 16, 4096, 64, 1000


def data() -> tuple[Array, Array]:
    """The same for all members: a smooth function of the inputs, with noise."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((SAMPLES, INPUTS))
    y = np.sin(x @ rng.standard_normal(INPUTS) / 2) + x[:, 0] * x[:, 1] / 2 + 0.05 * rng.standard_normal(SAMPLES)
    return x, y[:, None]


def forward(weights: list[Array], x: Array) -> tuple[Array, Array]:
    hidden = np.tanh(x @ weights[0] + weights[1])
    return hidden, hidden @ weights[2] + weights[3]


def main() -> None:
    chosen = training.parameters(rate=0.01, momentum=0.9, hidden=32)
    steps = int(os.environ.get("STEPS", "6000"))
    x, y = data()
    valid_x, valid_y, x, y = x[:1024], y[:1024], x[1024:], y[1024:]
    rng = np.random.default_rng(1)
    hidden = chosen["hidden"]
    weights = [rng.standard_normal((INPUTS, hidden)) / 4, np.zeros(hidden), rng.standard_normal((hidden, 1)) / 8, np.zeros(1)]
    velocity = [np.zeros_like(weight) for weight in weights]
    with Checkpointer() as checkpoint:
        step, weights, velocity, rng = checkpoint.load(lambda: (0, weights, velocity, rng))
        while step < steps:
            batch = rng.integers(0, len(x), BATCH)
            activations, guess = forward(weights, x[batch])
            error = (guess - y[batch]) / BATCH
            back = error @ weights[2].T * (1 - activations**2)
            gradients = [x[batch].T @ back, back.sum(0), activations.T @ error, error.sum(0)]
            for weight, moved, gradient in zip(weights, velocity, gradients, strict=True):
                moved *= chosen["momentum"]
                moved -= chosen["rate"] * gradient
                weight += moved
            step += 1
            if step % REPORT == 0:
                training.report(float(np.mean((forward(weights, valid_x)[1] - valid_y) ** 2)), step)
            checkpoint.at_boundary(partial(tuple, (step, weights, velocity, rng)))


if __name__ == "__main__":
    with np.errstate(all="ignore"):  # a rate that is too high diverges, and its loss is not a number
        main()
