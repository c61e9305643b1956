"""The results of a simulation: a row for each job and each run, kept as columns. Files are written atomically.

Half a million lives as objects would be a gigabyte. Each is packed into a row of bytes as it ends, which numpy and Arrow read.
"""

import contextlib
import errno
import io
import shutil
import struct
import tempfile
from array import array
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from scheduler_service.core.model import JobClass, StopReason
from scheduler_service.core.model.tenants.exchange import Exchange
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim.experiments.history import Span
from scheduler_service.sim.experiments.job_outcomes import Life

NEVER = np.iinfo(np.int64).min
"""A time that has not come; null in the tables."""
NUMBERS_END = int(np.iinfo(np.int64).max)

_NARROW = {
    **dict.fromkeys(("job", "user", "vc", "tasks", "gpus", "preemptions", "run", "nodes", "before", "demand"), "<i4"),
    **dict.fromkeys(("class", "why", "configuration"), "i1"),
}
"""Columns that need less than 64 bits."""


def _record_type(names: str) -> np.dtype[Any]:
    return np.dtype([(name, _NARROW.get(name, "<i8")) for name in names.split()])


_JOB = _record_type(
    "job user vc class tasks cpu_milli memory_mib gpus grace_us work_us submit_us start_us end_us preemptions done_us lost_us"
)
_RUN = _record_type(
    "job run nodes placed_us began_us works_us signalled_us lost_us ended_us guaranteed_us before why configuration demand"
)
_CODES = {"<i8": "q", "<i4": "i", "|i1": "b"}
_pack_job, _pack_run = (
    struct.Struct("<" + "".join(_CODES[rows[name].str] for name in rows.names or ())).pack for rows in (_JOB, _RUN)
)
CLASSES = {JobClass.TRIAL: "trial", JobClass.BEST_EFFORT: "best_effort"}


class OutOfTime(Exception):
    """A simulation has exceeded the range of its numbers."""


class Lives:
    """Collects lives that have ended, and keeps the table rows of each. `tell` is called with the count after each."""

    def __init__(self, tell: Callable[[int], None] = lambda _: None) -> None:
        self.count = 0
        self._tell = tell
        self._jobs, self._runs, self._nodes, self._before = bytearray(), bytearray(), array("i"), array("q")
        self._users: dict[str, int] = {}
        self._vcs: dict[str, int] = {}
        self._demands: dict[Vector, int] = {}
        """Demands of runs, each with a number: few are different."""
        self.released: list[Span] = []
        """Devices of runs that were parked, and when others could have them."""

    def add(self, life: Life) -> None:
        """Add a life that has ended, or that was left when nothing happened any more. Raises OutOfTime."""
        try:
            self._add(life)
        except struct.error:
            raise OutOfTime(
                f"it lasts for more than {NUMBERS_END / SECOND:.3g} s, and times cannot be counted further"
            ) from None

    def _add(self, life: Life) -> None:
        job, spec = life.job, life.job.spec
        start, preemptions = NEVER, 0
        for number, launch in enumerate(life.launches, 1):
            began, why = launch.began_us, launch.why
            times = (began, launch.works_us, launch.signalled_us, launch.lost_us, launch.ended_us, launch.guaranteed_us)
            if began is not None and start == NEVER:
                start = began
            if why is StopReason.PREEMPTED:
                preemptions += 1
            demand = spec.in_configuration(launch.configuration).demand if spec.alternatives else spec.demand
            self._runs += _pack_run(
                life.id,
                number,
                len(launch.nodes),
                launch.placed_us,
                *[NEVER if time is None else time for time in times],
                len(launch.guaranteed_before),
                0 if why is None else why,
                launch.configuration,
                self._demands.setdefault(demand, len(self._demands)),
            )
            self._nodes.extend(launch.nodes)
            if launch.parked:
                devices = Vector(0, 0, demand.devices)
                self.released += (Span(begin, end, devices) for begin, end in launch.released_times())
            self._before.extend(launch.guaranteed_before)
        users, vcs = self._users, self._vcs
        self._jobs += _pack_job(
            life.id,
            users.setdefault(job.user, len(users)),
            vcs.setdefault(job.vc, len(vcs)),
            spec.job_class,
            sum(group.size for group in spec.gang) if spec.gang else 1,
            *spec.demand,
            spec.grace_us,
            job.work_us,
            life.submit_us,
            start,
            NEVER if life.end_us is None else life.end_us,
            preemptions,
            life.done_us,
            life.lost_us,
        )
        self.count += 1
        self._tell(self.count)

    def tables(self) -> tuple[Any, Any]:
        """Return two pyarrow Tables: a row for each job in the order of ids, which is that of submission; and a row for each
        run (of all its tasks) in the order of jobs and runs. The rows that they are made from are dropped."""
        jobs, self._jobs = self._jobs, bytearray()
        runs, self._runs = self._runs, bytearray()
        nodes, self._nodes = self._nodes, array("i")
        before, self._before = self._before, array("q")
        lists = np.frombuffer(nodes, np.int32), np.frombuffer(before, np.int64)
        return self._job_table(np.frombuffer(jobs, _JOB)), _run_table(np.frombuffer(runs, _RUN), *lists, list(self._demands))

    def _job_table(self, rows: NDArray[Any]) -> Any:
        order = np.argsort(rows["job"], kind="stable")
        columns = {name: _column(rows[name][order]) for name in _JOB.names or () if name not in ("user", "vc", "class")}
        columns["user"] = _dictionary_column(rows["user"][order], list(self._users))
        columns["vc"] = _dictionary_column(rows["vc"][order], list(self._vcs))
        columns["class"] = _dictionary_column(rows["class"][order] - 1, [CLASSES[JobClass(number)] for number in (1, 2)])
        over = (rows["end_us"] != NEVER)[order]
        wait = np.where(over, (rows["end_us"] - rows["submit_us"] - rows["done_us"])[order], 0)
        columns["wait_us"] = pa.array(wait, mask=~over)
        ran = np.where(rows["done_us"], rows["done_us"], rows["work_us"])[order]  # see Life.slowdown
        columns["slowdown"] = pa.array(1 + wait / np.maximum(ran, 1), mask=~over)
        return pa.table({name: columns[name] for name in JOB_COLUMNS})


