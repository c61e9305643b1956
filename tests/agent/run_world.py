"""A node whose time passes by itself: the agent's executor, slices and parking as they are, with a launcher, processes and a
ladder that behave as the test says. Nothing here waits for the clock."""

import asyncio
import json
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from node_agent.devices.simulated import simulate_devices
from node_agent.processes import stray_processes
from node_agent.processes.launcher.client import Absent, Connected, Ended, Event, NotSpawned, Spawned, SpawnRequest, Unable
from node_agent.processes.launcher.spawn import PROCESS_FILE, write_exit
from node_agent.processes.process_groups import boot_id
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Report
from node_agent.run_state.model import Desired, Process, RunKey
from node_agent.run_state.park_state import ParkState, Rung
from node_agent.runs import stopping
from node_agent.runs.executor import Executor
from node_agent.runs.rendezvous import Rendezvous
from node_agent.runs.spool_opening import open_spool
from node_agent.sharing.parking.ladder import Failed, Noted, Parked, Resumed, Target
from node_agent.spool.spool import Spool

_BUSY = 10_000
_FIRST_PID = 5_000_000
"""Above all that a kernel gives: what asks it about such a process hears that there is none."""


@dataclass
class Conduct:
    """What becomes of a run, apart from orders."""

    unable: int = 0
    """So many launches fail by a fault of the node."""
    fails: bool = False
    """Its command cannot be executed."""
    spawn_s: float = 0.01
    """The launcher takes so long for it."""
    leaves_s: float | None = 0.1
    """From SIGTERM to its end; None: it has to be killed."""
    park_s: float = 0.2
    parks: tuple[str, ...] = ("parks",)
    """What its parks come to, one after the other, and the last one again: "parks", "refuses", "late", "lost"."""
    warm_s: float = 0.1


@dataclass
class Life:
    """A process."""

    key: RunKey
    ticks: int
    frozen: bool = False
    terminated: bool = False


