"""A job for `make demo SHOW=gandiva`: `python work.py reader --log steps.txt --end end`.

A reader waits for most of a mini-batch, as a job does that is short of data. A cruncher computes all the time. A job counts its
steps, saves when it is asked to stop, and ends when the file `--end` is there. It writes a line for each step: when the
step ended, and the run, the task and the node that did it. The tasks of an elastic job share the parts of each step.
"""

import argparse
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from client_sdk import training
from examples.demo.gandiva.whole_device import Token

Part = Callable[[], object]
WAIT = 0.03
"""Seconds."""
LOOPS = 100_000


def reader(_folder: Path) -> Part:
    """Waits, and computes for a moment."""

    def part() -> None:
        time.sleep(WAIT)
        loop(LOOPS // 20)

    return part


def cruncher(folder: Path) -> Part:
    """Computes, and fills its device."""
    token = Token(folder)

    def part() -> None:
        token.have()
        loop(LOOPS)

    return part


def loop(count: int) -> int:
    value = 0
    for number in range(count):
        value = (31 * value + number) & 0xFFFF
    return value


WORK: Mapping[str, Callable[[Path], Part]] = {"reader": reader, "cruncher": cruncher}
"""The function that executes a part of a step, by kind of job."""


def run(part: Part, log: Path, end: Path, parts: int, elastic: bool) -> None:
    """Execute steps until the file `end` exists. Each step has `parts` parts, which are divided among the tasks."""
    run_number, node = os.environ.get("EBB_RUN", "1"), os.environ.get("EBB_NODE", "-")
    task, tasks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    mine = len(range(task, parts, tasks))
    with training.Checkpointer(every_steps=1000, replicated=elastic) as checkpoint, log.open("a", buffering=1) as told:
        step = checkpoint.load(lambda: 0)
        counter = training.steps(done=step)
        while not end.exists():
            for _ in range(mine):
                part()
            step += 1
            counter.advance()
            told.write(f"{time.time():.4f} {step} {run_number} {task} {node}\n")
            checkpoint.at_boundary(lambda step=step: step)  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("kind", choices=WORK)
    parser.add_argument("--log", type=Path, metavar="FILE", required=True, help="where to write a line for each step")
    parser.add_argument("--end", type=Path, metavar="FILE", required=True, help="end when this file is there")
    parser.add_argument("--parts", type=int, default=1, metavar="N", help="parts of a step (default: 1)")
    parser.add_argument("--elastic", action="store_true", help="the state is the same in all tasks, however many there are")
    options = parser.parse_args()
    part = WORK[options.kind](options.log.parent)
    run(part, options.log, options.end, options.parts, options.elastic)


if __name__ == "__main__":
    main()
