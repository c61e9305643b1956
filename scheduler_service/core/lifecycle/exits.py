"""The meaning of a run's exit: its work is done, it was stopped, or something else happened to it."""

from scheduler_service.core.messages import RunExited
from scheduler_service.core.model import Exit0AfterStop, JobSpec, Reason, Run, StopReason

GOES_ON = frozenset(
    {
        StopReason.PREEMPTED,
        StopReason.SUSPENDED,
        StopReason.REQUEUED,
        StopReason.DRAINED,
        StopReason.RECLAIMED,
        StopReason.RESIZED,
        StopReason.SAMPLED,
        StopReason.PARKED,
        StopReason.MIGRATED,
    }
)
"""Reasons to stop a run whose job is to continue later. After a cancel, a time limit, or the failure of another task of its
gang, the job has another end, which no exit with 0 replaces."""

RESIZED = 200
"""Exit code of a program of an elastic job that has saved its work for another number of tasks. No shell reports a signal by it
(128 + n is at most 192), and sysexits.h does not define it."""


def meaning(spec: JobSpec, run: Run, event: RunExited) -> tuple[Reason | None, str]:
    """The reason why a run ended, if it did not do its work (None: it did), and a sentence about it for people.

    Most programs that trap SIGTERM save and exit with 0. After a stop signal this says nothing about the work, unless the
    program or its job says so.
    """
    if event.not_fetched:
        return Reason.CHECKPOINT_AWAY, event.not_fetched
    if event.launch_error:
        return Reason.LAUNCH_FAILED, event.launch_error
    if event.yielded or (spec.elastic and event.exit_code == RESIZED):
        return Reason.YIELDED, ""
    if event.unknown:
        return Reason.EXIT_UNKNOWN, "the process is gone and nothing on its node knows how it ended"
    if event.out_of_device_memory:
        return Reason.OUT_OF_DEVICE_MEMORY, event.out_of_device_memory
    if event.out_of_memory:
        return Reason.OUT_OF_MEMORY, ""
    if event.node_stopped:
        return Reason.NODE_LOST, "the agent of its node was stopped, and its runs with it"
    if event.exit_signal:
        return Reason.SIGNALLED, ""
    if event.exit_code:
        return Reason.EXITED, ""
    if run.stop_reason not in GOES_ON:
        return None, ""
    if not event.told:
        return None, "it exited with code 0 before the stop signal reached it"
    if event.done:
        return None, "it exited with code 0 after the stop signal; it had said in EBB_DONE_FILE that its work is done"
    if spec.exit_0_after_stop is Exit0AfterStop.DONE:
        return None, "it exited with code 0 after the stop signal; the job says that this means done (exit_0_after_stop)"
    return Reason.EXITED, ""


def is_stopped(run: Run) -> bool:
    """Whether the run exited with 0 because it was told to stop, with its work not done."""
    return run.stop_reason in GOES_ON and not (run.done or run.lost or run.exit_code or run.exit_signal)
