"""The papers' evaluations on Ebb's own engine. Each module with a `command` is a command of `python -m reproduction`."""
