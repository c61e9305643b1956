"""What the agent must not forget when it is killed."""
