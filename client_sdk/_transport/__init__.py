"""Calls over gRPC: channels, retries, access."""
