"""What the console script `ebb` starts. It is not part of `client_sdk`, because importing anything from there loads all of the
SDK first: 0.2 s in which Ctrl-C would end in a traceback."""

import os
import signal


def main() -> None:
    """Runs `ebb`. Until its command line is loaded, Ctrl-C ends the process at once with 130; then the commands handle it."""
    signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(130))
    from client_sdk.cli import main as ebb

    signal.signal(signal.SIGINT, signal.default_int_handler)
    ebb()
