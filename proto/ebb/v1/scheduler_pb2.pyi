import datetime

from buf.validate import validate_pb2 as _validate_pb2
from ebb.v1 import job_pb2 as _job_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("spec", "request_id", "validate_only")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    spec: _job_pb2.JobSpec
    request_id: str
    validate_only: bool
    def __init__(self, spec: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("job", "preview")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    preview: Preview
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ..., preview: _Optional[_Union[Preview, _Mapping]] = ...) -> None: ...

class Preview(_message.Message):
    __slots__ = ("starts", "tasks", "victims", "explanation")
    STARTS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    starts: bool
    tasks: _containers.RepeatedCompositeFieldContainer[_job_pb2.Task]
    victims: _containers.RepeatedCompositeFieldContainer[Victim]
    explanation: Explanation
    def __init__(self, starts: bool = ..., tasks: _Optional[_Iterable[_Union[_job_pb2.Task, _Mapping]]] = ..., victims: _Optional[_Iterable[_Union[Victim, _Mapping]]] = ..., explanation: _Optional[_Union[Explanation, _Mapping]] = ...) -> None: ...

class Victim(_message.Message):
    __slots__ = ("job_id", "user", "node", "resources", "grace_period", "score")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    user: str
    node: str
    resources: _job_pb2.Resources
    grace_period: _duration_pb2.Duration
    score: float
    def __init__(self, job_id: _Optional[int] = ..., user: _Optional[str] = ..., node: _Optional[str] = ..., resources: _Optional[_Union[_job_pb2.Resources, _Mapping]] = ..., grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., score: _Optional[float] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "states", "virtual_cluster", "user", "mine", "name", "count_more")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    MINE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_MORE_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    states: _containers.RepeatedScalarFieldContainer[_job_pb2.JobState]
    virtual_cluster: str
    user: str
    mine: bool
    name: str
    count_more: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_job_pb2.JobState, str]]] = ..., virtual_cluster: _Optional[str] = ..., user: _Optional[str] = ..., mine: bool = ..., name: _Optional[str] = ..., count_more: bool = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token", "more")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[_job_pb2.Job]
    next_page_token: str
    more: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[_job_pb2.Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., more: _Optional[int] = ...) -> None: ...

class SchedulerWatchRequest(_message.Message):
    __slots__ = ("job_id", "after_commit")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_COMMIT_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    after_commit: int
    def __init__(self, job_id: _Optional[int] = ..., after_commit: _Optional[int] = ...) -> None: ...

