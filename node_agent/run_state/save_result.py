"""Decides whether a run's work was saved when it ended, by what its program said and how it ended. Pure."""

import signal
from dataclasses import dataclass, replace

from ebb_inject.ebb_hook.step_file import EVALUATING, SAVING, Record
from node_agent.run_state.events import Exited
from node_agent.run_state.model import RunRecord
from node_agent.run_state.save_values import NOTHING_SAID, RunSaves, SaveMeans, SaveOutcome, SaveResult

_DOING = {EVALUATING: ", in which it evaluated,", SAVING: ", while it saved,"}
_UNTOLD = {
    SaveMeans.HANDLER: "its program handles SIGTERM itself, and does not tell",
    SaveMeans.ASKED: "its program was asked to save, and does not tell",
}


@dataclass(frozen=True, slots=True)
class Known:
    """The agent's knowledge of the saves of a run when it ends."""

    said: RunSaves = NOTHING_SAID
    means: SaveMeans = SaveMeans.UNKNOWN
    """The means when it was told to stop; UNKNOWN also if another agent told it to."""
    by_system: bool = False
    """Its checkpoint command, or CRIU, was asked to save it."""
    late: bool = False
    """It ended at the end of its grace period."""
    steps: Record | None = None
    """The steps that it has published."""


def save_result(event: Exited, record: RunRecord, known: Known) -> SaveResult | None:
    """Return the result for a run that ended. None: it had not begun, its work was done, or it failed without ever saving."""
    found, steps = _result(event, record, known), known.steps
    if found is None or found.outcome is not SaveOutcome.NOT_SAVED or steps is None:
        return found
    done = steps.first + steps.counted
    return replace(found, detail=f"{found.detail}; it had come to step {done}") if done > found.step else found


def _result(event: Exited, record: RunRecord, known: Known) -> SaveResult | None:
    if not record.pid or event.launch_error or event.not_fetched:
        return None
    stopped = record.stop_received is not None or event.node_stopped
    if event.done or not (stopped or event.yielded or event.code or event.signal or event.unknown):
        return None
    said = known.said
    if said.failed:
        return SaveResult(SaveOutcome.NOT_SAVED, said.step, said.failed)
    if event.yielded:
        return _saved_result(record, known)
    registered = known.means is SaveMeans.REGISTERED or bool(said.saved)
    if not (stopped or registered):
        return None  # it is unknown whether it saves at all
    if event.unknown and not event.signal:
        return SaveResult(SaveOutcome.UNKNOWN, said.step, "nothing on its node knows how it ended")
    if event.code == event.signal == 0:
        return SaveResult(
            SaveOutcome.UNKNOWN, said.step, "it exited with code 0 after the stop signal, and did not say that it saved"
        )
    if registered:
        return SaveResult(SaveOutcome.NOT_SAVED, said.step, f"{_end(event, record, known)} before it had saved")
    if event.signal == signal.SIGKILL and not (record.signalled or record.checkpoint_asked):
        return SaveResult(SaveOutcome.NOT_SAVED, said.step, f"{_end(event, record, known)} without having been asked to save")
    if known.means in (SaveMeans.NONE, SaveMeans.FILES):
        before = "; what it has saved by itself before is in its checkpoint folder" if known.means is SaveMeans.FILES else ""
        return SaveResult(
            SaveOutcome.NOT_SAVED, said.step, f"it handles no stop signal, and has not registered with Ebb{before}"
        )
    return SaveResult(SaveOutcome.UNKNOWN, said.step, _UNTOLD.get(known.means, "its agent has not seen what was to save it"))


def _saved_result(record: RunRecord, known: Known) -> SaveResult:
    said = known.said
    if known.by_system:
        return SaveResult(SaveOutcome.SAVED, detail=record.checkpoint)
    began = said.saved or said.began_from or known.means is not SaveMeans.REGISTERED
    return SaveResult(SaveOutcome.SAVED, said.step if began else 0)


def _end(event: Exited, record: RunRecord, known: Known) -> str:
    """Return how it ended, for people."""
    if event.out_of_memory:
        return "it was killed: out of memory"
    if event.node_stopped:
        return "it was killed with its agent"
    if event.signal == signal.SIGKILL and record.stop_received is not None and record.stop_deadline is not None and known.late:
        doing = "" if known.steps is None else _DOING.get(known.steps.state, "")
        return f"it was killed at the end of its grace period of {record.stop_deadline - record.stop_received:.3g} s{doing}"
    return f"signal {event.signal} ended it" if event.signal else f"it exited with code {event.code}"
