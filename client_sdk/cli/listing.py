"""`ebb list`."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from client_sdk.cli import configurations
from client_sdk.cli.output import common as output
from client_sdk.cli.session import SHORT, Session, States, no_header_option, output_option, parse_states, quiet_option
from client_sdk.client import Client
from client_sdk.models import LIVE, Job, JobState, SaveOutcome, ShareMode
from client_sdk.units import format_memory

_LARGEST_PAGE, _MOST_COUNTED = 1000, 1_000_000
"""The scheduler's limits."""
_A_PAGE = 100
"""The default number of jobs in a table."""
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

    TIME is how long a job's runs have executed: time that it queued, or was parked, does not count. DEV is the number of
    devices. An array is one job until its elements start; each of them is then a job of its own. The TIME of an array counts
    from its first start. The state PR is that of queued jobs that were preempted. With -o wide, VC is the virtual
    cluster, and HOLDS says G where a job has cells of that (guaranteed), and O where it has what it gives back (opportunistic).
    HOLDS is - for a job that holds nothing now, and for one without a virtual cluster, to which the distinction does not apply.
    CONFIGURATION is that of the current or last run of a job that has several. The REASON of a waiting job ends with "not
    saved" if its last run lost its work; `ebb runs` says why.

    A table shows the newest 100 jobs, followed by the number of jobs not shown. With -q, -o json and -o yaml, which are for
    programs, all jobs are printed. --limit and --all-pages apply to every format.

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
    found = chosen.iterate_jobs() if limit is None else chosen.newest(limit)
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
        columns += [
            "VC",
            "HOLDS",
            "CONFIGURATION",
            "PRIORITY",
            "LIMIT",
            "ARRAY",
            "CPUS",
            "MEMORY",
            "INDICES",
            "SUBMITTED",
            "COMMAND",
        ]
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

    def iterate_jobs(self) -> Iterator[Job]:
        return (job for job in self._client.list(**self._only) if self._wanted is None or self._wanted.match(job))

    def newest(self, most: int) -> list[Job]:
        if self._wanted is not None:
            found = list(islice(self.iterate_jobs(), most + 1))
            self.more = "some" if len(found) > most else ""
            return found[:most]
        found, token = [], ""
        while True:
            size = min(most - len(found), _LARGEST_PAGE)
            page = self._client.list_page(page_size=size, page_token=token, **self._only)
            found += page.jobs
            token = page.next_page_token
            if not token or len(found) >= most:
                self.more = _count_text(page.more) if token else ""
                return found


def _count_text(number: int) -> str:
    return f"{number:,}" if number < _MOST_COUNTED else f"at least {number:,}"


def _row(job: Job, now: datetime, wide: bool) -> list[str]:
    needs = configurations.launched_configuration(job).resources
    short = [str(job.id), job.spec.name or "-", job.user or "-", output.class_name(job), job.state.name, _reason(job)]
    at = nodes(job) if has_place(job) else []
    node = at[0] + (f"+{len(at) - 1}" if at[1:] else "") if at else "-"
    short += [str(job.run), node, _devices(job, needs.devices), output.ran_for(job, now)]
    if not wide:
        return short
    return [
        *short,
        job.spec.virtual_cluster or "-",
        holds(job),
        configurations.brief_text(job),
        str(job.priority),
        "-" if job.time_limit is None else output.duration(job.time_limit),
        array(job),
        f"{needs.cpus:g}",
        format_memory(needs.memory_mib),
        output.numbers(job.devices if has_place(job) else ()),
        output.local_time(job.submit_time),
        shlex.join(job.spec.command),
    ]


def _reason(job: Job) -> str:
    """With a word about work that a stop has lost, until the job runs again."""
    save = job.last_save
    lost = save is not None and save.outcome is SaveOutcome.NOT_SAVED and not has_place(job)
    return f"{output.reason(job)}, not saved" if lost else output.reason(job)


def _devices(job: Job, whole: int) -> str:
    """The fraction of a device; of a job that names only memory of one, < 1."""
    if job.spec.share is ShareMode.EXCLUSIVE:
        return str(whole)
    return f"{job.spec.gpu_fraction_ppm / 1e6:g}" if job.spec.gpu_fraction_ppm else "<1"


def has_place(job: Job) -> bool:
    """Whether its node and devices are those that it has, or where it ended; and not where it ran before it came to wait."""
    return job.state in _HOLDING or job.ended


def nodes(job: Job) -> list[str]:
    """Those of its tasks, in the order of the ranks."""
    return list(dict.fromkeys(task.node for task in job.tasks if task.node)) or ([job.node] if job.node else [])


def holds(job: Job) -> str:
    """G or O where a run of it holds devices."""
    if not job.spec.virtual_cluster or job.state not in _HOLDING:
        return "-"
    return "G" if job.guaranteed else "O"


def array(job: Job) -> str:
    """ "7[3]" for an element, "10: 5 pending, 2 live, 3 succeeded, 0 failed" for an array."""
    if job.array_job_id is not None:
        return f"{job.array_job_id}[{job.array_index}]"
    if (stands := job.array) is None:
        return "-"
    return f"{stands.size}: {stands.pending} pending, {stands.live} live, {stands.succeeded} succeeded, {stands.failed} failed"
