"""Requests about virtual clusters, as `calls` has those about jobs and nodes."""

from typing import Any

from ebb.v1 import virtual_clusters_pb2 as pb

from client_sdk import models
from client_sdk._protobuf import convert_virtual_clusters as convert
from client_sdk._protobuf.call import Call, why_not
from client_sdk._requests.jobs import (
    DeleteVirtualCluster,
    GetVirtualCluster,
    ListCells,
    ListVirtualClusters,
    Request,
    SetVirtualCluster,
)
from client_sdk.errors import InvalidArgument


def encode(request: Request[Any]) -> Call[Any] | None:
    """None: it is about something else. Raises InvalidArgument for what no message can hold."""
    try:
        match request:
            case ListVirtualClusters():
                asked = pb.ListVirtualClustersRequest()
                return _call("ListVirtualClusters", asked, pb.ListVirtualClustersResponse, _read_all)
            case GetVirtualCluster(name):
                return _call(
                    "GetVirtualCluster", pb.GetVirtualClusterRequest(name=name), pb.GetVirtualClusterResponse, _read_one
                )
            case DeleteVirtualCluster(name):
                gone = pb.DeleteVirtualClusterRequest(name=name)
                return _call("DeleteVirtualCluster", gone, pb.DeleteVirtualClusterResponse, lambda _: None)
            case SetVirtualCluster(verb="Create"):
                return _call("CreateVirtualCluster", _create(request), pb.CreateVirtualClusterResponse, _read_one)
            case SetVirtualCluster():
                return _call("UpdateVirtualCluster", _update(request), pb.UpdateVirtualClusterResponse, _read_one)
            case ListCells(pool, name):
                listed = pb.ListCellsRequest(pool=pool, virtual_cluster=name)
                return _call("ListCells", listed, pb.ListCellsResponse, _pools)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"what is said of the virtual cluster cannot be sent: {why_not(error)}") from error
    return None


def _call(name: str, *rest: Any) -> Call[Any]:
    return Call(f"VirtualClusters/{name}", *rest)


def _create(request: SetVirtualCluster) -> pb.CreateVirtualClusterRequest:
    return pb.CreateVirtualClusterRequest(
        name=request.name,
        quotas=map(convert.quota_message, request.quotas or ()),
        pins=map(convert.pin_message, request.pins or ()),
        weight=1 if request.weight is None else request.weight,
        policy=None if request.policy is None else convert.policy_message(request.policy),
        validate_only=request.validate_only,
    )


def _update(request: SetVirtualCluster) -> pb.UpdateVirtualClusterRequest:
    message = pb.UpdateVirtualClusterRequest(name=request.name, weight=request.weight, validate_only=request.validate_only)
    if request.quotas is not None:
        message.quotas.CopyFrom(pb.CellQuotas(quotas=map(convert.quota_message, request.quotas)))
    if request.pins is not None:
        message.pins.CopyFrom(pb.PinnedCells(pins=map(convert.pin_message, request.pins)))
    if request.policy is not None:
        message.policy.CopyFrom(convert.policy_message(request.policy))
    return message


def _read_one(answer: pb.GetVirtualClusterResponse) -> models.VirtualCluster:
    return convert.virtual_cluster(answer.virtual_cluster)


def _read_all(answer: pb.ListVirtualClustersResponse) -> list[models.VirtualCluster]:
    return list(map(convert.virtual_cluster, answer.virtual_clusters))


def _pools(answer: pb.ListCellsResponse) -> list[models.Pool]:
    return list(map(convert.pool, answer.pools))
