"""`ebb-scheduler history`: what ran on this cluster, as a CSV that the simulator replays."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scheduler_service.commands.database import CommandError, connection, database_options, require_used

if TYPE_CHECKING:
    from scheduler_service.sim.jobs import SimJob
    from scheduler_service.store.reading.history import Past

_TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])


@click.command()
@database_options
@click.option(
    "--since", metavar="TIME", type=_TIME, help="Only jobs submitted from then on (UTC): 2025-01-31, 2025-01-31T08:00:00."
)
@click.option("--until", metavar="TIME", type=_TIME, help="Only jobs submitted before.")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Packed if it ends with .gz.  [default: stdout]"
)
def history(since: datetime | None, until: datetime | None, output: Path | None, **database: Any) -> None:
    """Write the jobs that have ended, as a CSV that `ebb-sim` replays under other policies.

    A job's work is the time that its runs worked, whatever became of them; so a job that was killed counts as what it ran. Jobs
    that waited for others come when those had ended. Commands and environments are not written. The scheduler need not be
    stopped for it, nor be running.

    \b
    Examples:
      ebb-scheduler history --embedded /var/lib/ebb/db -o jobs.csv.gz
      ebb-scheduler history --config /etc/ebb/scheduler.yaml --since 2025-01-01 --until 2025-04-01 > jobs.csv
    """
    from scheduler_service.sim import workloads
    from scheduler_service.store.reading.history import count_live, past_jobs

    if since is not None and until is not None and since >= until:
        raise click.UsageError(f"--since {since.isoformat()} must be before --until {until.isoformat()}")
    since_us, until_us = 0 if since is None else _micros(since), 2**63 - 1 if until is None else _micros(until)
    with connection(database, require_used("it has no jobs"), new=False) as conn:
        never = 0

        def jobs_that_ran() -> Iterator["SimJob"]:
            nonlocal never
            for each in past_jobs(conn, since_us, until_us):
                if each.worked_us:
                    yield _job(each)
                else:
                    never += 1

        try:
            count = (
                workloads.write_to(sys.stdout, jobs_that_ran()) if output is None else workloads.write(jobs_that_ran(), output)
            )
        except OSError as error:
            raise CommandError(f"{output or 'standard output'} cannot be written: {error.strerror}") from None
        live = count_live(conn, since_us, until_us)
    click.echo(f"{count} jobs; left out: {never} that never ran, {live} that have not ended", err=True)


def _job(past: "Past") -> "SimJob":
    from scheduler_service.sim.jobs import SimJob

    limit_us = past.job.time_limit_us
    if limit_us:  # what ran into its limit is not to do so again, in a world where everything takes a little longer
        limit_us = max(limit_us, past.worked_us + past.worked_us // 10)
    spec = replace(past.job.spec, priority=past.job.priority, time_limit_us=limit_us, dependencies=())
    return SimJob(spec, past.worked_us, past.ready_us, past.job.user, past.job.spec.vc)


def _micros(time: datetime) -> int:
    return round(time.replace(tzinfo=UTC).timestamp()) * 1_000_000
