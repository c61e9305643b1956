"""The verbs about jobs: submit, list, show, logs, cancel, wait."""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from time import monotonic

import click

from client_sdk.cli import output
from client_sdk.cli.session import JOB_ID, Session, no_header_option, output_option, parse_states, quiet_option
from client_sdk.errors import DeadlineExceeded, EbbError, InvalidArgument
from client_sdk.models import LIVE, Job, JobClass, JobState
from client_sdk.units import format_memory, parse_duration


@click.command(context_settings={"allow_interspersed_args": False}, short_help="Submit a job.")
@click.option("--trial", "job_class", flag_value="trial", help="Must start now; may have best-effort jobs preempted for it.")
@click.option("--best-effort", "job_class", flag_value="best-effort", help="Runs when there is room (the default).")
@click.option("-n", "--name", default="", help="A name for people.")
@click.option("-c", "--cpus", type=click.FloatRange(min=0), default=1.0, show_default=True, help="CPU cores, also fractions.")
@click.option("-m", "--memory", default="1GiB", show_default=True, help="Host memory, such as 512MiB or 4GiB.")
@click.option("-g", "--devices", "--gpus", type=click.IntRange(min=0), default=0, show_default=True, help="Devices (GPUs).")
@click.option(
    "--grace", metavar="TIME", help="From the stop signal to the kill, such as 30s; 0 allows to rewind.  [default: the site's]"
)
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Set a variable; NAME alone takes it from here.")
@click.option("--cwd", default=".", metavar="DIR", help="The command's directory on the node.  [default: this one]")
@click.option("--wait", "wait_", is_flag=True, help="Wait for the job's end, and leave as `ebb wait` does.")
@click.option("--request-id", metavar="ID", help="The same id never submits twice; for scripts that may run again.")
@output_option("json", "yaml")
@quiet_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def submit(
    ctx: click.Context,
    job_class: str | None,
    name: str,
    cpus: float,
    memory: str,
    devices: int,
    grace: str | None,
    env: tuple[str, ...],
    cwd: str,
    wait_: bool,
    request_id: str | None,
    fmt: str | None,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Submit COMMAND as a job. It is safe on the scheduler's disk when this returns.

    The command is executed as it stands, without a shell; write `-- sh -c '...'` to have one.

    \b
    Examples:
      ebb submit -- python train.py --steps 1000
      ebb submit --name resnet --cpus 4 --memory 16GiB --devices 1 --grace 2m -- python train.py
      ebb submit --trial --devices 1 --wait -- python try_it.py
      id=$(ebb submit -q -- ./sweep.sh)
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    job = client.submit(
        command,
        name=name,
        job_class=JobClass.TRIAL if job_class == "trial" else JobClass.BEST_EFFORT,
        cpus=cpus,
        memory=memory,
        devices=devices,
        grace=grace,
        env=_environment(env),
        working_directory=os.path.normpath(Path.cwd() / cwd),
        request_id=request_id,
    )
    if quiet:
        click.echo(job.id)
    elif fmt is None:
        click.echo(f"submitted job {job.id}")
    if wait_:
        _flush()
        job = client.wait(job)
    if fmt is not None and not quiet:
        output.emit(job, fmt)
    if wait_:
        ctx.exit(exit_status(job))


@click.command("list", short_help="List jobs.")
@click.option("-a", "--all", "all_", is_flag=True, help="Ended jobs too.")
@click.option("-s", "--state", "states", multiple=True, metavar="STATE", help="Only these; Slurm's PD R CG CD F CA work too.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, the newest.")
@output_option("json", "yaml", "wide")
@no_header_option
@quiet_option
@click.pass_obj
def list_(
    session: Session, all_: bool, states: tuple[str, ...], limit: int | None, fmt: str | None, no_header: bool, quiet: bool
) -> None:
    """List jobs, newest first: those that have not ended, unless told otherwise.

    TIME counts from a job's first start. DEV is the number of devices.

    \b
    Examples:
      ebb list
      ebb list --all --limit 20
      ebb list --state PD,R -o wide
      ebb list -o json | jq '.[].id'
    """
    wanted: Sequence[JobState] = parse_states(",".join(states)) if states else (() if all_ else LIVE)
    found = islice(session.client.list(states=wanted), limit)
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
        columns += ["CPUS", "MEMORY", "INDICES", "SUBMITTED", "COMMAND"]
    output.table(columns, [_row(job, now, fmt == "wide") for job in found], header=not no_header)


def _row(job: Job, now: datetime, wide: bool) -> list[str]:
    needs = job.spec.resources
    short = [str(job.id), job.spec.name or "-", job.user or "-", output.class_name(job), job.state.name, output.reason(job)]
    short += [str(job.run), job.node or "-", str(needs.devices), output.ran_for(job, now)]
    if not wide:
        return short
    place = output.numbers(job.devices)
    return [
        *short,
        f"{needs.cpus:g}",
        format_memory(needs.memory_mib),
        place,
        output.when(job.submit_time),
        shlex.join(job.spec.command),
    ]


@click.command(short_help="Show everything about a job.")
@output_option("json", "yaml")
@click.argument("job_id", metavar="ID", type=JOB_ID)
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
    spec = job.spec
    lines = {
        "id": str(job.id),
        "name": spec.name or "-",
        "user": job.user or "-",
        "class": output.class_name(job),
        "state": job.state.name,
        "reason": output.reason(job) + (f": {job.reason_detail}" if job.reason_detail else ""),
        "command": shlex.join(spec.command),
        "needs": output.amount(spec.resources),
        "grace": "the site's" if spec.grace_period is None else f"{spec.grace_period.total_seconds():g} s",
        "directory": spec.working_directory or "the job's own",
        "environment": " ".join(f"{key}={shlex.quote(value)}" for key, value in sorted(spec.environment.items())) or "-",
        "run": str(job.run),
        "node": job.node or "-",
        "devices": output.numbers(job.devices),
        "output": job.log_path or "-",
        "submitted": output.when(job.submit_time),
        "started": output.when(job.start_time),
        "ended": output.when(job.end_time),
        "time": output.ran_for(job, datetime.now(UTC)),
        "preempted": f"{job.preempted_for_trial} times for trials",
    }
    if job.cancel_requested:
        lines["cancel"] = "requested"
    output.table(["", ""], list(lines.items()), header=False)


@click.command(short_help="Print a job's output.")
@click.option("-f", "--follow", is_flag=True, help="Wait for its start, and go on until it has ended, over all its runs.")
@click.option("--run", type=click.IntRange(min=1), help="The run with this number.  [default: the current or last]")
@click.option("--task", type=click.IntRange(min=0), default=0, show_default=True, help="The rank in a gang.")
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.pass_obj
def logs(session: Session, job_id: int, follow: bool, run: int | None, task: int) -> None:
    """Print the output of a job: of its current or last run, from the node that it is on.

    \b
    Examples:
      ebb logs 7
      ebb logs -f 7
      ebb logs --run 1 7
    """
    for text in session.client.logs(job_id, follow=follow, run=run, task=task):
        click.echo(text, nl=False)
        _flush()


@click.command(short_help="Cancel jobs.")
@output_option("json", "yaml")
@quiet_option
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
@click.pass_context
def cancel(ctx: click.Context, job_ids: tuple[int, ...], fmt: str | None, quiet: bool) -> None:
    """Cancel jobs. A queued one ends at once; a running one gets its grace period. Safe to repeat.

    \b
    Examples:
      ebb cancel 7 8
      ebb list -q --state PD | xargs ebb cancel
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    done: list[Job] = []
    for job_id in job_ids:
        try:
            job = client.cancel(job_id)
        except EbbError as error:
            click.echo(f"ebb: job {job_id}: {error}", err=True)
            continue
        done.append(job)
        if quiet:
            click.echo(job.id)
        elif fmt is None:
            click.echo(f"job {job.id} {_cancelled(job)}")
    if fmt is not None and not quiet:
        output.emit(done, fmt)
    if len(done) < len(job_ids):
        ctx.exit(1)


def _cancelled(job: Job) -> str:
    if job.state is JobState.CANCELLED:
        return "is cancelled"
    if job.ended:
        return f"had already ended: {job.state.name}"
    return f"was asked to stop, and is {job.state.name}"


@click.command(short_help="Wait for jobs to end.")
@click.option("--timeout", metavar="TIME", help="Give up after this long, such as 30s or 2h.")
@output_option("json", "yaml")
@quiet_option
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
@click.pass_context
def wait(ctx: click.Context, job_ids: tuple[int, ...], timeout: str | None, fmt: str | None, quiet: bool) -> None:
    """Wait until jobs have ended, over restarts of the scheduler too.

    Leaves with the exit code of the first of them that did not succeed, 0 when all did; 128+N for one that signal N
    ended, 143 for one that was cancelled, and 124 when the time ran out.

    \b
    Examples:
      ebb wait 7 && ./evaluate.sh
      ebb wait 7 8 9 --timeout 2h
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    deadline = None if timeout is None else monotonic() + parse_duration(timeout).total_seconds()
    done: list[Job] = []
    for job_id in job_ids:
        try:
            job = client.wait(job_id, None if deadline is None else max(0.0, deadline - monotonic()))
        except DeadlineExceeded:
            if deadline is None:
                raise
            click.echo(f"ebb: job {job_id} has not ended within {timeout}; it goes on", err=True)
            ctx.exit(124)
        done.append(job)
        if quiet:
            click.echo(job.id)
        elif fmt is None:
            click.echo(f"job {job.id} {job.state.name} ({output.reason(job)})")
        _flush()
    if fmt is not None and not quiet:
        output.emit(done, fmt)
    ctx.exit(next((status for status in map(exit_status, done) if status), 0))


def exit_status(job: Job) -> int:
    """What a shell would report of the job's last process; never 0 for a job that did not succeed."""
    if job.state is JobState.SUCCEEDED:
        return 0
    if job.exit_signal:
        return 128 + job.exit_signal
    return job.exit_code or (128 + signal.SIGTERM if job.state is JobState.CANCELLED else 1)


def _environment(settings: Sequence[str]) -> dict[str, str]:
    result = {}
    for setting in settings:
        name, given, value = setting.partition("=")
        if not given:
            if name not in os.environ:
                raise InvalidArgument(f"--env {name}: it is not set here; write --env {name}=VALUE")
            value = os.environ[name]
        result[name] = value
    return result


def _flush() -> None:
    sys.stdout.flush()


COMMANDS: tuple[click.Command, ...] = (submit, list_, show, logs, cancel, wait)
