"""`ebb explain`, and what a dry run says: why a job waits, for whom, and how long; or why it runs as it does."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from client_sdk.cli import configurations
from client_sdk.cli.output import common as output
from client_sdk.cli.output.steps import profile_text
from client_sdk.cli.session import Session, an_id, output_option
from client_sdk.models import (
    Blocker,
    Decision,
    Explanation,
    Job,
    JobState,
    OperationKind,
    PreemptionCost,
    Preview,
    StartEstimate,
    Victim,
)


@click.command(short_help="Explain why a job waits, and when it may start.")
@output_option("json", "yaml")
@click.argument("job_id", metavar="ID", type=an_id)
@click.pass_obj
def explain(session: Session, job_id: int, fmt: str | None) -> None:
    """Explain why a job waits: what blocks it, who is ahead, whose runs would leave for it, when it may start.

    For a job that has started, explain by which times its configuration was chosen, and why it shares devices or was moved.

    \b
    Examples:
      ebb explain 7
      ebb explain 7 -o json | jq '.blockers[].reason'
    """
    found = session.client.explain(job_id)
    if fmt is not None:
        output.emit(found, fmt)
        return
    output.say(f"job {job_id} is {_state_text(found.job)}")
    _say_waiting(found)
    operation = found.job.operation
    if found.job.state is JobState.SUSPENDED and operation is not None and operation.kind is OperationKind.MIGRATE:
        click.echo(f"it moves to other devices, where it goes on; `ebb story {job_id}` says where")
    if found.job.state is JobState.RUNNING and found.job.array is not None:
        click.echo("all of its elements have begun; what keeps one from running is its own: `ebb explain` of that")
    elif found.job.state is JobState.RUNNING:
        click.echo("nothing keeps it from running")
    elif found.job.state is JobState.STARTING:
        where = "nodes have" if found.job.spec.task_groups else "node has"
        said = f"it has its place, and its {where} not said yet that it runs"
        click.echo(f"{said}; where that lasts, the log of the agent there says why")
    if found.job.closeness is not None:
        output.say(f"its devices: {output.closeness(found.job.closeness)}")
    if found.configuration_reason:
        output.say(f"why configuration {found.job.configuration}: {found.configuration_reason}")
    if found.sharing_reason:
        output.say(f"decided last by {found.sharing_reason}")
    if found.job.profile is not None:
        output.say(f"measured alone: {profile_text(found.job.profile)}")
    if found.preempted is not None:
        click.echo(_preemption_text(found.preempted))


def say_preview(found: Preview) -> None:
    """Print the output of `ebb submit --dry-run`."""
    if found.job.spec.array is not None:
        click.echo("of its elements, the first:")
    if found.starts:
        chosen = f" in configuration {configurations.chosen_text(found.job)}" if found.job.spec.alternatives else ""
        click.echo(f"it would start at once{chosen}:")
        output.table(output.TASK_COLUMNS, output.tasks(found.tasks), indent="  ")
        return
    if found.victims:
        click.echo("it would have these runs leave, and start when they are gone:")
        _say_victims(found.victims)
        return
    output.say(f"it would wait: {_state_text(found.job)}")
    if found.explanation is not None:
        _say_waiting(found.explanation)


def _state_text(job: Job) -> str:
    """ "QUEUED: behind 5", "RUNNING on n1" """
    placed = job.state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING, JobState.UNREACHABLE)
    said = f"{job.state.name} on {job.node}" if placed and job.node else job.state.name
    said += f" in configuration {configurations.chosen_text(job)}" if placed and job.spec.alternatives else ""
    reason = output.reason(job)
    said += "" if reason == "-" else f": {reason}"
    return f"{said} - {job.reason_detail}" if job.reason_detail else said


def _say_waiting(found: Explanation) -> None:
    if found.blockers:
        click.echo(f"what keeps it from {'ending' if found.job.state is JobState.STOPPING else 'starting'}:")
    for blocker in found.blockers:
        output.say(f"  {_blocker(blocker)}")
    if found.ahead:
        click.echo(f"ahead of it: {_first_of(found.ahead, found.ahead_job_ids)}")
    if found.victims:
        click.echo("these runs leave for it, or would have to:")
        _say_victims(found.victims)
    if found.decision is not None:
        click.echo(f"  {_rule(found.decision)}")
    if found.estimate is not None:
        click.echo(_estimate(found.estimate))


def _first_of(count: int, shown: Sequence[int]) -> str:
    """ "3, 4 and 2 more" """
    more = count - len(shown)
    return ", ".join(map(str, shown)) + (f" and {more} more" if more > 0 else "")


def _blocker(blocker: Blocker) -> str:
    said = output.reason_words(blocker.reason, blocker.cause_job_id)
    said += f": {blocker.detail}" if blocker.detail else ""
    if blocker.holders:
        said += f", by {_first_of(blocker.holders, blocker.holder_job_ids)}"
    if blocker.first_end is not None:
        said += f"; {blocker.holder_job_ids[0]} ends first, at {output.local_time(blocker.first_end)} at the latest"
    if blocker.need is None:
        return said
    said += f"; it needs {output.amount(blocker.need)}"
    if blocker.node is not None and blocker.free is not None:
        said += f", and {blocker.node}, which comes closest, has {output.amount(blocker.free)} free"
    nodes = f"{blocker.nodes} node{'' if blocker.nodes == 1 else 's'}"
    return f"{said}; of {nodes} {blocker.nodes_usable} can be used, and {blocker.nodes_large_enough} would fit it when empty"


def _say_victims(victims: Sequence[Victim]) -> None:
    rows = [
        [
            str(victim.job_id),
            victim.user or "-",
            victim.node,
            output.amount(victim.resources),
            f"{victim.grace_period.total_seconds():g}s",
            f"{victim.score:.4f}" if victim.score else "-",
        ]
        for victim in victims
    ]
    output.table(["JOB", "USER", "NODE", "HOLDS", "GRACE", "SCORE"], rows, indent="  ")


def _rule(decision: Decision) -> str:
    return f"by {decision.rule}: {decision.considered} runs considered, s {decision.s:g}, cap {decision.cap}"


def _estimate(estimate: StartEstimate) -> str:
    if estimate.time is None:
        return f"when it may start is not known: {estimate.basis}"
    left = estimate.time - datetime.now(UTC)
    said = f"it may start at {output.local_time(estimate.time)}"
    said += f", in {output.duration(left)}" if left.total_seconds() > 0 else ""
    unknown = estimate.runs_of_unknown_length
    said += f" (by {estimate.basis}"
    return said + (f"; {unknown} runs are of unknown length)" if unknown else ")")


def _preemption_text(cost: PreemptionCost) -> str:
    """Return the cost of the last preemption, in words."""
    by = f"trial {cost.by_job_id}" + (f" of {cost.by_user}" if cost.by_user else "")
    if cost.away is None:
        lost = "it has not started again since"
    else:
        lost = f"it was away for {output.duration(cost.away)}, {cost.device_hours:.2f} device-hours"
    if cost.save is not None:
        lost += f"; its work: {cost.save}"
    return f"last preempted at {output.local_time(cost.time)}, for {by}: {lost}"
