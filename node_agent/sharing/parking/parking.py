"""Makes runs parked or executing, as wanted: one state machine for all who want it.

Each step is written to the spool before it is done. An agent that finds a run partly parked resumes from there.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from ebb_inject.ebb_hook import control
from node_agent.processes.job_reports import read_record
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Phases
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.run_state.park_state import ParkStage, ParkState, Rung
from node_agent.sharing.parking import accounting, host_memory, requests
from node_agent.sharing.parking.freezing import Processes
from node_agent.sharing.parking.ladder import Failed, Ladder, Target
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

_STEPS_AHEAD = 2
"""Steps after the furthest known one at which all processes of a training park: none can have got further by then."""
_SECONDS_AHEAD = 0.05
"""Seconds within which all processes have been asked."""


class Told(Protocol):
    """The receiver of results. Every method is called once the spool has kept the change."""

    def handle_parked(self, key: RunKey, phases: Phases) -> None: ...

    def handle_resumed(self, key: RunKey, phases: Phases) -> None: ...

    def handle_refused(self, key: RunKey, reason: str, lost: bool) -> None: ...

    def not_saved(self, key: RunKey, reason: str) -> None:
        """A parked run was to save and exit, and stays parked."""


class Node(NamedTuple):
    """The node, as far as parking has to know it."""

    total_bytes: int
    """Host memory for parked runs."""
    on_devices: Callable[[RunKey, float], Mapping[int, int] | None] = lambda _key, _since: {}
    """The memory of each process of a run on devices, in MiB, by a look that began since a time (monotonic); None: unknown."""
    uses_mps: Callable[[RunKey], bool] = lambda _: False


class Wanted(NamedTuple):
    """The wanted state of a run."""

    parked: bool
    limit: float = 0.0
    """Seconds that a park may take."""
    number: int = 0
    """Number of the park."""


def park_number(*parts: int) -> int:
    """Return the number of the park with this name within a launch. All nodes compute the same without talking."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


