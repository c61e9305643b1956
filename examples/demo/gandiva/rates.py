"""Evaluates the step logs of jobs: steps per second, and whether the jobs took turns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """A line of a step log."""

    ended: float
    """Seconds of the wall clock."""
    number: int
    run: int
    task: int
    node: str


def read_steps(log: Path) -> list[Step]:
    """Return the steps that a job has executed so far, without an unfinished last line."""
    if not log.exists():
        return []
    lines = (line.split() for line in log.read_text().split("\n")[:-1])
    return [Step(float(ended), int(number), int(run), int(task), node) for ended, number, run, task, node in lines]


def rate(steps: Sequence[Step], since: float, until: float) -> float:
    """Steps a second in this time, those of all tasks together."""
    return sum(since < step.ended <= until for step in steps) / (until - since)


def turns(logs: Mapping[str, Sequence[Step]], since: float, until: float) -> list[int]:
    """How many steps one of these jobs did before another one did some, and so on, in this time. Jobs that take turns do many
    steps each time; jobs that execute at the same time do one or two."""
    done = sorted((step.ended, name) for name, steps in logs.items() for step in steps if since < step.ended <= until)
    found: list[int] = []
    last = ""
    for _, name in done:
        if name == last:
            found[-1] += 1
        else:
            found.append(1)
        last = name
    return found


def lost_or_repeated(steps: Sequence[Step]) -> list[str]:
    """Return the errors in the steps of a job of one task: each step must be executed once, in order, over all runs."""
    numbers = [step.number for step in steps]
    wanted = list(range(1, len(numbers) + 1))
    return [] if numbers == wanted else [f"steps {numbers[:3]} ... {numbers[-3:]} are not 1 to {len(numbers)}, each once"]
