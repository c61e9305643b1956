"""Whether a run had saved its work when it ended: for each way to save, and each way to end."""

import itertools
import signal
from dataclasses import replace

import pytest

from ebb_inject.ebb_hook.step_file import EVALUATING, RUNNING, SAVING, Record
from node_agent.run_state.events import Exited
from node_agent.run_state.model import LaunchSpec, RunKey, RunPhase, RunRecord, StopReason
from node_agent.run_state.save_result import Known, save_result
from node_agent.run_state.save_values import NOTHING_SAID, RunSaves, SaveMeans, SaveOutcome
from node_agent.spool import tables

KEY = RunKey(7, 2)
SAVED, NOT_SAVED, UNKNOWN = SaveOutcome.SAVED, SaveOutcome.NOT_SAVED, SaveOutcome.UNKNOWN
RUN = RunRecord(KEY, RunPhase.RUNNING, pid=100)
STOPPED = replace(
    RUN,
    phase=RunPhase.STOPPING,
    stop_received=10.0,
    stop_deadline=40.0,
    signalled=True,
    stop_reason=StopReason.PREEMPTED,
)
AT_900 = RunSaves("c-800", "c-900", 900)
FULL = "No space left on device"
YIELDED = Exited(143, yielded=True, told=True)
FAILED = Exited(1, told=True)
KILLED = Exited(signal=signal.SIGKILL, told=True)
TERMINATED = Exited(signal=signal.SIGTERM, told=True)
ZERO = Exited(told=True)
REGISTERED, HANDLER, FILES, NONE = SaveMeans.REGISTERED, SaveMeans.HANDLER, SaveMeans.FILES, SaveMeans.NONE


@pytest.mark.parametrize(
    ("end", "run", "known", "outcome", "step", "says"),
    [
        # It saved as it was asked to.
        (YIELDED, STOPPED, Known(AT_900, REGISTERED), SAVED, 900, ""),
        (YIELDED, STOPPED, Known(RunSaves(saved="c"), REGISTERED), SAVED, -1, ""),
        (YIELDED, STOPPED, Known(RunSaves("c-800", step=800), REGISTERED), SAVED, 800, ""),  # stopped while it loaded
        (YIELDED, STOPPED, Known(NOTHING_SAID, REGISTERED), SAVED, 0, ""),  # before its first step
        (YIELDED, STOPPED, Known(NOTHING_SAID, HANDLER), SAVED, -1, ""),  # a script that writes EBB_YIELD_FILE
        # The checkpoint folder is full: as one rank, and as one of those that a torchrun has started.
        (FAILED, STOPPED, Known(replace(AT_900, failed=FULL), REGISTERED), NOT_SAVED, 900, FULL),
        (FAILED, STOPPED, Known(RunSaves(failed=FULL), REGISTERED), NOT_SAVED, -1, FULL),
        (YIELDED, STOPPED, Known(replace(AT_900, failed=FULL), REGISTERED), NOT_SAVED, 900, FULL),
        # It registered, and its end came before it saved.
        (FAILED, STOPPED, Known(AT_900, REGISTERED), NOT_SAVED, 900, "it exited with code 1 before it had saved"),
        (TERMINATED, STOPPED, Known(NOTHING_SAID, REGISTERED), NOT_SAVED, -1, "signal 15 ended it before it had saved"),
        (KILLED, STOPPED, Known(AT_900, REGISTERED, late=True), NOT_SAVED, 900, "the end of its grace period of 30 s"),
        (KILLED, STOPPED, Known(AT_900, REGISTERED), NOT_SAVED, 900, "signal 9 ended it before"),
        (KILLED, replace(STOPPED, signalled=False), Known(AT_900, REGISTERED), NOT_SAVED, 900, "before it had saved"),  # parked
        (replace(KILLED, out_of_memory=True), STOPPED, Known(AT_900, REGISTERED), NOT_SAVED, 900, "out of memory"),
        (replace(KILLED, node_stopped=True), RUN, Known(AT_900, REGISTERED), NOT_SAVED, 900, "with its agent"),
        # Nothing saves it.
        (TERMINATED, STOPPED, Known(NOTHING_SAID, NONE), NOT_SAVED, -1, "has not registered with Ebb"),
        (KILLED, STOPPED, Known(NOTHING_SAID, NONE, late=True), NOT_SAVED, -1, "handles no stop signal"),
        (TERMINATED, STOPPED, Known(NOTHING_SAID, FILES), NOT_SAVED, -1, "in its checkpoint folder"),
        (KILLED, replace(STOPPED, signalled=False), Known(), NOT_SAVED, -1, "without having been asked to save"),
        # A handler of the program's own does not tell.
        (ZERO, STOPPED, Known(NOTHING_SAID, HANDLER), UNKNOWN, -1, "did not say that it saved"),
        (FAILED, STOPPED, Known(NOTHING_SAID, HANDLER), UNKNOWN, -1, "does not tell"),
        (KILLED, STOPPED, Known(NOTHING_SAID, HANDLER, late=True), UNKNOWN, -1, "does not tell"),
        (TERMINATED, STOPPED, Known(), UNKNOWN, -1, "not seen what was to save it"),  # another agent has told it to stop
        (Exited(unknown=True, told=True), STOPPED, Known(AT_900, REGISTERED), UNKNOWN, 900, "nothing on its node knows"),
        # It was not told to stop.
        (Exited(1), RUN, Known(AT_900, REGISTERED), NOT_SAVED, 900, "it exited with code 1 before it had saved"),
    ],
)
def test_what_is_told(end: Exited, run: RunRecord, known: Known, outcome: SaveOutcome, step: int, says: str) -> None:
    found = save_result(end, run, known)
    assert found is not None
    assert (found.outcome, found.step) == (outcome, step)
    assert (says in found.detail) if says else not found.detail
    assert tables.event(tables.event_text(replace(end, save=found))) == replace(end, save=found), "it survives the agent"


