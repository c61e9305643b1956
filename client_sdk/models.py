"""What the API speaks of, as plain values.

Frozen dataclasses, equal by content. Times are timezone-aware datetimes in UTC, durations are timedeltas, and what is
absent is None. Enum members have the numbers of `ebb.v1`; a number that this SDK is too old to know reads as
UNSPECIFIED.
"""

from client_sdk._explanations import Blocker, Explanation, PreemptionCost, Preview, StartEstimate, Victim
from client_sdk._jobs import ArrayStatus, Candidate, Decision, Job, JobEvent, JobUpdate, Task
from client_sdk._nodes import Device, DeviceObservation, MemoryCycle, Node, NodeDrain, Observations
from client_sdk._specs import Array, Dependency, JobSpec, Resources, Retry, TaskGroup
from client_sdk._states import ENDED, LIVE, DependencyKind, JobClass, JobEventKind, JobReason, JobState, MemorySource, NodeState

__all__ = [
    "ENDED",
    "LIVE",
    "Array",
    "ArrayStatus",
    "Blocker",
    "Candidate",
    "Decision",
    "Dependency",
    "DependencyKind",
    "Device",
    "DeviceObservation",
    "Explanation",
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
    "Node",
    "NodeDrain",
    "NodeState",
    "Observations",
    "PreemptionCost",
    "Preview",
    "Resources",
    "Retry",
    "StartEstimate",
    "Task",
    "TaskGroup",
    "Victim",
]
