"""What the processes of `tests.preloaded` have imported: what scheduler, agent and simulator need to do their work."""

import gc

import node_agent.commands.main
import scheduler_service.app
import scheduler_service.commands.main
import scheduler_service.sim.cli
import scheduler_service.sim.experiments.config

__all__ = ["node_agent", "scheduler_service"]

gc.freeze()  # else a collection in each process would copy all of it
