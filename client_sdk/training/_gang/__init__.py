"""Chooses the checkpoint from which a process or all ranks of a gang resume, and the step at which all ranks stop."""
