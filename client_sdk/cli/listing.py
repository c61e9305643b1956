"""`ebb list` and `ebb show`."""

import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from client_sdk.cli import output, steps_output
from client_sdk.cli.session import SHORT, Session, States, an_id, no_header_option, output_option, parse_states, quiet_option
from client_sdk.client import Client
from client_sdk.models import LIVE, Exit0AfterStop, Job, JobReason, JobSpec, JobState, Retry
from client_sdk.units import format_memory

_LARGEST_PAGE, _MOST_COUNTED = 1000, 1_000_000
"""Of a scheduler."""
_A_PAGE = 100
"""Jobs that a table has if nobody says how many."""
_HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING, JobState.UNREACHABLE)


@click.command("list", short_help="List jobs.")
@click.option("-a", "--all", "all_", is_flag=True, help="Ended jobs too.")
@click.option(
    "-s", "--state", "states", multiple=True, metavar="STATE", help=f"Only these; Slurm's {' '.join(SHORT)} work too."
)
@click.option("--vc", metavar="NAME", default="", help="Only jobs of this virtual cluster, also of one that was deleted.")
@click.option("-u", "--user", metavar="NAME", default="", help="Only jobs of this user.")
@click.option("--mine", is_flag=True, help="Only your own.")
@click.option("--name", metavar="NAME", default="", help="Only jobs of exactly this name.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The newest N.  [default: 100 in a table]")
@click.option("--all-pages", is_flag=True, help="All of them, however many there are.")
@output_option("json", "yaml", "wide")
@no_header_option
@quiet_option
@click.pass_obj
def list_(
    session: Session,
    all_: bool,
    states: tuple[str, ...],
    vc: str,
    user: str,
    mine: bool,
    name: str,
    limit: int | None,
    all_pages: bool,
    fmt: str | None,
    no_header: bool,
    quiet: bool,
) -> None:
    """List jobs, newest first: those that have not ended, unless told otherwise.

    TIME counts from a job's first start. DEV is the number of devices. An array is one job until its elements start; each of
    them is then a job of its own. The state PR is that of queued jobs that were preempted. With -o wide, VC is the virtual
    cluster, and HOLDS says G where a job has cells of that (guaranteed), and O where it has what it gives back (opportunistic).
    HOLDS is - for a job that holds nothing now, and for one without a virtual cluster, for which there is no such difference.

    A table has the newest 100 jobs, and below it stands how many more there are. With -q, -o json and -o yaml, which are for
    programs, all of them are printed. --limit and --all-pages hold for each.

    \b
    Examples:
      ebb list
      ebb list --all --limit 20
      ebb list --all-pages | less
      ebb list --state PD,R -o wide
      ebb list --vc vision
      ebb list --mine --name resnet
      ebb list -o json | jq '.[].id'
    """
    wanted = parse_states(",".join(states)) if states else None
    if limit is not None and all_pages:
        raise click.UsageError("--limit and --all-pages say different things; leave one out")
    of = tuple(wanted.states) if wanted else (() if all_ else LIVE)
    chosen = Chosen(session.client, {"states": of, "vc": vc, "user": user, "mine": mine, "name": name}, wanted)
    if limit is None and not (all_pages or quiet or fmt in ("json", "yaml")):
        limit = _A_PAGE
    found = chosen.each() if limit is None else chosen.newest(limit)
    if quiet:
        for job in found:
            click.echo(job.id)
        return
    if fmt in ("json", "yaml"):
        output.emit(list(found), fmt)
        return
    now = datetime.now(UTC)
    columns = ["ID", "NAME", "USER", "CLASS", "STATE", "REASON", "RUN", "NODE", "DEV", "TIME"]
    if fmt == "wide":
        columns += ["VC", "HOLDS", "PRIORITY", "LIMIT", "ARRAY", "CPUS", "MEMORY", "INDICES", "SUBMITTED", "COMMAND"]
    output.table(columns, [_row(job, now, fmt == "wide") for job in found], header=not no_header)
    if chosen.more:
        output.say(f"ebb: {chosen.more} more; --limit N or --all-pages shows them", err=True)


