"""A rank of data-parallel training, run by its path: each step ends in an all-reduce, which breaks if another rank is gone.

It writes a line of evidence when it has loaded, one for each step, and one with its weight when it is done. The all-reduce is
a few lines that can fail as that of a library does. `ddp_rank.py` has PyTorch's.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from client_sdk.training import Checkpointer

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
STEPS, EVERY, PAUSE = int(os.environ.get("STEPS", "120")), 7, float(os.environ.get("PAUSE", "0.001"))
AllReduce = Callable[[float], float]


def by_sockets() -> AllReduce:
    """Of two ranks."""
    if RANK == 0:
        with socket.create_server(PLACE) as listener:
            connection = listener.accept()[0]
    else:
        connection = connected()
    file = connection.makefile("r")

    def reduce(number: float) -> float:
        connection.sendall(f"{number!r}\n".encode())
        if not (line := file.readline()):
            raise ConnectionError("connection closed by peer")
        return number + float(line)

    return reduce


def connected() -> socket.socket:
    while True:
        try:
            return socket.create_connection(PLACE)
        except ConnectionRefusedError:  # rank 0 does not listen yet
            time.sleep(0.002)


def tell(**facts: object) -> None:
    with Path(os.environ["EVIDENCE"]).open("a") as file:
        file.write(json.dumps({"run": int(os.environ["EBB_RUN"]), "rank": RANK, **facts}) + "\n")


def main() -> None:
    with Checkpointer(every_steps=EVERY) as checkpoint:
        step, weight = checkpoint.load(lambda: (0, 1.0))
        all_reduce = by_sockets()
        tell(loaded=step, pid=os.getpid())
        while step < STEPS:
            weight += all_reduce((RANK + 1) * weight / (step + 50.0))
            step += 1
            time.sleep(PAUSE * (1 + step % 3 * RANK))
            tell(step=step)
            checkpoint.at_boundary(lambda: (step, weight))  # noqa: B023 (asked at once, or never)
        tell(weight=weight)


if __name__ == "__main__":
    main()
