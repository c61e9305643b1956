"""Devices that several simulated runs share: how fast each kind of job runs there, and whose turn it is."""
