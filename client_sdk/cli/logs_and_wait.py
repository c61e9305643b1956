"""The verbs that stay with a job: logs, wait."""

import signal
import sys
from time import monotonic

import click

from client_sdk.cli.many_ids import tell_error
from client_sdk.cli.output import common as output
from client_sdk.cli.session import Session, an_id, output_option, quiet_option
from client_sdk.errors import DeadlineExceeded, EbbError
from client_sdk.models import Job, JobReason, JobState
from client_sdk.units import parse_duration

MOST = 2**31 - 1
"""The highest number of a run or a task that the API can say."""


@click.command(short_help="Print a job's output.")
@click.option("-f", "--follow", is_flag=True, help="Wait for its start, and go on until it has ended, over all its runs.")
@click.option("--run", type=click.IntRange(1, MOST), help="The run with this number.  [default: the current or last]")
@click.option("--task", type=click.IntRange(0, MOST), default=0, show_default=True, help="The rank in a gang.")
@click.argument("job_id", metavar="ID", type=an_id)
@click.pass_obj
def logs(session: Session, job_id: int, follow: bool, run: int | None, task: int) -> None:
    """Print the output of a job: of its current or last run, from the node that it is on.

    \b
    Examples:
      ebb logs 7
      ebb logs -f 7
      ebb logs --run 1 7
    """
    silent = True
    for text in session.client.logs(job_id, follow=follow, run=run, task=task):
        click.echo(text, nl=False)
        _flush()
        silent = silent and not text
    if silent and run is None and (job := session.client.get(job_id)).reason is JobReason.LAUNCH_FAILED:
        output.say(f"ebb: {end_text(job)}: nothing could be written", err=True)


@click.command(short_help="Wait for jobs to end.")
@click.option("--timeout", metavar="TIME", help="Give up after this long, such as 30s or 2h.")
@output_option("json", "yaml")
@quiet_option
@click.argument("job_ids", metavar="ID...", type=an_id, nargs=-1, required=True)
@click.pass_context
def wait(ctx: click.Context, job_ids: tuple[int, ...], timeout: str | None, fmt: str | None, quiet: bool) -> None:
    """Wait until jobs have ended, even across restarts of the scheduler.

    Exits with 0 if all jobs succeeded, and otherwise with the last exit code of the first job that did not: 128+N if signal N
    ended it, 143 if it was cancelled or timed out without an exit code of its own, 1 for an array with failed elements. Exits
    with 124 when the time to wait ran out.

    \b
    Examples:
      ebb wait 7 && ./evaluate.sh
      ebb wait 7 8 9 --timeout 2h
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    deadline = None if timeout is None else monotonic() + parse_duration(timeout).total_seconds()
    done: list[Job] = []
    failed = 0
    for job_id in job_ids:
        try:
            job = client.wait(job_id, None if deadline is None else max(0.0, deadline - monotonic()))
        except DeadlineExceeded:
            if deadline is None:
                raise
            click.echo(f"ebb: job {job_id} has not ended within {timeout}; it goes on", err=True)
            _emit(done, fmt, quiet)
            ctx.exit(124)
        except KeyboardInterrupt:
            click.echo(f"ebb: job {job_id} goes on; `ebb cancel {job_id}` ends it", err=True)
            raise
        except EbbError as error:
            tell_error(f"job {job_id}", error)
            failed = 1
            continue
        done.append(job)
        if quiet:
            click.echo(job.id)
        elif fmt is None:
            output.say(end_text(job))
        _flush()
    _emit(done, fmt, quiet)
    ctx.exit(next((status for status in map(exit_status, done) if status), failed))


def _emit(done: list[Job], fmt: str | None, quiet: bool) -> None:
    if fmt is not None and not quiet:
        output.emit(done, fmt)


def end_text(job: Job) -> str:
    """How, and, where something kept it from running, what."""
    why = f": {job.reason_detail}" if job.reason is JobReason.LAUNCH_FAILED and job.reason_detail else ""
    return f"job {job.id} {job.state.name} ({output.reason(job)}{why})"


def exit_status(job: Job) -> int:
    """Return the exit status of the job's last process, as in a shell; never 0 for a job that did not succeed."""
    if job.state is JobState.SUCCEEDED:
        return 0
    if job.exit_signal:
        return 128 + job.exit_signal
    return job.exit_code or (128 + signal.SIGTERM if job.state in (JobState.CANCELLED, JobState.TIMED_OUT) else 1)


def _flush() -> None:
    sys.stdout.flush()


COMMANDS: tuple[click.Command, ...] = (logs, wait)
