"""What the agent does about what is desired, as a table."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.run_state import reconcile as module
from node_agent.run_state.model import (
    Desired,
    Gang,
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
from node_agent.run_state.reconcile import (
    TABLE,
    Action,
    Begin,
    Go,
    Launch,
    Note,
    Park,
    Prepare,
    Refuse,
    Release,
    Stop,
    Warm,
    reconcile,
    record_after,
)
from node_agent.run_state.share_plan import SharePlan, ShareRow

KEY = RunKey(7, 1)
NOW = 100.0
SPEC = LaunchSpec(KEY, ("true",))
TASK = LaunchSpec(KEY, ("true",), gang=Gang(1, 3, 0, 2, 1, ("a", "b")))
TOLD = LaunchSpec(KEY, ("other",), gang=Gang(0, 0, 0, 0, 0, (), "a", 77))
TOGETHER = LaunchSpec(KEY, ("true",), gang=Gang(1, 3, 0, 2, 1, ("a", "b"), "a", 77))
OLD, NEW = 4, 5
"""Generations: the one that the spool has, and the next."""
STARTING = RunRecord(KEY, RunPhase.STARTING, SPEC, generation=OLD)
RUNNING = RunRecord(KEY, RunPhase.RUNNING, pid=5, generation=OLD)
STOPPING = RunRecord(KEY, RunPhase.STOPPING, pid=5, stop_received=90.0, stop_deadline=120.0, generation=OLD)
ENDED = RunRecord(KEY, RunPhase.ENDED, pid=5, generation=OLD)
PREPARING = RunRecord(KEY, RunPhase.PREPARING, TASK, generation=OLD)
READY = RunRecord(KEY, RunPhase.READY, TASK, generation=OLD)
TASK_STARTING = RunRecord(KEY, RunPhase.STARTING, TOGETHER, generation=OLD)
IS_WARM = RunRecord(KEY, RunPhase.WARMING, SPEC, pid=5, generation=OLD)
PARKING = RunRecord(KEY, RunPhase.PARKING, pid=5, to_park=True, generation=OLD)
PARKED = RunRecord(KEY, RunPhase.PARKED, pid=5, to_park=True, generation=OLD)
RESUMING = RunRecord(KEY, RunPhase.RESUMING, pid=5, generation=OLD)
KNOWN = (PREPARING, READY, IS_WARM, STARTING, TASK_STARTING, RUNNING, PARKING, PARKED, RESUMING, STOPPING, ENDED)
PLAN = SharePlan(3, 1, (ShareRow((KEY,)), ShareRow((RunKey(8, 1),))), 60.0)

RUN, PREPARE, GO = Running(SPEC, NEW), Prepared(TASK, NEW), Running(TOLD, NEW)
PARK, SHARING = Parked(SPEC, NEW, 9.0), Running(replace(SPEC, share=PLAN), NEW)
NOTE, RESUME = Note(KEY, NEW), Go(KEY, NEW)
WARM = Warming(SPEC, NEW)


def stop(grace: float, generation: int = NEW) -> Stopped:
    return Stopped(KEY, generation, grace)


@pytest.mark.parametrize(
    ("desired", "known", "action"),
    [
        (PREPARE, None, Prepare(TASK, NEW)),
        (PREPARE, PREPARING, NOTE),
        (PREPARE, READY, NOTE),
        (PREPARE, TASK_STARTING, NOTE),
        (PREPARE, RUNNING, NOTE),
        (PREPARE, STOPPING, NOTE),
        (PREPARE, ENDED, NOTE),
        (WARM, None, Warm(SPEC, NEW)),
        (WARM, IS_WARM, NOTE),
        (WARM, RUNNING, NOTE),
        (GO, IS_WARM, Begin(TOLD, NEW)),
        (stop(0), IS_WARM, Stop(KEY, NEW, NOW, NOW)),
        (RUN, None, Launch(SPEC, NEW)),
        (GO, None, Launch(TOLD, NEW)),
        (GO, PREPARING, Launch(TOGETHER, NEW)),
        (GO, READY, Launch(TOGETHER, NEW)),
        (RUN, STARTING, RESUME),
        (GO, TASK_STARTING, RESUME),
        (RUN, RUNNING, RESUME),
        (RUN, PARKING, RESUME),
        (RUN, PARKED, RESUME),
        (RUN, RESUMING, RESUME),
        (SHARING, RUNNING, Go(KEY, NEW, replace(PLAN, since=NOW))),
        (PARK, None, Launch(SPEC, NEW, 9.0)),
        (replace(PARK, launch=TOLD), READY, Launch(TOGETHER, NEW, 9.0)),
        (PARK, STARTING, Park(KEY, NEW, 9.0)),
        (PARK, RUNNING, Park(KEY, NEW, 9.0)),
        (PARK, PARKING, Park(KEY, NEW, 9.0)),
        (PARK, PARKED, Park(KEY, NEW, 9.0)),
        (PARK, RESUMING, Park(KEY, NEW, 9.0)),
        (PARK, STOPPING, NOTE),
        (PARK, ENDED, NOTE),
        (stop(30), PARKED, Stop(KEY, NEW, NOW, 130.0)),
        (RUN, STOPPING, NOTE),
        (RUN, ENDED, NOTE),
        (stop(30), None, Refuse(KEY, NEW)),
        (stop(30), PREPARING, Release(KEY, NEW)),
        (stop(30), READY, Release(KEY, NEW)),
        (stop(30), STARTING, Stop(KEY, NEW, NOW, 130.0)),
        (stop(30), TASK_STARTING, Stop(KEY, NEW, NOW, 130.0)),
        (stop(30), RUNNING, Stop(KEY, NEW, NOW, 130.0)),
        (stop(0), RUNNING, Stop(KEY, NEW, NOW, NOW)),
        (Stopped(KEY, NEW, 30, StopReason.PREEMPTED, 9), RUNNING, Stop(KEY, NEW, NOW, 130.0, StopReason.PREEMPTED, 9)),
        (stop(30), STOPPING, Stop(KEY, NEW, 90.0, 120.0)),
        (stop(60), STOPPING, Stop(KEY, NEW, 90.0, 120.0)),
        (stop(20), STOPPING, Stop(KEY, NEW, 90.0, 110.0)),
        (stop(0), STOPPING, Stop(KEY, NEW, 90.0, 90.0)),
        (stop(30), ENDED, NOTE),
    ],
)
def test_row_by_row(desired: Desired, known: RunRecord | None, action: Action) -> None:
    assert reconcile([desired], {} if known is None else {KEY: known}, NOW) == [action]


@pytest.mark.parametrize("generation", [OLD, OLD - 1])
@pytest.mark.parametrize("desired", [PREPARE, RUN, GO, PARK, stop(0)])
@pytest.mark.parametrize("known", KNOWN)
def test_what_is_no_newer_changes_nothing(desired: Desired, known: RunRecord, generation: int) -> None:
    assert reconcile([replace(desired, generation=generation)], {KEY: known}, NOW) == []


def test_the_module_shows_the_table_that_it_goes_by() -> None:
    assert module.__doc__ is not None
    head, *rows = (line.split() for line in module.__doc__.splitlines() if line.startswith("    ") and len(line.split()) == 12)
    assert head[1] == "unknown"
    columns = [None, *(RunPhase[name.upper()] for name in head[2:])]
    assert set(columns) == {None, *RunPhase}
    for state, *actions in rows:
        (kind,) = (kind for kind in TABLE if kind.__name__ == state)
        desired: Desired = {Prepared: PREPARE, Warming: WARM, Running: GO, Parked: PARK, Stopped: stop(5)}[kind]
        for phase, action in zip(columns, actions, strict=True):
            known = {record.phase: record for record in KNOWN}
            found = reconcile([desired], {} if phase is None else {KEY: known[phase]}, NOW)
            assert [type(each).__name__ for each in found] == [action], (state, phase)
    assert len(rows) == len(TABLE)


@pytest.mark.parametrize(
    ("wanted", "known", "actions"),
    [
        ([], RUNNING, []),
        ([Running(SPEC, 1), Running(SPEC, 1)], None, [Launch(SPEC, 1)]),
        ([Running(SPEC, 1), stop(30, 2)], None, [Launch(SPEC, 1), Stop(KEY, 2, NOW, 130.0)]),
        ([stop(30, 2), Running(SPEC, 1)], None, [Refuse(KEY, 2)]),
        ([Prepared(TASK, 1), Running(TOLD, 2)], None, [Prepare(TASK, 1), Launch(TOGETHER, 2)]),
        ([Running(TOLD, 2), Prepared(TASK, 1)], None, [Launch(TOLD, 2)]),
        ([Prepared(TASK, 1), stop(30, 2)], None, [Prepare(TASK, 1), Release(KEY, 2)]),
        ([Running(TOLD, NEW), stop(30, NEW + 1)], READY, [Launch(TOGETHER, NEW), Stop(KEY, NEW + 1, NOW, 130.0)]),
        ([stop(30, NEW + 1), Running(TOLD, NEW)], READY, [Release(KEY, NEW + 1)]),
        ([stop(30, NEW), stop(20, NEW + 1)], RUNNING, [Stop(KEY, NEW, NOW, 130.0), Stop(KEY, NEW + 1, NOW, 120.0)]),
    ],
)
def test_several_of_one_run_in_one_message(wanted: list[Desired], known: RunRecord | None, actions: list[Action]) -> None:
    assert reconcile(wanted, {} if known is None else {KEY: known}, NOW) == actions


@pytest.mark.parametrize("key", [RunKey(7, 2), RunKey(7, 1, 1)])
def test_another_run_or_task_of_the_same_job_is_another_run(key: RunKey) -> None:
    second = LaunchSpec(key, ("true",))
    assert reconcile([Running(second, 1)], {KEY: ENDED}, NOW) == [Launch(second, 1)]


# ---- any sequence ends as its newest -----------------------------------------------------------------------------------

GANG = [Prepared(TASK, 1), Running(TOLD, 2)]
ALONE: list[Desired] = [Running(SPEC, 1)]


class Node:
    """An agent of one run, without anything around it: what it keeps, and what it has done."""

    def __init__(self) -> None:
        self.kept: dict[RunKey, RunRecord] = {}
        self.launched: list[LaunchSpec] = []

    def hear(self, desired: Desired) -> None:
        for action in reconcile([desired], self.kept, NOW):
            self.kept[KEY] = record_after(action, self.kept.get(KEY))

    def goes_on(self) -> None:
        """One thing happens that follows from what is kept: also after a restart nothing else is known."""
        record = self.kept.get(KEY)
        match record:
            case RunRecord(phase=RunPhase.PREPARING):
                self.kept[KEY] = replace(record, phase=RunPhase.READY, port=1)
            case RunRecord(phase=RunPhase.STARTING, launch=LaunchSpec() as launch):
                self.launched.append(launch)
                phase = RunPhase.PARKING if record.to_park else RunPhase.RUNNING
                self.kept[KEY] = replace(record, phase=phase, launch=None, pid=5)
            case RunRecord(phase=RunPhase.PARKING):
                self.kept[KEY] = replace(record, phase=RunPhase.PARKED)
            case RunRecord(phase=RunPhase.RESUMING):
                self.kept[KEY] = replace(record, phase=RunPhase.RUNNING)
            case RunRecord(phase=RunPhase.STOPPING):
                self.kept[KEY] = replace(record, phase=RunPhase.ENDED, launch=None)

    def settle(self) -> RunPhase:
        for _ in RunPhase:
            self.goes_on()
        return self.kept[KEY].phase


@st.composite
def histories(draw: st.DrawFn) -> list[Desired]:
    """What is desired of a run over its life: it may be parked and resumed some times. It is stopped at some time or never, and
    then in less and less time."""
    begins: list[Desired] = list(draw(st.sampled_from([GANG, ALONE, GANG[:1]])))
    if isinstance(running := begins[-1], Running):
        for parks in range(draw(st.integers(0, 3))):
            generation = len(begins) + 1
            begins.append(Running(running.launch, generation) if parks % 2 else Parked(running.launch, generation, 9.0))
    graces = sorted(draw(st.lists(st.integers(0, 60), max_size=3, unique=True)), reverse=True)
    return [*begins, *(stop(grace, len(begins) + 1 + place) for place, grace in enumerate(graces))]


@given(histories(), st.data())
def test_repeats_and_reorderings_and_restarts_end_as_one_delivery_of_the_newest(
    history: list[Desired], data: st.DataObject
) -> None:
    newest = history[-1]
    comes = data.draw(st.lists(st.sampled_from(history), max_size=8))
    comes.insert(data.draw(st.integers(0, len(comes))), newest)
    node, once = Node(), Node()
    for desired in comes:
        node.hear(desired)
        for _ in range(data.draw(st.integers(0, 2))):
            node.goes_on()
    once.hear(newest)
    assert node.settle() == once.settle()
    kept = node.kept[KEY]
    assert kept.generation == newest.generation
    assert len(node.launched) <= 1
    assert all(launch.gang is None or launch.gang.master_port == 77 for launch in node.launched), "it began without its gang"
    if kept.stop_deadline is not None:
        assert isinstance(newest, Stopped)
        graces = [desired.grace for desired in comes if isinstance(desired, Stopped)]
        assert NOW + newest.grace <= kept.stop_deadline <= NOW + max(graces), "it was killed in no time that it was given"
    before = dict(node.kept)
    for desired in history:
        node.hear(desired)
    assert node.kept == before, "nothing that comes again changes anything"


def test_a_deadline_is_the_newest_in_whatever_order_stops_come() -> None:
    stops = [stop(60, 2), stop(30, 3), stop(10, 4)]
    for comes in itertools.permutations(stops):
        node = Node()
        node.hear(Running(SPEC, 1))
        node.goes_on()
        for desired in comes:
            node.hear(desired)
        assert node.kept[KEY].stop_deadline == NOW + 10


def test_names() -> None:
    names = {RunKey(17, 1): ("17.1", "17.1"), RunKey(17, 1, 2): ("17.1/2", "17.1.2")}
    assert {key: (str(key), key.name) for key in names} == names
    assert [RunKey.parse(key.name) for key in names] == list(names)
