"""Counts its steps by `job.steps`, and takes SAVE seconds for each save. It says in EVIDENCE from which step it goes on."""

import os
import time
from pathlib import Path
from typing import Any

from client_sdk.training import job


class Slow:
    """A part whose state takes long to be written, as large tensors do."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        time.sleep(float(os.environ["SAVE"]))
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def main() -> None:
    part = Slow()
    job.checkpointable(part=part, every_steps=20, background=False)
    with Path(os.environ["EVIDENCE"]).open("a", encoding="utf-8") as evidence:
        evidence.write(f"{os.environ['EBB_RUN']} {job.step} {os.environ['EBB_GRACE_SECONDS']}\n")
    for _ in job.epochs(1):
        for _ in job.steps(range(100_000)):
            part.steps += 1
            time.sleep(0.01)


if __name__ == "__main__":
    main()
