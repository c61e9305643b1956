"""The exit statuses by which a program says why it left."""

OBEYED = 143
"""Exit status of a program that saved and left because it was asked to: what a shell reports for SIGTERM (128 + 15).

It is not 0, so that `train.py && evaluate.py` does not go on as if the training were complete.
"""

RESIZED = 200
"""Exit status of a program that saved and left because its job is resized. No shell reports a signal by it, and sysexits.h does
not define it."""
