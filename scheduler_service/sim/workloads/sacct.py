"""Slurm's accounting, as `sacct` prints it (see `COMMAND`; docs/workloads.md says more).

A job's own line has all of its data, so the lines of its steps are skipped. A job of several nodes is a gang with a task on
each; the components of a heterogeneous job are one gang.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from pydantic import Field

from scheduler_service.core.model import TaskGroup
from scheduler_service.core.model.values import SECOND, Micros, Vector, add
from scheduler_service.sim.csv_rows import Row, Skipped, rows
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import MOST_TASKS
from scheduler_service.sim.workloads.assuming import Trace, spec, spread

COLUMNS = ("JobID", "User", "Submit", "Start", "ElapsedRaw", "State", "ReqTRES", "AllocTRES")
"""Columns that are needed."""
MORE = ("Account", "Partition", "QOS", "ReqCPUS", "ReqMem", "NNodes", "TimelimitRaw")
"""Columns that are used if present."""
COMMAND = (
    "TZ=UTC sacct --allusers --allocations --array --parsable2 --starttime=2025-01-01 --endtime=2025-04-01 "
    f"--format={','.join((*COLUMNS, *MORE))}"
)
OVER = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED"),
    *("LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"),
}
"""The final states in the manual of sacct."""
_RUN_STILL = ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING")
_WAIT_STILL = ("PENDING", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
NOT_OVER = {
    **dict.fromkeys(_RUN_STILL, "runs still"),
    **dict.fromkeys(_WAIT_STILL, "waits still"),
    "REQUEUED": "was put back into the queue: its last run has a line of its own",
    "REVOKED": "ran on another cluster",
}
UNITS = "KMGTP"
MINUTE = 60 * SECOND


class Sacct(Trace):
    """Jobs of a Slurm cluster. Jobs that did not run or have not ended are skipped."""

    kind: Literal["sacct"] = "sacct"
    demand: Literal["allocated", "requested"] = Field(
        default="allocated", description="what counts: what a job was given, or asked for"
    )
    vc: Literal["Account", "Partition", "QOS", "none"] = Field(
        default="Account", description="the column that names virtual clusters"
    )


class Part(NamedTuple):
    """A job, or a component of a heterogeneous one."""

    row: Row
    submit_us: Micros
    work_us: Micros
    demand: Vector
    tasks: tuple[TaskGroup, ...]


def read(model: Sacct, file: Path, seed: int, skipped: Skipped) -> Iterator[SimJob]:
    """Yield jobs with times since 1970; heterogeneous ones, whose lines may be apart, come last. Raises BadTrace."""
    rng = Random(f"{seed}:assumed")
    job_class = model.trials.rule(rng)
    vc = () if model.vc == "none" else (model.vc,)
    heterogeneous: dict[str, list[Part]] = {}
    read: set[tuple[str, Micros]] = set()

    def whole_job(parts: list[Part]) -> SimJob:
        row, submit_us, work_us = parts[0].row, parts[0].submit_us, max(part.work_us for part in parts)
        demand, tasks = Vector(), tuple(group for part in parts for group in part.tasks)
        for part in parts:
            demand = add(demand, part.demand)
        gang = tasks if sum(group.size for group in tasks) > 1 else ()
        grace_us = round(model.grace_s.draw(rng) * SECOND)
        estimate_us = work_us if model.estimates == "right" else _time_limit(row)
        asked = spec(demand, job_class(row, work_us), grace_us, gang, estimate_us, row.text("Account"))
        return SimJob(asked, work_us, submit_us, row.text("User") or "unknown", row.text(model.vc))

    for row in rows(file, (*COLUMNS, *vc), delimiter="|"):
        if (part := _part(model, row, skipped)) is None:
            continue
        if (known := (row.text("JobID"), part.submit_us)) in read:
            skipped["is there twice, with the same Submit"] += 1
            continue
        read.add(known)
        job_id, plus, _ = row.text("JobID").partition("+")
        if plus:
            heterogeneous.setdefault(job_id, []).append(part)
        else:
            yield whole_job([part])
    for parts in heterogeneous.values():
        yield whole_job(parts)


def _part(model: Sacct, row: Row, skipped: Skipped) -> Part | None:
    """Parse a line; None if it belongs to a step, or the job is skipped."""
    if "." in row.text("JobID"):
        return None
    state = row.text("State").split()[0].removesuffix("+") if row.text("State") else ""
    elapsed_us = row.micros("ElapsedRaw", default=0)
    if state in NOT_OVER:
        skipped[NOT_OVER[state]] += 1
    elif state not in OVER:
        skipped[f"is in a state that is not known: {state or 'none'}"] += 1
    elif not row.text("AllocTRES") or _time(row, "Start") is None or (state == "CANCELLED" and not elapsed_us):
        skipped["never ran"] += 1
    else:
        submit_us = _time(row, "Submit")
        if submit_us is None:
            raise row.bad("Submit", f"must be a time, and is {row.text('Submit')!r}")
        demand, nodes = _allocated_demand(row) if model.demand == "allocated" else _requested_demand(row)
        if nodes > MOST_TASKS:
            raise row.bad("AllocTRES" if model.demand == "allocated" else "ReqTRES", f"is on more than {MOST_TASKS} nodes")
        return Part(row, submit_us, row.lasts("ElapsedRaw", max(elapsed_us, SECOND)), demand, spread(demand, nodes))
    return None


def _allocated_demand(row: Row) -> tuple[Vector, int]:
    """The total demand, and the number of nodes."""
    tres = _tres(row, "AllocTRES")
    mem = _mib(row, "AllocTRES", tres.get("mem", "0"))
    return Vector(_count(row, "AllocTRES", tres.get("cpu", "0")) * 1000, mem, _gpus(row, "AllocTRES", tres)), _nodes(row, tres)


def _requested_demand(row: Row) -> tuple[Vector, int]:
    """The same as requested; amounts that ReqTRES lacks may be in columns of their own."""
    tres = _tres(row, "ReqTRES")
    nodes = _nodes(row, tres)
    cpus = _count(row, "ReqTRES", tres["cpu"]) if "cpu" in tres else _count(row, "ReqCPUS", row.text("ReqCPUS") or "0")
    mem = _mib(row, "ReqTRES", tres["mem"]) if "mem" in tres else _req_mem(row, cpus, nodes)
    return Vector(cpus * 1000, mem, _gpus(row, "ReqTRES", tres)), nodes


def _tres(row: Row, column: str) -> dict[str, str]:
    """Parse a TRES list such as `billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G,node=1`."""
    pairs = [part.partition("=") for part in row.text(column).split(",") if part]
    if any(not equals for _, equals, _ in pairs):
        raise row.bad(column, f"must be name=amount,..., and is {row.text(column)!r}")
    return {name: amount for name, _, amount in pairs}


def _gpus(row: Row, column: str, tres: dict[str, str]) -> int:
    """The total of GPUs, or, if a cluster counts them only by type, the sum over all types."""
    if "gres/gpu" in tres:
        return _count(row, column, tres["gres/gpu"])
    return sum(_count(row, column, amount) for name, amount in tres.items() if name.startswith("gres/gpu:"))


def _nodes(row: Row, tres: dict[str, str]) -> int:
    return max(_count(row, "NNodes", tres.get("node") or row.text("NNodes") or "1"), 1)


def _count(row: Row, column: str, text: str) -> int:
    """Parse a number, in which sacct writes 2K for 2048."""
    number, power = (text[:-1], UNITS.find(text[-1]) + 1) if text[-1:].isalpha() else (text, 0)
    if text[-1:].isalpha() and not power:
        raise row.bad(column, f"must be a number, and is {text!r}")
    return row.parse_amount(column, number, 1024**power)


def _mib(row: Row, column: str, text: str) -> int:
    """Parse an amount of memory; without a unit it is in MiB."""
    if text.endswith("K"):
        return -(-row.parse_amount(column, text[:-1]) // 1024)
    power = UNITS.find(text[-1:]) if text[-1:].isalpha() else 1
    if power < 1:
        raise row.bad(column, f"must be an amount of memory, such as 64G, and is {text!r}")
    return row.parse_amount(column, text[:-1] if text[-1:].isalpha() else text, 1024 ** (power - 1))


def _req_mem(row: Row, cpus: int, nodes: int) -> int:
    """The memory of the whole job. Before Slurm 21.08 a letter gives the unit: 4000Mc for each CPU, 16Gn for each node."""
    text = row.text("ReqMem") or "0"
    each = {"c": cpus, "n": nodes}.get(text[-1], 1)
    return _mib(row, "ReqMem", text.rstrip("cn") or "0") * each


def _time(row: Row, column: str) -> Micros | None:
    """Parse a time in UTC, as the command prints it, or in seconds since 1970 (SLURM_TIME_FORMAT=%s). None if it is missing."""
    text = row.text(column)
    if text in ("", "Unknown", "None"):
        return None
    if text.isdigit():
        return int(text) * SECOND
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text):
        raise row.bad(column, f"must be a time such as 2025-01-31T08:00:00, and is {text!r}")
    try:
        return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND
    except ValueError:
        raise row.bad(column, f"is no time: {text!r}") from None


def _time_limit(row: Row) -> Micros:
    """The user's upper limit of the run time; 0: unknown."""
    text = row.text("TimelimitRaw")
    return row.amount("TimelimitRaw", MINUTE) if text.isdigit() else 0
