"""What is kept of a run's parks, as it changes. Pure."""

from dataclasses import replace

from node_agent.jobs.model import RunRecord
from node_agent.jobs.park_state import ParkStage, ParkState, Rung
from node_agent.jobs.parking.ladder import Parked


def parking(state: ParkState, rung: Rung, pids: tuple[int, ...], now: float) -> ParkState:
    """A rung is going to be tried."""
    changed = state.changed if state.stage is ParkStage.PARKING else now
    return replace(state, stage=ParkStage.PARKING, rung=rung, driver_pids=pids, changed=changed)


def parked(state: ParkState, done: Parked, now: float) -> ParkState:
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
    )


def resuming(state: ParkState, now: float) -> ParkState:
    """From a park, or from half of one."""
    parked_for = now - state.changed if state.stage is ParkStage.PARKED else 0.0
    changed = state.changed if state.stage is ParkStage.RESUMING else now
    return replace(state, stage=ParkStage.RESUMING, changed=changed, parked_seconds=state.parked_seconds + parked_for)


def executes(state: ParkState, now: float) -> ParkState:
    """Again, or still: a park has failed."""
    took = now - state.changed if state.stage is ParkStage.RESUMING else 0.0
    return replace(
        state,
        stage=ParkStage.EXECUTES,
        driver_pids=(),
        changed=now,
        switching_seconds=state.switching_seconds + max(0.0, took),
    )


def executed(record: RunRecord, began: float, now: float) -> float:
    """Seconds that a run has executed since it joined its share group, or since its process `began` if that was later."""
    since = max(began, 0.0 if record.share is None else record.share.since)
    state = record.park
    lost = state.parked_seconds + state.switching_seconds
    if state.stage in (ParkStage.PARKED, ParkStage.RESUMING):
        lost += now - state.changed
    return max(0.0, now - since - lost)
