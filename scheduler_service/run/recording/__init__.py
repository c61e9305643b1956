"""Recording what goes into the engine, and taking its steps again."""
