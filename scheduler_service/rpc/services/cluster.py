"""ebb.v1.Cluster: nodes and devices."""

import asyncio
import logging
from collections.abc import AsyncIterator

from ebb.v1 import cluster_pb2 as pb
from ebb.v1 import cluster_pb2_grpc, job_pb2

from scheduler_service.core.errors import NotFound
from scheduler_service.core.messages import (
    DrainRequested,
    FenceRequested,
    NodeChanged,
    NodeDeleteRequested,
    NodeRequest,
    UndrainRequested,
)
from scheduler_service.core.model import present
from scheduler_service.rpc.access import user
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.chunking import LARGEST_BYTES, in_turns
from scheduler_service.rpc.convert.nodes import node_out
from scheduler_service.rpc.method_table import Context
from scheduler_service.rpc.paging import DEFAULT_PAGE, last_id
from scheduler_service.rpc.services.at_risk import jobs_at_risk, try_out
from scheduler_service.rpc.services.observation_answers import observations_of
from scheduler_service.run.engine_thread import NotLeading

log = logging.getLogger(__name__)

AT_ONCE = 100
"""Nodes that are made ready for a page at once."""
_DONE: dict[type[NodeRequest], str] = {
    DrainRequested: "drained",
    UndrainRequested: "undrained",
    FenceRequested: "declared dead",
    NodeDeleteRequested: "deleted",
}


class Cluster(cluster_pb2_grpc.ClusterServicer):
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def ListNodes(self, request: pb.ListNodesRequest, _context: Context) -> pb.ListNodesResponse:
        view = await self._backend.view_of_nodes()
        size = request.page_size or DEFAULT_PAGE
        page: list[pb.Node] = []
        last, room, more = 0, LARGEST_BYTES, False
        for shown in view.nodes_after(last_id(request.page_token) or 0):
            node = node_out(shown)
            room -= node.ByteSize()
            if page and (len(page) == size or room < 0):
                more = True
                break
            page.append(node)
            last = shown.node.id
            if len(page) % AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn
        return pb.ListNodesResponse(nodes=page, next_page_token=str(last) if more else "")

    async def GetNode(self, request: pb.GetNodeRequest, _context: Context) -> pb.GetNodeResponse:
        view = await self._backend.view_of_nodes()
        node = present(view.find_node(request.node))
        if node is None:
            known = "`ebb node list` shows those there are"
            raise NotFound("NO_SUCH_NODE", f"there is no node {request.node}; {known}", node=request.node)
        leading = self._backend.leads
        seen = None if leading is None or leading.view is not view else observations_of(leading, node.id)
        return pb.GetNodeResponse(node=node_out(view.node(node.id)), observations=seen)

    async def Drain(self, request: pb.DrainRequest, _context: Context) -> pb.DrainResponse:
        event = DrainRequested(request.node, request.reason, user(), request.evict)
        if request.validate_only:
            await try_out(self._backend, event)
            found = self._backend.leading.view.find_node(request.node)
            assert found is not None, "the drain of no node is refused"
            node = node_out(self._backend.leading.view.node(found.id))
            return pb.DrainResponse(node=node, jobs_at_risk=await self._at_risk(request, wait=True))
        lost = await self._at_risk(request, wait=False)
        return pb.DrainResponse(node=await self._ask(event), jobs_at_risk=lost)

    async def _at_risk(self, request: pb.DrainRequest, wait: bool) -> list[job_pb2.JobAtRisk]:
        view = self._backend.leading.view
        if not request.evict or (node := view.find_node(request.node)) is None:
            return []
        return await jobs_at_risk(self._backend, sorted({key.job_id for key in view.runs_on.get(node.id, ())}), wait)

    async def Undrain(self, request: pb.UndrainRequest, _context: Context) -> pb.UndrainResponse:
        return pb.UndrainResponse(node=await self._ask(UndrainRequested(request.node)))

    async def Fence(self, request: pb.FenceRequest, _context: Context) -> pb.FenceResponse:
        return pb.FenceResponse(node=await self._ask(FenceRequested(request.node, user())))

    async def DeleteNode(self, request: pb.DeleteNodeRequest, _context: Context) -> pb.DeleteNodeResponse:
        await self._ask(NodeDeleteRequested(request.node))
        return pb.DeleteNodeResponse()

    async def _ask(self, event: NodeRequest) -> pb.Node:
        """Have the engine handle the event, and return the node after it."""
        leading = self._backend.leading
        reply = await leading.service.handle(event)
        assert isinstance(reply, NodeChanged)
        log.info("node %s is %s by %s", event.node, _DONE[type(event)], user())
        return node_out(leading.view.node(reply.node))

    async def Watch(self, _request: pb.ClusterWatchRequest, _context: Context) -> AsyncIterator[pb.ClusterWatchResponse]:
        async for update in self._backend.leading.view.watch_nodes():
            async for piece, first, last in in_turns(update.nodes, node_out):
                snapshot, commit_no = update.snapshot and first, update.commit_no if last else 0
                yield pb.ClusterWatchResponse(snapshot=snapshot, nodes=piece, commit_no=commit_no)
        raise NotLeading  # the view was closed: the watcher looks for the next leader
