"""The devices of a node."""
