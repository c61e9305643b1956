"""The agent's durable state, which survives a kill of the agent."""
