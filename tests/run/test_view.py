"""Watching: a snapshot, then every change once, and a fresh snapshot for whoever fell behind."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NoReturn

import pytest

from scheduler_service.core.model import Job, JobSpec, JobState, Node, NodeDevice, NodeState, Reason, Run, RunPhase
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.journal import Change
from scheduler_service.core.state.queue_keys import ANY, Lane, Named
from scheduler_service.run import read_model as view_module
from scheduler_service.run.queue_heads import with_reason
from scheduler_service.run.read_model import Update, View

LIMIT = 5
SPEC = JobSpec(("true",), Vector(1000, 100, 1))
NODE = Node(1, "n1", "boot", NodeState.UP, Vector(8000, 8000, 8), (), 0)


def job(number: int, **fields: object) -> Job:
    return replace(Job(number, SPEC, "u", "", 0), **fields)  # type: ignore[arg-type]


def change(row: Job | Run | Node | NodeDevice) -> Change:
    match row:
        case NodeDevice():
            return Change("device", (row.node, row.index), None, row)
        case Job():
            return Change("job", row.id, None, row)
        case Run():
            return Change("run", row.key, None, row)
        case _:
            return Change("node", row.id, None, row)


async def following(updates: AsyncIterator[Update]) -> Update:
    return await asyncio.wait_for(anext(updates), LIMIT)


def ids(update: Update) -> list[int]:
    return [shown.job.id for shown in update.jobs]


async def test_begins_with_a_snapshot_and_goes_on_with_changes() -> None:
    view = View([("job", 1, job(1)), ("job", 2, job(2))], commit_no=10)
    updates = view.watch_jobs()
    first = await following(updates)
    assert (first.snapshot, ids(first), first.commit_no) == (True, [1, 2], 10)
    view.apply(11, [change(job(3))], {})
    second = await following(updates)
    assert (second.snapshot, ids(second), second.commit_no) == (False, [3], 11)


async def test_changes_that_come_while_an_update_is_sent_are_not_missed_and_not_repeated() -> None:
    view = View([], commit_no=1)
    updates = view.watch_jobs()
    await following(updates)
    view.apply(2, [change(job(1))], {})
    view.apply(3, [change(job(2))], {})
    assert ids(await following(updates)) == [1, 2]
    waiting = asyncio.create_task(anext(updates))
    await asyncio.sleep(0)
    assert not waiting.done()
    view.apply(4, [change(job(5))], {})
    assert ids(await asyncio.wait_for(waiting, LIMIT)) == [5]


async def test_resumes_after_a_commit_that_is_still_held() -> None:
    view = View([], commit_no=1)
    for number in range(2, 6):
        view.apply(number, [change(job(number))], {})
    update = await following(view.watch_jobs(after_commit=3))
    assert (update.snapshot, ids(update)) == (False, [4, 5])


@pytest.mark.parametrize("token", [1, 99])
async def test_a_token_whose_changes_are_not_held_gets_a_snapshot(monkeypatch: pytest.MonkeyPatch, token: int) -> None:
    monkeypatch.setattr(view_module, "KEPT_COMMITS", 2)
    view = View([], commit_no=1)
    for number in range(2, 6):
        view.apply(number, [change(job(number))], {})
    update = await following(view.watch_jobs(after_commit=token))
    assert (update.snapshot, ids(update)) == (True, [2, 3, 4, 5])


async def test_a_watcher_of_one_job_sees_its_end_however_much_happened_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "KEPT_COMMITS", 2)
    view = View([("job", 1, job(1))], commit_no=1)
    updates = view.watch_jobs(job_id=1)
    await following(updates)
    waiting = asyncio.create_task(anext(updates))
    await asyncio.sleep(0)
    for number in range(2, 10):
        view.apply(number, [change(job(number))], {})
    view.apply(10, [change(job(1, state=JobState.SUCCEEDED, ended_us=5))], {})
    update = await asyncio.wait_for(waiting, LIMIT)
    assert (update.snapshot, ids(update), update.jobs[0].job.state) == (False, [1], JobState.SUCCEEDED)
    assert view.job(1) is None


async def test_nodes_show_what_is_free_and_what_changed() -> None:
    view = View([("node", 1, NODE), ("node", 2, replace(NODE, id=2, name="n2"))], commit_no=1)
    updates = view.watch_nodes()
    assert [n.node.name for n in (await following(updates)).nodes] == ["n1", "n2"]
    run = Run(7, 1, 2, (0,), SPEC.demand, RunPhase.RUNNING, 0)
    view.apply(2, [change(job(7, state=JobState.RUNNING, run=1)), change(run)], {})
    update = await following(updates)
    assert [(n.node.name, n.free) for n in update.nodes] == [("n2", Vector(7000, 7900, 7))]
    view.apply(3, [change(replace(run, phase=RunPhase.ENDED)), change(job(7, state=JobState.SUCCEEDED, ended_us=1))], {})
    assert [(n.node.name, n.free) for n in (await following(updates)).nodes] == [("n2", NODE.capacity)]


async def test_a_deleted_node_is_told_of_once_and_keeps_its_name_for_those_who_ask_by_number() -> None:
    view = View([("node", 1, NODE), ("node", 2, replace(NODE, id=2, name="n2"))], commit_no=1)
    updates = view.watch_nodes()
    await following(updates)
    view.apply(2, [change(replace(NODE, state=NodeState.DELETED))], {})
    assert [(n.node.name, n.node.state) for n in (await following(updates)).nodes] == [("n1", NodeState.DELETED)]
    assert [n.node.name for n in view.all_nodes()] == ["n2"]
    assert [n.node.name for n in (await following(view.watch_nodes())).nodes] == ["n2"]
    assert view.nodes[1].name == "n1"


async def test_closing_ends_every_watch() -> None:
    view = View([], commit_no=1)
    updates = [view.watch_jobs(), view.watch_nodes()]
    for watcher in updates:
        await following(watcher)
    ends = [asyncio.create_task(anext(watcher, None)) for watcher in updates]
    await asyncio.sleep(0)
    view.close()
    assert await asyncio.wait_for(asyncio.gather(*ends), LIMIT) == [None, None]


async def test_a_watcher_that_leaves_is_forgotten() -> None:
    view = View([], commit_no=1)
    updates = view.watch_jobs()
    await following(updates)
    waiting = asyncio.create_task(anext(updates))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not any(view._wakers.values())


def test_those_behind_the_first_are_said_to_be_behind_it() -> None:
    rows = [("job", n, job(n, reason=Reason.NO_ROOM if n == 1 else Reason.NONE)) for n in (1, 2)]
    preempted = job(3, reason=Reason.PREEMPTED, cause_job=9, requeued=True)
    view = View([*rows, ("job", 3, preempted)], commit_no=1)
    view.apply(2, [], {("", Lane.BEST_EFFORT, ANY): 1})
    shown = {n: (s.job.reason, s.job.cause_job) for n in (1, 2, 3) if (s := view.job(n)) is not None}
    assert shown == {1: (Reason.NO_ROOM, 0), 2: (Reason.BEHIND, 1), 3: (Reason.PREEMPTED, 9)}


def test_in_a_virtual_cluster_they_wait_for_the_first_that_names_the_same_pool() -> None:
    spec = replace(SPEC, vc="A")
    rows = [replace(job(n), spec=replace(spec, cells=CellRequest(pool=pool))) for n, pool in ((1, "p"), (2, "q"), (3, "q"))]
    view = View([("job", row.id, row) for row in rows], commit_no=1)
    lane = "A", Lane.BEST_EFFORT
    view.apply(2, [], {lane: 1, (*lane, Named("p", "", "")): 1, (*lane, Named("q", "", "")): 2})
    shown = [with_reason(row, view.heads) for row in rows]
    assert [(row.reason, row.cause_job) for row in shown] == [(Reason.NONE, 0), (Reason.BEHIND, 1), (Reason.BEHIND, 2)]


async def test_a_step_without_a_commit_takes_no_place_among_those_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "KEPT_COMMITS", 2)
    view = View([], commit_no=10)
    view.apply(11, [change(job(1))], {})
    for _ in range(5):
        view.apply(11, [], {})
    update = await following(view.watch_jobs(after_commit=10))
    assert (update.snapshot, ids(update)) == (False, [1])


def test_a_faulty_device_that_nobody_holds_is_not_free() -> None:
    view = View([("node", 1, NODE)], commit_no=1)
    run = Run(1, 1, 1, (0,), SPEC.demand, RunPhase.RUNNING, 0)
    held = NodeDevice(1, 0, "GPU-0", "gpu", 1, fault="it is lost")
    view.apply(2, [change(job(1)), change(run), change(held), change(NodeDevice(1, 1, "GPU-1", "gpu", 1))], {})
    assert view.node(1).free == Vector(7000, 7900, 7)
    view.apply(3, [change(replace(held, index=1))], {})
    assert view.node(1).free == Vector(7000, 7900, 6)


async def test_a_task_that_changes_without_its_jobs_row_is_seen_by_who_watches_the_job() -> None:
    """Such as one that starts, ends, or is guaranteed again."""
    run = Run(1, 1, 1, (0,), Vector(1000, 100, 1), RunPhase.READY, 0)
    view = View([("node", 1, NODE), ("job", 1, job(1)), ("run", run.key, run)], commit_no=1)
    updates = view.watch_jobs(job_id=1)
    await following(updates)
    for number, facts in enumerate(
        (
            {"started_us": 1, "phase": RunPhase.RUNNING},
            {"guaranteed": True},
            {"ended_us": 2, "phase": RunPhase.ENDED},
        )
    ):
        after = replace(run, **facts)  # type: ignore[arg-type]
        view.apply(2 + number, [Change("run", run.key, run, after)], {})
        (shown,) = (await following(updates)).jobs
        assert shown.runs == (after,)
        run = after


def test_a_node_is_found_by_its_name_without_a_look_at_the_others() -> None:
    """Each hello asks for its node: where a thousand agents connect, that must not cost a million looks."""
    nodes = [replace(NODE, id=i, name=f"n{i}") for i in range(1, 4)]
    view = View([("node", node.id, node) for node in nodes], commit_no=1)
    view.apply(2, [change(replace(nodes[1], state=NodeState.DELETED)), change(replace(NODE, id=4, name="n4"))], {})

    class Unlisted(dict[int, Node]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("the nodes are walked through")

        values = items = keys = __iter__  # type: ignore[assignment]

    view.nodes = Unlisted(view.nodes)
    assert view.find_node("n1") == nodes[0]
    assert view.find_node("n2") == replace(nodes[1], state=NodeState.DELETED)
    assert view.find_node("n4") == replace(NODE, id=4, name="n4")
    assert view.find_node("n5") is None
