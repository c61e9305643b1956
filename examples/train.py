"""A small model that trains for real and can be preempted at any moment: `python examples/train.py --steps 200`.

A two-layer network learns a function of 32 variables from samples with noise, by stochastic gradient descent with
momentum. Everything that the next step depends on is in the checkpoint: weights, momentum, the order of the samples,
the random generator. A run that was interrupted, however often, therefore ends with the very bits of one that was not
(on one machine, with OMP_NUM_THREADS=1: the order in which a sum is taken over several threads is not fixed).

A step takes 10 to 20 ms by default; --hidden and --batch change that.
"""

import argparse
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.training import Checkpointer

Array = NDArray[np.float64]
INPUTS, SAMPLES = 32, 8192
RATE, MOMENTUM, NOISE = 0.01, 0.9, 0.05


def data(seed: int) -> tuple[Array, Array]:
    """Samples of a smooth function, with noise: the same for the same seed."""
    rng = np.random.default_rng([seed, 1])
    x = rng.standard_normal((SAMPLES, INPUTS))
    y = np.sin(x @ rng.standard_normal(INPUTS) / 4) + x[:, 0] * x[:, 1] / 2 + NOISE * rng.standard_normal(SAMPLES)
    return x, y[:, None]


class SlowToSave:
    """Part of the state that takes its time to be saved, as the state of a large model does."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __reduce__(self) -> tuple[Any, ...]:
        if self.seconds:
            print("saving", flush=True)
            time.sleep(self.seconds)
        return float, (self.seconds,)


@dataclass
class State:
    """All that the next step depends on, besides the data."""

    step: int
    weights: list[Array]
    momentum: list[Array]
    rng: np.random.Generator
    order: NDArray[np.int64]
    """The samples in the order of this epoch."""
    at: int
    """How many of them were used."""
    loss: float

    def packed(self, save_seconds: float) -> dict[str, Any]:
        """Return the state to save, as plain values. The slow part is in the middle, so that a kill can hit a partial file."""
        half = {"step": self.step, "weights": self.weights, "slow": SlowToSave(save_seconds)}
        return half | {"momentum": self.momentum, "rng": self.rng, "order": self.order, "at": self.at, "loss": self.loss}


def fresh(seed: int, hidden: int) -> State:
    rng = np.random.default_rng([seed, 2])
    weights = [
        rng.standard_normal((INPUTS, hidden)) / np.sqrt(INPUTS),
        np.zeros((1, hidden)),
        rng.standard_normal((hidden, 1)) / np.sqrt(hidden),
        np.zeros((1, 1)),
    ]
    return State(0, weights, [np.zeros_like(w) for w in weights], rng, rng.permutation(SAMPLES), 0, float("nan"))


def unpacked(saved: dict[str, Any]) -> State:
    return State(**{name: value for name, value in saved.items() if name != "slow"})


def train_step(state: State, x: Array, y: Array, batch: int) -> None:
    """One mini-batch: forward, backward, update."""
    if state.at + batch > SAMPLES:
        state.order, state.at = state.rng.permutation(SAMPLES), 0
    rows = state.order[state.at : state.at + batch]
    state.at += batch
    inputs, wanted = x[rows], y[rows]
    w1, b1, w2, b2 = state.weights
    inner = np.tanh(inputs @ w1 + b1)
    error = inner @ w2 + b2 - wanted
    state.loss = float(np.mean(error * error))
    back = error * (2 / batch)
    through = (back @ w2.T) * (1 - inner * inner)
    slopes = [inputs.T @ through, through.sum(0, keepdims=True), inner.T @ back, back.sum(0, keepdims=True)]
    for weight, moment, slope in zip(state.weights, state.momentum, slopes, strict=True):
        moment *= MOMENTUM
        moment -= RATE * slope
        weight += moment
    state.step += 1


def main() -> None:
    options = arguments()
    job, run = int(os.environ.get("EBB_JOB_ID", "0")), int(os.environ.get("EBB_RUN", "0"))
    x, y = data(options.seed)
    log = os.open(options.step_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if options.step_log else None
    with Checkpointer(options.checkpoint_dir, every_steps=options.checkpoint_every) as checkpoint:
        saved = checkpoint.load()
        state = fresh(options.seed, options.hidden) if saved is None else unpacked(saved)
        print(f"job {job} run {run}: from step {state.step} of {options.steps}", flush=True)
        while state.step < options.steps:
            train_step(state, x, y, options.batch)
            if log is not None:
                # One write of a whole line, at once: a line is there if and only if its step was executed.
                os.write(log, f"{json.dumps({'job': job, 'run': run, 'step': state.step, 'loss': state.loss})}\n".encode())
            if state.step % 100 == 0:
                print(f"step {state.step} loss {state.loss:.6f}", flush=True)
            if state.step < options.steps:
                checkpoint.at_boundary(lambda: state.packed(options.save_seconds))
            while state.step == options.wait_at and not options.wait_for.exists():
                time.sleep(0.02)
                checkpoint.at_boundary(lambda: state.packed(options.save_seconds))
        digest = hashlib.sha256(b"".join(weight.tobytes() for weight in state.weights)).hexdigest()
        if options.result:
            result = {"steps": state.step, "loss": state.loss, "loss_hex": state.loss.hex(), "weights_sha256": digest}
            unfinished = options.result.with_name(options.result.name + ".tmp")
            unfinished.write_text(json.dumps(result) + "\n")
            unfinished.replace(options.result)
        print(f"done: {state.step} steps, loss {state.loss:.6f} = {state.loss.hex()}, weights {digest[:16]}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=1000, help="mini-batches to train for (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the data and of everything random (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=1024, help="width of the hidden layer (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=768, help="samples of a mini-batch (default: %(default)s)")
    parser.add_argument("--step-log", metavar="FILE", help="append one JSON line for each step that was executed")
    parser.add_argument("--result", type=Path, metavar="FILE", help="write the final loss and a digest of the weights as JSON")
    parser.add_argument("--save-seconds", type=float, default=0.0, help="stretch every save to about this long")
    parser.add_argument("--checkpoint-every", type=int, metavar="STEPS", help="also save every so many steps, unasked")
    parser.add_argument("--wait-at", type=int, metavar="STEP", help="after it, wait for the file --wait-for")
    parser.add_argument("--wait-for", type=Path, metavar="FILE", help="like data that come later")
    parser.add_argument("--checkpoint-dir", metavar="DIR", help="default: EBB_CHECKPOINT_DIR, else ./checkpoints")
    options = parser.parse_args()
    if not 0 < options.batch <= SAMPLES:
        parser.error(f"--batch is from 1 to {SAMPLES}")
    if (options.wait_at is None) != (options.wait_for is None):
        parser.error("--wait-at and --wait-for go together")
    return options


if __name__ == "__main__":
    main()
