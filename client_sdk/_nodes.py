"""The calls of `Client` and `AsyncClient` for nodes."""

from collections.abc import Sequence

from client_sdk._base import Asking, AskingAsync
from client_sdk._requests import jobs
from client_sdk.models import JobAtRisk, Node


class NodeCalls(Asking):
    def nodes(self) -> Sequence[Node]:
        """Every node, with what is free on it and who holds its devices."""
        found: list[Node] = []
        token = ""
        while True:
            page = self._ask(jobs.ListNodes(token))
            found += page.nodes
            if not (token := page.next_token):
                return found

    def node(self, name: str) -> Node:
        """A node, with its agent's readings of its devices. Raises NotFound, as do the following calls."""
        return self._ask(jobs.OfNode("GetNode", name))

    def drain(self, name: str, *, reason: str = "", evict: bool = False) -> Node:
        """Drains a node: nothing new is placed on it. Its runs finish; with `evict` they are stopped and requeued."""
        return self._ask(jobs.Drain(name, reason, evict))

    def lost_by_drain(self, name: str, *, evict: bool = False) -> tuple[JobAtRisk, ...]:
        """The jobs that `drain` would cause to lose their work, because nothing saves them. Changes nothing."""
        return self._ask(jobs.Risks(jobs.Drain(name, "", evict)))

    def undrain(self, name: str) -> Node:
        """Opens a drained node again and clears its strikes."""
        return self._ask(jobs.OfNode("Undrain", name))

    def fence(self, name: str) -> Node:
        """Declares a silent node dead: its runs count as ended, and their jobs are requeued.

        Use it only if it is certain that nothing runs there any more, as when its power is off: a surviving run would run at
        the same time as its successor. Raises FailedPrecondition for a node that is up (NODE_UP).
        """
        return self._ask(jobs.OfNode("Fence", name))

    def delete_node(self, name: str) -> None:
        """Removes a silent node without runs from the cluster. If its agent connects again, the node joins as a new one.
        Raises FailedPrecondition for a node that is up (NODE_UP) or has runs (NODE_IN_USE), and NotFound."""
        self._ask(jobs.DeleteNode(name))


class AsyncNodeCalls(AskingAsync):
    async def nodes(self) -> Sequence[Node]:
        """As `Client.nodes`."""
        found: list[Node] = []
        token = ""
        while True:
            page = await self._ask(jobs.ListNodes(token))
            found += page.nodes
            if not (token := page.next_token):
                return found

    async def node(self, name: str) -> Node:
        """As `Client.node`."""
        return await self._ask(jobs.OfNode("GetNode", name))

    async def drain(self, name: str, *, reason: str = "", evict: bool = False) -> Node:
        """As `Client.drain`."""
        return await self._ask(jobs.Drain(name, reason, evict))

    async def lost_by_drain(self, name: str, *, evict: bool = False) -> tuple[JobAtRisk, ...]:
        """As `Client.lost_by_drain`."""
        return await self._ask(jobs.Risks(jobs.Drain(name, "", evict)))

    async def undrain(self, name: str) -> Node:
        """As `Client.undrain`."""
        return await self._ask(jobs.OfNode("Undrain", name))

    async def fence(self, name: str) -> Node:
        """As `Client.fence`. Use it only if it is certain that nothing runs there any more."""
        return await self._ask(jobs.OfNode("Fence", name))

    async def delete_node(self, name: str) -> None:
        """As `Client.delete_node`."""
        await self._ask(jobs.DeleteNode(name))
