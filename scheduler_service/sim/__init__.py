"""A simulated world around the engine: the same `step` and the same policies, with simulated agents, users and machines."""

from scheduler_service.sim import policies as policies  # what only the simulator has is in the registry from now on
