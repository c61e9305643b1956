"""The launcher, which starts runs and outlives the agent, and the agent's client for it."""
