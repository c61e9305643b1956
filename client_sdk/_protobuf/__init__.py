"""Between the values of the SDK and the messages of ebb.v1."""
