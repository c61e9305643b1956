"""The runs of a fake cluster: when the script or the test ends them, and the functions that they call."""

import asyncio
import hashlib
import io
import pickle
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from client_sdk._functions.call import RAISED, execute_call
from client_sdk._functions.packing import COMMAND
from client_sdk.models import Job, JobState
from client_sdk.testing._agents import Agent, Run
from client_sdk.testing._script import Outcome, Script
from ebb_common.archive import unpack
from scheduler_service.store import memory
from scheduler_service.store.memory import Memory

TOLD = Outcome(exit_signal=15)
"""How a run ends after its stop signal."""


class Runs:
    """Everything that runs or ran. Used on the event loop only."""

    def __init__(self, folder: Path, store: Memory, script: Script, by_hand: bool, find: Callable[[int], Job]) -> None:
        """`find`: a job as a client would see it now."""
        self.folder = folder
        self.moves = 0
        """Grows with everything that happens."""
        self.unsaved: set[int] = set()
        """Jobs whose programs save nothing."""
        self.stays: dict[int, Outcome | None] = {}
        """Job that is about to be told to stop -> how it ends then; None: it does not until the test says so."""
        self._store = store
        self._script = script
        self._by_hand = by_hand
        self._find = find
        self._tasks: dict[tuple[int, int], list[tuple[Run, Agent]]] = {}
        """Job and run -> its tasks that have begun."""
        self._asked: set[tuple[int, int]] = set()
        """Job and run of those whose end the script was asked for."""
        self._working: set[asyncio.Task[None]] = set()
        self._happened = asyncio.Event()
        self._fault: Exception | None = None

    # ---- for the agents ------------------------------------------------------------------------------------------------

    def note_move(self) -> None:
        self.moves += 1
        self._happened.set()

    def take_begun(self, run: Run, agent: Agent, sequence: int) -> None:
        self._tasks.setdefault(run.key[:2], []).append((run, agent))
        if not self._by_hand:
            self._work(self._follow_script(run, agent, sequence))

    def must_stop(self, run: Run, agent: Agent) -> None:
        outcome = self.stays.get(run.key[0], None if self._by_hand else TOLD)
        if outcome is not None:
            agent.end(run, outcome)

    def loses_its_work(self, job_id: int) -> bool:
        return job_id in self.unsaved

    # ---- what happens --------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self._working)

    async def happens(self) -> None:
        """Wait until something happens."""
        self._happened.clear()
        await self._happened.wait()

    def take_fault(self) -> Exception | None:
        """Return what the script, or a function, raised since the last call."""
        fault, self._fault = self._fault, None
        return fault

    def current(self, job_id: int, number: int) -> list[tuple[Run, Agent]]:
        """The tasks of a launch that have begun and not ended."""
        return [(run, agent) for run, agent in self._tasks.get((job_id, number), ()) if not run.has_ended]

    async def end(self, job_id: int, number: int, outcome: Outcome) -> None:
        """End a launch. A function is called, unless its run ends with a failure."""
        tasks = self.current(job_id, number)
        if not tasks:
            return
        first = tasks[0][0]
        if _calls_function(first) and outcome == Outcome(output=outcome.output, done=outcome.done):
            code = await asyncio.to_thread(self._call_function, first)
            outcome = replace(outcome, exit_code=code, done=True)
        for run, agent in tasks:
            if not run.has_ended:
                agent.end(run, outcome)

    async def _follow_script(self, run: Run, agent: Agent, sequence: int) -> None:
        await agent.wait_acknowledged(sequence)
        job = self._find(run.key[0])
        launch = run.key[:2]
        if job.state is not JobState.RUNNING or job.run != run.key[1] or launch in self._asked or run.has_ended:
            return  # the last task of a gang to begin asks for all of them
        self._asked.add(launch)
        outcome = await asyncio.to_thread(self._script, job)
        if outcome is not None:
            await self.end(*launch, outcome)

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        async def working() -> None:
            try:
                await work
            except Exception as error:  # of the test's own: its next call raises it
                self._fault = error

        task = asyncio.create_task(working())
        self._working.add(task)
        task.add_done_callback(self._drop_task)

    def _drop_task(self, task: "asyncio.Task[None]") -> None:
        self._working.discard(task)
        self.note_move()

    def _call_function(self, run: Run) -> int:
        """Call the function in this process, and keep its result as the node would; the exit code of the run."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name) / "code"
            unpack(io.BytesIO(self._read(run.user, run.spec.snapshots[-1])), folder)
            outcome = execute_call(str((folder / COMMAND).parent))
        data = pickle.dumps(outcome)
        job_id, number, _ = run.key
        now, digest = time.time_ns() // 1000, hashlib.sha256(data).hexdigest()
        memory.put_piece(self._store, run.user, f"result-{job_id}.{number}", len(data), 0, data, now, digest)
        return 0 if outcome["good"] else RAISED

    def _read(self, owner: str, name: str) -> bytes:
        data, size = b"", -1
        while len(data) != size:
            found = memory.read_piece(self._store, owner, name, len(data))
            if found is None:
                raise FileNotFoundError(f"the snapshot {name} of {owner} is not stored any more")
            data, size = data + found[0], found[1]
        return data


def _calls_function(run: Run) -> bool:
    return bool(run.spec.snapshots) and COMMAND in " ".join(run.spec.command)
