import datetime

from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PinState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PIN_STATE_UNSPECIFIED: _ClassVar[PinState]
    PIN_STATE_FREE: _ClassVar[PinState]
    PIN_STATE_IN_USE: _ClassVar[PinState]
    PIN_STATE_FAULTY: _ClassVar[PinState]

class DeviceUse(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEVICE_USE_UNSPECIFIED: _ClassVar[DeviceUse]
    DEVICE_USE_IDLE: _ClassVar[DeviceUse]
    DEVICE_USE_GUARANTEED: _ClassVar[DeviceUse]
    DEVICE_USE_OPPORTUNISTIC: _ClassVar[DeviceUse]
    DEVICE_USE_KEPT: _ClassVar[DeviceUse]
    DEVICE_USE_FAULTY: _ClassVar[DeviceUse]
PIN_STATE_UNSPECIFIED: PinState
PIN_STATE_FREE: PinState
PIN_STATE_IN_USE: PinState
PIN_STATE_FAULTY: PinState
DEVICE_USE_UNSPECIFIED: DeviceUse
DEVICE_USE_IDLE: DeviceUse
DEVICE_USE_GUARANTEED: DeviceUse
DEVICE_USE_OPPORTUNISTIC: DeviceUse
DEVICE_USE_KEPT: DeviceUse
DEVICE_USE_FAULTY: DeviceUse

class CellQuota(_message.Message):
    __slots__ = ("pool", "level", "cells")
    POOL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    level: str
    cells: int
    def __init__(self, pool: _Optional[str] = ..., level: _Optional[str] = ..., cells: _Optional[int] = ...) -> None: ...

class PinnedCell(_message.Message):
    __slots__ = ("name", "pool", "level", "index")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    name: str
    pool: str
    level: str
    index: int
    def __init__(self, name: _Optional[str] = ..., pool: _Optional[str] = ..., level: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class VirtualClusterPolicy(_message.Message):
    __slots__ = ("name", "s", "cap", "trials_in_flight", "proxy_after", "proxy_window", "proxy_keep", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    S_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    TRIALS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    PROXY_AFTER_FIELD_NUMBER: _ClassVar[int]
    PROXY_WINDOW_FIELD_NUMBER: _ClassVar[int]
    PROXY_KEEP_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    s: float
    cap: int
    trials_in_flight: int
    proxy_after: _duration_pb2.Duration
    proxy_window: _duration_pb2.Duration
    proxy_keep: int
    settings: _containers.ScalarMap[str, float]
    def __init__(self, name: _Optional[str] = ..., s: _Optional[float] = ..., cap: _Optional[int] = ..., trials_in_flight: _Optional[int] = ..., proxy_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., proxy_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., proxy_keep: _Optional[int] = ..., settings: _Optional[_Mapping[str, float]] = ...) -> None: ...

class CellUse(_message.Message):
    __slots__ = ("pool", "level", "owned", "bound", "free", "faulty", "taken", "given")
    POOL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    FAULTY_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    pool: str
    level: str
    owned: int
    bound: int
    free: int
    faulty: int
    taken: int
    given: int
    def __init__(self, pool: _Optional[str] = ..., level: _Optional[str] = ..., owned: _Optional[int] = ..., bound: _Optional[int] = ..., free: _Optional[int] = ..., faulty: _Optional[int] = ..., taken: _Optional[int] = ..., given: _Optional[int] = ...) -> None: ...

class PinUse(_message.Message):
    __slots__ = ("name", "state", "devices", "held", "faults")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: PinState
    devices: int
    held: int
    faults: _containers.RepeatedCompositeFieldContainer[PinFault]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[PinState, str]] = ..., devices: _Optional[int] = ..., held: _Optional[int] = ..., faults: _Optional[_Iterable[_Union[PinFault, _Mapping]]] = ...) -> None: ...

class PinFault(_message.Message):
    __slots__ = ("node", "devices", "why")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    node: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    why: str
    def __init__(self, node: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ..., why: _Optional[str] = ...) -> None: ...

class VirtualCluster(_message.Message):
    __slots__ = ("name", "quotas", "pins", "weight", "policy", "cells", "opportunistic_devices", "live_jobs", "pin_uses", "demoted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    OPPORTUNISTIC_DEVICES_FIELD_NUMBER: _ClassVar[int]
    LIVE_JOBS_FIELD_NUMBER: _ClassVar[int]
    PIN_USES_FIELD_NUMBER: _ClassVar[int]
    DEMOTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    quotas: _containers.RepeatedCompositeFieldContainer[CellQuota]
    pins: _containers.RepeatedCompositeFieldContainer[PinnedCell]
    weight: int
    policy: VirtualClusterPolicy
    cells: _containers.RepeatedCompositeFieldContainer[CellUse]
    opportunistic_devices: int
    live_jobs: int
    pin_uses: _containers.RepeatedCompositeFieldContainer[PinUse]
    demoted: _containers.RepeatedCompositeFieldContainer[DemotedRun]
    def __init__(self, name: _Optional[str] = ..., quotas: _Optional[_Iterable[_Union[CellQuota, _Mapping]]] = ..., pins: _Optional[_Iterable[_Union[PinnedCell, _Mapping]]] = ..., weight: _Optional[int] = ..., policy: _Optional[_Union[VirtualClusterPolicy, _Mapping]] = ..., cells: _Optional[_Iterable[_Union[CellUse, _Mapping]]] = ..., opportunistic_devices: _Optional[int] = ..., live_jobs: _Optional[int] = ..., pin_uses: _Optional[_Iterable[_Union[PinUse, _Mapping]]] = ..., demoted: _Optional[_Iterable[_Union[DemotedRun, _Mapping]]] = ...) -> None: ...

class DemotedRun(_message.Message):
    __slots__ = ("job_id", "run", "virtual_cluster")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    virtual_cluster: str
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., virtual_cluster: _Optional[str] = ...) -> None: ...

class CreateVirtualClusterRequest(_message.Message):
    __slots__ = ("name", "quotas", "pins", "weight", "policy", "validate_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    quotas: _containers.RepeatedCompositeFieldContainer[CellQuota]
    pins: _containers.RepeatedCompositeFieldContainer[PinnedCell]
    weight: int
    policy: VirtualClusterPolicy
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., quotas: _Optional[_Iterable[_Union[CellQuota, _Mapping]]] = ..., pins: _Optional[_Iterable[_Union[PinnedCell, _Mapping]]] = ..., weight: _Optional[int] = ..., policy: _Optional[_Union[VirtualClusterPolicy, _Mapping]] = ..., validate_only: bool = ...) -> None: ...

class CreateVirtualClusterResponse(_message.Message):
    __slots__ = ("virtual_cluster",)
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    virtual_cluster: VirtualCluster
    def __init__(self, virtual_cluster: _Optional[_Union[VirtualCluster, _Mapping]] = ...) -> None: ...

class GetVirtualClusterRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetVirtualClusterResponse(_message.Message):
    __slots__ = ("virtual_cluster",)
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    virtual_cluster: VirtualCluster
    def __init__(self, virtual_cluster: _Optional[_Union[VirtualCluster, _Mapping]] = ...) -> None: ...

class ListVirtualClustersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListVirtualClustersResponse(_message.Message):
    __slots__ = ("virtual_clusters",)
    VIRTUAL_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    virtual_clusters: _containers.RepeatedCompositeFieldContainer[VirtualCluster]
    def __init__(self, virtual_clusters: _Optional[_Iterable[_Union[VirtualCluster, _Mapping]]] = ...) -> None: ...

class UpdateVirtualClusterRequest(_message.Message):
    __slots__ = ("name", "quotas", "pins", "weight", "policy", "validate_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    quotas: CellQuotas
    pins: PinnedCells
    weight: int
    policy: VirtualClusterPolicy
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., quotas: _Optional[_Union[CellQuotas, _Mapping]] = ..., pins: _Optional[_Union[PinnedCells, _Mapping]] = ..., weight: _Optional[int] = ..., policy: _Optional[_Union[VirtualClusterPolicy, _Mapping]] = ..., validate_only: bool = ...) -> None: ...

class CellQuotas(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[CellQuota]
    def __init__(self, quotas: _Optional[_Iterable[_Union[CellQuota, _Mapping]]] = ...) -> None: ...

class PinnedCells(_message.Message):
    __slots__ = ("pins",)
    PINS_FIELD_NUMBER: _ClassVar[int]
    pins: _containers.RepeatedCompositeFieldContainer[PinnedCell]
    def __init__(self, pins: _Optional[_Iterable[_Union[PinnedCell, _Mapping]]] = ...) -> None: ...

class UpdateVirtualClusterResponse(_message.Message):
    __slots__ = ("virtual_cluster",)
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    virtual_cluster: VirtualCluster
    def __init__(self, virtual_cluster: _Optional[_Union[VirtualCluster, _Mapping]] = ...) -> None: ...

class DeleteVirtualClusterRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteVirtualClusterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCellsRequest(_message.Message):
    __slots__ = ("pool", "virtual_cluster")
    POOL_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    pool: str
    virtual_cluster: str
    def __init__(self, pool: _Optional[str] = ..., virtual_cluster: _Optional[str] = ...) -> None: ...

class ListCellsResponse(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    def __init__(self, pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("name", "model", "levels", "node_level", "cells", "nodes", "misfits", "exchanged")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    NODE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MISFITS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGED_FIELD_NUMBER: _ClassVar[int]
    name: str
    model: str
    levels: _containers.RepeatedCompositeFieldContainer[CellLevel]
    node_level: int
    cells: _containers.RepeatedCompositeFieldContainer[BoundCell]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeCells]
    misfits: _containers.RepeatedCompositeFieldContainer[Misfit]
    exchanged: _containers.RepeatedCompositeFieldContainer[ExchangedCells]
    def __init__(self, name: _Optional[str] = ..., model: _Optional[str] = ..., levels: _Optional[_Iterable[_Union[CellLevel, _Mapping]]] = ..., node_level: _Optional[int] = ..., cells: _Optional[_Iterable[_Union[BoundCell, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[NodeCells, _Mapping]]] = ..., misfits: _Optional[_Iterable[_Union[Misfit, _Mapping]]] = ..., exchanged: _Optional[_Iterable[_Union[ExchangedCells, _Mapping]]] = ...) -> None: ...

class CellLevel(_message.Message):
    __slots__ = ("name", "fan", "cells", "owned", "free", "missing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAN_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    fan: int
    cells: int
    owned: int
    free: int
    missing: int
    def __init__(self, name: _Optional[str] = ..., fan: _Optional[int] = ..., cells: _Optional[int] = ..., owned: _Optional[int] = ..., free: _Optional[int] = ..., missing: _Optional[int] = ...) -> None: ...

class BoundCell(_message.Message):
    __slots__ = ("level", "index", "virtual_cluster", "pin")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    level: str
    index: int
    virtual_cluster: str
    pin: str
    def __init__(self, level: _Optional[str] = ..., index: _Optional[int] = ..., virtual_cluster: _Optional[str] = ..., pin: _Optional[str] = ...) -> None: ...

class ExchangedCells(_message.Message):
    __slots__ = ("exchange_id", "level", "cells", "giver", "taker", "end_time")
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    GIVER_FIELD_NUMBER: _ClassVar[int]
    TAKER_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    exchange_id: int
    level: str
    cells: int
    giver: str
    taker: str
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, exchange_id: _Optional[int] = ..., level: _Optional[str] = ..., cells: _Optional[int] = ..., giver: _Optional[str] = ..., taker: _Optional[str] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class NodeCells(_message.Message):
    __slots__ = ("node", "index", "devices", "closed")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    node: str
    index: int
    devices: _containers.RepeatedCompositeFieldContainer[DeviceCell]
    closed: str
    def __init__(self, node: _Optional[str] = ..., index: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[DeviceCell, _Mapping]]] = ..., closed: _Optional[str] = ...) -> None: ...

class DeviceCell(_message.Message):
    __slots__ = ("index", "use", "virtual_cluster", "job_ids", "fault")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    index: int
    use: DeviceUse
    virtual_cluster: str
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    fault: str
    def __init__(self, index: _Optional[int] = ..., use: _Optional[_Union[DeviceUse, str]] = ..., virtual_cluster: _Optional[str] = ..., job_ids: _Optional[_Iterable[int]] = ..., fault: _Optional[str] = ...) -> None: ...

class Misfit(_message.Message):
    __slots__ = ("node", "why")
    NODE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    node: str
    why: str
    def __init__(self, node: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...
