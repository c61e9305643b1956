"""The output of the commands."""
