"""The command line, `ebb`: thin over `Client`. Modules here are imported with every call, so they import little."""

from client_sdk.cli.app import ebb


def main() -> None:
    """The entry point. Leaves with 0, 1 for an error, 2 for a wrong call, 130 for Ctrl-C, or what a command documents."""
    ebb(prog_name="ebb")


__all__ = ["ebb", "main"]
