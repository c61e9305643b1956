"""ebb.v1.Cluster: nodes and devices."""

from collections.abc import AsyncIterator

from ebb.v1 import cluster_pb2, cluster_pb2_grpc

from scheduler_service.rpc.convert import node_out
from scheduler_service.rpc.front import Front
from scheduler_service.rpc.interceptors import Context
from scheduler_service.run.service import NotLeading


class Cluster(cluster_pb2_grpc.ClusterServicer):
    def __init__(self, front: Front) -> None:
        self._front = front

    async def ListNodes(  # noqa: N802
        self, _request: cluster_pb2.ListNodesRequest, _context: Context
    ) -> cluster_pb2.ListNodesResponse:
        return cluster_pb2.ListNodesResponse(nodes=[node_out(view) for view in self._front.leading.view.all_nodes()])

    async def Watch(  # noqa: N802
        self, _request: cluster_pb2.ClusterWatchRequest, _context: Context
    ) -> AsyncIterator[cluster_pb2.ClusterWatchResponse]:
        async for update in self._front.leading.view.watch_nodes():
            yield cluster_pb2.ClusterWatchResponse(
                snapshot=update.snapshot, nodes=[node_out(view) for view in update.nodes], commit_no=update.commit_no
            )
        raise NotLeading  # the view was closed: the watcher looks for the next leader
