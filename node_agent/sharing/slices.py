"""Executes the share plans of this node: the rows of a group take turns on its devices (Gandiva, section 3.1).

`slice_schedule` says which row is active; this keeps the timers. Members of other rows are parked first, and those of the
active row resume or start as soon as their devices are free. A run that cannot be parked keeps its devices until the next turn,
when another park is tried, and the scheduler is informed.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf

from node_agent.measuring.observations import SliceObservation
from node_agent.measuring.step_measurements import started_ns
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.run_state.park_state import ParkStage
from node_agent.run_state.share_plan import SharePlan
from node_agent.sharing.parking import accounting
from node_agent.sharing.parking import slice_schedule as turns
from node_agent.sharing.parking.parking import Parking, park_number
from node_agent.sharing.parking.slice_schedule import Member, Turn
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

_LIMIT_OF_TURN = 0.5
"""Part of a row's turn that the parks before it may take. If they take more, the scheduler makes turns longer: see
`policies/gandiva/slicing/switching_cost.py`."""
_SHORTEST_LIMIT = 2.0
"""Seconds that a park may take even if turns are very short."""
_PREPARE_AT = 0.5
"""Part of a run's first turn until its host memory is prepared for its first park."""
_SMOOTHING = 0.3
"""Weight of the last turn in the mean of what rows lose."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class _Group:
    """The agent's state of a group, besides the spool. All of it can be lost."""

    timer: asyncio.TimerHandle | None = None
    preparing: asyncio.TimerHandle | None = None
    row: int | None = None
    """The row that was active last."""
    turn: tuple[int, ...] = ()
    """Name of the turn."""
    previous: int | None = None
    switched: float = 0.0
    """Monotonic time of the last switch of rows."""
    switching: set[RunKey] = field(default_factory=set)
    """Members whose park or resume has been in progress since then."""
    losses: dict[int, float] = field(default_factory=dict)
    used_losses: dict[int, float] = field(default_factory=dict)
    """Losses from which the turns of the present cycle are computed: they do not change within a cycle."""
    cycle: int = -1
    generation: int = 0
    refused: set[RunKey] = field(default_factory=set)
    """Members reported to the scheduler as impossible to park, since the plan changed."""
    unable: set[RunKey] = field(default_factory=set)
    """Members that could not be parked in this turn."""


