"""Ebb's own CSV of jobs: a line for each, written and read back without loss. docs/workloads.md has every column.

For a gang, `cpus`, `memory_gib` and `gpus` are per task; if its tasks differ, these and `tasks` have a value for each group of
equal tasks, joined by +: 2 tasks of 8 GPUs and one of 4 are `2+1` and `8+4`.
"""

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, TextIO, TypedDict

from pydantic import Field

from scheduler_service.core.model import JobClass, JobSpec, ShareMode, TaskGroup
from scheduler_service.core.model.values import SECOND, WHOLE, Micros, Vector
from scheduler_service.sim.csv_rows import Row, Skipped, rows
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import LARGEST, MOST_TASKS
from scheduler_service.sim.workloads.assuming import COMMAND, SITE_GRACE_S, File

NEEDED = ("submit_s", "work_s")
OPTIONAL = (
    "user",
    "vc",
    "name",
    "class",
    "tasks",
    "cpus",
    "memory_gib",
    "gpus",
    "grace_s",
    "priority",
    "time_limit_s",
    "estimate_s",
    "project",
    "gpu_memory_gib",
    "share",
    "kind",
)
COLUMNS = (*NEEDED, *OPTIONAL)
CLASSES = {"trial": JobClass.TRIAL, "best-effort": JobClass.BEST_EFFORT}
SHARES = {"exclusive": ShareMode.EXCLUSIVE, "packed": ShareMode.PACKED, "sliced": ShareMode.SLICED}
NAMES = {job_class: name for name, job_class in CLASSES.items()}


class Csv(File):
    """Jobs from Ebb's own CSV; `history` is the output of `ebb-scheduler history`."""

    kind: Literal["csv", "history"] = "csv"
    from_s: float = Field(default=0, ge=0, description="only jobs whose submit_s is this or more")


class Unwritable(Exception):
    """A job has something that the CSV has no column for; the message names it."""


def read(model: Csv, file: Path, _seed: int, skipped: Skipped) -> Iterator[SimJob]:
    """Yield the file's jobs with its times. Raises BadTrace."""
    for row in rows(file, NEEDED, OPTIONAL):
        job = _job(row)
        if not job.work_us:
            skipped["never ran (work_s is 0)"] += 1
        elif job.submit_us < model.from_s * SECOND:
            skipped[f"submitted before second {model.from_s:g}"] += 1
        else:
            yield job


def _job(row: Row) -> SimJob:
    demand, gang, part = _demand_of(row)
    name = row.text("class").strip() or "best-effort"
    if name not in CLASSES:
        raise row.bad("class", f"must be trial or best-effort, and is {name!r}")
    spec = JobSpec(
        COMMAND,
        demand,
        CLASSES[name],
        row.micros("grace_s", default=SITE_GRACE_S * SECOND),
        row.text("name"),
        priority=_whole_number(row, "priority"),
        time_limit_us=row.micros("time_limit_s", default=0),
        estimate_us=row.micros("estimate_s", default=0),
        gang=gang,
        project=row.text("project"),
        **part,
    )
    work_us, submit_us = row.lasts("work_s", row.micros("work_s")), row.micros("submit_s")
    return SimJob(spec, work_us, submit_us, row.text("user") or "user", row.text("vc"), kind=row.text("kind").strip())


class _Part(TypedDict, total=False):
    """Fields of a spec."""

    gpu_fraction_ppm: int
    gpu_memory_mib: int
    share: ShareMode


def _demand_of(row: Row) -> tuple[Vector, tuple[TaskGroup, ...], _Part]:
    """The total demand of the job, the groups of a gang, and the part of a device that it asks for instead of whole ones."""
    memory = row.amount("gpu_memory_gib", 1024, 0)
    mode = row.text("share").strip()
    text = row.text("gpus").strip()
    fraction = row.parse_amount("gpus", text, WHOLE) if "." in text and "+" not in text else 0
    fraction = fraction if fraction % WHOLE else 0
    if not (memory or fraction):
        if mode not in ("", "exclusive"):
            raise row.bad("share", f"is {mode!r}, and the job asks for whole devices")
        return *_demand(row), _Part()
    mode = mode or ("sliced" if fraction else "packed")
    if mode not in ("packed", "sliced") or (mode == "sliced" and not fraction):
        modes = "packed or sliced" if fraction else "packed"
        raise row.bad("share", f"must be {modes} for this part of a device, and is {mode!r}")
    if fraction > WHOLE or (memory and not fraction and row.amount("gpus", 1, 1) != 1):
        raise row.bad("gpus", f"must be 1 or less than that for a job that shares a device, and is {text!r}")
    demand, gang = _demand(replace(row, values={**row.values, "gpus": "1"}))
    if gang:
        raise row.bad("tasks", "must be 1 for a job that asks for a part of a device")
    return demand, gang, _Part(gpu_fraction_ppm=fraction, gpu_memory_mib=memory, share=SHARES[mode])


