"""What the processes of `tests.preloaded` have imported: all that the scheduler and the agent need to serve."""

import gc

import node_agent.cli
import scheduler_service.app
import scheduler_service.cli

__all__ = ["node_agent", "scheduler_service"]

gc.freeze()  # else a collection in each process would copy all of it
