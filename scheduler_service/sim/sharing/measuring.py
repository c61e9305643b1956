"""The measurements of runs by simulated nodes: the time of the mini-batches since the last measurement."""

from random import Random

from scheduler_service.core.messages import MiniBatchMeasured
from scheduler_service.core.model.values import Micros
from scheduler_service.sim.nodes import Task
from scheduler_service.sim.sharing.kinds import MILLION, UNKNOWN
from scheduler_service.sim.sharing.pace import Pace

MOST = 1000
"""The maximum number of mini-batches behind one time."""
CONFIDENCE = 950_000


def measure_run(task: Task, pace: Pace, mates: int, at: Micros, rng: Random, noise: float) -> MiniBatchMeasured | None:
    """Measure a run; None if its kind is unknown, or no mini-batch was done since. `mates`: the use of its devices by the jobs
    that are packed with it."""
    party, kind = task.party, task.party.kind
    done, executed = pace.done_us(at), pace.executed_us(at)
    before_done, before_executed = party.seen
    if kind is None or done <= before_done or executed <= before_executed:
        return None
    party.seen = (done, executed)
    worked, lasted = done - before_done, executed - before_executed
    count = worked * 4 // 5 // kind.mini_batch_us
    if not count:
        return None
    right = kind.mini_batch_us * lasted / worked
    seen = max(round(right * rng.gauss(1, noise) if noise else right), 1)
    used = UNKNOWN if kind.utilisation == UNKNOWN else min(kind.utilisation * worked // lasted + mates, MILLION)
    return MiniBatchMeasured(task.node.name, task.key, seen, min(count, MOST), CONFIDENCE, kind.peak_mib, used)
