"""Between the rows of the core and the messages of ebb.v1."""