def _demand(row: Row) -> tuple[Vector, tuple[TaskGroup, ...]]:
    """The total demand, and the groups of a gang."""
    sizes = _parts(row, "tasks", 1, "1")
    columns = [_parts(row, *column) for column in (("cpus", 1000, "0"), ("memory_gib", 1024, "0"), ("gpus", 1, "0"))]
    for name, amounts in zip(("cpus", "memory_gib", "gpus"), columns, strict=True):
        if len(amounts) not in (1, len(sizes)):
            raise row.bad(name, f"has {len(amounts)} values joined by +, and tasks has {len(sizes)}")
    if not all(sizes) or sum(sizes) > MOST_TASKS:
        raise row.bad("tasks", f"must be from 1 to {MOST_TASKS} in all, and is {row.text('tasks')!r}")
    each = [Vector(*(a[i] if len(a) > 1 else a[0] for a in columns)) for i in range(len(sizes))]
    total = Vector(*(sum(size * demand[i] for size, demand in zip(sizes, each, strict=True)) for i in range(3)))
    if max(total) > LARGEST:
        raise row.bad("tasks", "asks for more in all than a 64-bit number holds")
    alone = sizes == [1]
    return total, () if alone else tuple(map(TaskGroup, sizes, each))


def _parts(row: Row, column: str, scale: int, default: str) -> list[int]:
    return [row.parse_amount(column, part.strip(), scale) for part in (row.text(column).strip() or default).split("+")]


def _whole_number(row: Row, column: str) -> int:
    text = row.text(column).strip() or "0"
    try:
        return int(text)
    except ValueError:
        raise row.bad(column, f"must be a whole number, and is {text!r}") from None


# -- writing -------------------------------------------------------------------------------------------------------------


def write(jobs: Iterable[SimJob], file: Path) -> int:
    """Write the jobs, gzipped if the name ends with .gz, and return their number. The file appears when it is complete. The
    same jobs give the same bytes. Raises Unwritable."""
    part = file.with_name(f".{file.name}.part")
    try:
        with _create_file(part, packed=file.suffix == ".gz") as lines:
            count = write_to(lines, jobs)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return count


def write_to(lines: TextIO, jobs: Iterable[SimJob]) -> int:
    """Write the jobs to an open file, as `write` does."""
    plain = csv.writer(lines, lineterminator="\n")
    quoting = csv.writer(lines, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(COLUMNS)
    count = 0
    for job in jobs:
        values = _csv_row(job)
        # A carriage return ends a line for readers, and the other writer would not quote it.
        (quoting if any("\r" in value for value in values) else plain).writerow(values)
        count += 1
    return count


def _csv_row(job: SimJob) -> list[str]:
    spec = job.spec
    unknown = [name for name, there in (("dependencies", spec.dependencies), ("an array", spec.array)) if there]
    if unknown:
        raise Unwritable(f"a job of {job.user} has {' and '.join(unknown)}, for which the CSV has no column")
    groups = spec.gang or (TaskGroup(1, spec.demand),)

    def join_amounts(amount: Callable[[TaskGroup], str]) -> str:
        return "+".join(map(amount, groups))

    return [
        seconds(job.submit_us),
        seconds(job.work_us),
        job.user,
        job.vc,
        spec.name,
        NAMES[spec.job_class],
        join_amounts(lambda group: str(group.size)),
        join_amounts(lambda group: _decimal(group.demand.cpu_milli, 1000)),
        join_amounts(lambda group: _decimal(group.demand.memory_mib, 1024)),
        _decimal(spec.gpu_fraction_ppm, WHOLE)
        if spec.gpu_fraction_ppm
        else join_amounts(lambda group: str(group.demand.devices)),
        seconds(spec.grace_us),
        str(spec.priority),
        seconds(spec.time_limit_us),
        seconds(spec.estimate_us),
        spec.project,
        _decimal(spec.gpu_memory_mib, 1024) if spec.gpu_memory_mib else "",
        spec.share.name.lower() if spec.shares else "",
        job.kind,
    ]


def seconds(micros: Micros) -> str:
    return _decimal(micros, SECOND)


def _decimal(amount: int, scale: int) -> str:
    """Exactly amount / scale. The prime factors of the scale are 2 and 5, so the decimal is finite."""
    whole, rest = divmod(amount, scale)
    digits = ""
    while rest:
        digit, rest = divmod(rest * 10, scale)
        digits += str(digit)
    return f"{whole}.{digits}" if digits else str(whole)


@contextmanager
def _create_file(file: Path, packed: bool) -> Iterator[TextIO]:
    if not packed:
        with file.open("w", encoding="utf-8", newline="") as lines:
            yield lines
        return
    # Neither name nor time in the packed file, so that the same jobs give the same bytes.
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as zipped,
        io.TextIOWrapper(zipped, encoding="utf-8", newline="") as lines,
    ):
        yield lines
