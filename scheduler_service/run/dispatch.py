"""From the engine to the nodes: who is connected, what they are sent, and which of them have fallen silent.

Orders for a node that is not connected are dropped: when its agent connects, it is told everything that is to hold there.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from scheduler_service.core.messages import Launch, NodeSilent, Order
from scheduler_service.core.model import Node, NodeState, RunKey
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.run.read_model import View

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Asks an agent for the log of a run, from a byte on; `follow` until the run is over. `id` names the answer."""

    id: str
    job_id: int
    run: int
    task: int
    offset: int
    follow: bool


SHORTEST_SPREAD_US: Micros = SECOND // 10
"""Agents that spread over less time than this may as well connect again all at once."""


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """What the scheduler decides for an agent."""

    heartbeat_us: Micros
    """From one sign of life to the next, at most."""
    reconnect_within_us: Micros
    """How long agents may take to connect again, all of them together, once their connections have ended."""

    def replaces(self, told: "NodeConfiguration") -> bool:
        """Whether agents that were told otherwise are to hear of it. The time to connect again grows with each node that joins.
        It counts when it has doubled and is long enough to matter, so that N nodes that join cost N log N messages and not N
        squared."""
        enough = max(2 * told.reconnect_within_us, SHORTEST_SPREAD_US)
        return self.heartbeat_us != told.heartbeat_us or self.reconnect_within_us >= enough


class Outgoing(NamedTuple):
    """What waits to be sent to an agent: orders first, so that it knows every run of which a log is asked for."""

    orders: list[Order]
    acknowledged: int
    """The last sequence to acknowledge; 0: none."""
    logs: list[LogRequest]
    configuration: NodeConfiguration | None
    """The last one; None: as it was."""


class Link:
    """The scheduler's end of one agent's stream. `outbox` holds orders, acknowledged sequences as int, requests for logs, and
    configurations; None ends it."""

    def __init__(self, node: str, boot_id: str, call: "asyncio.Task[Any] | None", instance: str = "") -> None:
        self.node = node
        self.boot_id = boot_id
        self.instance = instance
        """Of the agent's process."""
        self.heard = time.monotonic()
        self.joined = False
        """Whether the agent was accepted: until then it is no sign of life of the node."""
        self.ended = False
        self.renews = False
        """Whether its agent was told so little of what it had reported that it begins anew, with another boot."""
        self.observed: Any = None
        """What the agent saw last of its devices and runs, as `rpc` keeps it; of no use once the link has ended."""
        self.checkpoints: dict[RunKey, tuple[str, str]] = {}
        """Of runs that name them: the checkpoint that they began from, and the last one that they saved; as `observed`."""
        self.means: dict[RunKey, int] = {}
        """What would save a run, by the numbers of ebb.agent.v1.SaveMeans; as `observed`."""
        self.executed: dict[RunKey, Micros] = {}
        """Of runs that take turns: for how long each has executed since it does; as `observed`."""
        self.turns: dict[RunKey, bool] = {}
        """Of the same: whether each has its devices now; as `observed`."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing goes over it any more."""
        self._call = call
        self.outbox: asyncio.Queue[tuple[Order, ...] | int | LogRequest | NodeConfiguration | None] = asyncio.Queue()

    def end(self) -> None:
        """Ends the stream, also when its agent reads nothing any more."""
        self.ended = True
        if self._call is not None:
            self._call.cancel()

    async def next(self) -> Outgoing | None:
        """All that waits to be sent. None: the link has ended."""
        orders: list[Order] = []
        logs: list[LogRequest] = []
        acknowledged = 0
        configuration = None
        message = await self.outbox.get()
        if message is None:
            return None
        while message is not None:
            if isinstance(message, int):
                acknowledged = message
            elif isinstance(message, LogRequest):
                logs.append(message)
            elif isinstance(message, NodeConfiguration):
                configuration = message
            else:
                orders += message
            if self.outbox.empty():
                return Outgoing(orders, acknowledged, logs, configuration)
            message = self.outbox.get_nowait()
        self.outbox.put_nowait(None)  # what came before the end is sent first
        return Outgoing(orders, acknowledged, logs, configuration)


class Heard(NamedTuple):
    at: float
    boot_id: str
    """By an agent of this boot; empty where that boot is over."""


FellSilent = Callable[[NodeSilent], "asyncio.Future[Any] | None"]
"""Returns what is done when that is durable; None where this scheduler does not lead any more."""


