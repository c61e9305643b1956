"""A simulated world around the engine: the same `step`, the same policies; agents, users and machines that are not there."""
