import datetime

from buf.validate import validate_pb2 as _validate_pb2
from ebb.v1 import job_pb2 as _job_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_STATE_UNSPECIFIED: _ClassVar[NodeState]
    NODE_STATE_UP: _ClassVar[NodeState]
    NODE_STATE_SILENT: _ClassVar[NodeState]
    NODE_STATE_DELETED: _ClassVar[NodeState]

class MemorySource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_SOURCE_UNSPECIFIED: _ClassVar[MemorySource]
    MEMORY_SOURCE_NVML: _ClassVar[MemorySource]
NODE_STATE_UNSPECIFIED: NodeState
NODE_STATE_UP: NodeState
NODE_STATE_SILENT: NodeState
NODE_STATE_DELETED: NodeState
MEMORY_SOURCE_UNSPECIFIED: MemorySource
MEMORY_SOURCE_NVML: MemorySource

class Device(_message.Message):
    __slots__ = ("index", "uuid", "model", "memory_mib", "path", "fault", "numa_node", "link_domain")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    NUMA_NODE_FIELD_NUMBER: _ClassVar[int]
    LINK_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    index: int
    uuid: str
    model: str
    memory_mib: int
    path: _containers.RepeatedScalarFieldContainer[int]
    fault: str
    numa_node: int
    link_domain: int
    def __init__(self, index: _Optional[int] = ..., uuid: _Optional[str] = ..., model: _Optional[str] = ..., memory_mib: _Optional[int] = ..., path: _Optional[_Iterable[int]] = ..., fault: _Optional[str] = ..., numa_node: _Optional[int] = ..., link_domain: _Optional[int] = ...) -> None: ...

class DeviceObservation(_message.Message):
    __slots__ = ("index", "memory_used_mib", "utilisation_percent", "fault")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_MIB_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_PERCENT_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    index: int
    memory_used_mib: int
    utilisation_percent: int
    fault: str
    def __init__(self, index: _Optional[int] = ..., memory_used_mib: _Optional[int] = ..., utilisation_percent: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...

class MemoryCycle(_message.Message):
    __slots__ = ("job_id", "run", "task", "device", "period", "minimum_mib", "maximum_mib", "confidence", "source")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_MIB_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_MIB_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    device: int
    period: _duration_pb2.Duration
    minimum_mib: int
    maximum_mib: int
    confidence: float
    source: MemorySource
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., device: _Optional[int] = ..., period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., minimum_mib: _Optional[int] = ..., maximum_mib: _Optional[int] = ..., confidence: _Optional[float] = ..., source: _Optional[_Union[MemorySource, str]] = ...) -> None: ...

class ShareGroup(_message.Message):
    __slots__ = ("device", "job_ids")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    device: int
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, device: _Optional[int] = ..., job_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "state", "capacity", "free", "earmarked", "levels", "devices", "share_groups", "address", "agent_version", "state_time", "drain", "strikes", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    EARMARKED_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    SHARE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_TIME_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    STRIKES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: NodeState
    capacity: _job_pb2.Resources
    free: _job_pb2.Resources
    earmarked: _job_pb2.Resources
    levels: _containers.RepeatedScalarFieldContainer[str]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    share_groups: _containers.RepeatedCompositeFieldContainer[ShareGroup]
    address: str
    agent_version: str
    state_time: _timestamp_pb2.Timestamp
    drain: NodeDrain
    strikes: int
    labels: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[NodeState, str]] = ..., capacity: _Optional[_Union[_job_pb2.Resources, _Mapping]] = ..., free: _Optional[_Union[_job_pb2.Resources, _Mapping]] = ..., earmarked: _Optional[_Union[_job_pb2.Resources, _Mapping]] = ..., levels: _Optional[_Iterable[str]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., share_groups: _Optional[_Iterable[_Union[ShareGroup, _Mapping]]] = ..., address: _Optional[str] = ..., agent_version: _Optional[str] = ..., state_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., drain: _Optional[_Union[NodeDrain, _Mapping]] = ..., strikes: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class NodeDrain(_message.Message):
    __slots__ = ("reason", "user", "time")
    REASON_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    reason: str
    user: str
    time: _timestamp_pb2.Timestamp
    def __init__(self, reason: _Optional[str] = ..., user: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "next_page_token")
    NODES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    next_page_token: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetNodeRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class GetNodeResponse(_message.Message):
    __slots__ = ("node", "observations")
    NODE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    node: Node
    observations: NodeObservations
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., observations: _Optional[_Union[NodeObservations, _Mapping]] = ...) -> None: ...

class NodeObservations(_message.Message):
    __slots__ = ("time", "devices", "cycles", "steps", "mini_batches")
    TIME_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CYCLES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MINI_BATCHES_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    devices: _containers.RepeatedCompositeFieldContainer[DeviceObservation]
    cycles: _containers.RepeatedCompositeFieldContainer[MemoryCycle]
    steps: _containers.RepeatedCompositeFieldContainer[_job_pb2.RunSteps]
    mini_batches: _containers.RepeatedCompositeFieldContainer[_job_pb2.MiniBatch]
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[DeviceObservation, _Mapping]]] = ..., cycles: _Optional[_Iterable[_Union[MemoryCycle, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[_job_pb2.RunSteps, _Mapping]]] = ..., mini_batches: _Optional[_Iterable[_Union[_job_pb2.MiniBatch, _Mapping]]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("node", "reason", "evict", "validate_only")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVICT_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    node: str
    reason: str
    evict: bool
    validate_only: bool
    def __init__(self, node: _Optional[str] = ..., reason: _Optional[str] = ..., evict: bool = ..., validate_only: bool = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("node", "jobs_at_risk")
    NODE_FIELD_NUMBER: _ClassVar[int]
    JOBS_AT_RISK_FIELD_NUMBER: _ClassVar[int]
    node: Node
    jobs_at_risk: _containers.RepeatedCompositeFieldContainer[_job_pb2.JobAtRisk]
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., jobs_at_risk: _Optional[_Iterable[_Union[_job_pb2.JobAtRisk, _Mapping]]] = ...) -> None: ...

class UndrainRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class UndrainResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class FenceRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class FenceResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class DeleteNodeRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class DeleteNodeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterWatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterWatchResponse(_message.Message):
    __slots__ = ("snapshot", "nodes", "commit_no")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_NO_FIELD_NUMBER: _ClassVar[int]
    snapshot: bool
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    commit_no: int
    def __init__(self, snapshot: bool = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., commit_no: _Optional[int] = ...) -> None: ...
