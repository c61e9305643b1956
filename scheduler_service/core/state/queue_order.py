"""The order in which the jobs of a queue are served. An order is part of a policy; the state sorts its queues by it.

The key of a job is a function of its row, of a memo of the policy, and of the settings. So an order may depend on time: the
policy rewrites a memo when the time in the memo is due, and jobs whose key depends on the memo move in their queue.
"""

from collections.abc import Callable
from typing import NamedTuple

from scheduler_service.core.model import Job, JobState
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import SECOND, Micros

QueueKey = tuple[int, ...]
"""The lowest key is served first. Its last element is the job's ID."""
Key = Callable[[Job, Memo | None, Settings], QueueKey]
_QUEUED = JobState.QUEUED


def by_priority(job: Job, _memo: Memo | None, settings: Settings) -> QueueKey:
    """Order by priority, then jobs that have run before (FitGpp section 3), then by time of submission.

    With aging, one level of priority is worth `aging_us` of waiting: a job that has waited longer than that precedes a new job
    of the next higher priority. All jobs age at the same rate, so their order never changes as time passes.
    """
    has_run = job.requeued or job.state is not _QUEUED
    if aging_us := settings.aging_us:
        return job.submitted_us - job.priority * aging_us, not has_run, job.id
    return -job.priority, not has_run, job.id


class QueueOrder(NamedTuple):
    """The order of a queue, and what it implies for the jobs behind another."""

    key: Key = by_priority
    """Returns the key of a queued job, or the key that a running job would have if it were queued."""
    claim: Claim | None = None
    """Right by which a job may preempt runs behind it; None: the order gives no such right."""
    policy: str = ""
    """The policy on whose memos the key depends; empty: none."""
    subject: Callable[[Job], str] = lambda job: f"job/{job.id}"
    """Returns the subject of the memo on which the key of a job depends."""
    overtakes: bool = False
    """Jobs behind one that does not fit are served anyway."""
    charged_to: Callable[[Job], str] | None = None
    """Returns the subject, such as a user, that the policy charges for what a job's runs hold; None: runs are not charged."""
    introspects: bool = False
    """The policy depends on measurements of runs."""
    rearranges: bool = False
    """The policy changes how runs hold devices: it looks at rows without turns, and at jobs that have grown."""
    measured_us: Micros = 60 * SECOND
    """Minimum time between two measurements of a run that such a policy receives."""


BY_PRIORITY = QueueOrder()
OrderOf = Callable[[VcPolicy | None], QueueOrder]
"""Returns the order of virtual clusters with this policy; None: the order of a site without virtual clusters."""


def always_by_priority(_policy: VcPolicy | None) -> QueueOrder:
    return BY_PRIORITY
