"""Checkpoints on disk: files that are complete or absent, their formats, and how a state is written and restored."""
