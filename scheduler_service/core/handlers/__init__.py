"""Handlers of requests and reports, which apply each to the state: one file for each subject."""
