"""The rows that the engine keeps: jobs, runs, nodes, devices, earmarks. Those of virtual clusters are in `tenants`.

Every row is frozen: a change is a new row in its table (see `state`), so readers and the store can keep the rows they
were given without copying. All are plain values: facts about the cluster, without behavior. Kinds of rows that change
have no slots, which makes changing them cheap (see `rows`).
"""

from scheduler_service.core.model.configurations import (
    Configuration,
    NodeSelector,
    TaskGroup,
)
from scheduler_service.core.model.enums import (
    ENDED,
    DependencyKind,
    EarmarkPhase,
    EventKind,
    Exit0AfterStop,
    JobClass,
    JobState,
    NodeState,
    OperationKind,
    OperationPhase,
    Reason,
    ShareMode,
    StopReason,
)
from scheduler_service.core.model.jobs import (
    Array,
    Dependency,
    Elements,
    Job,
    JobSpec,
    Retry,
)
from scheduler_service.core.model.nodes import (
    Cluster,
    Earmark,
    Node,
    NodeDevice,
    Strike,
    present,
)
from scheduler_service.core.model.run_phase import RunPhase
from scheduler_service.core.model.runs import Run, RunKey
from scheduler_service.core.model.story import (
    CandidateScore,
    Decision,
    JobEvent,
)

__all__ = [
    "ENDED",
    "Array",
    "CandidateScore",
    "Cluster",
    "Configuration",
    "Decision",
    "Dependency",
    "DependencyKind",
    "Earmark",
    "EarmarkPhase",
    "Elements",
    "EventKind",
    "Exit0AfterStop",
    "Job",
    "JobClass",
    "JobEvent",
    "JobSpec",
    "JobState",
    "Node",
    "NodeDevice",
    "NodeSelector",
    "NodeState",
    "OperationKind",
    "OperationPhase",
    "Reason",
    "Retry",
    "Run",
    "RunKey",
    "RunPhase",
    "ShareMode",
    "StopReason",
    "Strike",
    "TaskGroup",
    "present",
]