@dataclass
class World:
    """What outlives the agent: the launcher, processes, and the reports that the scheduler has."""

    state: Path
    conduct: dict[RunKey, Conduct] = field(default_factory=dict)
    lives: dict[int, Life] = field(default_factory=dict)
    disk: dict[RunKey, dict[str, Any]] = field(default_factory=dict)
    """What the process files say."""
    parks: dict[RunKey, int] = field(default_factory=dict)
    warm: set[RunKey] = field(default_factory=set)
    failures: list[Exception] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    begun: int = 0

    def __post_init__(self) -> None:
        self.again()

    # The agent.

    def again(self) -> None:
        """The agent is killed, if there is one, and another one begins."""
        if hasattr(self, "executor"):
            self.executor.close()
            self.spool.close()
        self.spool: Spool = open_spool(self.state / "spool.db")
        self.paths = Paths(self.state, self.state / "checkpoints", self.spool.short_id, "/hook")
        self.executor = Executor(
            self.spool,
            simulate_devices("dgx-a100", "n1"),
            self.paths,
            "n1",
            Rendezvous(lambda: "127.0.0.1"),
            self.take_reports,
            self.failures.append,
            ladder=self,  # type: ignore[arg-type]
        )
        self.executor.suspending.slices._wall = time.time  # the one that passes by itself
        self.executor.connect(self)  # type: ignore[arg-type]
        own = {life.key: Process(pid, life.ticks) for pid, life in self.lives.items()}
        self.tell(Connected(own, {}))

    def take_reports(self) -> None:
        """The scheduler acknowledges everything at once."""
        known = self.reports[-1].sequence if self.reports else 0
        self.reports += self.spool.pending(known)

    def obey(self, wanted: Iterable[Desired]) -> None:
        self.executor.obey(wanted)
        self.take_reports()

    def tell(self, event: Event) -> None:
        self.executor.hear([event])
        self.take_reports()

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, act)

    def how(self, key: RunKey) -> Conduct:
        return self.conduct.setdefault(key, Conduct())

    # The launcher. It answers in the order in which it is asked, and as the real one does (`test_modelled_launcher.py`).

    def spawn(self, request: SpawnRequest) -> None:
        Path(request.run_directory).mkdir(parents=True, exist_ok=True)
        self.later(self.how(request.key).spawn_s, partial(self._spawn, request, self.executor))

    def find(self, key: RunKey, _directory: str, *, beside: bool = False) -> None:
        if not beside:
            self.later(self.how(key).spawn_s, partial(self._find, key, self.executor))

    def _answer(self, asker: Executor, event: Event) -> None:
        if asker is self.executor:  # the one that was killed hears nothing any more
            self.tell(event)

    def _known(self, key: RunKey, asker: Executor) -> bool:
        """Whether it is a run of this launcher that is not over, which is told then."""
        found = next(((pid, life) for pid, life in self.lives.items() if life.key == key), None)
        if found is not None:
            self._answer(asker, Spawned(key, found[0], found[1].ticks, child=True))
        return found is not None

    def _spawn(self, request: SpawnRequest, asker: Executor) -> None:
        key, conduct = request.key, self.how(request.key)
        if self._known(key, asker):
            return
        if key in self.disk:
            self._find(key, asker)
        elif conduct.unable:
            conduct.unable -= 1
            self._answer(asker, Unable(key, "no space"))
        elif conduct.fails:
            self.disk[key] = {"error": "no such command"}
            self._answer(asker, NotSpawned(key, "no such command"))
        else:
            self.begun += 1
            pid = _FIRST_PID + self.begun
            self.lives[pid] = Life(key, pid * 10)
            self.disk[key] = {"pid": pid, "start": pid * 10, "boot": boot_id()}
            (Path(self.paths.folder(key)) / PROCESS_FILE).write_text(json.dumps(self.disk[key]))
            if (Path(self.paths.folder(key)) / "warm" / "modules").exists():
                self.later(conduct.warm_s, partial(self._is_warm, key))
            self._answer(asker, Spawned(key, pid, pid * 10, child=True))

    def _is_warm(self, key: RunKey) -> None:
        self.warm.add(key)
        (Path(self.paths.folder(key)) / "warm" / "warmed").touch()

    def _find(self, key: RunKey, asker: Executor) -> None:
        if self._known(key, asker):
            return
        known = self.disk.get(key)
        if known is None:
            self._answer(asker, Absent(key))
        elif "error" in known:
            self._answer(asker, NotSpawned(key, known["error"]))
        else:
            self._answer(asker, Spawned(key, known["pid"], known["start"], child=False))

    # Processes.

    def led_by(self, pid: int, ticks: int) -> bool:
        return pid not in self.lives or self.lives[pid].ticks == ticks

    def terminate(self, pid: int, _savers: object = None) -> None:
        if (life := self.lives.get(pid)) is not None:
            life.terminated = True
            self._leave(pid)

    def _leave(self, pid: int) -> None:
        life = self.lives.get(pid)
        if life is not None and life.terminated and not life.frozen:
            seconds = self.how(life.key).leaves_s
            if seconds is not None:
                self.later(seconds, partial(self.end, pid, 0, signal.SIGTERM, thawed=True))

    def kill(self, pid: int, signum: int = signal.SIGKILL) -> None:
        if pid in self.lives:
            self.later(0.01, partial(self.end, pid, 0, signum))

    def end(self, pid: int, code: int, signum: int, thawed: bool = False) -> None:
        life = self.lives.get(pid)
        if life is None or (thawed and life.frozen):
            return
        del self.lives[pid]
        content = {**self.disk[life.key], "code": code, "signal": signum}
        write_exit(self.paths.folder(life.key), content)
        self.tell(Ended(life.key, code, signum))

    # The ladder.

    def _of(self, run: Target) -> tuple[int, Life] | None:
        pid = run.processes.leader
        return (pid, self.lives[pid]) if pid in self.lives else None

    async def park(
        self,
        run: Target,
        before: ParkState,  # noqa: ARG002
        *,
        limit: float,
        most_bytes: int,  # noqa: ARG002
        abandoned: Callable[[], bool],
        noted: Noted,
    ) -> Parked | Failed:
        noted(Rung.COOPERATIVE, ())
        if (found := self._of(run)) is None:
            await asyncio.sleep(0.01)
            return Failed("it has ended")
        pid, life = found
        conduct, times = self.how(life.key), self.parks.get(life.key, 0)
        self.parks[life.key] = times + 1
        comes_to = conduct.parks[min(times, len(conduct.parks) - 1)]
        until = time.monotonic() + (limit if comes_to == "late" else min(conduct.park_s, limit))
        while time.monotonic() < until and not abandoned():
            await asyncio.sleep(min(0.5, max(until - time.monotonic(), 0.001)))
        if comes_to == "parks" and not abandoned() and pid in self.lives:
            life.frozen = True
            return Parked(Rung.COOPERATIVE, 1 << 20, 0, (("copy", 0.01),), 0.01, saves=True)
        return Failed("it does not park", lost=comes_to == "lost", late=comes_to == "late")

    async def resume(self, run: Target, _before: ParkState) -> Resumed | Failed:
        await asyncio.sleep(0.05)
        if (found := self._of(run)) is None:
            return Failed("it has ended")
        pid, life = found
        life.frozen = False
        self._leave(pid)
        return Resumed((("continue", 0.01),))

    async def save(self, run: Target, _state: ParkState, deadline: float) -> str:
        await asyncio.sleep(0.2)
        if (found := self._of(run)) is None:
            return ""
        pid, life = found
        if self.how(life.key).leaves_s is None:
            await asyncio.sleep(max(0.0, deadline - time.monotonic()))
            return "it did not save in time"
        life.frozen = False
        self.end(pid, 0, 0)
        return ""


class _Jumps(selectors.DefaultSelector):
    """Waits for nothing: time is there at once."""

    loop: "Loop"
    looks = 0
    """Without time having passed."""

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        self.looks += 1
        assert self.looks < _BUSY, "it never has nothing to do"
        if not ready and timeout != 0:
            assert timeout is not None, "nothing is going to happen any more"
            self.loop.seconds += timeout
            self.looks = 0
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop in which time passes as soon as nothing is left to do."""

    def __init__(self) -> None:
        selector = _Jumps()
        self.seconds = 10_000.0
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.seconds


def play(state: Path, scene: Callable[[World], Any]) -> None:
    """Runs a scene, a coroutine, on a node of its own."""
    loop = Loop()
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=lambda: loop) as runner:
        patch.setattr(time, "monotonic", loop.time)
        patch.setattr(time, "time", lambda: 1e9 + loop.seconds)
        patch.setattr(stray_processes, "find", lambda *_: {})

        async def act() -> None:
            world = World(state)
            patch.setattr(stopping, "is_led_by", world.led_by)
            patch.setattr(stopping, "terminate_group", world.terminate)
            patch.setattr(stopping, "kill_group", world.kill)
            try:
                await scene(world)
                assert world.failures == []
            finally:
                with suppress(Exception):
                    world.executor.close()
                    world.spool.close()

        runner.run(act())
