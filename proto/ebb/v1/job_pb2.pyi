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

class JobClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_CLASS_UNSPECIFIED: _ClassVar[JobClass]
    JOB_CLASS_TRIAL: _ClassVar[JobClass]
    JOB_CLASS_BEST_EFFORT: _ClassVar[JobClass]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_STARTING: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_STOPPING: _ClassVar[JobState]
    JOB_STATE_UNREACHABLE: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
    JOB_STATE_SUSPENDED: _ClassVar[JobState]
    JOB_STATE_TIMED_OUT: _ClassVar[JobState]

class JobReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_REASON_UNSPECIFIED: _ClassVar[JobReason]
    JOB_REASON_BEHIND: _ClassVar[JobReason]
    JOB_REASON_NO_ROOM: _ClassVar[JobReason]
    JOB_REASON_TOO_LARGE: _ClassVar[JobReason]
    JOB_REASON_WAITING_FOR_VICTIMS: _ClassVar[JobReason]
    JOB_REASON_NOTHING_TO_PREEMPT: _ClassVar[JobReason]
    JOB_REASON_PREEMPTED: _ClassVar[JobReason]
    JOB_REASON_NODE_LOST: _ClassVar[JobReason]
    JOB_REASON_NODE_SILENT: _ClassVar[JobReason]
    JOB_REASON_CANCELLED: _ClassVar[JobReason]
    JOB_REASON_EXITED: _ClassVar[JobReason]
    JOB_REASON_SIGNALLED: _ClassVar[JobReason]
    JOB_REASON_LAUNCH_FAILED: _ClassVar[JobReason]
    JOB_REASON_EXIT_UNKNOWN: _ClassVar[JobReason]
    JOB_REASON_YIELDED: _ClassVar[JobReason]
    JOB_REASON_HELD: _ClassVar[JobReason]
    JOB_REASON_SUSPENDED: _ClassVar[JobReason]
    JOB_REASON_RESUMED: _ClassVar[JobReason]
    JOB_REASON_REQUEUED: _ClassVar[JobReason]
    JOB_REASON_TIME_LIMIT: _ClassVar[JobReason]
    JOB_REASON_OUT_OF_MEMORY: _ClassVar[JobReason]
    JOB_REASON_RETRYING: _ClassVar[JobReason]
    JOB_REASON_FAILED_ON_SEVERAL_NODES: _ClassVar[JobReason]
    JOB_REASON_DEPENDENCY: _ClassVar[JobReason]
    JOB_REASON_DEPENDENCY_NEVER: _ClassVar[JobReason]
    JOB_REASON_TASK_FAILED: _ClassVar[JobReason]
    JOB_REASON_GANG_NOT_READY: _ClassVar[JobReason]
    JOB_REASON_NODE_DRAINED: _ClassVar[JobReason]
    JOB_REASON_ELEMENTS_FAILED: _ClassVar[JobReason]
    JOB_REASON_ARRAY_LIMIT: _ClassVar[JobReason]
    JOB_REASON_DEVICE_FAULT: _ClassVar[JobReason]
    JOB_REASON_BEYOND_QUOTA: _ClassVar[JobReason]
    JOB_REASON_CELLS_FAULTY: _ClassVar[JobReason]
    JOB_REASON_RECLAIMED: _ClassVar[JobReason]
    JOB_REASON_NEVER_IN_QUOTA: _ClassVar[JobReason]
    JOB_REASON_RESIZED: _ClassVar[JobReason]
    JOB_REASON_SAMPLED: _ClassVar[JobReason]
    JOB_REASON_PARKED: _ClassVar[JobReason]
    JOB_REASON_MIGRATED: _ClassVar[JobReason]
    JOB_REASON_CHECKPOINT_AWAY: _ClassVar[JobReason]
    JOB_REASON_OUT_OF_DEVICE_MEMORY: _ClassVar[JobReason]
    JOB_REASON_NODES_CLOSED: _ClassVar[JobReason]

