"""Decides what to do from desired states and the spool alone. Pure: no clock, no process, no file.

Desired states are level-triggered. They may arrive again at any time and in any order, and a run that they do not name goes on.
If the spool has the same generation of the run or a newer one, a desired state changes nothing. Otherwise it gives one action:

    desired    unknown   preparing   ready     warming   starting   running   stopping   ended
    Prepared   Prepare   Note        Note      Note      Note       Note      Note       Note
    Warming    Warm      Note        Note      Note      Note       Note      Note       Note
    Running    Launch    Launch      Launch    Begin     Note       Note      Note       Note
    Stopped    Refuse    Release     Release   Stop      Stop       Stop      Stop       Note

    Warm       make the run ready to begin; it waits for the end of the run before it at another node
    Begin      have a run that is warm begin, with this specification in place of the one that it was warmed with
    Prepare    make the task ready; it waits for its gang
    Launch     start the run. A prepared task keeps the specification that it has, and takes the rendezvous alone from this one
    Stop       end the run by a deadline, which counts from the first stop: a later one can only bring it forward
    Release    report the task as over: it has no process
    Refuse     remember the run as over, so that a late order does not start it
    Note       keep the generation, and do nothing
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from node_agent.jobs.model import (
    Desired,
    LaunchSpec,
    Prepared,
    RunKey,
    Running,
    RunPhase,
    RunRecord,
    Stopped,
    StopReason,
    Warming,
)


@dataclass(frozen=True, slots=True)
class Prepare:
    launch: LaunchSpec
    generation: int

    @property
    def key(self) -> RunKey:
        return self.launch.key


@dataclass(frozen=True, slots=True)
class Launch:
    launch: LaunchSpec
    generation: int

    @property
    def key(self) -> RunKey:
        return self.launch.key


@dataclass(frozen=True, slots=True)
class Warm:
    launch: LaunchSpec
    generation: int

    @property
    def key(self) -> RunKey:
        return self.launch.key


@dataclass(frozen=True, slots=True)
class Begin:
    launch: LaunchSpec
    generation: int

    @property
    def key(self) -> RunKey:
        return self.launch.key


@dataclass(frozen=True, slots=True)
class Stop:
    key: RunKey
    generation: int
    received: float
    """When the run was first told to stop."""
    deadline: float
    reason: StopReason = StopReason.UNSPECIFIED
    cause_job: int = 0
    resize_to: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    key: RunKey
    generation: int


@dataclass(frozen=True, slots=True)
class Refuse:
    key: RunKey
    generation: int


@dataclass(frozen=True, slots=True)
class Note:
    key: RunKey
    generation: int


Action = Prepare | Launch | Warm | Begin | Stop | Release | Refuse | Note


def reconcile(wanted: Iterable[Desired], known: Mapping[RunKey, RunRecord], now: float) -> list[Action]:
    """The actions that bring about what is `wanted`, in its order. `now`: seconds of the monotonic clock."""
    actions: list[Action] = []
    decided: dict[RunKey, RunRecord] = {}  # by what came before in the same message
    for desired in wanted:
        key = desired.key
        record = decided.get(key) or known.get(key)
        if record is not None and desired.generation <= record.generation:
            continue
        decide = TABLE[type(desired)][None if record is None else record.phase]
        action = decide(desired, record, now)
        actions.append(action)
        decided[key] = after(action, record)
    return actions


def after(action: Action, record: RunRecord | None) -> RunRecord:
    """What is kept of a run once the action is decided, and before anything is done. `record`: what was kept; None: nothing."""
    kept = replace(record or RunRecord(action.key, RunPhase.ENDED), generation=action.generation)
    match action:
        case Prepare(launch):
            return RunRecord(action.key, RunPhase.PREPARING, launch, generation=action.generation)
        case Launch(launch):
            return RunRecord(action.key, RunPhase.STARTING, launch, generation=action.generation)
        case Warm(launch):
            return RunRecord(action.key, RunPhase.WARMING, launch, generation=action.generation)
        case Begin(launch):
            return replace(kept, phase=RunPhase.STARTING, launch=launch)
        case Stop(_, _, received, deadline, reason, cause_job, resize_to):
            kept = replace(kept, phase=RunPhase.STOPPING, stop_received=received, stop_deadline=deadline)
            return replace(kept, stop_reason=reason, stop_cause=cause_job, stop_resize_to=resize_to)
        case Release() | Refuse():
            return replace(kept, phase=RunPhase.ENDED, launch=None)
        case Note():
            return kept
        case _:
            assert_never(action)


def _prepare(desired: Prepared, _record: None, _now: float) -> Action:
    return Prepare(desired.launch, desired.generation)


def _warm(desired: Warming, _record: None, _now: float) -> Action:
    return Warm(desired.launch, desired.generation)


def _begin(desired: Running, _record: RunRecord, _now: float) -> Action:
    return Begin(desired.launch, desired.generation)


def _launch(desired: Running, _record: None, _now: float) -> Action:
    return Launch(desired.launch, desired.generation)


def _go(desired: Running, record: RunRecord, _now: float) -> Action:
    prepared = record.launch
    assert prepared is not None
    assert prepared.gang is not None
    told = desired.launch.gang or prepared.gang
    gang = replace(prepared.gang, master_address=told.master_address, master_port=told.master_port)
    return Launch(replace(prepared, gang=gang), desired.generation)


def _refuse(desired: Stopped, _record: None, _now: float) -> Action:
    return Refuse(desired.key, desired.generation)


def _release(desired: Stopped, _record: RunRecord, _now: float) -> Action:
    return Release(desired.key, desired.generation)


def _stop(desired: Stopped, record: RunRecord, now: float) -> Action:
    received = now if record.stop_received is None else record.stop_received
    deadline = received + desired.grace
    if record.stop_deadline is not None and deadline >= record.stop_deadline:
        return Note(desired.key, desired.generation)
    why = desired.reason, desired.cause_job, desired.resize_to
    return Stop(desired.key, desired.generation, received, deadline, *why)


def _note(desired: Desired, _record: RunRecord, _now: float) -> Action:
    return Note(desired.key, desired.generation)


Decide = Callable[[Any, Any, float], Action]
_COLUMNS = (
    None,
    RunPhase.PREPARING,
    RunPhase.READY,
    RunPhase.WARMING,
    RunPhase.STARTING,
    RunPhase.RUNNING,
    RunPhase.STOPPING,
    RunPhase.ENDED,
)
_ROWS: Mapping[type[Desired], tuple[Decide, ...]] = {
    Prepared: (_prepare, _note, _note, _note, _note, _note, _note, _note),
    Warming: (_warm, _note, _note, _note, _note, _note, _note, _note),
    Running: (_launch, _go, _go, _begin, _note, _note, _note, _note),
    Stopped: (_refuse, _release, _release, _stop, _stop, _stop, _stop, _note),
}
TABLE: Mapping[type[Desired], Mapping[RunPhase | None, Decide]] = {
    state: dict(zip(_COLUMNS, row, strict=True)) for state, row in _ROWS.items()
}
"""What is decided for each desired state and the phase that its run is in; None: unknown."""