class Dispatch:
    """For the event loop alone."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._last_heard: dict[str, Heard] = {}
        self._untold: dict[str, set[RunKey]] = {}
        """By node: the runs that it was to start since it had an agent last."""
        self._began = time.monotonic()
        self._configuration: NodeConfiguration | None = None
        """What all agents were told of last; those that were welcomed since know a newer one."""

    def connected(self, node: str) -> Link | None:
        """The node's link, if an agent was accepted on it."""
        link = self._links.get(node)
        return link if link is not None and link.joined else None

    def open(self, node: str, boot_id: str, instance: str = "") -> Link:
        """A new link for the node, on the call that asks for it. One that it had is ended: an agent that connects again has
        lost the old one."""
        if (old := self._links.get(node)) is not None:
            old.end()
        link = self._links[node] = Link(node, boot_id, asyncio.current_task(), instance)
        return link

    def joined(self, link: Link) -> None:
        """Its agent was accepted, and is told everything that is to hold on its node."""
        link.joined = True
        self._untold.pop(link.node, None)

    def configure(self, configuration: NodeConfiguration) -> None:
        """Tells the agents that are connected, if it differs enough from what they know."""
        if self._configuration is None:
            self._configuration = configuration
        elif configuration.replaces(self._configuration):
            self._configuration = configuration
            for link in self._links.values():
                if link.joined:
                    link.outbox.put_nowait(configuration)

    def heard(self, link: Link) -> None:
        """Its agent lives, though it could not be accepted: the database did not answer."""
        self._note(link.node, Heard(time.monotonic(), link.boot_id))

    def close(self, link: Link) -> None:
        if self._links.get(link.node) is link:
            del self._links[link.node]
        if not link.closed.done():
            link.closed.set_result(None)
        if link.joined:
            self._note(link.node, Heard(link.heard, "" if link.renews else link.boot_id))

    def _note(self, node: str, heard: Heard) -> None:
        self._last_heard[node] = max(heard, self._last_heard.get(node, heard))

    def boot_heard(self, node: Node) -> float:
        """When an agent was heard last that is of the boot in which the node is known.

        Who began to lead a moment ago has heard of nobody yet: this beginning counts, as the agent may be about to follow.
        """
        link = self.connected(node.name)
        last = Heard(link.heard, link.boot_id) if link is not None else self._last_heard.get(node.name)
        if last is None:
            return self._began
        return last.at if last.boot_id == node.boot_id else -math.inf

    def close_all(self) -> None:
        for link in self._links.values():
            link.outbox.put_nowait(None)

    def send(self, view: View, orders: Sequence[Order]) -> None:
        by_node: dict[int, list[Order]] = {}
        for order in orders:
            by_node.setdefault(order.node, []).append(order)
        for node_id, its_orders in by_node.items():
            name = view.nodes[node_id].name
            link = self._links.get(name)
            if link is not None:
                link.outbox.put_nowait(tuple(its_orders))
            if link is None or not link.joined or link.ended:
                starts = (order.key for order in its_orders if isinstance(order.desired, Launch))
                self._untold.setdefault(name, set()).update(starts)

    async def watch_silence(self, view: View, silent_after: float, fell_silent: FellSilent) -> None:
        """Tells of each node that was up and not heard of for `silent_after` seconds; forever.

        The time counts anew from when this scheduler began to lead, and while this process stands still it counts for nobody.
        """
        interval = silent_after / 4
        while True:
            before = time.monotonic()
            await asyncio.sleep(interval)
            now = time.monotonic()
            if (late := now - before - interval) > interval:
                self._allow(late)
            for node in list(view.nodes.values()):
                link = self._links.get(node.name)
                if link is not None and not link.joined:
                    continue  # an agent is about to be accepted: what it is told then must not be given to another node
                last = self._last_heard.get(node.name)
                heard = link.heard if link is not None else last.at if last is not None else self._began
                falls = node.state is NodeState.UP and now - heard > silent_after
                untold = self._untold.get(node.name)
                # What was placed in the step that was under way when the node fell silent is told of afterwards.
                if falls:
                    log.warning("node %s is silent", node.name)
                if falls or (untold and link is None and node.state is NodeState.SILENT):
                    silent = NodeSilent(node.name, tuple(sorted(untold or ())))
                    if (told := fell_silent(silent)) is not None:
                        told.add_done_callback(partial(self._untold_is_told, silent))
                    if link is not None:  # should it wake up, it has to say hello again
                        link.end()

    def _allow(self, seconds: float) -> None:
        """This process stood still: what came meanwhile is not read yet."""
        self._began += seconds
        self._last_heard = {node: heard._replace(at=heard.at + seconds) for node, heard in self._last_heard.items()}
        for link in self._links.values():
            link.heard += seconds

    def _untold_is_told(self, silent: NodeSilent, told: "asyncio.Future[Any]") -> None:
        if not told.cancelled() and told.exception() is None and silent.name in self._untold:
            self._untold[silent.name].difference_update(silent.untold)
