"""The known state of a run, and what to do about it. Pure: no clock, no process, no file."""
