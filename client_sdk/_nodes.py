"""What `Client` and `AsyncClient` ask of nodes."""

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
        """A node as it stands, and what its agent sees of its devices. Raises NotFound, as do the following."""
        return self._ask(jobs.OfNode("GetNode", name))

    def drain(self, name: str, *, reason: str = "", evict: bool = False) -> Node:
        """Has nothing new placed on a node. Its runs finish; with `evict` they are told to leave, and queue again."""
        return self._ask(jobs.Drain(name, reason, evict))

    def lost_by_drain(self, name: str, *, evict: bool = False) -> tuple[JobAtRisk, ...]:
        """The jobs that would lose what they have done by `drain`, because nothing saves them. Changes nothing."""
        return self._ask(jobs.Risks(jobs.Drain(name, "", evict)))

    def undrain(self, name: str) -> Node:
        """Opens a drained node again, and forgets its strikes."""
        return self._ask(jobs.OfNode("Undrain", name))

    def fence(self, name: str) -> Node:
        """Declares a silent node dead: its runs are over, and their jobs queue again.

        Only where it is certain that nothing runs there any more, as when its power is off: a run that lives on would run
        beside its successor. Raises FailedPrecondition for a node that is up (NODE_UP).
        """
        return self._ask(jobs.OfNode("Fence", name))

    def delete_node(self, name: str) -> None:
        """Takes a silent node on which nothing runs out of the cluster. Should its agent come again, it joins as a new one.
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
        """As `Client.fence`. Only where it is certain that nothing runs there any more."""
        return await self._ask(jobs.OfNode("Fence", name))

    async def delete_node(self, name: str) -> None:
        """As `Client.delete_node`."""
        await self._ask(jobs.DeleteNode(name))
