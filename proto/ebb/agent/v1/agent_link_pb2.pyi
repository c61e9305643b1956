import datetime

from buf.validate import validate_pb2 as _validate_pb2
from ebb.v1 import cluster_pb2 as _cluster_pb2
from ebb.v1 import job_pb2 as _job_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_PHASE_UNSPECIFIED: _ClassVar[RunPhase]
    RUN_PHASE_STARTING: _ClassVar[RunPhase]
    RUN_PHASE_RUNNING: _ClassVar[RunPhase]
    RUN_PHASE_STOPPING: _ClassVar[RunPhase]
    RUN_PHASE_ENDED: _ClassVar[RunPhase]
    RUN_PHASE_READY: _ClassVar[RunPhase]
    RUN_PHASE_PREPARING: _ClassVar[RunPhase]
    RUN_PHASE_PARKING: _ClassVar[RunPhase]
    RUN_PHASE_PARKED: _ClassVar[RunPhase]
    RUN_PHASE_RESUMING: _ClassVar[RunPhase]
    RUN_PHASE_WARMING: _ClassVar[RunPhase]

class SaveMeans(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAVE_MEANS_UNSPECIFIED: _ClassVar[SaveMeans]
    SAVE_MEANS_NONE: _ClassVar[SaveMeans]
    SAVE_MEANS_FILES: _ClassVar[SaveMeans]
    SAVE_MEANS_HANDLER: _ClassVar[SaveMeans]
    SAVE_MEANS_REGISTERED: _ClassVar[SaveMeans]
    SAVE_MEANS_ASKED: _ClassVar[SaveMeans]

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_PREEMPTED: _ClassVar[StopReason]
    STOP_REASON_CANCELLED: _ClassVar[StopReason]
    STOP_REASON_UNCLAIMED: _ClassVar[StopReason]
    STOP_REASON_SUSPENDED: _ClassVar[StopReason]
    STOP_REASON_REQUEUED: _ClassVar[StopReason]
    STOP_REASON_TIME_LIMIT: _ClassVar[StopReason]
    STOP_REASON_GANG: _ClassVar[StopReason]
    STOP_REASON_DRAINED: _ClassVar[StopReason]
    STOP_REASON_RECLAIMED: _ClassVar[StopReason]
    STOP_REASON_RESIZED: _ClassVar[StopReason]
    STOP_REASON_SAMPLED: _ClassVar[StopReason]
    STOP_REASON_PARKED: _ClassVar[StopReason]
    STOP_REASON_MIGRATED: _ClassVar[StopReason]
RUN_PHASE_UNSPECIFIED: RunPhase
RUN_PHASE_STARTING: RunPhase
RUN_PHASE_RUNNING: RunPhase
RUN_PHASE_STOPPING: RunPhase
RUN_PHASE_ENDED: RunPhase
RUN_PHASE_READY: RunPhase
RUN_PHASE_PREPARING: RunPhase
RUN_PHASE_PARKING: RunPhase
RUN_PHASE_PARKED: RunPhase
RUN_PHASE_RESUMING: RunPhase
RUN_PHASE_WARMING: RunPhase
SAVE_MEANS_UNSPECIFIED: SaveMeans
SAVE_MEANS_NONE: SaveMeans
SAVE_MEANS_FILES: SaveMeans
SAVE_MEANS_HANDLER: SaveMeans
SAVE_MEANS_REGISTERED: SaveMeans
SAVE_MEANS_ASKED: SaveMeans
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_PREEMPTED: StopReason
STOP_REASON_CANCELLED: StopReason
STOP_REASON_UNCLAIMED: StopReason
STOP_REASON_SUSPENDED: StopReason
STOP_REASON_REQUEUED: StopReason
STOP_REASON_TIME_LIMIT: StopReason
STOP_REASON_GANG: StopReason
STOP_REASON_DRAINED: StopReason
STOP_REASON_RECLAIMED: StopReason
STOP_REASON_RESIZED: StopReason
STOP_REASON_SAMPLED: StopReason
STOP_REASON_PARKED: StopReason
STOP_REASON_MIGRATED: StopReason

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "reports", "heartbeat", "observations", "more")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    reports: Reports
    heartbeat: Heartbeat
    observations: Observations
    more: bool
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., reports: _Optional[_Union[Reports, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., observations: _Optional[_Union[Observations, _Mapping]] = ..., more: bool = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("welcome", "desired_runs", "acknowledgement", "log_request", "configuration")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    DESIRED_RUNS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENT_FIELD_NUMBER: _ClassVar[int]
    LOG_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    desired_runs: DesiredRuns
    acknowledgement: Acknowledgement
    log_request: LogRequest
    configuration: NodeConfiguration
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., desired_runs: _Optional[_Union[DesiredRuns, _Mapping]] = ..., acknowledgement: _Optional[_Union[Acknowledgement, _Mapping]] = ..., log_request: _Optional[_Union[LogRequest, _Mapping]] = ..., configuration: _Optional[_Union[NodeConfiguration, _Mapping]] = ...) -> None: ...

class RunStatus(_message.Message):
    __slots__ = ("job_id", "run", "phase", "pid", "log_path", "task", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    LOG_PATH_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    phase: RunPhase
    pid: int
    log_path: str
    task: int
    generation: int
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., phase: _Optional[_Union[RunPhase, str]] = ..., pid: _Optional[int] = ..., log_path: _Optional[str] = ..., task: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "boot_id", "cluster_id", "epoch", "capacity", "levels", "devices", "runs", "agent_version", "acknowledged", "seal", "instance", "checkpoints_at", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_AT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    node: str
    boot_id: str
    cluster_id: str
    epoch: int
    capacity: _job_pb2.Resources
    levels: _containers.RepeatedScalarFieldContainer[str]
    devices: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.Device]
    runs: _containers.RepeatedCompositeFieldContainer[RunStatus]
    agent_version: str
    acknowledged: int
    seal: bytes
    instance: str
    checkpoints_at: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, node: _Optional[str] = ..., boot_id: _Optional[str] = ..., cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., capacity: _Optional[_Union[_job_pb2.Resources, _Mapping]] = ..., levels: _Optional[_Iterable[str]] = ..., devices: _Optional[_Iterable[_Union[_cluster_pb2.Device, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[RunStatus, _Mapping]]] = ..., agent_version: _Optional[str] = ..., acknowledged: _Optional[int] = ..., seal: _Optional[bytes] = ..., instance: _Optional[str] = ..., checkpoints_at: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Reports(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[Report]
    def __init__(self, reports: _Optional[_Iterable[_Union[Report, _Mapping]]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("sequence", "job_id", "run", "started", "exited", "ready", "parked", "resumed", "park_refused", "task")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EXITED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    PARK_REFUSED_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    job_id: int
    run: int
    started: RunStarted
    exited: RunExited
    ready: RunReady
    parked: RunParked
    resumed: RunResumed
    park_refused: RunParkRefused
    task: int
    def __init__(self, sequence: _Optional[int] = ..., job_id: _Optional[int] = ..., run: _Optional[int] = ..., started: _Optional[_Union[RunStarted, _Mapping]] = ..., exited: _Optional[_Union[RunExited, _Mapping]] = ..., ready: _Optional[_Union[RunReady, _Mapping]] = ..., parked: _Optional[_Union[RunParked, _Mapping]] = ..., resumed: _Optional[_Union[RunResumed, _Mapping]] = ..., park_refused: _Optional[_Union[RunParkRefused, _Mapping]] = ..., task: _Optional[int] = ...) -> None: ...

class RunParked(_message.Message):
    __slots__ = ("rung", "bytes", "residue_bytes", "phases", "saves")
    class PhasesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _duration_pb2.Duration
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
    RUNG_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RESIDUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    rung: str
    bytes: int
    residue_bytes: int
    phases: _containers.MessageMap[str, _duration_pb2.Duration]
    saves: bool
    def __init__(self, rung: _Optional[str] = ..., bytes: _Optional[int] = ..., residue_bytes: _Optional[int] = ..., phases: _Optional[_Mapping[str, _duration_pb2.Duration]] = ..., saves: bool = ...) -> None: ...

class RunResumed(_message.Message):
    __slots__ = ("rung", "phases")
    class PhasesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _duration_pb2.Duration
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
    RUNG_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    rung: str
    phases: _containers.MessageMap[str, _duration_pb2.Duration]
    def __init__(self, rung: _Optional[str] = ..., phases: _Optional[_Mapping[str, _duration_pb2.Duration]] = ...) -> None: ...

class RunParkRefused(_message.Message):
    __slots__ = ("reason", "lost")
    REASON_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    reason: str
    lost: bool
    def __init__(self, reason: _Optional[str] = ..., lost: bool = ...) -> None: ...

class RunReady(_message.Message):
    __slots__ = ("address", "port")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    address: str
    port: int
    def __init__(self, address: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class RunStarted(_message.Message):
    __slots__ = ("pid", "log_path", "program", "restored")
    PID_FIELD_NUMBER: _ClassVar[int]
    LOG_PATH_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    pid: int
    log_path: str
    program: str
    restored: str
    def __init__(self, pid: _Optional[int] = ..., log_path: _Optional[str] = ..., program: _Optional[str] = ..., restored: _Optional[str] = ...) -> None: ...

class RunExited(_message.Message):
    __slots__ = ("exit_code", "exit_signal", "yielded", "launch_error", "unknown", "out_of_memory", "node_stopped", "told", "done", "checkpoint", "not_fetched", "out_of_device_memory", "began_from", "saved", "save", "job_fault")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    YIELDED_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_ERROR_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_MEMORY_FIELD_NUMBER: _ClassVar[int]
    NODE_STOPPED_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    NOT_FETCHED_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_DEVICE_MEMORY_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FROM_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    JOB_FAULT_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    exit_signal: int
    yielded: bool
    launch_error: str
    unknown: bool
    out_of_memory: bool
    node_stopped: bool
    told: bool
    done: bool
    checkpoint: str
    not_fetched: str
    out_of_device_memory: str
    began_from: str
    saved: str
    save: _job_pb2.SaveResult
    job_fault: bool
    def __init__(self, exit_code: _Optional[int] = ..., exit_signal: _Optional[int] = ..., yielded: bool = ..., launch_error: _Optional[str] = ..., unknown: bool = ..., out_of_memory: bool = ..., node_stopped: bool = ..., told: bool = ..., done: bool = ..., checkpoint: _Optional[str] = ..., not_fetched: _Optional[str] = ..., out_of_device_memory: _Optional[str] = ..., began_from: _Optional[str] = ..., saved: _Optional[str] = ..., save: _Optional[_Union[_job_pb2.SaveResult, _Mapping]] = ..., job_fault: bool = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Observations(_message.Message):
    __slots__ = ("devices", "cycles", "steps", "mini_batches", "measurements", "slices", "graces", "checkpoints")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CYCLES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MINI_BATCHES_FIELD_NUMBER: _ClassVar[int]
    MEASUREMENTS_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    GRACES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.DeviceObservation]
    cycles: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.MemoryCycle]
    steps: _containers.RepeatedCompositeFieldContainer[_job_pb2.RunSteps]
    mini_batches: _containers.RepeatedCompositeFieldContainer[_job_pb2.MiniBatch]
    measurements: _containers.RepeatedCompositeFieldContainer[RunMeasurement]
    slices: _containers.RepeatedCompositeFieldContainer[SliceObservation]
    graces: _containers.RepeatedCompositeFieldContainer[RunGrace]
    checkpoints: _containers.RepeatedCompositeFieldContainer[RunCheckpoints]
    def __init__(self, devices: _Optional[_Iterable[_Union[_cluster_pb2.DeviceObservation, _Mapping]]] = ..., cycles: _Optional[_Iterable[_Union[_cluster_pb2.MemoryCycle, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[_job_pb2.RunSteps, _Mapping]]] = ..., mini_batches: _Optional[_Iterable[_Union[_job_pb2.MiniBatch, _Mapping]]] = ..., measurements: _Optional[_Iterable[_Union[RunMeasurement, _Mapping]]] = ..., slices: _Optional[_Iterable[_Union[SliceObservation, _Mapping]]] = ..., graces: _Optional[_Iterable[_Union[RunGrace, _Mapping]]] = ..., checkpoints: _Optional[_Iterable[_Union[RunCheckpoints, _Mapping]]] = ...) -> None: ...

class SliceObservation(_message.Message):
    __slots__ = ("job_id", "run", "task", "executing", "executed", "since", "switches", "switching", "rung", "residue_bytes", "wait", "park", "resume", "outlasted", "tried")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    EXECUTING_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    SWITCHING_FIELD_NUMBER: _ClassVar[int]
    RUNG_FIELD_NUMBER: _ClassVar[int]
    RESIDUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PARK_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    OUTLASTED_FIELD_NUMBER: _ClassVar[int]
    TRIED_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    executing: bool
    executed: _duration_pb2.Duration
    since: _duration_pb2.Duration
    switches: int
    switching: _duration_pb2.Duration
    rung: str
    residue_bytes: int
    wait: _duration_pb2.Duration
    park: _duration_pb2.Duration
    resume: _duration_pb2.Duration
    outlasted: _duration_pb2.Duration
    tried: bool
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., executing: bool = ..., executed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., since: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., switches: _Optional[int] = ..., switching: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rung: _Optional[str] = ..., residue_bytes: _Optional[int] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., park: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., resume: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., outlasted: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., tried: bool = ...) -> None: ...

class RunMeasurement(_message.Message):
    __slots__ = ("job_id", "run", "task", "steps", "total", "first_step", "last_step", "spread", "memory_mib")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    steps: int
    total: int
    first_step: _duration_pb2.Duration
    last_step: _duration_pb2.Duration
    spread: float
    memory_mib: int
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., steps: _Optional[int] = ..., total: _Optional[int] = ..., first_step: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., last_step: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., spread: _Optional[float] = ..., memory_mib: _Optional[int] = ...) -> None: ...

class RunCheckpoints(_message.Message):
    __slots__ = ("job_id", "run", "task", "began_from", "saved", "step", "failed", "failures", "means", "longest_step", "evaluated")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FROM_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    MEANS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_STEP_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    began_from: str
    saved: str
    step: int
    failed: str
    failures: int
    means: SaveMeans
    longest_step: _duration_pb2.Duration
    evaluated: bool
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., began_from: _Optional[str] = ..., saved: _Optional[str] = ..., step: _Optional[int] = ..., failed: _Optional[str] = ..., failures: _Optional[int] = ..., means: _Optional[_Union[SaveMeans, str]] = ..., longest_step: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., evaluated: bool = ...) -> None: ...

class RunGrace(_message.Message):
    __slots__ = ("job_id", "run", "task", "grace_period")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    grace_period: _duration_pb2.Duration
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("cluster_id", "epoch", "acknowledged", "seal", "configuration", "transfer_key")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_KEY_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    acknowledged: int
    seal: bytes
    configuration: NodeConfiguration
    transfer_key: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., acknowledged: _Optional[int] = ..., seal: _Optional[bytes] = ..., configuration: _Optional[_Union[NodeConfiguration, _Mapping]] = ..., transfer_key: _Optional[bytes] = ...) -> None: ...

class NodeConfiguration(_message.Message):
    __slots__ = ("heartbeat_interval", "reconnect_within")
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_WITHIN_FIELD_NUMBER: _ClassVar[int]
    heartbeat_interval: _duration_pb2.Duration
    reconnect_within: _duration_pb2.Duration
    def __init__(self, heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reconnect_within: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class DesiredRuns(_message.Message):
    __slots__ = ("commit_no", "runs")
    COMMIT_NO_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    commit_no: int
    runs: _containers.RepeatedCompositeFieldContainer[DesiredRun]
    def __init__(self, commit_no: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[DesiredRun, _Mapping]]] = ...) -> None: ...

class DesiredRun(_message.Message):
    __slots__ = ("job_id", "run", "task", "generation", "prepared", "running", "stopped", "parked", "warming")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    WARMING_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    generation: int
    prepared: Launch
    running: Launch
    stopped: Stop
    parked: Park
    warming: Launch
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., generation: _Optional[int] = ..., prepared: _Optional[_Union[Launch, _Mapping]] = ..., running: _Optional[_Union[Launch, _Mapping]] = ..., stopped: _Optional[_Union[Stop, _Mapping]] = ..., parked: _Optional[_Union[Park, _Mapping]] = ..., warming: _Optional[_Union[Launch, _Mapping]] = ...) -> None: ...

