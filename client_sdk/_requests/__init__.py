"""The requests to a scheduler, as plain values."""
