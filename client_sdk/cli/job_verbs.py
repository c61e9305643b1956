"""The verbs that change jobs: cancel, suspend, resume, hold, release, requeue, resize, migrate, update."""

from typing import Any, Literal

import click

from client_sdk._values.options import dependencies
from client_sdk.cli.confirmation import force_option
from client_sdk.cli.many_ids import append_losses, ask_each, confirm_losses, job_verb
from client_sdk.cli.option_values import ids
from client_sdk.cli.output import common as output
from client_sdk.cli.session import Session, an_id, output_option, quiet_option
from client_sdk.client import Client
from client_sdk.errors import InvalidArgument
from client_sdk.models import Job, JobState
from client_sdk.units import parse_duration


def _state_text(job: Job) -> str:
    """ "job 7 is QUEUED (held)" """
    reason = output.reason(job)
    return f"job {job.id} is {job.state.name}" + ("" if reason == "-" else f" ({reason})")


def _cancel_text(job: Job) -> str:
    if job.state is JobState.CANCELLED:
        return f"job {job.id} is cancelled"
    if job.ended:
        return f"job {job.id} had already ended: {job.state.name}"
    return f"job {job.id} was asked to stop, and is {job.state.name}"


@job_verb(_cancel_text)
def cancel(client: Client, job_id: int) -> Job:
    """Cancel jobs.

    A queued one ends at once; a running one gets its grace period. Safe to repeat.

    \b
    Examples:
      ebb cancel 7 8
      ebb list -q --state PD | xargs ebb cancel
    """
    return client.cancel(job_id)


@click.command(short_help="Set running jobs aside, until they are resumed.")
@click.option(
    "--park", is_flag=True, help="Park each run in the memory of its node. One that cannot be parked saves and leaves."
)
@click.option("--park-only", is_flag=True, help="Park each run, or leave it running.")
@force_option
@output_option("json", "yaml")
@quiet_option
@click.argument("job_ids", metavar="ID...", type=an_id, nargs=-1, required=True)
@click.pass_context
def suspend(
    ctx: click.Context,
    /,
    job_ids: tuple[int, ...],
    park: bool,
    park_only: bool,
    force: bool,
    fmt: str | None,
    quiet: bool,
) -> None:
    """Suspend running jobs.

    Each saves its work and stops, as when it is preempted, and its devices become free. A run that is parked releases its
    devices and stays in the memory of its node, where it resumes without a checkpoint. Safe to repeat.

    If nothing saves one of them, it loses its work: the command asks first. Without a terminal it suspends none of them and
    exits with 1, unless --force is given.

    \b
    Examples:
      ebb suspend 7
      ebb suspend --park 7
      ebb list -q --state R | xargs ebb suspend
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    how = {"park": park, "park_only": park_only}
    lost = confirm_losses(job_ids, lambda job_id: client.lost_by_suspend(job_id, **how), force)
    ask_each(ctx, job_ids, lambda job_id: client.suspend(job_id, **how), append_losses(_state_text, lost), fmt, quiet)


@job_verb(_state_text)
def resume(client: Client, job_id: int) -> Job:
    """Put suspended jobs back into their queues.

    They continue from their checkpoints when there is room. A parked job resumes in place if its devices are idle. If they
    are not, it waits, or moves to other devices if its program can save while it is parked.

    \b
    Examples:
      ebb resume 7
      ebb list -q --state S | xargs ebb resume
    """
    return client.resume(job_id)


@job_verb(_state_text)
def hold(client: Client, job_id: int) -> Job:
    """Keep queued jobs from starting, until they are released.

    \b
    Examples:
      ebb hold 7 8
      ebb list -q --state PD | xargs ebb hold
    """
    return client.hold(job_id)


@job_verb(_state_text)
def release(client: Client, job_id: int) -> Job:
    """Let held jobs start again.

    \b
    Example:
      ebb release 7 8
    """
    return client.release(job_id)


@job_verb(_state_text, Client.lost_by_requeue)
def requeue(client: Client, job_id: int) -> Job:
    """Stop running jobs and requeue them.

    Each saves its work first and continues from its checkpoint, perhaps on another node. A job that waits for a retry is
    retried immediately. If a job would lose its work, since nothing saves it, the command asks first, like `ebb suspend`.

    \b
    Example:
      ebb requeue 7
    """
    return client.requeue(job_id)


@click.command(short_help="Change the number of tasks of an elastic job.")
@output_option("json", "yaml")
@quiet_option
@click.argument("job_id", metavar="ID", type=an_id)
@click.argument("tasks", metavar="N", type=click.IntRange(min=1))
@click.pass_context
def resize(ctx: click.Context, /, job_id: int, tasks: int, fmt: str | None, quiet: bool) -> None:
    """Change the number of tasks of an elastic job to N.

    A job that waits changes its size. One that runs saves its work, leaves, and starts again with N tasks when these fit. To
    take that back, resize the job to its old size.

    \b
    Examples:
      ebb submit --tasks 2 --min-tasks 1 --max-tasks 8 -g 1 -- python train.py
      ebb resize 7 4
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    ask_each(ctx, (job_id,), lambda each: client.resize(each, tasks), _resize_text, fmt, quiet)


def _resize_text(job: Job) -> str:
    now = job.spec.task_groups[0].count
    later = f", {job.resize_to} in its next run" if job.resize_to else ""
    return f"{_state_text(job)}: {now} task{'s' if now > 1 else ''}{later}"


