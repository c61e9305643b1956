"""How values look: tables on a terminal, plain aligned text in a pipe, JSON and YAML for programs."""

import json
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from client_sdk.models import Closeness, Job, JobReason, JobSpec, Resources, ShareMode, Task, TurnState
from client_sdk.units import format_duration, format_memory

if TYPE_CHECKING:
    from rich.table import Table


def plain(value: Any) -> Any:
    """A value of the SDK in JSON's own types: enums by name, times in ISO 8601 (UTC), durations in seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def emit(value: Any, fmt: str) -> None:
    """Writes one value as JSON or YAML."""
    if fmt == "yaml":
        import yaml

        click.echo(yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def say(text: str, *, err: bool = False) -> None:
    """Writes a line that may have in it what others wrote."""
    click.echo(_one_line(text), err=err)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, header: bool = True, indent: str = "") -> None:
    """Writes a table. In a pipe: columns two spaces apart, nothing cut off, so that awk and grep get all of it."""
    cells = [[_one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.padding import Padding

        console = Console(highlight=False)
        # Where the terminal is too narrow it breaks the lines: what is cut off a number makes another number of it.
        console.width = max(console.width, len(indent) + _narrowest(columns, cells, header))
        console.print(Padding(rich_table(columns, cells, header), (0, 0, 0, len(indent))))
        return
    lines = [list(columns), *cells] if header else cells
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(columns))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(f"{indent}{'  '.join(padded).rstrip()}")


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]], header: bool = True) -> "Table":
    """A table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, show_header=header, header_style="bold")
    for column in columns:
        made.add_column(column, no_wrap=column not in _PROSE, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in map(_one_line, row)))
    return made


_PROSE = ("REASON", "COMMAND", "WHAT", "FAULT")
"""Columns that may take several lines."""
_PROSE_WIDTH = 20
"""Which are at least so wide."""
_GAP = 2


def _narrowest(columns: Sequence[str], rows: Sequence[Sequence[str]], header: bool) -> int:
    """How wide a terminal has to be for a table that keeps every number and name whole."""
    from rich.cells import cell_len

    def width(i: int, column: str) -> int:
        shown = max(map(cell_len, (*([column] if header else ()), *(row[i] for row in rows))), default=0)
        return min(shown, _PROSE_WIDTH) if column in _PROSE else shown

    return sum(width(i, column) + _GAP for i, column in enumerate(columns)) - _GAP


_STYLES = {
    "RUNNING": "green",
    "STARTING": "green",
    "STOPPING": "yellow",
    "UNREACHABLE": "red",
    "FAILED": "red",
    "SUSPENDED": "yellow",
    "TIMED_OUT": "red",
    "UP": "green",
    "DRAINING": "yellow",
    "DRAINED": "yellow",
    "SILENT": "red",
}


def _one_line(text: str) -> str:
    """Replace unprintable characters, so that another user's text cannot move the cursor or break the line."""
    return "".join(char if char.isprintable() else " " for char in text)


def class_name(job: Job) -> str:
    return job.spec.job_class.name.lower().replace("_", "-")


_TURNS = {TurnState.EXECUTES: "its turn", TurnState.WAITS: "waits for its turn"}
"""Texts for a running job, in place of a reason."""


def reason(job: Job) -> str:
    """The reason of a job's state in a few words."""
    match job.reason:
        case JobReason.UNSPECIFIED:
            return _TURNS.get(job.turn, "-")
        case JobReason.EXITED:
            return "-" if job.array is not None else f"exit {job.exit_code}"
        case JobReason.SIGNALLED:
            return signal_text(job.exit_signal)
        case known:
            return reason_words(known, job.cause_job_id)


def reason_words(known: JobReason, cause_job_id: int | None) -> str:
    """ "behind 5", "preempted for 8" """
    other = f" {cause_job_id}" if cause_job_id else ""
    if known is JobReason.PREEMPTED:
        return f"preempted for{other}" if other else "preempted"
    if known is JobReason.RECLAIMED:
        return f"reclaimed for{other}" if other else "reclaimed"
    return known.name.lower().replace("_", " ") + other


def signal_text(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def ran_for(job: Job, now: datetime) -> str:
    """How long its runs have executed; of an array, from its first start to its end, or to now."""
    if job.start_time is None:
        return "-"
    if job.array is not None:
        return format_duration((job.end_time or now) - job.start_time)
    return format_duration(job.executed(now))


def duration(value: timedelta) -> str:
    """As people read it: "0:07", "1:02:03", and in full below a second."""
    return f"{value.total_seconds():.2f} s" if timedelta(0) < value < timedelta(seconds=1) else format_duration(value)


def local_time(time: datetime | None) -> str:
    """A time of the day where the user is."""
    return "-" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def utc(time: datetime | None) -> str:
    """A time as `ebb exchange` takes it."""
    return "-" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def amount(value: Resources) -> str:
    """ "2 cpus, 4GiB, 1 device"."""
    words = [f"{value.cpus:g} cpu{'' if value.cpus == 1 else 's'}", format_memory(value.memory_mib)]
    if value.devices:
        words.append(f"{value.devices} device{'' if value.devices == 1 else 's'}")
    return ", ".join(words)


def needs(spec: JobSpec) -> str:
    """ "2 cpus, 4GiB, 0.5 of a device (sliced)"."""
    if spec.share is ShareMode.EXCLUSIVE:
        return amount(spec.resources)
    host = amount(replace(spec.resources, devices=0))
    memory = f"{format_memory(spec.gpu_memory_mib)} of its memory" if spec.gpu_memory_mib else ""
    part = f"{spec.gpu_fraction_ppm / 1e6:g} of a device" if spec.gpu_fraction_ppm else "a part of a device"
    return f"{host}, {', '.join(filter(None, (part, memory)))} ({spec.share.name.lower()})"


def tasks(found: Iterable[Task]) -> list[list[str]]:
    """The rows of a table of tasks."""
    return [[str(task.rank), task.node, numbers(task.devices), amount(task.resources)] for task in found]


TASK_COLUMNS = ("TASK", "NODE", "DEVICES", "HOLDS")


def closeness(found: Closeness) -> str:
    """
    >>> closeness(Closeness(devices=2, nodes=1, within="switch")), closeness(Closeness(devices=8, nodes=2, within="socket"))
    ('2 GPUs: same switch', '8 GPUs on 2 nodes: same socket on each')
    >>> closeness(Closeness(devices=2, nodes=1, within="node", nvlink=True))
    '2 GPUs: same node, connected by NVLink'
    >>> closeness(Closeness(devices=16, nodes=2, within="node")), closeness(Closeness(devices=2, nodes=2, within="switch"))
    ('16 GPUs on 2 nodes', '2 GPUs on 2 nodes')
    """
    on, each = (f" on {found.nodes} nodes", " on each") if found.nodes > 1 else ("", "")
    words = [] if found.nodes > 1 and found.within == "node" else [f"same {found.within}{each}"]
    words += [f"connected by NVLink{each}"] if found.nvlink else []
    return f"{found.devices} GPUs{on}" + (f": {', '.join(words)}" if words and found.devices > found.nodes else "")


def numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "-"
