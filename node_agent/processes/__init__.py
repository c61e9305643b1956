"""Processes of runs: the launcher that starts them and outlives the agent, control groups, what jobs write, logs."""