@click.command(short_help="Have a running or parked job go on at another node.")
@click.option("--devices", metavar="N,...", multiple=True, help="Devices of the node; once for each NODE.")
@force_option
@output_option("json", "yaml")
@quiet_option
@click.argument("job_id", metavar="ID", type=an_id)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.pass_context
def migrate(
    ctx: click.Context,
    /,
    job_id: int,
    nodes: tuple[str, ...],
    devices: tuple[str, ...],
    force: bool,
    fmt: str | None,
    quiet: bool,
) -> None:
    """Move a running or parked job to another node.

    The node prepares while the job runs or is parked. Then the job saves its work, stops, and starts there. If the node does
    not become ready, the job keeps running in place, or stays parked. A gang moves to one NODE, or to one for each of its
    tasks. `ebb story` shows how long each phase took. If the job would lose its work, since nothing saves it, the command
    asks first, like `ebb suspend`.

    \b
    Examples:
      ebb migrate 7 n2
      ebb migrate 7 n2 --devices 0,1
      ebb migrate 8 n3 n4
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    named = tuple(_indices(text) for text in devices)
    lost = confirm_losses((job_id,), lambda each: client.lost_by_migrate(each, *nodes, devices=named), force)
    say = append_losses(_migrate_text, lost)
    ask_each(ctx, (job_id,), lambda each: client.migrate(each, *nodes, devices=named), say, fmt, quiet)


def _indices(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(f"--devices {text!r} is no list of device indices, such as 0,1") from None


def _migrate_text(job: Job) -> str:
    return f"{_state_text(job)}, and is to go on elsewhere; see `ebb story {job.id}`"


@click.command(short_help="Change the priority, limits or dependencies of jobs.")
@click.option("--priority", type=click.IntRange(-1000, 1000), help="Higher ones stand before others.")
@click.option("-t", "--time-limit", metavar="TIME", help="The longest that it may run, such as 2h; 0 takes the limit away.")
@click.option("--grace", metavar="TIME", help="From the stop signal to the kill, such as 2m; auto: by what its saves take.")
@click.option(
    "--skip-steps",
    type=click.IntRange(0),
    metavar="N",
    help="From its next start on, count the first N steps of the job without taking them; 0 takes it back.",
)
@click.option(
    "--share",
    type=click.Choice(["exclusive", "packed", "sliced"]),
    help="How a job that asks for a part of a device holds it, from its next run on; alone at once, if nobody shares it.",
)
@click.option("--after-ok", multiple=True, metavar="ID,...", help="Wait until these jobs have succeeded.")
@click.option("--after-any", multiple=True, metavar="ID,...", help="Wait until these have ended.")
@click.option("--after-failed", multiple=True, metavar="ID,...", help="Wait until these have failed.")
@click.option("--no-dependencies", is_flag=True, help="Wait for no other job any more.")
@output_option("json", "yaml")
@quiet_option
@click.argument("job_ids", metavar="ID...", type=an_id, nargs=-1, required=True)
@click.pass_context
def update(
    ctx: click.Context,
    /,
    job_ids: tuple[int, ...],
    priority: int | None,
    time_limit: str | None,
    grace: str | None,
    skip_steps: int | None,
    share: Literal["exclusive", "packed", "sliced"] | None,
    no_dependencies: bool,
    fmt: str | None,
    quiet: bool,
    **after: tuple[str, ...],
) -> None:
    """Change jobs that have not ended. What is not named stays.

    The --after options take the place of all dependencies that there were, and are for jobs that have never started.

    \b
    Examples:
      ebb update 7 --priority 10
      ebb update 7 8 --time-limit 4h
      ebb update 7 --grace 2m
      ebb update 7 --share exclusive
      ebb update 9 --after-ok 7,8
      ebb update 9 --skip-steps 5000
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    wanted: dict[str, Any] = {}
    if priority is not None:
        wanted["priority"] = priority
    if time_limit is not None:
        wanted["time_limit"] = parse_duration(time_limit)
    if grace is not None:
        wanted["grace"] = grace if grace == "auto" else parse_duration(grace)
    if skip_steps is not None:
        wanted["skip_steps"] = skip_steps
    if share is not None:
        wanted["share"] = share
    if any(after.values()):
        if no_dependencies:
            raise click.UsageError("--no-dependencies takes away what the --after options say")
        wanted["dependencies"] = dependencies(**{kind: _ids(kind, said) for kind, said in after.items()})
    elif no_dependencies:
        wanted["dependencies"] = ()
    if not wanted:
        raise click.UsageError("say what is to change: --priority, --time-limit, --grace, --share, --after-ok, ...")
    ask_each(ctx, job_ids, lambda job_id: client.update(job_id, **wanted), _update_text, fmt, quiet)


def _ids(kind: str, said: tuple[str, ...]) -> list[int]:
    try:
        return ids(said)
    except InvalidArgument as error:
        raise InvalidArgument(f"--{kind.replace('_', '-')}: {error}") from error


def _update_text(job: Job) -> str:
    limit = "none" if job.time_limit is None else output.duration(job.time_limit)
    grace = "" if job.spec.grace_period is None else f", grace period {output.duration(job.spec.grace_period)}"
    skips = f", skips the steps up to {job.skip_steps} from its next start on" if job.skip_steps else ""
    share = "" if job.share_next is None else f", {job.share_next.name.lower()} from its next run on"
    return f"{_state_text(job)}: priority {job.priority}, time limit {limit}{grace}{skips}{share}"


COMMANDS: tuple[click.Command, ...] = (cancel, suspend, resume, hold, release, requeue, resize, migrate, update)
