"""A job that writes down each step that it takes, saves when it is told to, and ends when a file is there.

With HOLD, it stands still before it saves, until that file is there.
"""

import json
import os
import time
from pathlib import Path

from client_sdk.training import Checkpointer


def main() -> None:
    evidence, end, hold = Path(os.environ["EVIDENCE"]), Path(os.environ["END"]), Path(os.environ["HOLD"])

    def tell(event: str, step: int) -> None:
        facts = {"event": event, "step": step, "run": int(os.environ["EBB_RUN"]), "node": os.environ["EBB_NODE"]}
        with evidence.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    with Checkpointer(every_steps=1000) as checkpoint:
        state = checkpoint.load(lambda: {"step": 0, "weights": os.urandom(1 << 20)})
        tell("start", state["step"])
        while not end.exists():
            time.sleep(0.02)
            state["step"] += 1
            tell("step", state["step"])
            if checkpoint.stop_requested:
                tell("asked", state["step"])
                limit = time.monotonic() + 60
                while not hold.exists() and time.monotonic() < limit:
                    time.sleep(0.01)
            checkpoint.at_boundary(lambda: state)
    tell("end", state["step"])


if __name__ == "__main__":
    main()
