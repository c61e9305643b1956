"""Checks that a preempted job resumed and that its result is that of an uninterrupted job. Pure: logs in, problems out.

The right final loss does not prove that the job resumed: a job that lost its checkpoint and started again from the first
step ends with the very same loss. So every executed step writes a line with the number of its run, and the lines are
checked:

    run 1   1 2 3 ... 200            <- its checkpoint says: 200 steps done
    run 2                 201 ... 450  <- begins right after it, and no step ran twice

The demo also runs this check on a job whose checkpoint was deleted, and insists that the check fails.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from examples.demo.steps import Line

EARLIEST = 1 / 3
"""A job that is preempted at its very beginning proves little: it must be this far."""


@dataclass(frozen=True)
class Evidence:
    """Evidence about a preempted job. Losses are in hexadecimal, which shows every bit."""

    log: Sequence[Line]
    steps: int
    checkpoints: Sequence[int]
    """For each stop, the number of steps in the checkpoint that was written then."""
    loss: str
    uninterrupted: str
    """The loss of the same command that was left alone."""


def problems(evidence: Evidence) -> list[str]:
    """Everything that is wrong, with numbers; empty if the job was preempted, went on and lost nothing."""
    runs = _by_run(evidence.log)
    found = []
    if len(runs) != len(evidence.checkpoints) + 1:
        found.append(f"{len(evidence.checkpoints)} checkpoints, but steps of {len(runs)} runs")
    wanted = 1
    for (run, steps), saved in zip(runs, [*evidence.checkpoints, evidence.steps], strict=False):
        if steps[0] != wanted:
            found.append(f"run {run} begins at step {steps[0]}, not at {wanted}")
        if steps != list(range(steps[0], steps[0] + len(steps))):
            found.append(f"run {run} does not take its steps one after the other")
        if steps[-1] != saved:
            where = "the last one" if saved == evidence.steps else f"the {saved} of its checkpoint"
            found.append(f"run {run} ends with step {steps[-1]}, not with {where}")
        wanted = saved + 1
    if not evidence.checkpoints:
        found.append("it left no checkpoint, and so proves nothing")
    for saved in evidence.checkpoints:
        if saved < evidence.steps * EARLIEST:
            found.append(f"it stopped after {saved} of {evidence.steps} steps, before a third of the way")
    counts = Counter(line.step for line in evidence.log)
    if twice := [step for step, count in counts.items() if count > 1]:
        found.append(f"{len(twice)} steps ran more than once, the first of them {min(twice)}")
    if missing := [step for step in range(1, evidence.steps + 1) if step not in counts]:
        found.append(f"{len(missing)} steps never ran, the first of them {missing[0]}")
    if evidence.loss != evidence.uninterrupted:
        found.append(f"the loss is {evidence.loss}, and {evidence.uninterrupted} when left alone")
    return found


def _by_run(log: Sequence[Line]) -> list[tuple[int, list[int]]]:
    runs: dict[int, list[int]] = {}
    for line in log:
        runs.setdefault(line.run, []).append(line.step)
    return sorted(runs.items())
