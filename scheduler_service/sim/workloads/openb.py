"""Alibaba's openb trace (Weng et al., USENIX ATC 2023), as a CSV file with a line for each pod.

Columns: `qos`, `submit_s`, `sched_s` (empty if it was never placed), `end_s`, `cpu_milli`, `mem_mib`, `num_gpus` and
`gpu_milli`; others may be there. It is a good source of demands over several resources, and a bad one of load: 8,000 pods in
five months. It names no users.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

from pydantic import Field

from scheduler_service.core.model import JobClass, ShareMode
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, WHOLE, Micros, Vector
from scheduler_service.sim.csv_rows import Row, Skipped, rows
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads.assuming import Trace, Trials, spec
from scheduler_service.sim.workloads.distributions import Amount

COLUMNS = ("qos", "submit_s", "sched_s", "end_s", "cpu_milli", "mem_mib", "num_gpus", "gpu_milli")
_SHARES = {"sliced": ShareMode.SLICED, "packed": ShareMode.PACKED}


class Openb(Trace):
    """Pods of the openb trace. Those that were never placed are skipped."""

    kind: Literal["openb"] = "openb"
    from_s: float = Field(default=0, ge=0, description="only pods that were submitted at this time of the trace, or later")
    trials: Trials = Trials(column="qos", values=("LS",))
    """The rule for trials, an assumption: latency-sensitive pods must start now."""
    work_s: Amount | None = Field(default=None, description="how long best-effort jobs run; none: as their pods did")
    trial_work_s: Amount | None = Field(default=None, description="how long trials run; none: as their pods did")
    parts_of_gpus: Literal["whole", "skip", "sliced", "packed"] = Field(
        default="whole",
        description="a pod that shares a GPU: gets a whole one, is skipped, or gets its part of one in this mode",
    )


def read(model: Openb, file: Path, seed: int, skipped: Skipped) -> Iterator[SimJob]:
    """Yield the file's jobs with its times. Raises BadTrace."""
    rng = Random(f"{seed}:assumed")
    job_class = model.trials.rule(rng)
    for row in rows(file, COLUMNS):
        submit_us, gpus = row.micros("submit_s"), row.amount("num_gpus")
        shares = gpus > 0 and row.amount("gpu_milli") < 1000
        if not row.text("sched_s"):
            skipped["was never placed"] += 1
        elif submit_us < model.from_s * SECOND:
            skipped[f"submitted before second {model.from_s:.0f}"] += 1
        elif shares and model.parts_of_gpus == "skip":
            skipped["asks for a part of a GPU"] += 1
        else:
            ran_us = _time_ran(row)
            its_class = job_class(row, ran_us)
            drawn = model.trial_work_s if its_class is JobClass.TRIAL else model.work_s
            work_us = ran_us if drawn is None else max(round(drawn.draw(rng) * SECOND), 1)
            demand = Vector(row.amount("cpu_milli"), row.amount("mem_mib"), gpus)
            grace_us, estimate_us = round(model.grace_s.draw(rng) * SECOND), work_us if model.estimates == "right" else 0
            like = spec(demand, its_class, grace_us, estimate_us=estimate_us)
            if shares and gpus == 1 and model.parts_of_gpus in _SHARES:
                part = max(row.amount("gpu_milli") * WHOLE // 1000, 1)
                like = with_changes(like, gpu_fraction_ppm=part, share=_SHARES[model.parts_of_gpus])
            yield SimJob(like, work_us, submit_us)


def _time_ran(row: Row) -> Micros:
    placed_us, end_us = row.micros("sched_s"), row.micros("end_s")
    if end_us < placed_us:
        raise row.bad("end_s", f"must not be before sched_s, and is {row.text('end_s')}")
    return row.lasts("end_s", max(end_us - placed_us, SECOND))