class SchedulerWatchResponse(_message.Message):
    __slots__ = ("snapshot", "jobs", "commit_no")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_NO_FIELD_NUMBER: _ClassVar[int]
    snapshot: bool
    jobs: _containers.RepeatedCompositeFieldContainer[_job_pb2.Job]
    commit_no: int
    def __init__(self, snapshot: bool = ..., jobs: _Optional[_Iterable[_Union[_job_pb2.Job, _Mapping]]] = ..., commit_no: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class StoryRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class StoryResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_job_pb2.JobEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_job_pb2.JobEvent, _Mapping]]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("job_id", "page_size", "page_token")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    page_size: int
    page_token: str
    def __init__(self, job_id: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_job_pb2.Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[_job_pb2.Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SuspendRequest(_message.Message):
    __slots__ = ("job_id", "park", "park_only", "validate_only")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PARK_FIELD_NUMBER: _ClassVar[int]
    PARK_ONLY_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    park: bool
    park_only: bool
    validate_only: bool
    def __init__(self, job_id: _Optional[int] = ..., park: bool = ..., park_only: bool = ..., validate_only: bool = ...) -> None: ...

class SuspendResponse(_message.Message):
    __slots__ = ("job", "jobs_at_risk")
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOBS_AT_RISK_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    jobs_at_risk: _containers.RepeatedCompositeFieldContainer[_job_pb2.JobAtRisk]
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ..., jobs_at_risk: _Optional[_Iterable[_Union[_job_pb2.JobAtRisk, _Mapping]]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class HoldRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class HoldResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class RequeueRequest(_message.Message):
    __slots__ = ("job_id", "run", "validate_only")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    validate_only: bool
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., validate_only: bool = ...) -> None: ...

class RequeueResponse(_message.Message):
    __slots__ = ("job", "jobs_at_risk")
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOBS_AT_RISK_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    jobs_at_risk: _containers.RepeatedCompositeFieldContainer[_job_pb2.JobAtRisk]
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ..., jobs_at_risk: _Optional[_Iterable[_Union[_job_pb2.JobAtRisk, _Mapping]]] = ...) -> None: ...

class ResizeRequest(_message.Message):
    __slots__ = ("job_id", "tasks")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    tasks: int
    def __init__(self, job_id: _Optional[int] = ..., tasks: _Optional[int] = ...) -> None: ...

class ResizeResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class MigrateRequest(_message.Message):
    __slots__ = ("job_id", "destinations", "validate_only")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    destinations: _containers.RepeatedCompositeFieldContainer[Destination]
    validate_only: bool
    def __init__(self, job_id: _Optional[int] = ..., destinations: _Optional[_Iterable[_Union[Destination, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class Destination(_message.Message):
    __slots__ = ("node", "devices")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    node: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ...) -> None: ...

class MigrateResponse(_message.Message):
    __slots__ = ("job", "jobs_at_risk")
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOBS_AT_RISK_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    jobs_at_risk: _containers.RepeatedCompositeFieldContainer[_job_pb2.JobAtRisk]
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ..., jobs_at_risk: _Optional[_Iterable[_Union[_job_pb2.JobAtRisk, _Mapping]]] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("job_id", "priority", "time_limit", "dependencies", "grace_period", "grace_follows", "skip_steps", "share")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    GRACE_FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    SKIP_STEPS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    priority: int
    time_limit: _duration_pb2.Duration
    dependencies: Dependencies
    grace_period: _duration_pb2.Duration
    grace_follows: bool
    skip_steps: int
    share: _job_pb2.ShareMode
    def __init__(self, job_id: _Optional[int] = ..., priority: _Optional[int] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dependencies: _Optional[_Union[Dependencies, _Mapping]] = ..., grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., grace_follows: bool = ..., skip_steps: _Optional[int] = ..., share: _Optional[_Union[_job_pb2.ShareMode, str]] = ...) -> None: ...

class Dependencies(_message.Message):
    __slots__ = ("dependencies",)
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    dependencies: _containers.RepeatedCompositeFieldContainer[_job_pb2.Dependency]
    def __init__(self, dependencies: _Optional[_Iterable[_Union[_job_pb2.Dependency, _Mapping]]] = ...) -> None: ...

class UpdateResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("job", "explanation")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    job: _job_pb2.Job
    explanation: Explanation
    def __init__(self, job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ..., explanation: _Optional[_Union[Explanation, _Mapping]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("blockers", "ahead", "ahead_job_ids", "decision", "victims", "estimate", "preempted", "configuration_reason", "sharing_reason")
    BLOCKERS_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    AHEAD_JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_REASON_FIELD_NUMBER: _ClassVar[int]
    SHARING_REASON_FIELD_NUMBER: _ClassVar[int]
    blockers: _containers.RepeatedCompositeFieldContainer[Blocker]
    ahead: int
    ahead_job_ids: _containers.RepeatedScalarFieldContainer[int]
    decision: _job_pb2.PreemptionDecision
    victims: _containers.RepeatedCompositeFieldContainer[Victim]
    estimate: StartEstimate
    preempted: PreemptionCost
    configuration_reason: str
    sharing_reason: str
    def __init__(self, blockers: _Optional[_Iterable[_Union[Blocker, _Mapping]]] = ..., ahead: _Optional[int] = ..., ahead_job_ids: _Optional[_Iterable[int]] = ..., decision: _Optional[_Union[_job_pb2.PreemptionDecision, _Mapping]] = ..., victims: _Optional[_Iterable[_Union[Victim, _Mapping]]] = ..., estimate: _Optional[_Union[StartEstimate, _Mapping]] = ..., preempted: _Optional[_Union[PreemptionCost, _Mapping]] = ..., configuration_reason: _Optional[str] = ..., sharing_reason: _Optional[str] = ...) -> None: ...

class Blocker(_message.Message):
    __slots__ = ("reason", "detail", "cause_job_id", "need", "node", "free", "nodes", "nodes_usable", "nodes_large_enough", "holders", "holder_job_ids", "first_end_time")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    CAUSE_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NEED_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_USABLE_FIELD_NUMBER: _ClassVar[int]
    NODES_LARGE_ENOUGH_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_END_TIME_FIELD_NUMBER: _ClassVar[int]
    reason: _job_pb2.JobReason
    detail: str
    cause_job_id: int
    need: _job_pb2.Resources
    node: str
    free: _job_pb2.Resources
    nodes: int
    nodes_usable: int
    nodes_large_enough: int
    holders: int
    holder_job_ids: _containers.RepeatedScalarFieldContainer[int]
    first_end_time: _timestamp_pb2.Timestamp
    def __init__(self, reason: _Optional[_Union[_job_pb2.JobReason, str]] = ..., detail: _Optional[str] = ..., cause_job_id: _Optional[int] = ..., need: _Optional[_Union[_job_pb2.Resources, _Mapping]] = ..., node: _Optional[str] = ..., free: _Optional[_Union[_job_pb2.Resources, _Mapping]] = ..., nodes: _Optional[int] = ..., nodes_usable: _Optional[int] = ..., nodes_large_enough: _Optional[int] = ..., holders: _Optional[int] = ..., holder_job_ids: _Optional[_Iterable[int]] = ..., first_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StartEstimate(_message.Message):
    __slots__ = ("time", "basis", "runs_of_unknown_length")
    TIME_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    RUNS_OF_UNKNOWN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    basis: str
    runs_of_unknown_length: int
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., basis: _Optional[str] = ..., runs_of_unknown_length: _Optional[int] = ...) -> None: ...

class PreemptionCost(_message.Message):
    __slots__ = ("by_job_id", "by_user", "time", "away", "device_hours", "save")
    BY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BY_USER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_HOURS_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    by_job_id: int
    by_user: str
    time: _timestamp_pb2.Timestamp
    away: _duration_pb2.Duration
    device_hours: float
    save: _job_pb2.SaveResult
    def __init__(self, by_job_id: _Optional[int] = ..., by_user: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., away: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., device_hours: _Optional[float] = ..., save: _Optional[_Union[_job_pb2.SaveResult, _Mapping]] = ...) -> None: ...

class SharesRequest(_message.Message):
    __slots__ = ("virtual_cluster",)
    VIRTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    virtual_cluster: str
    def __init__(self, virtual_cluster: _Optional[str] = ...) -> None: ...

class SharesResponse(_message.Message):
    __slots__ = ("time", "half_life", "shares", "more_shares", "queued", "next_job_ids")
    TIME_FIELD_NUMBER: _ClassVar[int]
    HALF_LIFE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    MORE_SHARES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    NEXT_JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    half_life: _duration_pb2.Duration
    shares: _containers.RepeatedCompositeFieldContainer[Share]
    more_shares: int
    queued: int
    next_job_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., half_life: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., shares: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., more_shares: _Optional[int] = ..., queued: _Optional[int] = ..., next_job_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("project", "user", "shares", "device_hours", "part_of_shares", "part_of_usage", "factor", "devices", "queued")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_HOURS_FIELD_NUMBER: _ClassVar[int]
    PART_OF_SHARES_FIELD_NUMBER: _ClassVar[int]
    PART_OF_USAGE_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    project: str
    user: str
    shares: float
    device_hours: float
    part_of_shares: float
    part_of_usage: float
    factor: float
    devices: float
    queued: int
    def __init__(self, project: _Optional[str] = ..., user: _Optional[str] = ..., shares: _Optional[float] = ..., device_hours: _Optional[float] = ..., part_of_shares: _Optional[float] = ..., part_of_usage: _Optional[float] = ..., factor: _Optional[float] = ..., devices: _Optional[float] = ..., queued: _Optional[int] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("job_id", "run", "task", "offset", "follow")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    run: int
    task: int
    offset: int
    follow: bool
    def __init__(self, job_id: _Optional[int] = ..., run: _Optional[int] = ..., task: _Optional[int] = ..., offset: _Optional[int] = ..., follow: bool = ...) -> None: ...

class LogsResponse(_message.Message):
    __slots__ = ("data", "offset", "run")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    run: int
    def __init__(self, data: _Optional[bytes] = ..., offset: _Optional[int] = ..., run: _Optional[int] = ...) -> None: ...
