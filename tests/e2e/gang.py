"""A task of a gang that leaves evidence; run by its path, as a user's script is.

The tasks meet at rank 0 and exchange numbers, so each knows that all of them are there. Then rank `--fail` fails, and the
others go on until they are told to leave; or, with `--until`, all of them take steps until that file is there, with
checkpoints.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from client_sdk.training import Checkpointer

LIMIT = 60.0
EVERY = 5
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def tell(event: str, **facts: object) -> None:
    """One line of evidence, in one write."""
    ids = {"run": int(os.environ["EBB_RUN"]), "rank": RANK, "node": os.environ["EBB_NODE"]}
    file = os.open(os.environ["GANG_EVIDENCE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"{json.dumps({**ids, 'event': event, **facts})}\n".encode())
    os.close(file)


def exchange(number: int) -> int:
    """The sum of the numbers of all tasks."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if RANK == 0:
        with socket.create_server(place) as listener:
            listener.settimeout(LIMIT)
            others = [listener.accept()[0].makefile("rw") for _ in range(SIZE - 1)]
            total = number + sum(int(other.readline()) for other in others)
            for other in others:
                other.write(f"{total}\n")
                other.flush()
            return total
    end = time.monotonic() + LIMIT
    while True:
        try:
            with socket.create_connection(place, timeout=LIMIT) as connection, connection.makefile("rw") as file:
                file.write(f"{number}\n")
                file.flush()
                return int(file.readline())
        except ConnectionRefusedError:  # rank 0 does not listen yet
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def leave(_number: int, _frame: object) -> None:
    why = json.loads(Path(os.environ["EBB_RUN_DIR"], "stop.json").read_text())
    tell("told", reason=why["reason"])
    sys.exit(143)


def wait_to_be_told() -> None:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        time.sleep(0.02)
    sys.exit(9)


def train(until: Path) -> None:
    end = time.monotonic() + LIMIT
    with Checkpointer(every_steps=EVERY) as checkpoint:
        step = checkpoint.load(lambda: 0)
        tell("trains", step=step)
        while not until.exists() and time.monotonic() < end:
            time.sleep(0.02)
            step += 1
            checkpoint.at_boundary(lambda: step)  # noqa: B023 (asked at once, or never)
            if step == EVERY:
                tell("saved")
    tell("end", step=step)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail", type=int)
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, leave)
    local = ("EBB_NODE_TASK", "EBB_NODE_TASKS", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    variables = (*local, "NODE_RANK", "EBB_NODES", "EBB_TASK", "EBB_DEVICES")
    tell("met", sum=exchange(10**RANK), **{name: os.environ[name] for name in variables})
    sys.stdout.write(f"rank {RANK} was here\n")
    if options.fail == RANK:
        sys.exit(3)
    if options.fail is not None:
        wait_to_be_told()
    elif options.until is not None:
        train(options.until)


if __name__ == "__main__":
    main()
