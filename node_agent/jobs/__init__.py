"""Runs: what to do about orders, how processes are started and ended, what is remembered."""
