"""How a run that is being stopped is saved: by its job's signal or command, or by a dump of its processes."""