def _run_table(rows: NDArray[Any], nodes: NDArray[Any], before: NDArray[Any], demands: list[Vector]) -> Any:
    """The table of runs. It has configurations and demands if some run was not in its job's first configuration."""
    order = np.lexsort((rows["run"], rows["job"]))
    later = ("before", "demand", "configuration")
    columns = {name: _column(rows[name][order]) for name in _RUN.names or () if name not in later}
    columns["nodes"] = _lists(rows["nodes"], nodes, order)
    if (rows["guaranteed_us"] == NEVER).all() and not len(before):
        del columns["guaranteed_us"]  # without virtual clusters nothing is guaranteed
    if len(before):
        columns["guaranteed_before_us"] = _lists(rows["before"], before, order)
    reasons = sorted(StopReason)  # their numbers have gaps
    codes = np.searchsorted([0, *reasons], rows["why"][order])
    columns["why"] = _dictionary_column(codes, ["", *(reason.name.lower() for reason in reasons)])
    if rows["configuration"].any():
        columns["configuration"] = _column(rows["configuration"][order])
        amounts = np.array(demands, np.int64)[rows["demand"][order]]
        columns.update(zip(("cpu_milli", "memory_mib", "gpus"), map(_column, amounts.T), strict=True))
    return pa.table(columns)


def exchange_table(exchanges: Iterable[Exchange], names: Mapping[int, str]) -> Any:
    """A row for each exchange of cells in the order of agreement. `names` are those of virtual clusters."""
    rows = sorted(exchanges, key=lambda exchange: exchange.id)
    lots = [row.lot for row in rows]
    return pa.table(
        {
            "exchange": pa.array([row.id for row in rows], pa.int64()),
            "giver": pa.array([names[row.giver] for row in rows], pa.string()),
            "taker": pa.array([names[row.taker] for row in rows], pa.string()),
            "pool": pa.array([lot.pool for lot in lots], pa.string()),
            "level": pa.array([lot.level for lot in lots], pa.string()),
            "cells": pa.array([lot.count for lot in lots], pa.int64()),
            "gpus": pa.array([lot.count * lot.devices for lot in lots], pa.int64()),
            "begin_us": pa.array([lot.begin_us for lot in lots], pa.int64()),
            "end_us": pa.array([lot.end_us for lot in lots], pa.int64()),
            "opened_us": pa.array([row.opened_us for row in rows], pa.int64()),
            "returned_us": pa.array([row.returned_us for row in rows], pa.int64()),
        }
    )


def _lists(lengths: NDArray[Any], values: NDArray[Any], order: NDArray[Any]) -> Any:
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values)).take(pa.array(order))


JOB_COLUMNS = (
    *("job", "user", "vc", "class", "tasks", "cpu_milli", "memory_mib", "gpus", "grace_us", "work_us", "submit_us"),
    *("start_us", "end_us", "wait_us", "slowdown", "preemptions", "done_us", "lost_us"),
)


def _column(values: NDArray[Any]) -> Any:
    values = np.ascontiguousarray(values)
    never = values == NEVER if values.dtype == np.int64 else np.zeros(0, bool)
    return pa.array(values, mask=never if never.any() else None)


def _dictionary_column(codes: NDArray[Any], names: list[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names, pa.string()))


def parquet(table: Any) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def csv(table: Any) -> bytes:
    """Format for a spreadsheet: times in seconds, CPUs, GiB, and several values in a row separated by spaces."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name]
        if name == "guaranteed_before_us":
            told = (" ".join(str(at / 1e6) for at in times) for times in column.to_pylist())
            columns["guaranteed_before_s"] = pa.array(told, pa.string())
        elif name.endswith("_us"):
            columns[f"{name.removesuffix('_us')}_s"] = pc.divide(pc.cast(column, pa.float64()), 1e6)
        elif name == "cpu_milli":
            columns["cpus"] = pc.divide(pc.cast(column, pa.float64()), 1000.0)
        elif name == "memory_mib":
            columns["memory_gib"] = pc.divide(pc.cast(column, pa.float64()), 1024.0)
        elif name == "nodes":
            columns[name] = pc.binary_join(pc.cast(column, pa.list_(pa.string())), " ")
        else:
            columns[name] = pc.cast(column, pa.string()) if pa.types.is_dictionary(column.type) else column
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(columns), buffer, pyarrow.csv.WriteOptions(quoting_style="needed"))
    return buffer.getvalue()


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder with these files, or leave everything unchanged: a reader never sees an incomplete result."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    being_made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    old = being_made.with_name(f"{being_made.name}-old")
    try:
        being_made.chmod(0o755)
        for name, content in files.items():
            (being_made / name).write_bytes(content)
        with contextlib.suppress(FileNotFoundError):  # else it lacks something that is requested now
            folder.rename(old)
        try:
            being_made.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise  # else another sweep has just made it for the same case
    finally:
        shutil.rmtree(being_made, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