class Chosen:
    """The jobs that a user wants to see; `more`, once some of them were seen, says of how many others there are."""

    def __init__(self, client: Client, only: dict[str, Any], wanted: States | None) -> None:
        self._client = client
        self._only = only
        # What a state's name says, the scheduler looks for; a reason is looked for here.
        self._wanted = wanted if wanted is not None and wanted.has_reasons else None
        self.more = ""

    def each(self) -> Iterator[Job]:
        return (job for job in self._client.list(**self._only) if self._wanted is None or self._wanted.match(job))

    def newest(self, most: int) -> list[Job]:
        if self._wanted is not None:
            found = list(islice(self.each(), most + 1))
            self.more = "some" if len(found) > most else ""
            return found[:most]
        found, token = [], ""
        while True:
            size = min(most - len(found), _LARGEST_PAGE)
            page = self._client.list_page(page_size=size, page_token=token, **self._only)
            found += page.jobs
            token = page.next_page_token
            if not token or len(found) >= most:
                self.more = _counted(page.more) if token else ""
                return found


def _counted(number: int) -> str:
    return f"{number:,}" if number < _MOST_COUNTED else f"at least {number:,}"


def _row(job: Job, now: datetime, wide: bool) -> list[str]:
    needs = job.spec.resources
    short = [str(job.id), job.spec.name or "-", job.user or "-", output.class_name(job), job.state.name, output.reason(job)]
    nodes = _nodes(job) if _has_place(job) else []
    node = nodes[0] + (f"+{len(nodes) - 1}" if nodes[1:] else "") if nodes else "-"
    short += [str(job.run), node, str(needs.devices), output.ran_for(job, now)]
    if not wide:
        return short
    return [
        *short,
        job.spec.virtual_cluster or "-",
        _holds(job),
        str(job.priority),
        "-" if job.time_limit is None else output.duration(job.time_limit),
        _array(job),
        f"{needs.cpus:g}",
        format_memory(needs.memory_mib),
        output.numbers(job.devices if _has_place(job) else ()),
        output.when(job.submit_time),
        shlex.join(job.spec.command),
    ]


@click.command(short_help="Show everything about a job.")
@output_option("json", "yaml")
@click.argument("job_id", metavar="ID", type=an_id)
@click.pass_obj
def show(session: Session, job_id: int, fmt: str | None) -> None:
    """Show everything about a job.

    \b
    Examples:
      ebb show 7
      ebb show 7 -o json
    """
    job = session.client.get(job_id)
    if fmt is not None:
        output.emit(job, fmt)
        return
    of_gang = bool(job.spec.task_groups)
    lines = _lines(job) if of_gang or not job.steps else _lines(job) | steps_output.lines(job.steps[0])
    output.table(["", ""], list(lines.items()), header=False)
    if of_gang and job.tasks:
        output.table(output.TASK_COLUMNS, output.tasks(job.tasks))
    if of_gang and job.steps:
        output.table(steps_output.COLUMNS, map(steps_output.row, job.steps))