class Guarantee(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GUARANTEE_UNSPECIFIED: _ClassVar[Guarantee]
    GUARANTEE_GUARANTEED: _ClassVar[Guarantee]
    GUARANTEE_OVERFLOW: _ClassVar[Guarantee]
    GUARANTEE_OPPORTUNISTIC: _ClassVar[Guarantee]

class DependencyKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEPENDENCY_KIND_UNSPECIFIED: _ClassVar[DependencyKind]
    DEPENDENCY_KIND_AFTER_OK: _ClassVar[DependencyKind]
    DEPENDENCY_KIND_AFTER_ANY: _ClassVar[DependencyKind]
    DEPENDENCY_KIND_AFTER_FAILED: _ClassVar[DependencyKind]

class Exit0AfterStop(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXIT0_AFTER_STOP_UNSPECIFIED: _ClassVar[Exit0AfterStop]
    EXIT0_AFTER_STOP_STOPPED: _ClassVar[Exit0AfterStop]
    EXIT0_AFTER_STOP_DONE: _ClassVar[Exit0AfterStop]

class ShareMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARE_MODE_UNSPECIFIED: _ClassVar[ShareMode]
    SHARE_MODE_EXCLUSIVE: _ClassVar[ShareMode]
    SHARE_MODE_PACKED: _ClassVar[ShareMode]
    SHARE_MODE_SLICED: _ClassVar[ShareMode]

class TurnState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_STATE_UNSPECIFIED: _ClassVar[TurnState]
    TURN_STATE_EXECUTES: _ClassVar[TurnState]
    TURN_STATE_WAITS: _ClassVar[TurnState]

class OperationKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_KIND_UNSPECIFIED: _ClassVar[OperationKind]
    OPERATION_KIND_PARK: _ClassVar[OperationKind]
    OPERATION_KIND_MIGRATE: _ClassVar[OperationKind]
    OPERATION_KIND_PROBE: _ClassVar[OperationKind]
    OPERATION_KIND_RESIZE: _ClassVar[OperationKind]
    OPERATION_KIND_VACATE: _ClassVar[OperationKind]

class OperationPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_PHASE_UNSPECIFIED: _ClassVar[OperationPhase]
    OPERATION_PHASE_PARKING: _ClassVar[OperationPhase]
    OPERATION_PHASE_PARKED: _ClassVar[OperationPhase]
    OPERATION_PHASE_WAITING: _ClassVar[OperationPhase]
    OPERATION_PHASE_RESUMING: _ClassVar[OperationPhase]
    OPERATION_PHASE_WARMING: _ClassVar[OperationPhase]
    OPERATION_PHASE_SAVING: _ClassVar[OperationPhase]
    OPERATION_PHASE_STARTING: _ClassVar[OperationPhase]

class RunPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_PHASE_UNSPECIFIED: _ClassVar[RunPhase]
    RUN_PHASE_STARTING: _ClassVar[RunPhase]
    RUN_PHASE_RUNNING: _ClassVar[RunPhase]
    RUN_PHASE_STOPPING: _ClassVar[RunPhase]
    RUN_PHASE_ENDED: _ClassVar[RunPhase]
    RUN_PHASE_READY: _ClassVar[RunPhase]
    RUN_PHASE_PARKING: _ClassVar[RunPhase]
    RUN_PHASE_PARKED: _ClassVar[RunPhase]
    RUN_PHASE_RESUMING: _ClassVar[RunPhase]
    RUN_PHASE_WARMING: _ClassVar[RunPhase]

class SaveOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAVE_OUTCOME_UNSPECIFIED: _ClassVar[SaveOutcome]
    SAVE_OUTCOME_SAVED: _ClassVar[SaveOutcome]
    SAVE_OUTCOME_NOT_SAVED: _ClassVar[SaveOutcome]

class EstimateSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ESTIMATE_SOURCE_UNSPECIFIED: _ClassVar[EstimateSource]
    ESTIMATE_SOURCE_USER: _ClassVar[EstimateSource]
    ESTIMATE_SOURCE_HISTORY: _ClassVar[EstimateSource]
    ESTIMATE_SOURCE_SAMPLE: _ClassVar[EstimateSource]

class StepState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_STATE_UNSPECIFIED: _ClassVar[StepState]
    STEP_STATE_RUNNING: _ClassVar[StepState]
    STEP_STATE_EVALUATING: _ClassVar[StepState]
    STEP_STATE_SAVING: _ClassVar[StepState]
    STEP_STATE_STALLED: _ClassVar[StepState]
    STEP_STATE_PARKED: _ClassVar[StepState]

class MiniBatchSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MINI_BATCH_SOURCE_UNSPECIFIED: _ClassVar[MiniBatchSource]
    MINI_BATCH_SOURCE_STEPS: _ClassVar[MiniBatchSource]
    MINI_BATCH_SOURCE_MEMORY: _ClassVar[MiniBatchSource]
    MINI_BATCH_SOURCE_POWER: _ClassVar[MiniBatchSource]
    MINI_BATCH_SOURCE_UTILISATION: _ClassVar[MiniBatchSource]

class JobEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_EVENT_KIND_UNSPECIFIED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_SUBMITTED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_PLACED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_STARTED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_PREEMPTING: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_PREEMPTED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_VACATED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_REQUEUED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_CANCEL_REQUESTED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_NODE_SILENT: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_NODE_RETURNED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_ENDED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_EARMARK_DROPPED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_HELD: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_RELEASED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_SUSPEND_REQUESTED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_SUSPENDED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_RESUMED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_REQUEUE_REQUESTED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_UPDATED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_TIME_LIMIT: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_TASK_ENDED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_GANG_READY: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_DEVICE_FAULT: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_RECLAIMED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_GUARANTEED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_OPPORTUNISTIC: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_SAMPLED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_PARKED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_PARK_REFUSED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_UNPARKED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_PROBED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_MIGRATING: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_MIGRATED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_MIGRATION_FAILED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_RESIZED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_RETIMED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_SET_ASIDE: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_STOP_OVERDUE: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_SAVE_FAILED: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_GRACE_TOO_SHORT: _ClassVar[JobEventKind]
    JOB_EVENT_KIND_NOTHING_TO_PREEMPT: _ClassVar[JobEventKind]
JOB_CLASS_UNSPECIFIED: JobClass
JOB_CLASS_TRIAL: JobClass
JOB_CLASS_BEST_EFFORT: JobClass
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_STARTING: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_STOPPING: JobState
JOB_STATE_UNREACHABLE: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
JOB_STATE_SUSPENDED: JobState
JOB_STATE_TIMED_OUT: JobState
JOB_REASON_UNSPECIFIED: JobReason
JOB_REASON_BEHIND: JobReason
JOB_REASON_NO_ROOM: JobReason
JOB_REASON_TOO_LARGE: JobReason
JOB_REASON_WAITING_FOR_VICTIMS: JobReason
JOB_REASON_NOTHING_TO_PREEMPT: JobReason
JOB_REASON_PREEMPTED: JobReason
JOB_REASON_NODE_LOST: JobReason
JOB_REASON_NODE_SILENT: JobReason
JOB_REASON_CANCELLED: JobReason
JOB_REASON_EXITED: JobReason
JOB_REASON_SIGNALLED: JobReason
JOB_REASON_LAUNCH_FAILED: JobReason
JOB_REASON_EXIT_UNKNOWN: JobReason
JOB_REASON_YIELDED: JobReason
JOB_REASON_HELD: JobReason
JOB_REASON_SUSPENDED: JobReason
JOB_REASON_RESUMED: JobReason
JOB_REASON_REQUEUED: JobReason
JOB_REASON_TIME_LIMIT: JobReason
JOB_REASON_OUT_OF_MEMORY: JobReason
JOB_REASON_RETRYING: JobReason
JOB_REASON_FAILED_ON_SEVERAL_NODES: JobReason
JOB_REASON_DEPENDENCY: JobReason
JOB_REASON_DEPENDENCY_NEVER: JobReason
JOB_REASON_TASK_FAILED: JobReason
JOB_REASON_GANG_NOT_READY: JobReason
JOB_REASON_NODE_DRAINED: JobReason
JOB_REASON_ELEMENTS_FAILED: JobReason
JOB_REASON_ARRAY_LIMIT: JobReason
JOB_REASON_DEVICE_FAULT: JobReason
JOB_REASON_BEYOND_QUOTA: JobReason
JOB_REASON_CELLS_FAULTY: JobReason
JOB_REASON_RECLAIMED: JobReason
JOB_REASON_NEVER_IN_QUOTA: JobReason
JOB_REASON_RESIZED: JobReason
JOB_REASON_SAMPLED: JobReason
JOB_REASON_PARKED: JobReason
JOB_REASON_MIGRATED: JobReason
JOB_REASON_CHECKPOINT_AWAY: JobReason
JOB_REASON_OUT_OF_DEVICE_MEMORY: JobReason
JOB_REASON_NODES_CLOSED: JobReason
GUARANTEE_UNSPECIFIED: Guarantee
GUARANTEE_GUARANTEED: Guarantee
GUARANTEE_OVERFLOW: Guarantee
GUARANTEE_OPPORTUNISTIC: Guarantee
DEPENDENCY_KIND_UNSPECIFIED: DependencyKind
DEPENDENCY_KIND_AFTER_OK: DependencyKind
DEPENDENCY_KIND_AFTER_ANY: DependencyKind
DEPENDENCY_KIND_AFTER_FAILED: DependencyKind
EXIT0_AFTER_STOP_UNSPECIFIED: Exit0AfterStop
EXIT0_AFTER_STOP_STOPPED: Exit0AfterStop
EXIT0_AFTER_STOP_DONE: Exit0AfterStop
SHARE_MODE_UNSPECIFIED: ShareMode
SHARE_MODE_EXCLUSIVE: ShareMode
SHARE_MODE_PACKED: ShareMode
SHARE_MODE_SLICED: ShareMode
TURN_STATE_UNSPECIFIED: TurnState
TURN_STATE_EXECUTES: TurnState
TURN_STATE_WAITS: TurnState
OPERATION_KIND_UNSPECIFIED: OperationKind
OPERATION_KIND_PARK: OperationKind
OPERATION_KIND_MIGRATE: OperationKind
OPERATION_KIND_PROBE: OperationKind
OPERATION_KIND_RESIZE: OperationKind
OPERATION_KIND_VACATE: OperationKind
OPERATION_PHASE_UNSPECIFIED: OperationPhase
OPERATION_PHASE_PARKING: OperationPhase
OPERATION_PHASE_PARKED: OperationPhase
OPERATION_PHASE_WAITING: OperationPhase
OPERATION_PHASE_RESUMING: OperationPhase
OPERATION_PHASE_WARMING: OperationPhase
OPERATION_PHASE_SAVING: OperationPhase
OPERATION_PHASE_STARTING: OperationPhase
RUN_PHASE_UNSPECIFIED: RunPhase
RUN_PHASE_STARTING: RunPhase
RUN_PHASE_RUNNING: RunPhase
RUN_PHASE_STOPPING: RunPhase
RUN_PHASE_ENDED: RunPhase
RUN_PHASE_READY: RunPhase
RUN_PHASE_PARKING: RunPhase
RUN_PHASE_PARKED: RunPhase
RUN_PHASE_RESUMING: RunPhase
RUN_PHASE_WARMING: RunPhase
SAVE_OUTCOME_UNSPECIFIED: SaveOutcome
SAVE_OUTCOME_SAVED: SaveOutcome
SAVE_OUTCOME_NOT_SAVED: SaveOutcome
ESTIMATE_SOURCE_UNSPECIFIED: EstimateSource
ESTIMATE_SOURCE_USER: EstimateSource
ESTIMATE_SOURCE_HISTORY: EstimateSource
ESTIMATE_SOURCE_SAMPLE: EstimateSource
STEP_STATE_UNSPECIFIED: StepState
STEP_STATE_RUNNING: StepState
STEP_STATE_EVALUATING: StepState
STEP_STATE_SAVING: StepState
STEP_STATE_STALLED: StepState
STEP_STATE_PARKED: StepState
MINI_BATCH_SOURCE_UNSPECIFIED: MiniBatchSource
MINI_BATCH_SOURCE_STEPS: MiniBatchSource
MINI_BATCH_SOURCE_MEMORY: MiniBatchSource
MINI_BATCH_SOURCE_POWER: MiniBatchSource
MINI_BATCH_SOURCE_UTILISATION: MiniBatchSource
JOB_EVENT_KIND_UNSPECIFIED: JobEventKind
JOB_EVENT_KIND_SUBMITTED: JobEventKind
JOB_EVENT_KIND_PLACED: JobEventKind
JOB_EVENT_KIND_STARTED: JobEventKind
JOB_EVENT_KIND_PREEMPTING: JobEventKind
JOB_EVENT_KIND_PREEMPTED: JobEventKind
JOB_EVENT_KIND_VACATED: JobEventKind
JOB_EVENT_KIND_REQUEUED: JobEventKind
JOB_EVENT_KIND_CANCEL_REQUESTED: JobEventKind
JOB_EVENT_KIND_NODE_SILENT: JobEventKind
JOB_EVENT_KIND_NODE_RETURNED: JobEventKind
JOB_EVENT_KIND_ENDED: JobEventKind
JOB_EVENT_KIND_EARMARK_DROPPED: JobEventKind
JOB_EVENT_KIND_HELD: JobEventKind
JOB_EVENT_KIND_RELEASED: JobEventKind
JOB_EVENT_KIND_SUSPEND_REQUESTED: JobEventKind
JOB_EVENT_KIND_SUSPENDED: JobEventKind
JOB_EVENT_KIND_RESUMED: JobEventKind
JOB_EVENT_KIND_REQUEUE_REQUESTED: JobEventKind
JOB_EVENT_KIND_UPDATED: JobEventKind
JOB_EVENT_KIND_TIME_LIMIT: JobEventKind
JOB_EVENT_KIND_TASK_ENDED: JobEventKind
JOB_EVENT_KIND_GANG_READY: JobEventKind
JOB_EVENT_KIND_DEVICE_FAULT: JobEventKind
JOB_EVENT_KIND_RECLAIMED: JobEventKind
JOB_EVENT_KIND_GUARANTEED: JobEventKind
JOB_EVENT_KIND_OPPORTUNISTIC: JobEventKind
JOB_EVENT_KIND_SAMPLED: JobEventKind
JOB_EVENT_KIND_PARKED: JobEventKind
JOB_EVENT_KIND_PARK_REFUSED: JobEventKind
JOB_EVENT_KIND_UNPARKED: JobEventKind
JOB_EVENT_KIND_PROBED: JobEventKind
JOB_EVENT_KIND_MIGRATING: JobEventKind
JOB_EVENT_KIND_MIGRATED: JobEventKind
JOB_EVENT_KIND_MIGRATION_FAILED: JobEventKind
JOB_EVENT_KIND_RESIZED: JobEventKind
JOB_EVENT_KIND_RETIMED: JobEventKind
JOB_EVENT_KIND_SET_ASIDE: JobEventKind
JOB_EVENT_KIND_STOP_OVERDUE: JobEventKind
JOB_EVENT_KIND_SAVE_FAILED: JobEventKind
JOB_EVENT_KIND_GRACE_TOO_SHORT: JobEventKind
JOB_EVENT_KIND_NOTHING_TO_PREEMPT: JobEventKind

class Resources(_message.Message):
    __slots__ = ("cpu_milli", "memory_mib", "devices")
    CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    cpu_milli: int
    memory_mib: int
    devices: int
    def __init__(self, cpu_milli: _Optional[int] = ..., memory_mib: _Optional[int] = ..., devices: _Optional[int] = ...) -> None: ...

class TaskGroup(_message.Message):
    __slots__ = ("count", "resources", "command", "level")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    count: int
    resources: Resources
    command: _containers.RepeatedScalarFieldContainer[str]
    level: str
    def __init__(self, count: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., command: _Optional[_Iterable[str]] = ..., level: _Optional[str] = ...) -> None: ...

class Within(_message.Message):
    __slots__ = ("level", "preferred", "task_group")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_FIELD_NUMBER: _ClassVar[int]
    TASK_GROUP_FIELD_NUMBER: _ClassVar[int]
    level: str
    preferred: bool
    task_group: int
    def __init__(self, level: _Optional[str] = ..., preferred: bool = ..., task_group: _Optional[int] = ...) -> None: ...

class CellRequest(_message.Message):
    __slots__ = ("pool", "model", "pin", "level", "within", "lazy", "vacates")
    POOL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    LAZY_FIELD_NUMBER: _ClassVar[int]
    VACATES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    model: str
    pin: str
    level: str
    within: _containers.RepeatedCompositeFieldContainer[Within]
    lazy: bool
    vacates: bool
    def __init__(self, pool: _Optional[str] = ..., model: _Optional[str] = ..., pin: _Optional[str] = ..., level: _Optional[str] = ..., within: _Optional[_Iterable[_Union[Within, _Mapping]]] = ..., lazy: bool = ..., vacates: bool = ...) -> None: ...

class Dependency(_message.Message):
    __slots__ = ("job_id", "kind")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    kind: DependencyKind
    def __init__(self, job_id: _Optional[int] = ..., kind: _Optional[_Union[DependencyKind, str]] = ...) -> None: ...

class Retry(_message.Message):
    __slots__ = ("limit", "exit_codes", "exit_signals")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODES_FIELD_NUMBER: _ClassVar[int]
    EXIT_SIGNALS_FIELD_NUMBER: _ClassVar[int]
    limit: int
    exit_codes: _containers.RepeatedScalarFieldContainer[int]
    exit_signals: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, limit: _Optional[int] = ..., exit_codes: _Optional[_Iterable[int]] = ..., exit_signals: _Optional[_Iterable[int]] = ...) -> None: ...

class Array(_message.Message):
    __slots__ = ("size", "at_once")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    size: int
    at_once: int
    def __init__(self, size: _Optional[int] = ..., at_once: _Optional[int] = ...) -> None: ...

class NodeRequest(_message.Message):
    __slots__ = ("names", "labels", "excluded")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    excluded: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., excluded: _Optional[_Iterable[str]] = ...) -> None: ...

