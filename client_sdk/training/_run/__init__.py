"""Communication between a run and its agent: the device, the grace period, files, and SIGTERM."""
