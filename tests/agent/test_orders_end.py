"""Whatever a scheduler orders, in whatever phase a run is, comes to an end in a time that can be said: a property over the
agent's whole machinery for runs, with time that passes by itself."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from node_agent.processes.launcher.client import Connected
from node_agent.run_state.events import Ready, RunParkRefused
from node_agent.run_state.model import (
    Desired,
    Gang,
    LaunchSpec,
    Parked,
    Prepared,
    Process,
    RunKey,
    Running,
    RunPhase,
    Stopped,
    StopReason,
    Warming,
)
from node_agent.run_state.share_plan import SharePlan, ShareRow
from tests.agent.run_world import Conduct, World, play
from tests.thorough import examples

ALONE = tuple(RunKey(job, 1) for job in (1, 2, 3))
GANG = tuple(RunKey(4, 1, task) for task in (0, 1))
MOVED = RunKey(5, 2)
KEYS = (*ALONE, *GANG, MOVED)
DEVICES = {ALONE[0]: (0,), ALONE[1]: (0,), ALONE[2]: (1,), GANG[0]: (0,), GANG[1]: (1,), MOVED: (0,)}
SETTLED = 200.0
"""Seconds in which everything that was ordered has come about: retries, parks, several cycles of turns."""
LEAVES = 60.0
"""Seconds beyond the grace period in which a run that is stopped has ended."""
REASONS = (
    *(StopReason.CANCELLED, StopReason.SUSPENDED, StopReason.REQUEUED, StopReason.PREEMPTED, StopReason.DRAINED),
    *(StopReason.MIGRATED, StopReason.TIME_LIMIT, StopReason.GANG),
)


def launch(key: RunKey, share: SharePlan | None = None, meets: bool = True) -> LaunchSpec:
    gang = None
    if key in GANG:
        gang = Gang(key.task, 2, key.task, 2, 0, ("n1",), *(("127.0.0.1", 1) if meets else ()))
    return LaunchSpec(key, ("python", "train.py"), devices=DEVICES[key], gang=gang, share=share)


@dataclass
class Scheduler:
    """What it desires, as the core would: a run that was stopped is told nothing else any more."""

    world: World
    desired: dict[RunKey, Desired] = field(default_factory=dict)
    rows: tuple[ShareRow, ...] = ()
    generation: int = 0
    graces: dict[RunKey, float] = field(default_factory=dict)

    def order(self, *desired: Desired) -> None:
        self.desired |= {each.key: each for each in desired}
        self.world.obey(desired)

    def next(self, key: RunKey) -> int:
        return self.desired[key].generation + 1 if key in self.desired else 1

    def may(self, key: RunKey) -> bool:
        return not isinstance(self.desired.get(key), Stopped)

    def share(self, key: RunKey) -> SharePlan | None:
        if not any(key in row.runs for row in self.rows):
            return None
        return SharePlan(1, self.generation, self.rows, 20.0, DEVICES[key])

    def tasks(self, key: RunKey) -> tuple[RunKey, ...]:
        return GANG if key in GANG else (key,)

    # Orders.

    def prepare(self, key: RunKey) -> None:
        for task in self.tasks(key):
            if task not in self.desired and task in GANG:
                self.order(Prepared(launch(task, self.share(task), meets=False), 1))
            elif task not in self.desired and task == MOVED:
                self.order(Warming(launch(task), 1))

    def run(self, key: RunKey) -> None:
        for task in filter(self.may, self.tasks(key)):
            self.order(Running(launch(task, self.share(task)), self.next(task)))

    def park(self, key: RunKey) -> None:
        for task in filter(self.may, self.tasks(key)):
            if isinstance(self.desired.get(task), Running | Parked):
                self.order(Parked(launch(task, self.share(task)), self.next(task), 10.0, self.next(task)))

    def stop(self, key: RunKey, grace: float, reason: StopReason) -> None:
        for task in self.tasks(key):
            self.graces[task] = min(grace, self.graces.get(task, grace))
            self.order(Stopped(task, self.next(task), self.graces[task], reason))

    def plan(self, rows: tuple[ShareRow, ...]) -> None:
        """Another plan for those that are not stopped. Who takes no part any more has its devices alone."""
        self.rows, self.generation = rows, self.generation + 1
        told = [
            replace(desired, launch=replace(desired.launch, share=self.share(key)), generation=desired.generation + 1)
            for key, desired in self.desired.items()
            if isinstance(desired, Running | Parked)
        ]
        self.order(*told)

    def again(self) -> None:
        """The agent was killed; the next one is told everything."""
        self.world.again()
        self.world.obey(self.desired.values())

    # What has come about.

    def hindered(self, key: RunKey) -> bool:
        """Whether the run may have no turn: its row has none, or a run that cannot be parked has its devices."""
        share = self.share(key)
        if share is None:
            return False
        mine = [row for row in share.rows if key in row.runs]
        stubborn = [
            other
            for row in share.rows
            for other in row.runs
            if other != key and self.world.how(other).parks[-1] in ("refuses", "late") and other in self.world.spool.runs
        ]
        return not any(row.weight for row in mine) or bool(stubborn)

    def unmet(self) -> list[str]:
        found = []
        for key, desired in self.desired.items():
            record = self.world.spool.runs[key]
            phase = record.phase
            if phase is RunPhase.ENDED:
                continue
            events = [report.event for report in self.world.reports if report.key == key]
            refused = any(isinstance(event, RunParkRefused) for event in events)
            good = {
                Stopped: phase is RunPhase.PARKED and refused,  # it was to save and move, and stays where it is
                Prepared: phase is RunPhase.READY,
                Warming: any(isinstance(event, Ready) for event in events),
                Parked: phase is RunPhase.PARKED or (phase is RunPhase.RUNNING and refused) or self.hindered(key),
                Running: phase is RunPhase.RUNNING or self.hindered(key),
            }[type(desired)]
            if not good:
                found.append(f"{key} is {phase.name}, pid {record.pid}, {record.park.stage.name}; desired: {desired}")
        return found


Act = Callable[[Scheduler], None]
keys = st.sampled_from(KEYS)


@st.composite
def plans(draw: st.DrawFn) -> tuple[ShareRow, ...]:
    """Some of the jobs in one to four rows; none: everybody has its devices alone."""
    jobs = [(key,) for key in ALONE] + [GANG, (MOVED,)]
    chosen = draw(st.lists(st.sampled_from(jobs), unique=True, max_size=5))
    rows: list[tuple[RunKey, ...]] = []
    for job in chosen:
        if rows and draw(st.integers(0, 3)) == 0:
            rows[-1] = (*rows[-1], *job)
        else:
            rows.append(job)
    return tuple(ShareRow(tuple(sorted(row)), draw(st.sampled_from((1, 1, 1, 2, 0)))) for row in rows)


acts = st.one_of(
    st.tuples(st.just("prepare"), keys),
    st.tuples(st.just("run"), keys),
    st.tuples(st.just("run"), keys),
    st.tuples(st.just("park"), keys),
    st.tuples(st.just("stop"), keys, st.sampled_from((0.0, 1.0, 30.0)), st.sampled_from(REASONS)),
    st.tuples(st.just("plan"), plans()),
    st.tuples(st.just("again")),
)
waits = st.sampled_from((0.0, 0.0, 0.005, 0.05, 0.3, 3.0, 12.0))
conducts = st.builds(
    Conduct,
    unable=st.sampled_from((0, 0, 0, 1, 3)),
    fails=st.sampled_from((False, False, False, True)),
    spawn_s=st.sampled_from((0.01, 0.01, 1.0)),
    leaves_s=st.sampled_from((0.1, 5.0, None)),
    park_s=st.sampled_from((0.1, 2.0, 15.0)),
    parks=st.sampled_from((("parks",), ("parks",), ("refuses",), ("late", "parks"), ("late",), ("parks", "lost"))),
    warm_s=st.sampled_from((0.1, 3.0)),
)


def scene(state: Path, what: Callable[[World, Scheduler], object]) -> None:
    async def act(world: World) -> None:
        await what(world, Scheduler(world))  # type: ignore[misc]

    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    play(state, act)


async def ends(scheduler: Scheduler) -> None:
    """All that was ordered comes about; and then all runs are stopped, and end."""
    await asyncio.sleep(SETTLED)
    assert scheduler.unmet() == []
    for key in list(scheduler.desired):
        scheduler.stop(key, 30.0, StopReason.CANCELLED)
    await asyncio.sleep(30.0 + LEAVES)
    left = {
        str(key): record.phase.name for key, record in scheduler.world.spool.runs.items() if record.phase is not RunPhase.ENDED
    }
    assert left == {}
    assert scheduler.world.lives == {}


@settings(max_examples=examples(50))
@given(story=st.lists(st.tuples(acts, waits), max_size=20), conduct=st.fixed_dictionaries(dict.fromkeys(KEYS, conducts)))
def test_every_order_in_every_phase_comes_to_an_end(
    story: list[tuple[tuple[object, ...], float]], conduct: dict[RunKey, Conduct]
) -> None:
    async def act(world: World, scheduler: Scheduler) -> None:
        world.conduct = {key: replace(each) for key, each in conduct.items()}
        for (name, *arguments), wait in story:
            note(f"{name} {arguments}, then {wait} s")
            getattr(scheduler, str(name))(*arguments)
            await asyncio.sleep(wait)
        await ends(scheduler)

    with tempfile.TemporaryDirectory() as folder:
        scene(Path(folder) / "state", act)


@pytest.mark.parametrize("grace", [0.0, 30.0])
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("first", [ALONE[0], GANG[0]])
def test_a_run_that_is_stopped_before_its_first_turn(tmp_path: Path, first: RunKey, reason: StopReason, grace: float) -> None:
    """By whatever order: it has no process, and nothing is asked of the launcher on its behalf."""

    async def act(world: World, scheduler: Scheduler) -> None:
        rows = tuple(ShareRow(row) for row in ((ALONE[1],), GANG if first in GANG else (first,)))
        scheduler.plan(rows)
        scheduler.run(ALONE[1])
        await asyncio.sleep(20)
        scheduler.plan((ShareRow(rows[0].runs), ShareRow(rows[1].runs, 0)))  # it gets none
        scheduler.run(first)
        await asyncio.sleep(5)
        assert not world.spool.runs[first].pid
        scheduler.stop(first, grace, reason)
        await asyncio.sleep(1)
        assert world.spool.runs[first].phase is RunPhase.ENDED

    scene(tmp_path / "state", act)


def test_a_stop_that_is_sent_again_is_seen_to_again(tmp_path: Path) -> None:
    """However it came that nothing happens any more about a run."""

    async def act(world: World, scheduler: Scheduler) -> None:
        world.conduct[ALONE[0]] = Conduct(leaves_s=None)
        scheduler.run(ALONE[0])
        await asyncio.sleep(1)
        scheduler.stop(ALONE[0], 5.0, StopReason.CANCELLED)
        world.executor.stopping.forget(ALONE[0])  # the kill is forgotten
        await asyncio.sleep(100)
        assert world.spool.runs[ALONE[0]].phase is RunPhase.STOPPING
        scheduler.stop(ALONE[0], 5.0, StopReason.CANCELLED)
        await asyncio.sleep(1)
        assert world.spool.runs[ALONE[0]].phase is RunPhase.ENDED

    scene(tmp_path / "state", act)


def test_a_launcher_that_connects_again_loses_no_stop(tmp_path: Path) -> None:
    async def act(world: World, scheduler: Scheduler) -> None:
        scheduler.plan((ShareRow((ALONE[0],)), ShareRow((ALONE[1],), 0)))
        scheduler.run(ALONE[0])
        scheduler.run(ALONE[1])
        await asyncio.sleep(5)
        scheduler.stop(ALONE[1], 30.0, StopReason.CANCELLED)
        world.tell(Connected({life.key: Process(pid, life.ticks) for pid, life in world.lives.items()}, {}))
        await asyncio.sleep(1)
        assert world.spool.runs[ALONE[1]].phase is RunPhase.ENDED
        assert world.spool.runs[ALONE[0]].phase is RunPhase.RUNNING

    scene(tmp_path / "state", act)
