"""`ebb runs`: where and when a job has run, and what was done to its runs."""

import click

from client_sdk.cli.output import common as output
from client_sdk.cli.session import Session, an_id, output_option
from client_sdk.models import JobReason, OperationPhaseTime, Run, SaveOutcome

COLUMNS = ("RUN", "NODE", "DEVICES", "PHASE", "STARTED", "TIME", "STOPPED FOR", "END", "SAVED")
PHASE_COLUMNS = ("RUN", "OPERATION", "PHASE", "BEGAN", "TOOK", "WHAT")


@click.command(short_help="Show the runs of a job.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Number of runs to show, the newest.  [default: all]")
@output_option("json", "yaml")
@click.argument("job_id", metavar="ID", type=an_id)
@click.pass_obj
def runs(session: Session, job_id: int, limit: int | None, fmt: str | None) -> None:
    """Show the runs of a job, the newest first: node, devices, phase, how each ended, and what its operations took.

    SAVED says whether what a run had done was saved when it ended: at which step, or why not. TIME is how long a run that
    has ended has executed: time that it was parked, or waited for its turn, does not count.

    \b
    Examples:
      ebb runs 7
      ebb runs 7 -o json
    """
    found: list[Run] = []
    for run in session.client.runs(job_id):
        if limit is not None and len(found) == limit:
            break
        found.append(run)
    if fmt is not None:
        output.emit(found, fmt)
        return
    named = any(run.began_from for run in found)
    rows = [[*_row(run), run.began_from or "-"] if named else _row(run) for run in found]
    output.table((*COLUMNS, "BEGAN FROM") if named else COLUMNS, rows)
    phases = [_phase(run, phase) for run in sorted(found, key=lambda run: (run.run, run.task)) for phase in run.operations]
    if phases:
        click.echo()
        output.table(PHASE_COLUMNS, phases)


def _name(run: Run) -> str:
    return f"{run.run}/{run.task}" if run.task else str(run.run)


def _row(run: Run) -> list[str]:
    took = "-"
    if run.start_time is not None and run.end_time is not None:
        took = output.duration(run.end_time - run.start_time - run.parked_time - run.waited_time)
    why = "-" if run.stop_reason is JobReason.UNSPECIFIED else output.reason_words(run.stop_reason, None)
    devices = output.numbers(run.devices)
    return [
        _name(run),
        run.node,
        devices,
        run.phase.name,
        output.local_time(run.start_time),
        took,
        why,
        _end(run),
        _save_text(run),
    ]


def _end(run: Run) -> str:
    if run.end_time is None:
        return f"{run.rung}, {run.parked_mib} MiB" if run.rung else "-"
    if run.start_time is None and run.stop_reason is JobReason.MIGRATED:
        return "not needed"
    if run.saved and (run.save is None or run.save.outcome is not SaveOutcome.NOT_SAVED):
        return f"saved {run.checkpoint}" if run.checkpoint else "saved its work"
    if run.exit_signal:
        return output.signal_text(run.exit_signal)
    return "unknown" if run.lost else f"exit {run.exit_code}"


def _save_text(run: Run) -> str:
    if run.end_time is None or run.start_time is None:
        return "-"
    if run.save is not None:
        return str(run.save)
    if run.saved:
        return "saved"
    return "-" if run.stop_reason is JobReason.UNSPECIFIED else "cannot be known"


def _phase(run: Run, phase: OperationPhaseTime) -> list[str]:
    words = phase.kind.name.lower(), phase.phase.name.lower()
    return [_name(run), *words, output.local_time(phase.begin_time), output.duration(phase.duration), phase.detail or "-"]