class Park(_message.Message):
    __slots__ = ("launch", "time_limit", "number")
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    launch: Launch
    time_limit: _duration_pb2.Duration
    number: int
    def __init__(self, launch: _Optional[_Union[Launch, _Mapping]] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ("spec", "user", "devices", "gang", "array_index", "configuration", "share", "checkpoint", "skip_steps")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    ARRAY_INDEX_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SKIP_STEPS_FIELD_NUMBER: _ClassVar[int]
    spec: _job_pb2.JobSpec
    user: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    gang: Gang
    array_index: int
    configuration: int
    share: SharePlan
    checkpoint: CheckpointSource
    skip_steps: int
    def __init__(self, spec: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., user: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ..., gang: _Optional[_Union[Gang, _Mapping]] = ..., array_index: _Optional[int] = ..., configuration: _Optional[int] = ..., share: _Optional[_Union[SharePlan, _Mapping]] = ..., checkpoint: _Optional[_Union[CheckpointSource, _Mapping]] = ..., skip_steps: _Optional[int] = ...) -> None: ...

class CheckpointSource(_message.Message):
    __slots__ = ("node", "address")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class SharePlan(_message.Message):
    __slots__ = ("group", "generation", "rows", "period", "active", "device_memory_mib", "parked_mib", "packed")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    PARKED_MIB_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    group: int
    generation: int
    rows: _containers.RepeatedCompositeFieldContainer[ShareRow]
    period: _duration_pb2.Duration
    active: _containers.RepeatedScalarFieldContainer[int]
    device_memory_mib: int
    parked_mib: int
    packed: bool
    def __init__(self, group: _Optional[int] = ..., generation: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[ShareRow, _Mapping]]] = ..., period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., active: _Optional[_Iterable[int]] = ..., device_memory_mib: _Optional[int] = ..., parked_mib: _Optional[int] = ..., packed: bool = ...) -> None: ...

