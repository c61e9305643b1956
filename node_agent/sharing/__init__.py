"""Runs that share devices, and runs that are parked."""