def _lines(job: Job) -> dict[str, str]:
    """What there is to say of any job, and what there is of few."""
    spec = job.spec
    left = "" if _has_place(job) or not job.node else ", when it ran last"
    lines = {
        "id": str(job.id),
        "name": spec.name or "-",
        "user": job.user or "-",
        "class": output.class_name(job),
        "state": job.state.name,
        "reason": output.reason(job) + (f": {job.reason_detail}" if job.reason_detail else ""),
        "command": shlex.join(spec.command),
        "needs": output.amount(spec.resources),
        "priority": str(job.priority),
        "grace": "the site's" if spec.grace_period is None else f"{spec.grace_period.total_seconds():g} s",
        "directory": spec.working_directory or "the job's own",
        "environment": _hidden(job) if "environment" in spec.redacted else _variables(spec.environment),
        "inherited": _hidden(job) if "environment" in spec.redacted else _variables(spec.inherited),
        "run": str(job.run),
        "node": (", ".join(_nodes(job)) or "-") + left,
        "devices": "see its tasks" if spec.task_groups and job.tasks else output.numbers(job.devices) + left,
        "output": job.log_path or "-",
        "submitted": output.when(job.submit_time),
        "started": output.when(job.start_time),
        "ended": output.when(job.end_time),
        "time": output.ran_for(job, datetime.now(UTC)),
        "preempted": f"{job.preempted_for_trial} times for trials",
    }
    if programs := dict.fromkeys(task.program for task in job.tasks if task.program):
        lines["program"] = ", ".join(programs)
    if job.ended and job.run and (exit_ := _exit(job)):
        lines["exit"] = exit_
    if job.time_limit is not None:
        lines["time limit"] = (
            f"{output.duration(job.time_limit)}, of which runs that are over took {output.duration(job.run_time)}"
        )
    if spec.estimate is not None:
        lines["estimate"] = output.duration(spec.estimate)
    if spec.retry.limit:
        lines["retries"] = f"{job.retries} of {spec.retry.limit}{_failures(spec.retry)}"
    if spec.exit_0_after_stop is not Exit0AfterStop.STOPPED:
        lines["exit 0"] = "means done, also after a stop signal"
    if job.eligible_time is not None:
        lines["next try"] = output.when(job.eligible_time)
    if spec.task_groups:
        lines["tasks"] = "; ".join(f"{group.count} of {output.amount(group.resources)}" for group in spec.task_groups)
    if spec.virtual_cluster:
        lines["virtual cluster"] = f"{spec.virtual_cluster}, {spec.guarantee.name.lower()}"
        lines["holds"] = {"G": "cells of its virtual cluster", "O": "idle devices, until somebody has a right to them"}.get(
            _holds(job), "-"
        )
    if asked := _cells(spec):
        lines["cells"] = asked
    if spec.dependencies:
        kinds = (f"{other.kind.name.lower().replace('_', ' ')} {other.job_id}" for other in spec.dependencies)
        lines["submitted to run"] = ", ".join(kinds)
    if job.array is not None or job.array_job_id is not None:
        lines["array"] = _array(job)
    if job.held:
        lines["held"] = "by a user"
    if job.suspend_requested and not job.ended:
        lines["suspension"] = "requested"
    if job.cancel_requested:
        lines["cancel"] = "requested"
    return lines


def _variables(values: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(values.items())) or "-"


def _hidden(job: Job) -> str:
    return f"(hidden: {job.user} and operators see it)"


def _has_place(job: Job) -> bool:
    """Whether its node and devices are those that it has, or where it ended; and not where it ran before it came to wait."""
    return job.state in _HOLDING or job.ended


def _exit(job: Job) -> str:
    """How its last run left. Of a job that did not succeed the code is 0, too, where there is none, or nobody knows it."""
    if job.exit_signal:
        return output.signal_text(job.exit_signal)
    if job.exit_code or job.state is JobState.SUCCEEDED:
        return f"code {job.exit_code}"
    return "unknown" if job.reason is JobReason.EXIT_UNKNOWN else ""


def _nodes(job: Job) -> list[str]:
    """Those of its tasks, in the order of the ranks."""
    return list(dict.fromkeys(task.node for task in job.tasks if task.node)) or ([job.node] if job.node else [])


def _holds(job: Job) -> str:
    """G or O where a run of it holds devices."""
    if not job.spec.virtual_cluster or job.state not in _HOLDING:
        return "-"
    return "G" if job.guaranteed else "O"


def _cells(spec: JobSpec) -> str:
    asked = spec.cells
    named = {"pool": asked.pool, "model": asked.model, "pin": asked.pin, "a whole": asked.level}
    words = [f"{what} {name}" for what, name in named.items() if name]
    for within in asked.within:
        group = "" if within.task_group is None else f" for group {within.task_group}"
        words.append(f"within one {within.level}{' if possible' if within.preferred else ''}{group}")
    return ", ".join([*words, *(["lazy"] if asked.lazy else []), *(["vacates"] if asked.vacates else [])])


def _failures(retry: Retry) -> str:
    words = [f"exit {code}" for code in retry.exit_codes] + [output.signal_text(number) for number in retry.exit_signals]
    return f", for {', '.join(words)}" if words else ""


def _array(job: Job) -> str:
    """ "7[3]" for an element, "10: 5 pending, 2 live, 3 succeeded, 0 failed" for an array."""
    if job.array_job_id is not None:
        return f"{job.array_job_id}[{job.array_index}]"
    if (stands := job.array) is None:
        return "-"
    return f"{stands.size}: {stands.pending} pending, {stands.live} live, {stands.succeeded} succeeded, {stands.failed} failed"