class Slices:
    """The turns of one spool's runs. `start` launches a run that was held back until its turn. One that `waits` is launched
    later without that."""

    def __init__(
        self,
        spool: Spool,
        parking: Parking,
        start: Callable[[RunKey], None],
        waits: Callable[[RunKey], bool],
        guarded: Callable[..., None],
        on_devices: Callable[[RunKey, float], Mapping[int, int] | None] = lambda _key, _since: {},
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._spool = spool
        self._parking = parking
        self._start = start
        self._waits = waits
        self._guarded = guarded
        self._on_devices = on_devices
        self._wall = wall
        self._groups: dict[int, _Group] = {}
        self._begun: set[RunKey] = set()
        """Runs that were allowed to start, and have no process yet."""
        self._tried: set[RunKey] = set()
        """Runs of which a park was refused. Another agent tries again."""
        self._held: set[RunKey] = set()
        """Runs that may not start before their turn."""

    def may_start(self, key: RunKey) -> bool:
        """Whether a run that is to start has its devices now. If not, it is started in its turn."""
        record = self._spool.runs[key]
        if record.share is None or not self.is_sliced(record) or len(record.share.rows) < 2 or key in self._begun:
            self._held.discard(key)
            return True
        self._held.add(key)
        self.take_turn(record.share.group)  # this starts the run, if it is its turn
        return False

    def is_held(self, key: RunKey) -> bool:
        """Whether a run waits to start in its turn."""
        return key in self._held

    def expect(self, key: RunKey) -> None:
        """Note that an earlier agent may have started a run."""
        self._begun.add(key)

    def is_sliced(self, record: RunRecord) -> bool:
        """Whether a run takes turns, so that its time is decided here."""
        return record.share is not None and not record.to_park

    def take_turn(self, group: int) -> None:
        """Do what the turn of the group requires, now and whenever it changes."""
        members = [record for record in self._spool.live() if record.share is not None and record.share.group == group]
        if not members:
            self._forget(group)
            return
        state = self._groups.setdefault(group, _Group())
        plan = max((record.share for record in members if record.share is not None), key=lambda share: share.generation)
        if state.generation != plan.generation:
            state.generation, state.losses, state.used_losses, state.cycle = plan.generation, {}, {}, -1
            state.refused.clear()
        now = self._wall()
        turn = self._turn(state, plan, members, now)
        self._schedule_next_turn(group, state, turn, now)
        if state.row != turn.row:
            state.previous, state.row = state.row, turn.row
            state.switched, state.switching = time.monotonic(), set()
            state.unable.clear()
            self._prepare_later(state, turn, plan, now)
        elif state.turn != turn.name:
            state.unable.clear()
        state.turn = turn.name
        self._move(state, plan, turn, members)

    def handle_parked(self, key: RunKey, moving: float) -> None:
        """Note that a member is parked, after it had not executed for `moving` seconds."""
        if (found := self._find_member(key)) is None:
            return
        group, state, record = found
        if key in state.switching:
            state.switching.discard(key)
            if state.previous is not None:
                self._learn(state, state.previous, -max(0.0, record.park.changed - moving - state.switched))
        self.take_turn(group)

    def handle_resumed(self, key: RunKey) -> None:
        """Note that a member executes again."""
        if (found := self._find_member(key)) is None:
            return
        group, state, record = found
        if key in state.switching:
            state.switching.discard(key)
            if state.row is not None:
                self._learn(state, state.row, max(0.0, record.park.changed - state.switched))
        self.take_turn(group)

    def handle_refused(self, key: RunKey) -> bool:
        """Note that a member cannot be parked. It keeps its devices in the next turn, and is asked again after that. Return
        whether to inform the scheduler: once for each plan."""
        if (found := self._find_member(key)) is None:
            return True
        _, state, _ = found
        self._tried.add(key)
        is_news = key not in state.refused
        state.refused.add(key)
        state.unable.add(key)
        return is_news

    def gave_up(self, key: RunKey) -> None:
        """Note that a launch has failed for now. Others may use the run's devices until the next try."""
        if key in self._begun and (record := self._spool.runs[key]).share is not None:
            self._begun.discard(key)
            self.take_turn(record.share.group)

    def handle_start(self, key: RunKey) -> None:
        """Note that a run has its process, or has ended."""
        self._begun.discard(key)
        self._held.discard(key)

    def handle_end(self, record: RunRecord) -> None:
        """Handle the end of a member, after which its row may be empty."""
        self.handle_start(record.key)
        self._tried.discard(record.key)
        if record.share is not None:
            self.take_turn(record.share.group)

    def close(self) -> None:
        for group in list(self._groups):
            self._forget(group)

    def observe(self) -> tuple[SliceObservation, ...]:
        """Return the device time of each member of groups with several rows."""
        return tuple(sorted(self._observe_members(time.monotonic()), key=lambda seen: seen.key))

    def _observe_members(self, now: float) -> Iterator[SliceObservation]:
        for record in self._spool.live():
            if record.share is None or len(record.share.rows) < 2 or not record.pid:
                continue
            used = self._on_devices(record.key, record.park.changed) if record.park.stage is ParkStage.PARKED else None
            state, began = record.park, started_ns(record.start_ticks) * 1e-9
            yield SliceObservation(
                record.key,
                state.stage is ParkStage.EXECUTES,
                accounting.executed_seconds(record, began, now),
                max(0.0, now - record.share.since),
                state.switches,
                state.switching_seconds,
                "" if state.rung is None else state.rung.value,
                sum(used.values()) << 20 if used else state.residue_bytes,
                state.wait_seconds,
                state.park_seconds,
                state.resume_seconds,
                state.outlasted_seconds,
                tried=record.key in self._tried or state.switches > 0 or state.outlasted_seconds > 0,
            )

    # The turn.

    def _turn(self, state: _Group, plan: SharePlan, members: list[RunRecord], now: float) -> Turn:
        live = {record.key for record in members if record.pid or not self._waits(record.key)}
        known = self._spool.runs
        is_local = all(key in known for row in plan.rows for key in row.runs)
        # If this node knows that no run of a row can execute, the row gives its time to the others. Other nodes cannot know
        # that yet, so a group on several nodes keeps its turns until the scheduler changes the plan.
        weights = turns.with_turns(
            {place: row.weight for place, row in enumerate(plan.rows) if not is_local or any(key in live for key in row.runs)}
        )
        stopping = [r for r in members if r.phase is RunPhase.STOPPING and r.pid and self._is_in(plan, r.key)]
        if stopping:  # one that executes comes first, until it has ended: its grace period does not wait
            first = min(stopping, key=lambda r: (not self._parking.executes(r.key), r.key))
            place = next(place for place, row in enumerate(plan.rows) if first.key in row.runs)
            return turns.lasting_turn(place, now, first.key.job_id, first.key.run)
        if len(weights) < 2:
            row = next(iter(weights), 0)
            return turns.lasting_turn(row, now) if len(plan.rows) > 1 else Turn(row, now, inf)
        if is_local and (cycle := int(now // plan.period)) != state.cycle:
            state.cycle, state.used_losses = cycle, dict(state.losses)
        losses = tuple(state.used_losses.get(place, 0.0) for place in weights) if is_local else ()
        return turns.turn_at(now, weights, plan.period, losses)

    def _schedule_next_turn(self, group: int, state: _Group, turn: Turn, now: float) -> None:
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None
        if turn.renewed_at != inf:
            delay = max(0.0, turn.renewed_at - now) + 0.0005  # so that the wall clock has passed it
            state.timer = asyncio.get_running_loop().call_later(delay, self._guarded, self.take_turn, group)

    def _move(self, state: _Group, plan: SharePlan, turn: Turn, members: list[RunRecord]) -> None:
        active = set(plan.rows[turn.row].runs)
        sliced = [record for record in members if not record.to_park and self._is_in(plan, record.key)]
        seen = [
            Member(
                record.key,
                frozenset(record.share.devices if record.share is not None else ()),
                self._parking.executes(record.key) if _has_begun(record) else record.key in self._begun,
            )
            for record in sliced
        ]
        park, go = turns.moves(active, seen)
        of = {record.key: record for record in sliced}
        length = plan.period * max(plan.rows[turn.row].weight, 1) / max(sum(row.weight for row in plan.rows), 1)
        limit = max(_SHORTEST_LIMIT, _LIMIT_OF_TURN * length)
        for key in sorted(park):
            if of[key].phase is RunPhase.STOPPING:
                self._parking.want(key, parked=False)  # it has its grace period to use
            elif of[key].pid and key not in state.unable:
                state.switching.add(key)
                # Without the generation, which reaches the nodes at different times: the park is the same one.
                number = park_number(plan.group, *turn.name)
                self._parking.want(key, parked=True, limit=limit, number=number)
        for key in sorted(go):
            record = of[key]
            if _has_begun(record):
                state.switching.add(key)
                self._parking.want(key, parked=False)
            elif record.phase is RunPhase.STARTING and key not in self._begun and not self._waits(key):
                self._begun.add(key)
                self._guarded(self._start, key)
        for key in active & of.keys():
            if key not in go and _has_begun(of[key]) and self._parking.executes(key):
                self._parking.want(key, parked=False)  # it may just be being parked

    @staticmethod
    def _is_in(plan: SharePlan, key: RunKey) -> bool:
        return any(key in row.runs for row in plan.rows)

    # What switching costs.

    def _learn(self, state: _Group, row: int, loss: float) -> None:
        before = state.losses.get(row)
        state.losses[row] = loss if before is None else before + _SMOOTHING * (loss - before)

    def _prepare_later(self, state: _Group, turn: Turn, plan: SharePlan, now: float) -> None:
        if state.preparing is not None:
            state.preparing.cancel()
            state.preparing = None
        if turn.ends != inf:
            delay = _PREPARE_AT * max(0.0, turn.ends - now)
            act = partial(self._prepare, plan.rows[turn.row].runs)
            state.preparing = asyncio.get_running_loop().call_later(delay, self._guarded, act)

    def _prepare(self, keys: tuple[RunKey, ...]) -> None:
        for key in keys:
            record = self._spool.runs.get(key)
            if record is not None and record.pid and record.phase is RunPhase.RUNNING:
                self._parking.prepare(key)

    def _find_member(self, key: RunKey) -> tuple[int, _Group, RunRecord] | None:
        record = self._spool.runs.get(key)
        if record is None or record.share is None:
            return None
        group = record.share.group
        return group, self._groups.setdefault(group, _Group()), record

    def _forget(self, group: int) -> None:
        state = self._groups.pop(group, None)
        for timer in (state.timer, state.preparing) if state is not None else ():
            if timer is not None:
                timer.cancel()


def _has_begun(record: RunRecord) -> bool:
    """Whether a run has a process that executes its program. A warm process only waits until it may begin."""
    return bool(record.pid) and record.phase is not RunPhase.STARTING
