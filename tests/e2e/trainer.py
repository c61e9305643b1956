"""A job with checkpoints that leaves evidence and can be held at a chosen point; run by its path, as a user's script is.

It counts steps, and every tenth is a checkpoint. Each run takes so many steps more. With `--hold asked` the first run goes on
until it is asked to leave, and then stands still until the file `--until` is there; with `--hold saving` it does so in the
middle of the save that follows, with half of the file written.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from client_sdk.training import Checkpointer


def tell(event: str, **facts: object) -> None:
    """One line of evidence, in one write."""
    ids = {"job": int(os.environ["EBB_JOB_ID"]), "run": int(os.environ["EBB_RUN"]), "pid": os.getpid()}
    file = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"{json.dumps({**ids, 'event': event, **facts}, separators=(',', ':'))}\n".encode())
    os.close(file)


def hold(until: Path) -> None:
    end = time.monotonic() + 100
    while not until.exists() and time.monotonic() < end:
        time.sleep(0.01)


class Held:
    """Part of the state during whose pickling the job stands still."""

    def __init__(self, until: Path) -> None:
        self.until = until

    def __reduce__(self) -> tuple[Any, ...]:
        tell("saving")
        hold(self.until)
        return str, ()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--hold", choices=["asked", "saving"])
    parser.add_argument("--until", type=Path, default=Path("/nowhere"))
    options = parser.parse_args()
    # Outside of the checkpointer, which puts this back when it is left: its work done, a job that a signal ended would only be
    # sent back to the queue, and do it again.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until_asked = options.hold is not None and os.environ["EBB_RUN"] == "1"
    with Checkpointer(every_steps=10) as checkpoint:
        step = checkpoint.load(lambda: {"step": 0})["step"]
        tell("start", step=step)
        last = step + options.steps
        while step < last or until_asked:
            time.sleep(options.pause)
            step += 1
            # The signal is let in here alone: in the save of a tenth step it would have the job leave without evidence.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            if checkpoint.stop_requested:
                tell("asked", step=step)
                if options.hold == "asked":
                    hold(options.until)
            if options.hold == "saving" and checkpoint.stop_requested and until_asked:
                state = {"first half": bytes(1 << 20), "step": step, "slow": Held(options.until), "second half": bytes(1 << 20)}
            else:
                state = {"step": step}
            checkpoint.at_boundary(lambda state=state: state)
    tell("end", step=step)


if __name__ == "__main__":
    main()
