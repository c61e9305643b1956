"""Updates the record of a run's parks. Pure.

`began`: when this agent began to park the run or to resume it. If another agent had begun before, it is unknown how long the
run has waited for an agent in between, and that is no part of the duration of a park or a resume.
"""

from dataclasses import replace

from node_agent.run_state.model import RunRecord
from node_agent.run_state.park_state import ParkStage, ParkState, Rung
from node_agent.sharing.parking.ladder import Parked

_SMOOTHING = 0.3
"""Weight of the last duration in the mean of parks and resumes. The second duration replaces the first, which may include the
time to prepare the host memory."""
_FORGETTING = 0.1
"""Part of the difference by which a wait that was longer than the last one is forgotten."""


def begin_park(state: ParkState, rung: Rung, pids: tuple[int, ...], now: float) -> ParkState:
    """Return the state before a rung is tried."""
    changed = state.changed if state.stage is ParkStage.PARKING else now
    return replace(state, stage=ParkStage.PARKING, rung=rung, driver_pids=pids, changed=changed)


def end_park(state: ParkState, done: Parked, began: float, now: float) -> ParkState:
    waited = max(0.0, _seconds_in_stage(state, began, now) - done.moving) if state.stage is ParkStage.PARKING else 0.0
    return replace(
        state,
        stage=ParkStage.PARKED,
        rung=done.rung,
        changed=now,
        bytes=done.bytes,
        most_bytes=max(state.most_bytes, done.bytes),
        residue_bytes=done.residue_bytes,
        saves=done.saves,
        switches=state.switches + 1,
        switching_seconds=state.switching_seconds + done.moving,
        stops=state.stops + (done.rung is not Rung.COOPERATIVE),
        wait_seconds=max(waited, _mean(state.wait_seconds, waited, state.switches, _FORGETTING)),
        park_seconds=_mean(state.park_seconds, done.moving, state.switches),
        outlasted_seconds=0.0,
    )


def _mean(before: float, last: float, times: int, weight: float = _SMOOTHING) -> float:
    """`times`: how many are in the mean before. Older agents counted them without a mean, which is then 0."""
    return last if times < 2 or not before else before + weight * (last - before)


def _seconds_in_stage(state: ParkState, began: float, now: float) -> float:
    """Return for how many seconds this agent has been parking or resuming the run."""
    return max(0.0, now - max(state.changed, began))


def begin_resume(state: ParkState, now: float) -> ParkState:
    """Return the state before a run resumes from a park, or from an unfinished one."""
    parked_for = now - state.changed if state.stage is ParkStage.PARKED else 0.0
    changed = state.changed if state.stage is ParkStage.RESUMING else now
    return replace(state, stage=ParkStage.RESUMING, changed=changed, parked_seconds=state.parked_seconds + parked_for)


def continue_execution(state: ParkState, began: float, now: float, outlasted: float = 0.0) -> ParkState:
    """Return the state of a run that executes again, or still: a park has failed. `outlasted`: the time for which that park was
    tried, if it was given up when its time had passed. More time does not help one that failed for another reason."""
    took, resumed = _seconds_in_stage(state, began, now), state.stage is ParkStage.RESUMING
    return replace(
        state,
        stage=ParkStage.EXECUTES,
        driver_pids=(),
        changed=now,
        switching_seconds=state.switching_seconds + (max(0.0, now - state.changed) if resumed else 0.0),
        resume_seconds=_mean(state.resume_seconds, took, state.resumes) if resumed else state.resume_seconds,
        resumes=state.resumes + resumed,
        outlasted_seconds=max(state.outlasted_seconds, outlasted),
    )


def executed_seconds(record: RunRecord, began: float, now: float) -> float:
    """Return how long a run has executed since it joined its share group, or since its process `began` if that was later."""
    since = max(began, 0.0 if record.share is None else record.share.since)
    state = record.park
    lost = state.parked_seconds + state.switching_seconds
    if state.stage in (ParkStage.PARKED, ParkStage.RESUMING):
        lost += now - state.changed
    return max(0.0, now - since - lost)
