"""The child process that talks to the driver. Only it may hang; it is then killed and forgotten.

`read` prints what the machine has and exits; `watch` prints a line each second of what it sees. All lines are JSON. Both exit
when their standard input is closed: the agent holds the other end, and has then died. `watch` loads neither gRPC nor pydantic.
"""

import argparse
import ctypes
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from node_agent.devices import nvml

UNUSABLE = "unusable"
"""Key of a line that says why nothing can be reported: {why, advice}."""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="node_agent.devices.sidecar")
    commands = parser.add_subparsers(dest="command", required=True)
    reading = commands.add_parser("read")
    reading.add_argument("--sysfs", type=Path)
    watching = commands.add_parser("watch")
    watching.add_argument("--memory-rate", type=float, required=True, help="samples a second of each device's memory")
    watching.add_argument("--xids", type=json.loads, default={}, help="what is known from before: uuid -> XID")
    given = parser.parse_args(arguments)
    threading.Thread(target=_leave_with_the_agent, daemon=True).start()
    try:
        with nvml.open_library():
            if given.command == "read":
                _print_reading(given.sysfs)
            else:
                _watch(given.memory_rate, given.xids)
    except nvml.Unusable as error:
        _tell({UNUSABLE: {"why": error.why, "advice": error.advice}})
    except nvml.Failed as error:
        _tell({UNUSABLE: {"why": str(error), "advice": "nvidia-smi on this machine may say more"}})
    except (BrokenPipeError, KeyboardInterrupt):  # nobody reads it any more
        os._exit(0)


def _print_reading(sysfs: Path | None) -> None:
    from node_agent.devices import survey  # it needs pydantic

    print(survey.read(sysfs or survey.SYSFS).model_dump_json(), flush=True)  # noqa: T201


def _watch(memory_rate: float, xids: dict[str, int]) -> None:
    from node_agent.devices.watching import Watch

    watch = Watch(memory_rate, xids)
    _give_back_memory()
    watch.run(_tell)


def _leave_with_the_agent() -> None:
    """Exit when the agent ends. This has a thread of its own: the others may hang in the driver."""
    while os.read(sys.stdin.fileno(), 1 << 10):
        pass
    os._exit(0)


def _give_back_memory() -> None:
    """Release the memory that compiling pynvml took, a third of all, in case Python had no cached bytecode."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def _tell(message: Any) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
