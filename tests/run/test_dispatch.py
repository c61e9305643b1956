"""What is known of runs that an agent was never told of, and when a node counts as silent."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler_service.core.messages import NodeSilent, Order, Running, Stopped
from scheduler_service.core.model import Job, JobSpec, Node, NodeState, Run, RunKey, RunPhase, StopReason
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.journal import Change
from scheduler_service.run import dispatch as dispatch_module
from scheduler_service.run.dispatch import Dispatch, Link, NodeConfiguration
from scheduler_service.run.ports import NotCommitted
from scheduler_service.run.read_model import View

LIMIT = 5
SPEC = JobSpec(("true",), Vector(1000, 100, 1))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(dispatch_module, "time", clock)
    return clock


def a_view(*names: str) -> View:
    nodes = [Node(number, name, "boot", NodeState.UP, Vector(8000, 8000, 8), (), 0) for number, name in enumerate(names, 1)]
    return View([("node", node.id, node) for node in nodes], commit_no=1)


def start(job_id: int, node: int = 1) -> Order:
    run = Run(job_id, 1, node, (0,), SPEC.demand, RunPhase.STARTING, 0)
    return Order(node, run.key, 1, Running(Job(job_id, SPEC, "u", "", 0), run))


async def opened(dispatch: Dispatch, node: str) -> Link:
    """A link of a call of its own, which ends with it."""
    return dispatch.open(node, "boot")


async def silences(
    dispatch: Dispatch,
    view: View,
    until: Callable[[list[NodeSilent]], bool] = bool,
    outcome: "asyncio.Future[None] | None" = None,
) -> list[NodeSilent]:
    """What is told while it is watched, up to where `until` holds."""
    told: list[NodeSilent] = []
    enough = asyncio.Event()

    def tell(silent: NodeSilent) -> asyncio.Future[None] | None:
        told.append(silent)
        if until(told):
            enough.set()
        return outcome

    watching = asyncio.create_task(dispatch.watch_silence(view, 0.01, tell))
    await asyncio.wait_for(enough.wait(), LIMIT)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return told


async def test_what_is_to_start_while_no_agent_is_there_is_told_with_the_silence(clock: Clock) -> None:
    dispatch, view = Dispatch(), a_view("n1", "n2")
    dispatch.send(view, [start(2), start(1), start(3, node=2), Order(1, RunKey(9, 1), 2, Stopped(0, StopReason.CANCELLED))])
    clock.now += 1
    told = await silences(dispatch, view, lambda told: len(told) == 2)
    assert told == [NodeSilent("n1", (RunKey(1, 1), RunKey(2, 1))), NodeSilent("n2", (RunKey(3, 1),))]


async def test_an_agent_that_comes_is_told_everything(clock: Clock) -> None:
    """Also what came while it was about to be accepted; and what goes over its link may have arrived."""
    dispatch, view = Dispatch(), a_view("n1")
    dispatch.send(view, [start(1)])
    link = dispatch.open("n1", "boot")
    dispatch.send(view, [start(2)])
    dispatch.note_joined(link)
    dispatch.send(view, [start(3)])
    dispatch.close(link)
    dispatch.send(view, [start(4)])
    clock.now += 1
    assert (await silences(dispatch, view))[0] == NodeSilent("n1", (RunKey(4, 1),))


async def test_one_that_was_not_accepted_was_told_nothing(clock: Clock) -> None:
    dispatch, view = Dispatch(), a_view("n1")
    link = dispatch.open("n1", "boot")
    dispatch.send(view, [start(1)])
    dispatch.close(link)
    clock.now += 1
    assert (await silences(dispatch, view))[0] == NodeSilent("n1", (RunKey(1, 1),))


async def test_a_node_whose_agent_is_about_to_be_accepted_is_not_silent(clock: Clock) -> None:
    dispatch, view = Dispatch(), a_view("n1", "n2")
    link = dispatch.open("n1", "boot")
    clock.now += 1
    told = await silences(dispatch, view, lambda told: len(told) == 3)
    assert {silent.name for silent in told} == {"n2"}
    dispatch.note_joined(link)
    assert NodeSilent("n1") in await silences(dispatch, view, lambda told: NodeSilent("n1") in told)
    assert link.ended


async def test_what_was_placed_as_the_node_fell_silent_is_told_once_it_is_known(clock: Clock) -> None:
    """The step in which it was placed was under way; and it is told again until it is durable."""
    dispatch, view = Dispatch(), a_view("n1")
    clock.now += 1
    assert (await silences(dispatch, view))[0] == NodeSilent("n1")
    silent = replace(view.nodes[1], state=NodeState.SILENT)
    view.apply(2, [Change("node", 1, view.nodes[1], silent)], {})
    dispatch.send(view, [start(1)])
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    lost.set_exception(NotCommitted("away"))
    expected = NodeSilent("n1", (RunKey(1, 1),))
    assert await silences(dispatch, view, lambda told: len(told) == 2, lost) == [expected, expected]
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    assert (await silences(dispatch, view, outcome=done))[0] == expected
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await silences(dispatch, view)


async def test_orders_for_a_link_that_is_ended_are_not_told(clock: Clock) -> None:
    dispatch, view = Dispatch(), a_view("n1")
    link = await asyncio.create_task(opened(dispatch, "n1"))
    dispatch.note_joined(link)
    link.end()
    dispatch.send(view, [start(1)])
    dispatch.close(link)
    clock.now += 1
    assert (await silences(dispatch, view))[0] == NodeSilent("n1", (RunKey(1, 1),))


async def test_while_this_process_stands_still_nobody_falls_silent(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatch, view = Dispatch(), a_view("n1", "n2", "n3")
    dispatch.note_joined(await asyncio.create_task(opened(dispatch, "n1")))
    gone = await asyncio.create_task(opened(dispatch, "n2"))
    dispatch.note_joined(gone)
    dispatch.close(gone)
    pauses = [100.0, *[0.0025] * 5]

    class Asyncio:
        async def sleep(self, _: float) -> None:
            clock.now += pauses.pop(0)

    monkeypatch.setattr(dispatch_module, "asyncio", Asyncio())
    told: list[tuple[str, int]] = []
    with pytest.raises(IndexError):
        await dispatch.watch_silence(view, 0.01, lambda silent: told.append((silent.name, len(pauses))))
    assert max(left for _, left in told) <= 2, "not before three more intervals"
    assert {name for name, _ in told} == {"n1", "n2", "n3"}


async def test_when_a_boot_of_a_node_was_heard(clock: Clock) -> None:
    """One boot is no sign of life of another, and one that its agent gives up is over."""
    dispatch = Dispatch()
    node = a_view("n1").nodes[1]
    began = clock.now
    clock.now += 5
    assert dispatch.boot_heard(node) == began, "nobody was heard of yet"
    link = await asyncio.create_task(opened(dispatch, "n1"))
    assert dispatch.boot_heard(node) == began
    dispatch.note_joined(link)
    link.heard = clock.now + 1
    assert dispatch.boot_heard(node) == clock.now + 1
    dispatch.close(link)
    assert dispatch.boot_heard(node) == clock.now + 1
    dispatch._allow(3)
    assert dispatch.boot_heard(node) == clock.now + 4
    assert dispatch.boot_heard(replace(node, boot_id="another")) < began
    clock.now += 20
    link = await asyncio.create_task(opened(dispatch, "n1"))
    dispatch.note_heard(link)  # the database did not answer
    dispatch.close(link)
    assert dispatch.boot_heard(node) == clock.now
    link = await asyncio.create_task(opened(dispatch, "n1"))
    dispatch.note_joined(link)
    link.renews = True
    clock.now += 1
    link.heard = clock.now
    dispatch.close(link)
    assert dispatch.boot_heard(node) < began


async def configured(link: Link) -> NodeConfiguration | None:
    """What waits for its agent, if anything does."""
    if link.outbox.empty():
        return None
    waiting = await link.next()
    assert waiting is not None
    return waiting.configuration


async def test_agents_are_told_when_their_configuration_changes_and_not_of_every_node_that_joins() -> None:
    dispatch = Dispatch()
    link, connecting = await opened(dispatch, "n1"), await opened(dispatch, "n2")
    dispatch.note_joined(link)
    told = []
    for nodes in range(1, 2001):
        dispatch.configure(NodeConfiguration(2_000_000, nodes * 1000))
        if (configuration := await configured(link)) is not None:
            told.append(configuration.reconnect_within_us)
    assert told == [100_000, 200_000, 400_000, 800_000, 1_600_000]
    dispatch.configure(NodeConfiguration(1_000_000, 2_000_000))
    dispatch.configure(NodeConfiguration(500_000, 2_000_000))
    assert await configured(link) == NodeConfiguration(500_000, 2_000_000), "the last one counts"
    dispatch.configure(NodeConfiguration(500_000, 2_000_000))
    assert await configured(link) is None
    assert await configured(connecting) is None, "it is told in its welcome"
