"""A member of a sweep, in its training script: the parameters that it tries, and what it reports.

from client_sdk import training

rate = training.parameters(rate=0.1)["rate"]
...
training.report(loss)
"""

import json
import math
import os
import sys
from typing import Any

from client_sdk.training import step_counter

VARIABLE = "SWEEP_PARAMETERS"
"""The sweep gives a member its parameters in this variable, as a JSON object."""
MARK = "sweep-report "
"""A report is a line of the member's output: the mark, and a JSON object with `step` and `value`."""


def parameters(**defaults: Any) -> dict[str, Any]:
    """The parameters that this job tries, over the defaults, which are all that there is outside of a sweep."""
    given: dict[str, Any] = json.loads(os.environ.get(VARIABLE) or "{}")
    return defaults | given


def report(value: float, step: int | None = None) -> None:
    """Tells the sweep how good the program is after a step, such as by its loss on validation data. In a gang, rank 0 reports.

    Without `step` it is the step counter's. A report is a line of the standard output. Raises ValueError for a step that is
    negative; a value that is not a number says that the configuration failed.
    """
    if step is None:
        counter = step_counter.active_counter()
        step = 0 if counter is None else counter.step
    if step < 0:
        raise ValueError(f"step={step} is negative; count from 0")
    if (os.environ.get("RANK") or "0") == "0":
        said = None if math.isnan(value) else float(value)
        sys.stdout.write(f"{MARK}{json.dumps({'step': step, 'value': said})}\n")
        sys.stdout.flush()


def read(line: str) -> tuple[int, float] | None:
    """The step and the value of a line of output; None if it is no report."""
    if not line.startswith(MARK):
        return None
    try:
        found = json.loads(line.removeprefix(MARK))
        value = math.nan if found["value"] is None else float(found["value"])
        return max(int(found["step"]), 0), value
    except (ValueError, KeyError, TypeError):
        return None
