"""Skips numbers that an older copy of the database has not given yet, but that agents, files or users may know."""

from scheduler_service.core.messages import NumbersLost
from scheduler_service.core.model import Cluster
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State

SKIPPED = 1_000_000
"""How many numbers are skipped: of jobs, which agents and checkpoints still know; of share groups, which agents know; of
operations; and of postings and exchanges, which tenants may have noted."""


def skipping(cluster: Cluster) -> Cluster:
    """The cluster's row with the next numbers that are safe to give."""
    return with_changes(
        cluster,
        next_job=cluster.next_job + SKIPPED,
        next_posting=cluster.next_posting + SKIPPED,
        next_exchange=cluster.next_exchange + SKIPPED,
        next_share_group=cluster.next_share_group + SKIPPED,
        next_operation=cluster.next_operation + SKIPPED,
    )


def numbers_lost(state: State, _event: NumbersLost, _now: Micros) -> None:
    state.put(state.cluster_table, 0, skipping(state.cluster))
