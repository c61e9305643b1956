"""`ebb-scheduler record`: what is in a recording, and whether it still comes out the same."""

import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

T = TypeVar("T")
_FILE = click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
SHOWN = 2000
"""Characters of a step's whole result that are shown."""


@click.group()
def record() -> None:
    """Recordings that `serve --record FILE` made."""


@record.command()
@_FILE
def show(file: Path) -> None:
    """Say what is in a recording: steps, events by kind, the time that it spans."""
    from scheduler_service.run.recording.replay import Summary, read_lines

    summary = Summary()
    _or_exit(lambda: sum(1 for _ in read_lines(file, summary)))
    policies = ", ".join(sorted(set(summary.policies)))
    click.echo(f"leaderships: {summary.sections} (policy {policies}), up to commit {summary.commit_no}")
    click.echo(f"rows at their beginnings: {summary.rows}")
    click.echo(f"steps: {summary.steps} ({_counts(summary.outcomes.items())})")
    click.echo(f"events: {summary.events.total()} ({_counts(summary.events.items())})")
    if summary.first_us is not None and summary.last_us is not None:
        seconds = (summary.last_us - summary.first_us) / 1e6
        click.echo(f"time: {_moment(summary.first_us)} to {_moment(summary.last_us)}, {seconds:.1f} s")
    if summary.unended:
        click.echo(f"{summary.unended} of the leaderships have no end here: they run still, or were killed")
    if summary.torn:
        click.echo("the file ends within a line")


@record.command()
@_FILE
def replay(file: Path) -> None:
    """Take every step of a recording again, and compare what comes out, byte for byte.

    Ends with status 1 at the first step that differs, and shows what it did then and what it does now; with 2 if the
    file cannot be read.
    """
    from scheduler_service.engine_settings import stages_of
    from scheduler_service.recording import stages_from
    from scheduler_service.run.recording.replay import Summary, replay

    summary = Summary()
    difference = _or_exit(lambda: replay(file, partial(stages_from, stages_of), summary))
    if difference is None:
        click.echo(f"the same: {summary.steps} steps of {summary.sections} leaderships ({_counts(summary.outcomes.items())})")
        return
    step = difference.recorded
    click.echo(f"line {difference.line}: another outcome, after {summary.steps} steps that were the same")
    click.echo(f"leadership {difference.section}, commit {step.commit}, {_moment(step.now)}, {step.outcome}")
    _list("events", map(str, step.events))
    _list("recorded", step.did)
    _list("replayed", difference.did)
    if step.did == difference.did:
        click.echo("These words are the same, the whole is not. Replayed, it is:")
        click.echo(difference.came_out[:SHOWN])
    sys.exit(1)


def _or_exit(work: Callable[[], T]) -> T:
    from scheduler_service.run.recording.replay import Unreadable

    try:
        return work()
    except (Unreadable, OSError) as error:
        click.echo(f"ebb-scheduler: {error}", err=True)
        sys.exit(2)


def _counts(items: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(items)) or "none"


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")


def _list(title: str, lines: Iterable[str]) -> None:
    click.echo(f"{title}:")
    for line in list(lines) or ["nothing"]:
        click.echo(f"  {line}")
