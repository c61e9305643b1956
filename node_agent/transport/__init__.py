"""The stream to the scheduler."""
