"""Decides what to do from desired states and the spool alone. Pure: no clock, no process, no file.

Desired states are level-triggered. They may arrive again at any time and in any order, and leave runs that they do not name
as they are. If the spool has the same or a newer generation of the run, nothing changes. Otherwise there is one action:

    desired    unknown   preparing   ready     warming   starting   running   parking   parked   resuming   stopping   ended
    Prepared   Prepare   Note        Note      Note      Note       Note      Note      Note     Note       Note       Note
    Warming    Warm      Note        Note      Note      Note       Note      Note      Note     Note       Note       Note
    Running    Launch    Launch      Launch    Begin     Go         Go        Go        Go       Go         Note       Note
    Parked     Launch    Launch      Launch    Begin     Park       Park      Park      Park     Park       Note       Note
    Stopped    Refuse    Release     Release   Stop      Stop       Stop      Stop      Stop     Stop       Stop       Note

    Warm       make the run ready to begin; it waits until the run before it has ended on another node
    Begin      let a warm run begin, with this specification instead of the one with which it was warmed
    Prepare    make the task ready; it waits for its gang
    Launch     start the run. A prepared task keeps its specification, and takes only the rendezvous and the share plan
               from this one. If it is to be parked, it is parked once it runs
    Go         take the share plan, and resume the run if it was to be parked
    Park       take the share plan, and park the run
    Stop       end the run by a deadline, which counts from the first stop: a later one can only bring it forward, and otherwise
               repeats the same
    Release    report that the task has ended: it has no process
    Refuse     record that the run has ended, so that a late order does not start it
    Note       keep the generation, and do nothing
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from node_agent.run_state.model import (
    Desired,
    LaunchSpec,
    Parked,
    Prepared,
    RunKey,
    Running,
    RunPhase,
    RunRecord,
    Stopped,
    StopReason,
    Warming,
)
from node_agent.run_state.share_plan import SharePlan


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
    park_limit: float | None = None
    """Seconds within which the run is to be parked once it runs; None: it is to run."""
    park_number: int = 0

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
    limit: float | None = None
    """Seconds within which the run is to be parked; None: it is to run."""
    number: int = 0

    @property
    def key(self) -> RunKey:
        return self.launch.key


@dataclass(frozen=True, slots=True)
class Go:
    key: RunKey
    generation: int
    share: SharePlan | None = None


@dataclass(frozen=True, slots=True)
class Park:
    key: RunKey
    generation: int
    limit: float
    """Seconds that the park may take."""
    share: SharePlan | None = None
    number: int = 0
    """Number of the park within the launch."""


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


Action = Prepare | Launch | Warm | Begin | Go | Park | Stop | Release | Refuse | Note


def reconcile(wanted: Iterable[Desired], known: Mapping[RunKey, RunRecord], now: float) -> list[Action]:
    """Return the actions that bring about what is `wanted`, in its order. `now`: seconds of the monotonic clock."""
    actions: list[Action] = []
    decided: dict[RunKey, RunRecord] = {}  # by earlier states in the same message
    for desired in wanted:
        key = desired.key
        record = decided.get(key) or known.get(key)
        if record is not None and desired.generation <= record.generation:
            continue
        decide = TABLE[type(desired)][None if record is None else record.phase]
        action = decide(desired, record, now)
        actions.append(action)
        decided[key] = record_after(action, record)
    return actions


def record_after(action: Action, record: RunRecord | None) -> RunRecord:
    """Return the record to keep once the action is decided, before anything is done. `record`: the one so far, if any."""
    kept = replace(record or RunRecord(action.key, RunPhase.ENDED), generation=action.generation)
    match action:
        case Prepare(launch):
            return RunRecord(action.key, RunPhase.PREPARING, launch, generation=action.generation)
        case Launch(launch, generation, limit, number):
            new = RunRecord(action.key, RunPhase.STARTING, launch, generation=generation, share=launch.share)
            if launch.gang is not None:
                new = replace(new, gang_size=launch.gang.world_size, gang_nodes=len(launch.gang.nodes))
            return new if limit is None else replace(new, to_park=True, park_limit=limit, park_number=number)
        case Warm(launch):
            return RunRecord(action.key, RunPhase.WARMING, launch, generation=action.generation)
        case Begin(launch, _, limit, number):
            begun = replace(kept, phase=RunPhase.STARTING, launch=launch, share=launch.share)
            if launch.gang is not None:
                begun = replace(begun, gang_size=launch.gang.world_size, gang_nodes=len(launch.gang.nodes))
            return begun if limit is None else replace(begun, to_park=True, park_limit=limit, park_number=number)
        case Go(_, _, share):
            phase = _RESUMED.get(kept.phase, kept.phase)
            return _sharing(replace(kept, phase=phase, to_park=False), share)
        case Park(_, _, limit, share, number):
            phase = _PARKED.get(kept.phase, kept.phase)
            return _sharing(replace(kept, phase=phase, to_park=True, park_limit=limit, park_number=number), share)
        case Stop(_, _, received, deadline, reason, cause_job, resize_to):
            kept = replace(kept, phase=RunPhase.STOPPING, stop_received=received, stop_deadline=deadline)
            return replace(kept, stop_reason=reason, stop_cause=cause_job, stop_resize_to=resize_to)
        case Release() | Refuse():
            return replace(kept, phase=RunPhase.ENDED, launch=None)
        case Note():
            return kept
        case _:
            assert_never(action)


_RESUMED = {RunPhase.PARKING: RunPhase.RESUMING, RunPhase.PARKED: RunPhase.RESUMING}
_PARKED = {RunPhase.RUNNING: RunPhase.PARKING, RunPhase.RESUMING: RunPhase.PARKING}


def _sharing(record: RunRecord, share: SharePlan | None) -> RunRecord:
    """Return the record with a new share plan. A run keeps its time of joining the group, whatever the plan was then."""
    before = record.share
    if share is not None and before is not None and before.group == share.group:
        share = replace(share, since=before.since)
    elif share is not None:
        park = replace(record.park, switches=0, parked_seconds=0.0, switching_seconds=0.0)
        record = replace(record, park=park)
    launch = None if record.launch is None else replace(record.launch, share=share)
    return replace(record, share=share, launch=launch)


def _prepare(desired: Prepared, _record: None, _now: float) -> Action:
    return Prepare(desired.launch, desired.generation)


def _warm(desired: Warming, _record: None, _now: float) -> Action:
    return Warm(desired.launch, desired.generation)


def _begin_warm(desired: Running | Parked, _record: RunRecord, now: float) -> Action:
    return Begin(_set_join_time(desired.launch, now), desired.generation, *_limit(desired))


def _launch(desired: Running | Parked, _record: None, now: float) -> Action:
    return Launch(_set_join_time(desired.launch, now), desired.generation, *_limit(desired))


def _begin(desired: Running | Parked, record: RunRecord, now: float) -> Action:
    prepared = record.launch
    assert prepared is not None
    assert prepared.gang is not None
    told = desired.launch.gang or prepared.gang
    gang = replace(prepared.gang, master_address=told.master_address, master_port=told.master_port)
    launch = replace(prepared, gang=gang, share=desired.launch.share)
    return Launch(_set_join_time(launch, now), desired.generation, *_limit(desired))


def _go(desired: Running, _record: RunRecord, now: float) -> Action:
    return Go(desired.key, desired.generation, _set_join_time(desired.launch, now).share)


def _park(desired: Parked, _record: RunRecord, now: float) -> Action:
    share = _set_join_time(desired.launch, now).share
    return Park(desired.key, desired.generation, desired.time_limit, share, desired.number)


def _limit(desired: Running | Parked) -> tuple[float | None, int]:
    """Return the time limit and the number of a park; (None, 0) if the run is not to be parked."""
    return (desired.time_limit, desired.number) if isinstance(desired, Parked) else (None, 0)


def _set_join_time(launch: LaunchSpec, now: float) -> LaunchSpec:
    return launch if launch.share is None else replace(launch, share=replace(launch.share, since=now))


def _refuse(desired: Stopped, _record: None, _now: float) -> Action:
    return Refuse(desired.key, desired.generation)


def _release(desired: Stopped, _record: RunRecord, _now: float) -> Action:
    return Release(desired.key, desired.generation)


def _stop(desired: Stopped, record: RunRecord, now: float) -> Action:
    received = now if record.stop_received is None else record.stop_received
    deadline = received + desired.grace
    if record.stop_deadline is not None and deadline >= record.stop_deadline:
        before = record.stop_reason, record.stop_cause, record.stop_resize_to
        return Stop(desired.key, desired.generation, received, record.stop_deadline, *before)
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
    RunPhase.PARKING,
    RunPhase.PARKED,
    RunPhase.RESUMING,
    RunPhase.STOPPING,
    RunPhase.ENDED,
)
_ROWS: Mapping[type[Desired], tuple[Decide, ...]] = {
    Prepared: (_prepare, *(_note,) * 10),
    Warming: (_warm, *(_note,) * 10),
    Running: (_launch, _begin, _begin, _begin_warm, _go, _go, _go, _go, _go, _note, _note),
    Parked: (_launch, _begin, _begin, _begin_warm, _park, _park, _park, _park, _park, _note, _note),
    Stopped: (_refuse, _release, _release, _stop, _stop, _stop, _stop, _stop, _stop, _stop, _note),
}
TABLE: Mapping[type[Desired], Mapping[RunPhase | None, Decide]] = {
    state: dict(zip(_COLUMNS, row, strict=True)) for state, row in _ROWS.items()
}
"""The decision for each desired state and the phase of its run; None: unknown."""
