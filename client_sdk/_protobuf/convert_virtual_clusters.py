"""Between the API's messages of virtual clusters and the SDK's values."""

from ebb.v1 import virtual_clusters_pb2 as pb

from client_sdk import models
from client_sdk._protobuf.convert import duration, duration_message, enum, time


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
    policy = message.policy
    return models.VirtualCluster(
        name=message.name,
        quotas=tuple(models.CellQuota(q.pool, q.level, q.cells) for q in message.quotas),
        pins=tuple(models.PinnedCell(p.name, p.pool, p.level, p.index) for p in message.pins),
        weight=message.weight,
        policy=models.VirtualClusterPolicy(
            name=policy.name,
            s=policy.s,
            cap=policy.cap,
            trials_in_flight=policy.trials_in_flight,
            proxy_after=duration(policy.proxy_after),
            proxy_window=duration(policy.proxy_window),
            proxy_keep=policy.proxy_keep,
            settings=dict(policy.settings),
        ),
        cells=tuple(
            models.CellUse(
                pool=u.pool,
                level=u.level,
                owned=u.owned,
                bound=u.bound,
                free=u.free,
                faulty=u.faulty,
                taken=u.taken,
                given=u.given,
            )
            for u in message.cells
        ),
        opportunistic_devices=message.opportunistic_devices,
        pin_uses=tuple(map(_pin_use, message.pin_uses)),
    )


def _pin_use(message: pb.PinUse) -> models.PinUse:
    return models.PinUse(
        name=message.name,
        state=enum(models.PinState, message.state),
        devices=message.devices,
        held=message.held,
        faults=tuple(models.PinFault(f.node, tuple(f.devices), f.why) for f in message.faults),
    )


def pool(message: pb.Pool) -> models.Pool:
    return models.Pool(
        name=message.name,
        model=message.model,
        levels=tuple(
            models.CellLevel(name=v.name, fan=v.fan, cells=v.cells, owned=v.owned, free=v.free, missing=v.missing)
            for v in message.levels
        ),
        node_level=message.node_level,
        cells=tuple(
            models.BoundCell(level=c.level, index=c.index, virtual_cluster=c.virtual_cluster, pin=c.pin) for c in message.cells
        ),
        nodes=tuple(map(_node, message.nodes)),
        misfits=tuple(models.Misfit(m.node, m.why) for m in message.misfits),
        exchanged=tuple(map(_exchanged, message.exchanged)),
    )


def _exchanged(message: pb.ExchangedCells) -> models.ExchangedCells:
    return models.ExchangedCells(
        exchange_id=message.exchange_id,
        level=message.level,
        cells=message.cells,
        giver=message.giver,
        taker=message.taker,
        end=time(message, "end_time"),
    )


def _node(message: pb.NodeCells) -> models.NodeCells:
    return models.NodeCells(
        node=message.node, index=message.index, devices=tuple(map(_device, message.devices)), closed=message.closed
    )


def _device(message: pb.DeviceCell) -> models.DeviceCell:
    return models.DeviceCell(
        index=message.index,
        use=enum(models.DeviceUse, message.use),
        virtual_cluster=message.virtual_cluster,
        job_ids=tuple(message.job_ids),
        fault=message.fault,
    )