class Parking:
    """The parks of one spool's runs. `guarded` calls a function for the event loop, and reports what fails in it."""

    def __init__(
        self,
        spool: Spool,
        holding: RunCgroups,
        paths: Paths,
        ladder: Ladder,
        node: Node,
        told: Told,
        guarded: Callable[..., None],
    ) -> None:
        self._spool = spool
        self._holding = holding
        self._paths = paths
        self._ladder = ladder
        self._node = node
        self._told = told
        self._guarded = guarded
        self._wanted: dict[RunKey, Wanted] = {}
        self._at_work: dict[RunKey, asyncio.Task[None]] = {}
        self._steps: dict[tuple[int, int], int] = {}
        """The step after which all tasks of a launch park, by launch."""

    def want(self, key: RunKey, parked: bool, limit: float = 0.0, number: int = 0) -> None:
        """Make a run that has a process park within `limit` seconds, or execute. Harmless to repeat.

        `number` is that of the park, which a gang on several nodes needs: the same on all of them, and another one for each
        park (`park_number`)."""
        number = number if parked and self._spool.runs[key].gang_nodes > 1 else 0
        self._wanted[key] = Wanted(parked, limit, number)
        if key not in self._at_work and not self._is_as_wanted(key):
            task = self._at_work[key] = asyncio.get_running_loop().create_task(self._work(key))
            task.add_done_callback(partial(self._guarded, self._finish_task, key))

    def executes(self, key: RunKey) -> bool:
        """Whether a run that has a process may be on its devices: it is not parked, or is about to resume."""
        resumes = key in self._at_work and not self._is_to_park(key)
        return resumes or self._spool.runs[key].park.stage is not ParkStage.PARKED

    def prepare(self, key: RunKey) -> None:
        """Prepare the host memory that a first park of a run will need."""
        if key not in self._at_work and not self._spool.runs[key].park.switches:
            requests.tell(self._paths.park(key), control.PREPARE)

    def save(self, key: RunKey, deadline: float) -> None:
        """Make a parked run save its checkpoint and exit, without its devices. Harmless to repeat."""
        self._wanted[key] = Wanted(True)
        if key not in self._at_work:
            task = self._at_work[key] = asyncio.get_running_loop().create_task(self._save(key, deadline))
            task.add_done_callback(partial(self._guarded, self._finish_task, key))

    async def _save(self, key: RunKey, deadline: float) -> None:
        record = self._spool.runs[key]
        why = await self._ladder.save(self._target(record), record.park, deadline)
        if why and self._spool.runs[key].phase is not RunPhase.ENDED:
            log.warning("run %s: cannot save while it is parked: %s", key, why)
            self._told.not_saved(key, why)

    def forget(self, key: RunKey) -> None:
        """Forget a run that has ended, or is being killed."""
        self._wanted.pop(key, None)
        if (task := self._at_work.pop(key, None)) is not None:
            task.cancel()

    def close(self) -> None:
        """Change nothing from here on; the next agent resumes from the spool."""
        for task in self._at_work.values():
            task.cancel()
        self._at_work.clear()

    def _finish_task(self, key: RunKey, task: asyncio.Task[None]) -> None:
        if self._at_work.get(key) is task:
            del self._at_work[key]
        if not task.cancelled():
            task.result()
            if key in self._wanted and not self._is_as_wanted(key):
                self.want(key, *self._wanted[key])

    def _is_to_park(self, key: RunKey, number: int | None = None) -> bool:
        """Whether a park of the run is wanted, and if `number` is given, that park."""
        wanted = self._wanted.get(key, Wanted(False))
        return wanted.parked and number in (None, wanted.number)

    def _is_as_wanted(self, key: RunKey) -> bool:
        record = self._spool.runs.get(key)
        if record is None or record.phase is RunPhase.ENDED or not record.pid:
            return True
        wanted = ParkStage.PARKED if self._wanted[key].parked else ParkStage.EXECUTES
        return record.park.stage is wanted

    async def _work(self, key: RunKey) -> None:
        while key in self._wanted and not self._is_as_wanted(key):
            wanted = self._wanted[key]
            await (self._park(key, wanted) if wanted.parked else self._resume(key))

    async def _park(self, key: RunKey, wanted: Wanted) -> None:
        began, record = time.monotonic(), self._spool.runs[key]
        total = self._node.total_bytes
        room = host_memory.room(self._spool.live(), key, total)
        if room:
            self._holding.allow(record, room)
            target = self._target(record, wanted.number)
            result = await self._ladder.park(
                target,
                record.park,
                limit=wanted.limit,
                most_bytes=room,
                abandoned=lambda: not self._is_to_park(key),  # one with another number is next: others may be parked by now
                noted=partial(self._note_rung, key),
            )
            if not isinstance(result, Failed):
                # Others may have been parked meanwhile, when it was not known how much they would move.
                room = host_memory.room(self._spool.live(), key, total)
                if result.bytes > room:
                    why = host_memory.full_text(total, total - room)
                    back = await self._ladder.resume(target, self._spool.runs[key].park)
                    result = Failed(f"{why}; and it does not resume: {back.reason}" if isinstance(back, Failed) else why)
                    result = result._replace(lost=isinstance(back, Failed))
        else:
            result = Failed(host_memory.full_text(total, total - room))
        now, record = time.monotonic(), self._spool.runs[key]
        if record.phase is RunPhase.ENDED:
            return
        if not isinstance(result, Failed):
            self._keep(record, accounting.end_park(record.park, result, began, now))
            self._holding.allow(record, self._spool.runs[key].park.most_bytes)
            log.debug("run %s: parked (%s), %d MiB moved", key, result.rung, result.bytes >> 20)
            if self._is_to_park(key):  # otherwise it resumes immediately, and its devices are not free
                self._told.handle_parked(key, result.phases)
            return
        self._holding.allow(record, record.park.most_bytes)
        if not result.lost:
            limit = wanted.limit if self._is_to_park(key, wanted.number) else min(wanted.limit, now - began)
            self._keep(record, accounting.continue_execution(record.park, began, now, limit if result.late else 0.0))
        if not result.lost and self._is_to_park(key) and not self._is_to_park(key, wanted.number):
            return  # another park is wanted by now, and is tried next
        if self._is_to_park(key):
            self._wanted[key] = Wanted(False)
            log.warning("run %s: cannot be parked: %s%s", key, result.reason, "; killing it" if result.lost else "")
            self._told.handle_refused(key, result.reason, result.lost)
        elif result.lost:
            self._told.handle_refused(key, result.reason, lost=True)
        else:
            self._told.handle_resumed(key, ())

    async def _resume(self, key: RunKey) -> None:
        began, record = time.monotonic(), self._spool.runs[key]
        state = accounting.begin_resume(record.park, began)
        self._keep(record, state)
        result = await self._ladder.resume(self._target(record), state)
        record = self._spool.runs[key]
        if record.phase is RunPhase.ENDED:
            return
        if isinstance(result, Failed):
            log.error("run %s: does not resume: %s; killing it", key, result.reason)
            self._told.handle_refused(key, result.reason, lost=True)
            return
        self._keep(record, accounting.continue_execution(record.park, began, time.monotonic()))
        log.debug("run %s: resumed", key)
        self._told.handle_resumed(key, result.phases)

    def _note_rung(self, key: RunKey, rung: Rung, pids: tuple[int, ...]) -> None:
        record = self._spool.runs[key]
        self._keep(record, accounting.begin_park(record.park, rung, pids, time.monotonic()))

    def _keep(self, record: RunRecord, state: ParkState) -> None:
        self._spool.remember([replace(record, park=state)])

    def _target(self, record: RunRecord, number: int = 0) -> Target:
        key = record.key
        return Target(
            Processes(record.pid, record.start_ticks, self._holding.path(key)),
            self._paths.park(key),
            partial(self._node.on_devices, key),
            partial(self._first_park_step, record),
            alone=record.gang_size == 1,
            on_nodes=record.gang_nodes,
            number=number,
            mps=self._node.uses_mps(key),
        )

    def _first_park_step(self, record: RunRecord) -> int:
        """Return the first step after which the processes of a run may park; 0 for a program with one process that can park.

        Processes that train together must park after the same step. They are never more than a step apart, as each step waits
        for all of them, so a step that is a few ahead of the furthest is the same to all.
        """
        key, now = record.key, time.monotonic_ns()
        if record.gang_size == 1 and len(control.live(self._paths.park(key))) < 2:
            return 0
        launch = key.job_id, key.run
        tasks = [each.key for each in self._spool.live() if (each.key.job_id, each.key.run) == launch]
        records = [found for task in tasks if (found := read_record(self._paths.steps(task), now)) is not None]
        furthest = max((found.first + found.counted for found in records), default=0)
        agreed = self._steps.get(launch, 0)
        if agreed > furthest or not furthest:
            return agreed
        timed = max((found.counted - found.untimed for found in records), default=0)
        busy = max((found.busy_ns for found in records), default=0)
        ahead = _SECONDS_AHEAD * timed / (busy * 1e-9) if busy else 0.0
        self._steps[launch] = furthest + _STEPS_AHEAD + round(ahead)
        return self._steps[launch]
