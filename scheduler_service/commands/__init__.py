"""The commands of `ebb-scheduler`."""
