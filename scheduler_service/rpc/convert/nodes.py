"""Nodes and their devices, from what readers see to ebb.v1."""

from ebb.v1 import cluster_pb2 as pb

from scheduler_service.rpc.convert.values import message_of, time_out, vector_out
from scheduler_service.run.read_model import NodeView


def node_out(view: NodeView) -> pb.Node:
    node = view.node
    drain = None
    if node.drained_us is not None:
        drain = pb.NodeDrain(reason=node.drain_reason, user=node.drain_user, time=time_out(node.drained_us))
    return message_of(
        pb.Node,
        node,
        capacity=vector_out(node.capacity),
        free=vector_out(view.free),
        earmarked=vector_out(view.earmarked),
        devices=[message_of(pb.Device, device) for device in view.devices],
        share_groups=[pb.ShareGroup(device=index, job_ids=jobs) for index, jobs in sorted(view.groups.items())],
        state_time=time_out(node.since_us),
        drain=drain,
        labels=dict(node.labels),
    )
