"""Dispatch from the engine to the nodes: connected agents, messages to send them, and nodes that have fallen silent.

Orders for a node that is not connected are dropped: when its agent connects, it is sent the whole desired state of the node.
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
    """Asks an agent for a run's log from a byte offset on; with `follow`, until the run ends. `id` identifies the answer."""

    id: str
    job_id: int
    run: int
    task: int
    offset: int
    follow: bool


SHORTEST_SPREAD_US: Micros = SECOND // 10
"""Agents that would spread over less time than this may as well reconnect at the same time."""


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """Settings that the scheduler sends to an agent."""

    heartbeat_us: Micros
    """Longest time between two signs of life."""
    reconnect_within_us: Micros
    """How long agents may take to connect again, all of them together, once their connections have ended."""

    def replaces(self, told: "NodeConfiguration") -> bool:
        """Whether agents that have another configuration are sent this one. The time to reconnect grows with each node that
        joins. It is sent when it has doubled and is long enough to matter, so that N nodes that join cost N log N messages and
        not N squared."""
        enough = max(2 * told.reconnect_within_us, SHORTEST_SPREAD_US)
        return self.heartbeat_us != told.heartbeat_us or self.reconnect_within_us >= enough


class Outgoing(NamedTuple):
    """Messages that wait to be sent to an agent: orders first, so that it knows every run whose log is requested."""

    orders: list[Order]
    acknowledged: int
    """The last sequence number to acknowledge; 0: none."""
    logs: list[LogRequest]
    configuration: NodeConfiguration | None
    """The latest configuration; None if unchanged."""


class Link:
    """The scheduler's end of one agent's stream. `outbox` holds orders, acknowledged sequences as int, requests for logs, and
    configurations; None ends it."""

    def __init__(self, node: str, boot_id: str, call: "asyncio.Task[Any] | None", instance: str = "") -> None:
        self.node = node
        self.boot_id = boot_id
        self.instance = instance
        """ID of the agent's process."""
        self.heard = time.monotonic()
        self.joined = False
        """Whether the agent was accepted: before, its messages are no sign of life of the node."""
        self.ended = False
        self.renews = False
        """Whether its agent learned that so few of its reports are known that it starts over, with another boot ID."""
        self.observed: Any = None
        """The agent's last observations of its devices and runs, as `rpc` keeps them; of no use once the link has ended."""
        self.checkpoints: dict[RunKey, tuple[str, str]] = {}
        """Run that names its checkpoints -> the one that it began from, and the last one that it saved; like `observed`."""
        self.means: dict[RunKey, int] = {}
        """Run -> how it can be saved, as a number of ebb.agent.v1.SaveMeans; like `observed`."""
        self.executed: dict[RunKey, Micros] = {}
        """Run that takes turns -> for how long it has executed since it takes turns; like `observed`."""
        self.turns: dict[RunKey, bool] = {}
        """Run that takes turns -> whether it has its devices now; like `observed`."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing is sent over the link any more."""
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
    """Boot ID of the agent; empty if that boot has ended."""


FellSilent = Callable[[NodeSilent], "asyncio.Future[Any] | None"]
"""Returns a future that is done once that is durable; None if this scheduler is no longer the leader."""


class Dispatch:
    """Links to all agents, used on the event loop only."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._last_heard: dict[str, Heard] = {}
        self._untold: dict[str, set[RunKey]] = {}
        """Node -> the runs that it was to start since its agent was last connected."""
        self._began = time.monotonic()
        self._configuration: NodeConfiguration | None = None
        """The last configuration that was sent to all agents; those welcomed since then may have a newer one."""

    def connected_link(self, node: str) -> Link | None:
        """The node's link, if an agent was accepted on it."""
        link = self._links.get(node)
        return link if link is not None and link.joined else None

    def open(self, node: str, boot_id: str, instance: str = "") -> Link:
        """Return a new link for the node, on the call at hand. Its old link is ended: an agent that reconnects has lost that
        one."""
        if (old := self._links.get(node)) is not None:
            old.end()
        link = self._links[node] = Link(node, boot_id, asyncio.current_task(), instance)
        return link

    def note_joined(self, link: Link) -> None:
        """Note that its agent was accepted, and is sent the whole desired state of its node."""
        link.joined = True
        self._untold.pop(link.node, None)

    def configure(self, configuration: NodeConfiguration) -> None:
        """Send the configuration to the connected agents, if it differs enough from theirs."""
        if self._configuration is None:
            self._configuration = configuration
        elif configuration.replaces(self._configuration):
            self._configuration = configuration
            for link in self._links.values():
                if link.joined:
                    link.outbox.put_nowait(configuration)

    def note_heard(self, link: Link) -> None:
        """Note a sign of life of an agent that could not be accepted because the database did not answer."""
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
        """Return when an agent of the node's recorded boot was last heard.

        A new leader has heard no agent yet: then the start of its leadership counts, as the agent may be about to reconnect.
        """
        link = self.connected_link(node.name)
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
        """Report each node that was up and not heard from for `silent_after` seconds; runs forever.

        The time counts from the start of this leadership at the earliest, and not while this process is paused.
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
                    continue  # an agent is about to be accepted: runs that it is sent then must not be given to another node
                last = self._last_heard.get(node.name)
                heard = link.heard if link is not None else last.at if last is not None else self._began
                falls = node.state is NodeState.UP and now - heard > silent_after
                untold = self._untold.get(node.name)
                # Runs placed by the step under way when the node fell silent are reported afterwards.
                if falls:
                    log.warning("node %s is silent", node.name)
                if falls or (untold and link is None and node.state is NodeState.SILENT):
                    silent = NodeSilent(node.name, tuple(sorted(untold or ())))
                    if (told := fell_silent(silent)) is not None:
                        told.add_done_callback(partial(self._untold_is_told, silent))
                    if link is not None:  # should it wake up, it has to say hello again
                        link.end()

    def _allow(self, seconds: float) -> None:
        """Allow for a pause of this process: messages that came meanwhile are not read yet."""
        self._began += seconds
        self._last_heard = {node: heard._replace(at=heard.at + seconds) for node, heard in self._last_heard.items()}
        for link in self._links.values():
            link.heard += seconds

    def _untold_is_told(self, silent: NodeSilent, told: "asyncio.Future[Any]") -> None:
        if not told.cancelled() and told.exception() is None and silent.name in self._untold:
            self._untold[silent.name].difference_update(silent.untold)
