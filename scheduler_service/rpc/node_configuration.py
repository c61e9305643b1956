"""Configuration that the scheduler sends to agents: in their welcome, and again when it has changed."""

from scheduler_service.core.model.values import SECOND
from scheduler_service.rpc.backend import Backend, Leading
from scheduler_service.run.dispatch import NodeConfiguration

JOINING_RATE = 500
"""Agents that connect in a second without users' calls taking notably longer."""


def configuration(backend: Backend, leading: Leading) -> NodeConfiguration:
    """The same for all agents of a cluster of this size. They connect again in at most half of the time after which a node is
    silent."""
    within = min(len(leading.view.nodes) / JOINING_RATE, backend.silent_after_seconds / 2)
    return NodeConfiguration(round(backend.heartbeat_seconds * SECOND), round(within * SECOND))
