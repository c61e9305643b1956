"""`ebb top`: nodes and running jobs, looked at again and again."""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from time import sleep
from typing import NamedTuple

import click

from client_sdk.cli.output import common as output
from client_sdk.cli.output import nodes as node_output
from client_sdk.cli.session import Number, Session
from client_sdk.client import Client
from client_sdk.models import LIVE, Job, JobState
from client_sdk.units import format_memory

_COLUMNS = ("ID", "NAME", "USER", "CLASS", "STATE", "REASON", "NODE", "CPUS", "MEMORY", "DEV", "PRIORITY", "TIME")
_ASIDE = frozenset({JobState.QUEUED, JobState.SUSPENDED})
"""Live, and holding nothing."""


class _Screen(NamedTuple):
    title: str
    nodes: list[list[str]]
    jobs: list[list[str]]


@click.command(short_help="Watch nodes and running jobs.")
@click.option(
    "-n", "--iterations", type=click.IntRange(min=1), metavar="N", help="Look so often, and leave.  [default: until Ctrl-C]"
)
@click.option("-d", "--delay", type=Number(min=0.1), default=2.0, show_default=True, help="Seconds between two looks.")
@click.pass_obj
def top(session: Session, iterations: int | None, delay: float) -> None:
    """Watch the nodes, and the jobs that hold resources on them.

    Of a node: what is free of what there is. Those jobs come first that hold the most devices. TIME is how long a job's runs
    have executed.

    \b
    Examples:
      ebb top
      ebb top -n 1
      ebb top -d 10
    """
    if sys.stdout.isatty() and iterations != 1:
        _live(session.client, iterations, delay)
        return
    for look in count(1):
        _print(_read_screen(session.client))
        if look == iterations:
            return
        sys.stdout.flush()
        sleep(delay)
        click.echo()


def _read_screen(client: Client) -> _Screen:
    now = datetime.now(UTC)
    machines = client.nodes()
    jobs = list(client.list(states=[state for state in LIVE if state not in _ASIDE]))
    standing = Counter(job.state.name for job in jobs)
    for state in _ASIDE:  # these may be very many, and are only counted
        page = client.list_page(states=[state], page_size=1)
        standing[state.name] = len(page.jobs) + page.more
    title = f"{now.astimezone():%H:%M:%S}  {len(machines)} node{'' if len(machines) == 1 else 's'}"
    title += "".join(f", {standing[state.name]} {state.name}" for state in LIVE if standing[state.name])
    holding = [job for job in jobs if job.array is None]
    holding.sort(key=lambda job: (-job.spec.resources.devices, -job.spec.resources.cpus, job.id))
    return _Screen(title, [node_output.row(machine) for machine in machines], [_row(job, now) for job in holding])


def _row(job: Job, now: datetime) -> list[str]:
    needs = job.spec.resources
    where = ",".join(dict.fromkeys(task.node for task in job.tasks)) or job.node or "-"
    who = [str(job.id), job.spec.name or "-", job.user or "-", output.class_name(job), job.state.name, output.reason(job)]
    holds = [f"{needs.cpus:g}", format_memory(needs.memory_mib), str(needs.devices)]
    return [*who, where, *holds, str(job.priority), output.ran_for(job, now)]


def _tables(screen: _Screen) -> Sequence[tuple[Sequence[str], list[list[str]]]]:
    return (node_output.COLUMNS, screen.nodes), (_COLUMNS, screen.jobs)


def _print(screen: _Screen) -> None:
    click.echo(screen.title)
    for columns, rows in _tables(screen):
        click.echo()
        output.table(columns, rows)


def _live(client: Client, iterations: int | None, delay: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live

    console = Console(highlight=False)
    # What is looked at for so long as somebody looks leaves nothing behind; the last of N looks stays.
    with Live(console=console, screen=iterations is None, auto_refresh=False) as shown:
        for look in count(1):
            screen = _read_screen(client)
            made = [output.rich_table(columns, rows) for columns, rows in _tables(screen)]
            shown.update(Group(screen.title, "", made[0], "", made[1]), refresh=True)
            if look == iterations:
                return
            sleep(delay)
