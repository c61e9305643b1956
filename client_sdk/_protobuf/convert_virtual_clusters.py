"""Between the API's messages of virtual clusters and the SDK's values."""

from ebb.v1 import virtual_clusters_pb2 as pb

from client_sdk import models
from client_sdk._protobuf.convert import duration_message
from client_sdk._protobuf.reading import read


def quota_message(value: models.CellQuota) -> pb.CellQuota:
    return pb.CellQuota(pool=value.pool, level=value.level, cells=value.cells)


def pin_message(value: models.PinnedCell) -> pb.PinnedCell:
    return pb.PinnedCell(name=value.name, pool=value.pool, level=value.level, index=value.index)


def policy_message(value: models.VirtualClusterPolicy) -> pb.VirtualClusterPolicy:
    return pb.VirtualClusterPolicy(
        name=value.name or "",
        s=value.s,
        cap=value.cap,
        trials_in_flight=value.trials_in_flight,
        proxy_after=duration_message(value.proxy_after),
        proxy_window=duration_message(value.proxy_window),
        proxy_keep=value.proxy_keep,
        settings=value.settings,
    )


def virtual_cluster(message: pb.VirtualCluster) -> models.VirtualCluster:
    return read(models.VirtualCluster, message)


def pool(message: pb.Pool) -> models.Pool:
    return read(models.Pool, message)