@pytest.mark.parametrize(
    "end", [Exited(), Exited(done=True, told=True), Exited(launch_error="no such file"), Exited(not_fetched="away")]
)
def test_nothing_was_to_be_saved(end: Exited) -> None:
    assert save_result(end, RUN if not end.done else STOPPED, Known(AT_900, REGISTERED)) is None


def test_a_run_that_never_began_had_nothing_to_save() -> None:
    assert save_result(YIELDED, replace(STOPPED, pid=0), Known()) is None


@pytest.mark.parametrize("end", [Exited(1), Exited(signal=signal.SIGSEGV), Exited(unknown=True)])
def test_of_a_run_that_fails_and_has_never_told_of_a_save_nothing_is_said(end: Exited) -> None:
    assert save_result(end, RUN, Known()) is None


@pytest.mark.parametrize("said", ["its checkpoint command saved its work in 1.2 s", "CRIU dumped 12 MiB in 0.1 s"])
def test_what_the_system_saves(said: str) -> None:
    """The step of an older checkpoint of the program is not that of the dump."""
    run = replace(STOPPED, checkpoint_asked=True, checkpoint=said, launch=LaunchSpec(KEY, ("x",), checkpoint_command="save"))
    found = save_result(YIELDED, run, Known(AT_900, SaveMeans.ASKED, by_system=True))
    assert found is not None
    assert (found.outcome, found.step, found.detail) == (SAVED, -1, said)


@pytest.mark.parametrize(("state", "doing"), [(RUNNING, "30 s before"), (EVALUATING, "evaluated"), (SAVING, "while it saved")])
def test_what_it_did_when_it_was_killed_and_how_far_it_was(state: int, doing: str) -> None:
    steps = Record(100, 0, state, 1, 1, 1, 0, 0, 1, 949, 0, 0.0)
    found = save_result(KILLED, STOPPED, Known(AT_900, REGISTERED, late=True, steps=steps))
    assert found is not None
    assert doing in found.detail
    assert found.detail.endswith("; it had come to step 950")


def test_every_end_has_a_result_and_saved_is_never_said_of_one_that_did_not_say_it() -> None:
    """Whatever an agent may meet: it says something of each run that was stopped, and is never too hopeful."""
    ends = [replace(end, unknown=unknown) for end in (YIELDED, FAILED, KILLED, TERMINATED, ZERO) for unknown in (False, True)]
    saids = [NOTHING_SAID, AT_900, replace(AT_900, failed=FULL), RunSaves(failed=FULL)]
    flags = (False, True)
    for end, said, means, system, late, signalled in itertools.product(ends, saids, SaveMeans, flags, flags, flags):
        run = replace(STOPPED, signalled=signalled)
        found = save_result(end, run, Known(said, means, system, late))
        assert found is not None
        assert (found.outcome is SAVED) <= (end.yielded and not said.failed)
        assert found.detail or found.outcome is SAVED
