"""The gRPC services of ebb.v1."""
