"""What can be asked of a scheduler, as plain values."""
