"""`ebb story`: what happened to a job, and why."""

import click

from client_sdk.cli.output import common as output
from client_sdk.cli.session import Session, an_id, output_option
from client_sdk.models import Decision, JobEvent, JobEventKind, JobReason


@click.command(short_help="Tell what happened to a job, and why.")
@output_option("json", "yaml")
@click.argument("job_id", metavar="ID", type=an_id)
@click.pass_obj
def story(session: Session, job_id: int, fmt: str | None) -> None:
    """Tell what happened to a job, in order: where it ran, who preempted it and by which scores, how it ended.

    \b
    Examples:
      ebb story 7
      ebb story 7 -o json
    """
    events = session.client.story(job_id)
    if fmt is not None:
        output.emit(list(events), fmt)
        return
    began = {event.run for event in events if event.kind is JobEventKind.STARTED}
    # A decision's table is printed below its event, so events are printed one by one, not as one table.
    for i, event in enumerate(events):
        time = output.local_time(event.time)
        output.say(f"{time}  {_sentence(event, event.run in began)}")
        if event.decision is not None and not any(e.decision == event.decision for e in events[:i]):
            _decision(event.decision)


def _sentence(event: JobEvent, began: bool) -> str:
    """`began`: its run had a process, which alone has an exit code."""
    node = f" on {event.node}" if event.node else ""
    run = f" (run {event.run})" if event.run else ""
    cause = f" {event.cause_job_id}" if event.cause_job_id else ""
    match event.kind:
        case JobEventKind.SUBMITTED:
            said = "submitted"
        case JobEventKind.PLACED | JobEventKind.STARTED:
            said = f"{event.kind.name.lower()}{node}{run}"
        case JobEventKind.PREEMPTING:
            said = f"has runs preempted{node}"
        case JobEventKind.PREEMPTED:
            said = f"preempted for trial{cause}{node}{run}" if cause else f"preempted{node}{run}"
        case JobEventKind.VACATED:
            said = f"left{node}{run}{_exit(event) if began else ''}"
        case JobEventKind.ENDED:
            said = f"ended{_exit(event)}{node}{run}"
        case JobEventKind.REQUEUED:
            because = "" if event.reason is JobReason.UNSPECIFIED else f": {event.reason.name.lower().replace('_', ' ')}"
            said = f"back in the queue{because}" + (f" for{cause}" if cause and event.reason is JobReason.PREEMPTED else "")
        case JobEventKind.REQUEUE_REQUESTED if event.reason is JobReason.NODE_DRAINED:
            said = f"told to leave{run}: {event.node} is drained"
        case kind:
            said = f"{kind.name.lower().replace('_', ' ')}{node}{run}" + (f" by{cause}" if cause else "")
    return f"{said} - {event.text}" if event.text else said


_NO_CODE = frozenset(
    {
        JobReason.CANCELLED,
        JobReason.LAUNCH_FAILED,
        JobReason.EXIT_UNKNOWN,
        JobReason.TIME_LIMIT,
        JobReason.OUT_OF_MEMORY,
        JobReason.OUT_OF_DEVICE_MEMORY,
        JobReason.DEPENDENCY_NEVER,
        JobReason.ELEMENTS_FAILED,
        JobReason.FAILED_ON_SEVERAL_NODES,
    }
)
"""Ends of which the last exit code does not tell."""


def _exit(event: JobEvent) -> str:
    match event.reason:
        case reason if reason in _NO_CODE:
            return f", {output.reason_words(reason, None)}"
        case _ if event.exit_signal:
            return f", {output.signal_text(event.exit_signal)}"
        case _:
            return f", exit {event.exit_code}"


def _decision(decision: Decision) -> None:
    """FitGpp's numbers: Eqn 3 adds the size and the grace period, each as a share of the largest, the latter times s."""
    click.echo(
        f"    trial {decision.trial_job_id} asks for {output.amount(decision.demand)}; rule {decision.rule}, "
        f"s {decision.s:g}, cap {decision.cap}, {decision.considered} considered"
    )
    columns = ["JOB", "RUN", "NODE", "DEMAND", "FREE", "SIZE", "GRACE", "SCORE", "PREEMPTED", "FITS", "CHOSEN"]
    rows = [
        (
            str(c.job_id),
            str(c.run),
            c.node,
            output.amount(c.demand),
            output.amount(c.node_free),
            f"{c.size:.4f}",
            f"{c.grace_period.total_seconds():g}s",
            f"{c.score:.4f}",
            str(c.preempted_for_trial),
            "yes" if c.sufficient else "no",
            "chosen" if c.chosen else "",
        )
        for c in decision.candidates
    ]
    # Of a gang's tasks on one node each is a candidate, with what all of them hold there.
    output.table(columns, [list(row) for row in dict.fromkeys(rows)], indent="    ")
