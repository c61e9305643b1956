"""What the API speaks of, as plain values.

Frozen dataclasses, equal by content. Times are timezone-aware datetimes in UTC, durations are timedeltas, and what is
absent is None. Enum members have the numbers of `ebb.v1`; a number that this SDK is too old to know reads as
UNSPECIFIED.
"""

from client_sdk._explanations import Blocker, Explanation, PreemptionCost, Preview, StartEstimate, Victim
from client_sdk._jobs import ArrayStatus, Candidate, Decision, Job, JobEvent, JobUpdate, Task
from client_sdk._nodes import Device, DeviceObservation, MemoryCycle, Node, NodeDrain, Observations
from client_sdk._specs import Array, Dependency, JobSpec, Resources, Retry, TaskGroup
from client_sdk._states import (
    ENDED,
    LIVE,
    DependencyKind,
    DeviceUse,
    Guarantee,
    JobClass,
    JobEventKind,
    JobReason,
    JobState,
    MemorySource,
    NodeState,
)
from client_sdk._virtual_clusters import (
    BoundCell,
    CellLevel,
    CellQuota,
    CellRequest,
    CellUse,
    DeviceCell,
    Misfit,
    NodeCells,
    PinnedCell,
    Pool,
    VirtualCluster,
    VirtualClusterPolicy,
    Within,
)

__all__ = [
    "ENDED",
    "LIVE",
    "Array",
    "ArrayStatus",
    "Blocker",
    "BoundCell",
    "Candidate",
    "CellLevel",
    "CellQuota",
    "CellRequest",
    "CellUse",
    "Decision",
    "Dependency",
    "DependencyKind",
    "Device",
    "DeviceCell",
    "DeviceObservation",
    "DeviceUse",
    "Explanation",
    "Guarantee",
    "Job",
    "JobClass",
    "JobEvent",
    "JobEventKind",
    "JobReason",
    "JobSpec",
    "JobState",
    "JobUpdate",
    "MemoryCycle",
    "MemorySource",
    "Misfit",
    "Node",
    "NodeCells",
    "NodeDrain",
    "NodeState",
    "Observations",
    "PinnedCell",
    "Pool",
    "PreemptionCost",
    "Preview",
    "Resources",
    "Retry",
    "StartEstimate",
    "Task",
    "TaskGroup",
    "Victim",
    "VirtualCluster",
    "VirtualClusterPolicy",
    "Within",
]
