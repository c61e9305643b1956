"""The command line, `ebb`: thin over `Client`. Modules here are imported with every call, so they import little."""

import io
import os
import sys

from client_sdk.cli.app import ebb


def main() -> None:
    """The entry point. Exits with 0, 1 for an error, 2 for a usage error, 130 for Ctrl-C, or as a command documents."""
    if sys.stdout is None:  # it was closed, as some daemons do; the command still runs
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that a terminal cannot show are no reason to stop
    ebb(prog_name="ebb")


__all__ = ["ebb", "main"]
