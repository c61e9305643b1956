"""`ebb show`."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime

import click

from client_sdk.cli import configurations
from client_sdk.cli.listing import array, has_place, holds, nodes
from client_sdk.cli.output import common as output
from client_sdk.cli.output import steps as steps_output
from client_sdk.cli.session import Session, an_id, output_option
from client_sdk.models import Exit0AfterStop, Job, JobReason, JobSpec, JobState, Retry
from client_sdk.units import format_memory


@click.command(short_help="Show everything about a job.")
@output_option("json", "yaml")
@click.argument("job_id", metavar="ID", type=an_id)
@click.pass_obj
def show(session: Session, job_id: int, fmt: str | None) -> None:
    """Show everything about a job.

    Its time is how long its runs have executed: time that it queued, or was parked, does not count.

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
    lines = _lines(job)
    steps = [steps_output.parked_steps(one) for one in job.steps] if job.parked else job.steps
    if steps and not of_gang:
        lines |= steps_output.lines(steps[0])
    elif job.mini_batches and not of_gang:
        lines |= steps_output.clock_line(job.mini_batches[0])
    output.table(["", ""], list(lines.items()), header=False)
    if of_gang and job.tasks:
        output.table(output.TASK_COLUMNS, output.tasks(job.tasks))
    if of_gang and job.mini_batches:
        output.table(steps_output.CLOCK_COLUMNS, map(steps_output.clock_row, job.mini_batches))
    if of_gang and steps:
        output.table(steps_output.COLUMNS, map(steps_output.row, steps))


def _grace(job: Job) -> str:
    """The present grace period, where it comes from, and what the job's saves ask for if that is more."""
    period, wanted = job.spec.grace_period, job.grace_wanted
    if period is None:
        return "the site's"
    more = f"; its saves ask for {wanted.total_seconds():g} s" if wanted is not None and wanted > period else ""
    return f"{period.total_seconds():g} s{', by what its saves take' if job.grace_follows and wanted else ''}{more}"


def _lines(job: Job) -> dict[str, str]:
    """Return the lines that every job has, and those that apply only to some."""
    spec = job.spec
    left = "" if has_place(job) or not job.node else ", on which it resumes" if job.parked else ", when it ran last"
    lines = {
        "id": str(job.id),
        "name": spec.name or "-",
        "user": job.user or "-",
        "class": output.class_name(job),
        "state": job.state.name,
        "reason": output.reason(job) + (f": {job.reason_detail}" if job.reason_detail else ""),
        "command": shlex.join(spec.command),
        "needs": output.needs(spec),
        "priority": str(job.priority),
        "grace": _grace(job),
        "directory": spec.working_directory or "the job's own",
        "environment": _hidden_text(job) if "environment" in spec.redacted else _variables(spec.environment),
        "inherited": _hidden_text(job) if "environment" in spec.redacted else _variables(spec.inherited),
        "run": str(job.run),
        "node": (", ".join(nodes(job)) or "-") + left,
        "devices": "see its tasks" if spec.task_groups and job.tasks else output.numbers(job.devices) + left,
        "output": job.log_path or "-",
        "submitted": output.local_time(job.submit_time),
        "started": output.local_time(job.start_time),
        "ended": output.local_time(job.end_time),
        "time": output.ran_for(job, datetime.now(UTC)),
        "preempted": f"{job.preempted_for_trial} times for trials",
    }
    if job.closeness is not None:
        lines["closeness"] = output.closeness(job.closeness)
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
    if not spec.alternatives and (known := configurations.estimate_text(job, 0)):
        lines["expected"] = known
    if spec.retry.limit:
        lines["retries"] = f"{job.retries} of {spec.retry.limit}{_failures(spec.retry)}"
    if spec.exit_0_after_stop is not Exit0AfterStop.STOPPED:
        lines["exit 0"] = "means done, also after a stop signal"
    if spec.checkpoint_signal:
        name, at, seconds = spec.checkpoint_signal.partition("@")
        lines["checkpoint"] = f"by SIG{name}" + (f", SIGTERM {seconds} s later" if at else "")
    if spec.checkpoint_command:
        lines["checkpoint"] = f"by the command: {spec.checkpoint_command}"
    if spec.snapshots:
        lines["snapshot"] = ", ".join(digest[:12] for digest in spec.snapshots)
    if job.eligible_time is not None:
        lines["next try"] = output.local_time(job.eligible_time)
    if spec.task_groups:
        lines["tasks"] = "; ".join(f"{group.count} of {output.amount(group.resources)}" for group in spec.task_groups)
    if spec.max_tasks:
        more = f"; {job.resize_to} in the next run" if job.resize_to and not job.ended else ""
        lines["elastic"] = f"{spec.min_tasks} to {spec.max_tasks} tasks{more}"
    if job.share_next is not None and not job.ended:
        lines["next run"] = f"holds its device {job.share_next.name.lower()}"
    if job.profile is not None:
        lines["alone"] = steps_output.profile_text(job.profile)
    if spec.project:
        lines["project"] = spec.project
    if spec.virtual_cluster:
        lines["virtual cluster"] = f"{spec.virtual_cluster}, {spec.guarantee.name.lower()}"
        lines["holds"] = _holds(job)
    if asked := _placement_text(spec):
        lines["where"] = asked
    lines |= configurations.lines(job)
    if spec.dependencies:
        kinds = (f"{other.kind.name.lower().replace('_', ' ')} {other.job_id}" for other in spec.dependencies)
        lines["submitted to run"] = ", ".join(kinds)
    if job.array is not None or job.array_job_id is not None:
        lines["array"] = array(job)
    if job.held:
        lines["held"] = f"set aside by the scheduler: {job.set_aside}" if job.set_aside else "by a user"
    if job.operation is not None:
        words = job.operation.kind.name.lower(), job.operation.phase.name.lower()
        lines["operation"] = f"{words[0]}: {words[1]} since {output.local_time(job.operation.phase_time)}"
    if job.began_from:
        lines["began from"] = job.began_from
    if job.checkpoint:
        lines["last saved"] = job.checkpoint
    if job.last_save is not None:
        lines["last stop"] = str(job.last_save)
    if job.suspend_requested and not job.ended and job.state is not JobState.SUSPENDED:
        lines["suspension"] = "requested"
    if job.cancel_requested:
        lines["cancel"] = "requested"
    return lines


