"""Entry points of the console scripts `ebb` and `ebb-sim`. They are outside the packages that they start: importing anything
from `client_sdk` loads all of the SDK first, 0.2 s in which Ctrl-C would cause a traceback."""

import os
import signal

from ebb_common import extras


def main() -> None:
    """Runs `ebb`. Until its command line is loaded, Ctrl-C ends the process at once with 130; then the commands handle it."""
    signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(130))
    ebb = extras.main_of("client_sdk.cli", "ebb", "client")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ebb()


def simulate() -> None:
    """Runs `ebb-sim`."""
    extras.main_of("scheduler_service.sim.cli", "ebb-sim", "sim")()
