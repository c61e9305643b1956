"""The commands of `ebb-agent`."""