def _holds(job: Job) -> str:
    """Return whether a job of a virtual cluster holds its devices as guaranteed or opportunistic. Its tasks may differ."""
    cells, idle = "cells of its virtual cluster", "idle devices, until somebody has a right to them"
    beyond = [task.rank for task in job.tasks if not task.guaranteed]
    match holds(job):
        case "G" if beyond:
            return f"{cells}; task{'s' if len(beyond) > 1 else ''} {output.numbers(beyond)}: {idle}"
        case "G":
            return cells
        case "O":
            return idle
        case _:
            return "-"


def _variables(values: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(values.items())) or "-"


def _hidden_text(job: Job) -> str:
    return f"(hidden: {job.user} and operators see it)"


def _exit(job: Job) -> str:
    """Return how its last run ended. For a job that did not succeed, code 0 means that it has none or that it is unknown."""
    if job.exit_signal:
        return output.signal_text(job.exit_signal)
    if job.exit_code or job.state is JobState.SUCCEEDED:
        return f"code {job.exit_code}"
    return "unknown" if job.reason is JobReason.EXIT_UNKNOWN else ""


def _placement_text(spec: JobSpec) -> str:
    asked, on = spec.cells, spec.nodes
    named = {"pool": asked.pool, "model": asked.model, "pin": asked.pin, "a whole": asked.level}
    words = [f"{what} {name}" for what, name in named.items() if name]
    for within in asked.within:
        group = "" if within.task_group is None else f" for group {within.task_group}"
        words.append(f"within one {within.level}{' if possible' if within.preferred else ''}{group}")
    words += [f"devices with {format_memory(spec.device_memory_mib)}"] if spec.device_memory_mib else []
    words += [f"on {' or '.join(on.names)}"] if on.names else []
    words += [f"label {name}={value}" for name, value in sorted(on.labels.items())]
    words += [f"not on {' or '.join(on.excluded)}"] if on.excluded else []
    return ", ".join([*words, *(["lazy"] if asked.lazy else []), *(["vacates"] if asked.vacates else [])])


def _failures(retry: Retry) -> str:
    words = [f"exit {code}" for code in retry.exit_codes] + [output.signal_text(number) for number in retry.exit_signals]
    return f", for {', '.join(words)}" if words else ""