class Configuration(_message.Message):
    __slots__ = ("resources", "task_groups", "cells", "device_memory_mib", "nodes", "command", "environment", "estimate")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TASK_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    resources: Resources
    task_groups: _containers.RepeatedCompositeFieldContainer[TaskGroup]
    cells: CellRequest
    device_memory_mib: int
    nodes: NodeRequest
    command: _containers.RepeatedScalarFieldContainer[str]
    environment: _containers.ScalarMap[str, str]
    estimate: _duration_pb2.Duration
    def __init__(self, resources: _Optional[_Union[Resources, _Mapping]] = ..., task_groups: _Optional[_Iterable[_Union[TaskGroup, _Mapping]]] = ..., cells: _Optional[_Union[CellRequest, _Mapping]] = ..., device_memory_mib: _Optional[int] = ..., nodes: _Optional[_Union[NodeRequest, _Mapping]] = ..., command: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("name", "job_class", "command", "environment", "working_directory", "resources", "grace_period", "priority", "time_limit", "estimate", "retry", "task_groups", "dependencies", "array", "virtual_cluster", "guarantee", "cells", "exit_0_after_stop", "redacted", "inherited_environment", "device_memory_mib", "nodes", "alternatives", "project", "checkpoint_signal", "checkpoint_command", "snapshots", "min_tasks", "max_tasks", "gpu_fraction_ppm", "gpu_memory_mib", "share")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class InheritedEnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_CLASS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    TASK_GROUPS_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    GUARANTEE_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    EXIT_0_AFTER_STOP_FIELD_NUMBER: _ClassVar[int]
    REDACTED_FIELD_NUMBER: _ClassVar[int]
    INHERITED_ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_COMMAND_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    MIN_TASKS_FIELD_NUMBER: _ClassVar[int]
    MAX_TASKS_FIELD_NUMBER: _ClassVar[int]
    GPU_FRACTION_PPM_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    name: str
    job_class: JobClass
    command: _containers.RepeatedScalarFieldContainer[str]
    environment: _containers.ScalarMap[str, str]
    working_directory: str
    resources: Resources
    grace_period: _duration_pb2.Duration
    priority: int
    time_limit: _duration_pb2.Duration
    estimate: _duration_pb2.Duration
    retry: Retry
    task_groups: _containers.RepeatedCompositeFieldContainer[TaskGroup]
    dependencies: _containers.RepeatedCompositeFieldContainer[Dependency]
    array: Array
    virtual_cluster: str
    guarantee: Guarantee
    cells: CellRequest
    exit_0_after_stop: Exit0AfterStop
    redacted: _containers.RepeatedScalarFieldContainer[str]
    inherited_environment: _containers.ScalarMap[str, str]
    device_memory_mib: int
    nodes: NodeRequest
    alternatives: _containers.RepeatedCompositeFieldContainer[Configuration]
    project: str
    checkpoint_signal: str
    checkpoint_command: str
    snapshots: _containers.RepeatedScalarFieldContainer[str]
    min_tasks: int
    max_tasks: int
    gpu_fraction_ppm: int
    gpu_memory_mib: int
    share: ShareMode
    def __init__(self, name: _Optional[str] = ..., job_class: _Optional[_Union[JobClass, str]] = ..., command: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., working_directory: _Optional[str] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., priority: _Optional[int] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry: _Optional[_Union[Retry, _Mapping]] = ..., task_groups: _Optional[_Iterable[_Union[TaskGroup, _Mapping]]] = ..., dependencies: _Optional[_Iterable[_Union[Dependency, _Mapping]]] = ..., array: _Optional[_Union[Array, _Mapping]] = ..., virtual_cluster: _Optional[str] = ..., guarantee: _Optional[_Union[Guarantee, str]] = ..., cells: _Optional[_Union[CellRequest, _Mapping]] = ..., exit_0_after_stop: _Optional[_Union[Exit0AfterStop, str]] = ..., redacted: _Optional[_Iterable[str]] = ..., inherited_environment: _Optional[_Mapping[str, str]] = ..., device_memory_mib: _Optional[int] = ..., nodes: _Optional[_Union[NodeRequest, _Mapping]] = ..., alternatives: _Optional[_Iterable[_Union[Configuration, _Mapping]]] = ..., project: _Optional[str] = ..., checkpoint_signal: _Optional[str] = ..., checkpoint_command: _Optional[str] = ..., snapshots: _Optional[_Iterable[str]] = ..., min_tasks: _Optional[int] = ..., max_tasks: _Optional[int] = ..., gpu_fraction_ppm: _Optional[int] = ..., gpu_memory_mib: _Optional[int] = ..., share: _Optional[_Union[ShareMode, str]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("rank", "node", "devices", "resources", "log_path", "guaranteed", "program")
    RANK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    LOG_PATH_FIELD_NUMBER: _ClassVar[int]
    GUARANTEED_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    rank: int
    node: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    resources: Resources
    log_path: str
    guaranteed: bool
    program: str
    def __init__(self, rank: _Optional[int] = ..., node: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., log_path: _Optional[str] = ..., guaranteed: bool = ..., program: _Optional[str] = ...) -> None: ...

class ArrayStatus(_message.Message):
    __slots__ = ("size", "pending", "live", "succeeded", "failed")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    size: int
    pending: int
    live: int
    succeeded: int
    failed: int
    def __init__(self, size: _Optional[int] = ..., pending: _Optional[int] = ..., live: _Optional[int] = ..., succeeded: _Optional[int] = ..., failed: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "spec", "user", "state", "reason", "reason_detail", "cause_job_id", "run", "node", "devices", "submit_time", "start_time", "end_time", "exit_code", "exit_signal", "preempted_for_trial", "cancel_requested", "log_path", "priority", "time_limit", "run_time", "held", "suspend_requested", "retries", "eligible_time", "tasks", "array_job_id", "array_index", "array", "guaranteed", "configuration", "steps", "resize_to", "mini_batches", "estimates", "sampling", "operation", "parked", "skip_steps", "grace_follows", "grace_wanted", "share_next", "began_from", "checkpoint", "profile", "executed_time", "executing_since", "closeness", "set_aside", "executing_part_ppm", "turn", "last_save")
    ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_DETAIL_FIELD_NUMBER: _ClassVar[int]
    CAUSE_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FOR_TRIAL_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    LOG_PATH_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RUN_TIME_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_TIME_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_INDEX_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    GUARANTEED_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    RESIZE_TO_FIELD_NUMBER: _ClassVar[int]
    MINI_BATCHES_FIELD_NUMBER: _ClassVar[int]
    ESTIMATES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    SKIP_STEPS_FIELD_NUMBER: _ClassVar[int]
    GRACE_FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    GRACE_WANTED_FIELD_NUMBER: _ClassVar[int]
    SHARE_NEXT_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FROM_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_TIME_FIELD_NUMBER: _ClassVar[int]
    EXECUTING_SINCE_FIELD_NUMBER: _ClassVar[int]
    CLOSENESS_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    EXECUTING_PART_PPM_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    LAST_SAVE_FIELD_NUMBER: _ClassVar[int]
    id: int
    spec: JobSpec
    user: str
    state: JobState
    reason: JobReason
    reason_detail: str
    cause_job_id: int
    run: int
    node: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    submit_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    exit_code: int
    exit_signal: int
    preempted_for_trial: int
    cancel_requested: bool
    log_path: str
    priority: int
    time_limit: _duration_pb2.Duration
    run_time: _duration_pb2.Duration
    held: bool
    suspend_requested: bool
    retries: int
    eligible_time: _timestamp_pb2.Timestamp
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    array_job_id: int
    array_index: int
    array: ArrayStatus
    guaranteed: bool
    configuration: int
    steps: _containers.RepeatedCompositeFieldContainer[RunSteps]
    resize_to: int
    mini_batches: _containers.RepeatedCompositeFieldContainer[MiniBatch]
    estimates: _containers.RepeatedCompositeFieldContainer[ConfigurationEstimate]
    sampling: bool
    operation: Operation
    parked: bool
    skip_steps: int
    grace_follows: bool
    grace_wanted: _duration_pb2.Duration
    share_next: ShareMode
    began_from: str
    checkpoint: str
    profile: Profile
    executed_time: _duration_pb2.Duration
    executing_since: _timestamp_pb2.Timestamp
    closeness: Closeness
    set_aside: str
    executing_part_ppm: int
    turn: TurnState
    last_save: SaveResult
    def __init__(self, id: _Optional[int] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., user: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[_Union[JobReason, str]] = ..., reason_detail: _Optional[str] = ..., cause_job_id: _Optional[int] = ..., run: _Optional[int] = ..., node: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ..., submit_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., exit_code: _Optional[int] = ..., exit_signal: _Optional[int] = ..., preempted_for_trial: _Optional[int] = ..., cancel_requested: bool = ..., log_path: _Optional[str] = ..., priority: _Optional[int] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., run_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., held: bool = ..., suspend_requested: bool = ..., retries: _Optional[int] = ..., eligible_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., array_job_id: _Optional[int] = ..., array_index: _Optional[int] = ..., array: _Optional[_Union[ArrayStatus, _Mapping]] = ..., guaranteed: bool = ..., configuration: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[RunSteps, _Mapping]]] = ..., resize_to: _Optional[int] = ..., mini_batches: _Optional[_Iterable[_Union[MiniBatch, _Mapping]]] = ..., estimates: _Optional[_Iterable[_Union[ConfigurationEstimate, _Mapping]]] = ..., sampling: bool = ..., operation: _Optional[_Union[Operation, _Mapping]] = ..., parked: bool = ..., skip_steps: _Optional[int] = ..., grace_follows: bool = ..., grace_wanted: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., share_next: _Optional[_Union[ShareMode, str]] = ..., began_from: _Optional[str] = ..., checkpoint: _Optional[str] = ..., profile: _Optional[_Union[Profile, _Mapping]] = ..., executed_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., executing_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., closeness: _Optional[_Union[Closeness, _Mapping]] = ..., set_aside: _Optional[str] = ..., executing_part_ppm: _Optional[int] = ..., turn: _Optional[_Union[TurnState, str]] = ..., last_save: _Optional[_Union[SaveResult, _Mapping]] = ...) -> None: ...

class Closeness(_message.Message):
    __slots__ = ("devices", "nodes", "within", "nvlink")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    NVLINK_FIELD_NUMBER: _ClassVar[int]
    devices: int
    nodes: int
    within: str
    nvlink: bool
    def __init__(self, devices: _Optional[int] = ..., nodes: _Optional[int] = ..., within: _Optional[str] = ..., nvlink: bool = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("mini_batch_time", "best_mini_batch_time", "memory_mib", "utilization_ppm", "devices", "model")
    MINI_BATCH_TIME_FIELD_NUMBER: _ClassVar[int]
    BEST_MINI_BATCH_TIME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_PPM_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    mini_batch_time: _duration_pb2.Duration
    best_mini_batch_time: _duration_pb2.Duration
    memory_mib: int
    utilization_ppm: int
    devices: int
    model: str
    def __init__(self, mini_batch_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., best_mini_batch_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., memory_mib: _Optional[int] = ..., utilization_ppm: _Optional[int] = ..., devices: _Optional[int] = ..., model: _Optional[str] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("kind", "phase", "begin_time", "phase_time", "deadline")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    PHASE_TIME_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    kind: OperationKind
    phase: OperationPhase
    begin_time: _timestamp_pb2.Timestamp
    phase_time: _timestamp_pb2.Timestamp
    deadline: _timestamp_pb2.Timestamp
    def __init__(self, kind: _Optional[_Union[OperationKind, str]] = ..., phase: _Optional[_Union[OperationPhase, str]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., phase_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class OperationPhaseTime(_message.Message):
    __slots__ = ("kind", "phase", "begin_time", "duration", "detail")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    kind: OperationKind
    phase: OperationPhase
    begin_time: _timestamp_pb2.Timestamp
    duration: _duration_pb2.Duration
    detail: str
    def __init__(self, kind: _Optional[_Union[OperationKind, str]] = ..., phase: _Optional[_Union[OperationPhase, str]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., detail: _Optional[str] = ...) -> None: ...

class SaveResult(_message.Message):
    __slots__ = ("outcome", "step", "detail")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    outcome: SaveOutcome
    step: int
    detail: str
    def __init__(self, outcome: _Optional[_Union[SaveOutcome, str]] = ..., step: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class JobAtRisk(_message.Message):
    __slots__ = ("job_id", "user", "name", "run_time")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUN_TIME_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    user: str
    name: str
    run_time: _duration_pb2.Duration
    def __init__(self, job_id: _Optional[int] = ..., user: _Optional[str] = ..., name: _Optional[str] = ..., run_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run", "task", "node", "devices", "resources", "phase", "place_time", "start_time", "end_time", "exit_code", "exit_signal", "stop_reason", "saved", "lost", "log_path", "guaranteed", "parks", "parked_time", "waited_time", "rung", "parked_mib", "residue_mib", "operations", "began_from", "checkpoint", "save")
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PLACE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LOG_PATH_FIELD_NUMBER: _ClassVar[int]
    GUARANTEED_FIELD_NUMBER: _ClassVar[int]
    PARKS_FIELD_NUMBER: _ClassVar[int]
    PARKED_TIME_FIELD_NUMBER: _ClassVar[int]
    WAITED_TIME_FIELD_NUMBER: _ClassVar[int]
    RUNG_FIELD_NUMBER: _ClassVar[int]
    PARKED_MIB_FIELD_NUMBER: _ClassVar[int]
    RESIDUE_MIB_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FROM_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    run: int
    task: int
    node: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    resources: Resources
    phase: RunPhase
    place_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    exit_code: int
    exit_signal: int
    stop_reason: JobReason
    saved: bool
    lost: bool
    log_path: str
    guaranteed: bool
    parks: int
    parked_time: _duration_pb2.Duration
    waited_time: _duration_pb2.Duration
    rung: str
    parked_mib: int
    residue_mib: int
    operations: _containers.RepeatedCompositeFieldContainer[OperationPhaseTime]
    began_from: str
    checkpoint: str
    save: SaveResult
    def __init__(self, run: _Optional[int] = ..., task: _Optional[int] = ..., node: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., phase: _Optional[_Union[RunPhase, str]] = ..., place_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., exit_code: _Optional[int] = ..., exit_signal: _Optional[int] = ..., stop_reason: _Optional[_Union[JobReason, str]] = ..., saved: bool = ..., lost: bool = ..., log_path: _Optional[str] = ..., guaranteed: bool = ..., parks: _Optional[int] = ..., parked_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., waited_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rung: _Optional[str] = ..., parked_mib: _Optional[int] = ..., residue_mib: _Optional[int] = ..., operations: _Optional[_Iterable[_Union[OperationPhaseTime, _Mapping]]] = ..., began_from: _Optional[str] = ..., checkpoint: _Optional[str] = ..., save: _Optional[_Union[SaveResult, _Mapping]] = ...) -> None: ...

class ConfigurationEstimate(_message.Message):
    __slots__ = ("configuration", "time", "error", "sources", "memory_mib", "detail", "impossible")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    IMPOSSIBLE_FIELD_NUMBER: _ClassVar[int]
    configuration: int
    time: _duration_pb2.Duration
    error: _duration_pb2.Duration
    sources: _containers.RepeatedScalarFieldContainer[EstimateSource]
    memory_mib: int
    detail: str
    impossible: bool
    def __init__(self, configuration: _Optional[int] = ..., time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., error: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[EstimateSource, str]]] = ..., memory_mib: _Optional[int] = ..., detail: _Optional[str] = ..., impossible: bool = ...) -> None: ...

class RunSteps(_message.Message):
    __slots__ = ("job_id", "run", "task", "step", "total", "state", "since_step", "step_rate", "step_rate_error", "step_rate_since_start", "mini_batch_time", "mini_batch_spread", "measured", "remaining")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_STEP_FIELD_NUMBER: _ClassVar[int]
    STEP_RATE_FIELD_NUMBER: _ClassVar[int]
    STEP_RATE_ERROR_FIELD_NUMBER: _ClassVar[int]
    STEP_RATE_SINCE_START_FIELD_NUMBER: _ClassVar[int]
    MINI_BATCH_TIME_FIELD_NUMBER: _ClassVar[int]
    MINI_BATCH_SPREAD_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    step: int
    total: int
    state: StepState
    since_step: _duration_pb2.Duration
    step_rate: float
    step_rate_error: float
    step_rate_since_start: float
    mini_batch_time: _duration_pb2.Duration
    mini_batch_spread: _duration_pb2.Duration
    measured: int
    remaining: _duration_pb2.Duration
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., step: _Optional[int] = ..., total: _Optional[int] = ..., state: _Optional[_Union[StepState, str]] = ..., since_step: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., step_rate: _Optional[float] = ..., step_rate_error: _Optional[float] = ..., step_rate_since_start: _Optional[float] = ..., mini_batch_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., mini_batch_spread: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., measured: _Optional[int] = ..., remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class MiniBatch(_message.Message):
    __slots__ = ("job_id", "run", "task", "time", "confidence", "source")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    time: _duration_pb2.Duration
    confidence: float
    source: MiniBatchSource
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., confidence: _Optional[float] = ..., source: _Optional[_Union[MiniBatchSource, str]] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("job_id", "run", "node", "demand", "node_free", "size", "grace_period", "score", "preempted_for_trial", "sufficient", "chosen")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    NODE_FREE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FOR_TRIAL_FIELD_NUMBER: _ClassVar[int]
    SUFFICIENT_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    node: str
    demand: Resources
    node_free: Resources
    size: float
    grace_period: _duration_pb2.Duration
    score: float
    preempted_for_trial: int
    sufficient: bool
    chosen: bool
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., node: _Optional[str] = ..., demand: _Optional[_Union[Resources, _Mapping]] = ..., node_free: _Optional[_Union[Resources, _Mapping]] = ..., size: _Optional[float] = ..., grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., score: _Optional[float] = ..., preempted_for_trial: _Optional[int] = ..., sufficient: bool = ..., chosen: bool = ...) -> None: ...

class PreemptionDecision(_message.Message):
    __slots__ = ("trial_job_id", "node", "demand", "rule", "s", "cap", "max_size", "max_grace_period", "considered", "candidates")
    TRIAL_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    S_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    CONSIDERED_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    trial_job_id: int
    node: str
    demand: Resources
    rule: str
    s: float
    cap: int
    max_size: float
    max_grace_period: _duration_pb2.Duration
    considered: int
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, trial_job_id: _Optional[int] = ..., node: _Optional[str] = ..., demand: _Optional[_Union[Resources, _Mapping]] = ..., rule: _Optional[str] = ..., s: _Optional[float] = ..., cap: _Optional[int] = ..., max_size: _Optional[float] = ..., max_grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., considered: _Optional[int] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("job_id", "time", "kind", "run", "node", "reason", "cause_job_id", "exit_code", "exit_signal", "text", "decision", "commit_no")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_NO_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    time: _timestamp_pb2.Timestamp
    kind: JobEventKind
    run: int
    node: str
    reason: JobReason
    cause_job_id: int
    exit_code: int
    exit_signal: int
    text: str
    decision: PreemptionDecision
    commit_no: int
    def __init__(self, job_id: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[_Union[JobEventKind, str]] = ..., run: _Optional[int] = ..., node: _Optional[str] = ..., reason: _Optional[_Union[JobReason, str]] = ..., cause_job_id: _Optional[int] = ..., exit_code: _Optional[int] = ..., exit_signal: _Optional[int] = ..., text: _Optional[str] = ..., decision: _Optional[_Union[PreemptionDecision, _Mapping]] = ..., commit_no: _Optional[int] = ...) -> None: ...
