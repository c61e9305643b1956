"""Jobs of higher priority have those of lower stopped, inside a virtual cluster.

A lazy job keeps its devices as opportunistic instead (`hived.preemption_in_vc`).
"""

from collections.abc import Sequence

from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.state.queue_order import QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.options import Options
from scheduler_service.policies.stages import Ranked, Stages, Victims


def lowest_first(_state: State, _job: Job, able: Sequence[Job], _rng: Rng) -> Ranked:
    """Those of the lowest priority first; of equals, the job that was submitted last."""
    return Ranked(sorted(able, key=lambda job: (job.priority, -job.id)))


def _preempt_nobody(_state: State, _job: Job, _rng: Rng) -> Plan | None:
    """A site without virtual clusters preempts for trials alone."""
    return None


def stages(_options: Options) -> Stages:
    return Stages(fifo, QueueOrder(claim=Claim.PRIORITY), Victims(_preempt_nobody, lowest_first))
