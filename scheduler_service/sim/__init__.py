"""A simulated world around the engine: the same `step`, the same policies; agents, users and machines that are not there."""

from scheduler_service.sim import policies as policies  # what only the simulator has is in the registry from now on
