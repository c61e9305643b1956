"""In which order the jobs of a queue are served. An order is a part of a policy; the state keeps its queues by it.

The key of a job is a function of its row, of a memo of the policy, and of the settings. So an order may depend on time: the
policy writes a memo again when the time that the memo names is due, and the queue is sorted anew where the memo counts.
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
"""The least is served first. The last part is the job's id."""
Key = Callable[[Job, Memo | None, Settings], QueueKey]
_QUEUED = JobState.QUEUED


def by_priority(job: Job, _memo: Memo | None, settings: Settings) -> QueueKey:
    """By priority, then those that have run (FitGpp section 3), then as submitted.

    With aging a step of priority is worth `aging_us` of waiting: a job that has waited for longer than that is before a new
    one of the next higher priority. As all age alike, their order never changes, and nothing need be looked at again as time
    goes on.
    """
    has_run = job.requeued or job.state is not _QUEUED
    if aging_us := settings.aging_us:
        return job.submitted_us - job.priority * aging_us, not has_run, job.id
    return -job.priority, not has_run, job.id


class QueueOrder(NamedTuple):
    """Where jobs are in their queue, and what follows from that for those behind them."""

    key: Key = by_priority
    """Of a queued job; of one that runs, where it would be if it were queued."""
    claim: Claim | None = None
    """By which right a job may have runs behind it stopped; None: by no right that follows from the order."""
    policy: str = ""
    """Whose memos the key depends on; empty: it depends on none."""
    subject: Callable[[Job], str] = lambda job: f"job/{job.id}"
    """Of which of these memos the key of a job depends."""
    overtakes: bool = False
    """Jobs behind one that does not fit are served all the same."""
    charged_to: Callable[[Job], str] | None = None
    """The subject, such as a user, to which the policy charges what runs of a job hold; None: runs are charged to nobody."""
    introspects: bool = False
    """The policy goes by what is measured of runs."""
    rearranges: bool = False
    """The policy changes how runs hold devices: it looks at rows that have no turns, and at jobs that have grown."""
    measured_us: Micros = 60 * SECOND
    """How long, at least, after a measurement of a run such a policy is told of the next one."""


BY_PRIORITY = QueueOrder()
OrderOf = Callable[[VcPolicy | None], QueueOrder]
"""The order of virtual clusters with this policy; None: of the site, where it has no virtual clusters."""


def always_by_priority(_policy: VcPolicy | None) -> QueueOrder:
    return BY_PRIORITY
