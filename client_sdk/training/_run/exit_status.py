"""The exit statuses by which a program says why it left."""

OBEYED = 143
"""Exit status of a program that saved and exited because it was asked to: the one that a shell reports for SIGTERM (128 + 15).

It is not 0, so that `train.py && evaluate.py` does not continue as if the training were complete.
"""

RESIZED = 200
"""Exit status of a program that saved and exited because its job is resized. It is not a shell's status for a signal, and
sysexits.h does not define it."""