class ShareRow(_message.Message):
    __slots__ = ("runs", "weight")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[ShareMember]
    weight: int
    def __init__(self, runs: _Optional[_Iterable[_Union[ShareMember, _Mapping]]] = ..., weight: _Optional[int] = ...) -> None: ...

class ShareMember(_message.Message):
    __slots__ = ("job_id", "run", "task")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ...) -> None: ...

class Gang(_message.Message):
    __slots__ = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "nodes", "master_address", "master_port")
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    NODE_RANK_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    master_address: str
    master_port: int
    def __init__(self, rank: _Optional[int] = ..., world_size: _Optional[int] = ..., local_rank: _Optional[int] = ..., local_world_size: _Optional[int] = ..., node_rank: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., master_address: _Optional[str] = ..., master_port: _Optional[int] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("grace_period", "reason", "cause_job_id", "resize_to")
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RESIZE_TO_FIELD_NUMBER: _ClassVar[int]
    grace_period: _duration_pb2.Duration
    reason: StopReason
    cause_job_id: int
    resize_to: int
    def __init__(self, grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[_Union[StopReason, str]] = ..., cause_job_id: _Optional[int] = ..., resize_to: _Optional[int] = ...) -> None: ...

class LogRequest(_message.Message):
    __slots__ = ("id", "job_id", "run", "task", "offset", "follow")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    id: str
    job_id: int
    run: int
    task: int
    offset: int
    follow: bool
    def __init__(self, id: _Optional[str] = ..., job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., offset: _Optional[int] = ..., follow: bool = ...) -> None: ...

class SendLogRequest(_message.Message):
    __slots__ = ("id", "data", "error", "end")
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    id: str
    data: bytes
    error: str
    end: bool
    def __init__(self, id: _Optional[str] = ..., data: _Optional[bytes] = ..., error: _Optional[str] = ..., end: bool = ...) -> None: ...

class SendLogResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FindEndedRequest(_message.Message):
    __slots__ = ("job_ids", "after")
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    after: _duration_pb2.Duration
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ..., after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class FindEndedResponse(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GetSnapshotRequest(_message.Message):
    __slots__ = ("job_id", "digest", "offset")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    digest: str
    offset: int
    def __init__(self, job_id: _Optional[int] = ..., digest: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class GetSnapshotResponse(_message.Message):
    __slots__ = ("data", "size")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    size: int
    def __init__(self, data: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class PutResultRequest(_message.Message):
    __slots__ = ("job_id", "run", "size", "offset", "data")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    size: int
    offset: int
    data: bytes
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutResultResponse(_message.Message):
    __slots__ = ("stored",)
    STORED_FIELD_NUMBER: _ClassVar[int]
    stored: int
    def __init__(self, stored: _Optional[int] = ...) -> None: ...
