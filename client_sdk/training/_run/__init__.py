"""What a run and its agent tell each other: the device, the grace period, files, and SIGTERM."""
