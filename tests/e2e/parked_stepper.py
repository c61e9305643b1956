"""A job that writes down each step that it takes, parks, and saves while it is parked; it ends when a file is there.

It answers the agent's requests as the hook does, without PyTorch. With HOLD, it stands still before it saves, until that file
is there.
"""

import json
import os
import sys
import time
from pathlib import Path

from client_sdk.training import OBEYED
from ebb_inject.ebb_hook import control

COMMANDS = {control.RESUME: control.RUNNING, control.PARK: control.PARKED, control.PREPARE: control.PREPARED}


def main() -> None:
    evidence, end, hold = Path(os.environ["EVIDENCE"]), Path(os.environ["END"]), Path(os.environ["HOLD"])
    checkpoint = Path(os.environ["EBB_CHECKPOINT_DIR"]) / "state.json"

    def tell(event: str) -> None:
        facts = {"event": event, "step": step, "run": int(os.environ["EBB_RUN"]), "node": os.environ["EBB_NODE"]}
        with evidence.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def save() -> None:
        tell("asked")
        limit = time.monotonic() + 60
        while not hold.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        new = checkpoint.with_suffix(".new")
        new.write_text(json.dumps(step))
        new.replace(checkpoint)

    step = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
    tell("start")
    me, seen, parked = control.Control(os.environ["EBB_PARK_DIR"]), 0, False
    while not end.exists() or parked:
        if parked:
            me.wait(0.1)
        else:
            time.sleep(0.02)
            step += 1
            tell("step")
        request = me.request()
        if request is None or request.number == seen:
            continue
        seen = request.number
        if request.command == control.LEAVE:
            Path(os.environ["EBB_YIELD_FILE"]).write_text(os.environ["EBB_RUN"])
            sys.exit(OBEYED)
        if request.command == control.SAVE:
            save()
            state = control.SAVED
        else:
            state = COMMANDS[request.command]
            parked = parked if state == control.PREPARED else state == control.PARKED
        facts = {"pid": os.getpid(), "step": step, "bytes": 1 << 20, "residue": 0, "saves": True, "seconds": {"copy": 0.001}}
        me.answer({"request": seen, "state": state, **facts})
    tell("end")


if __name__ == "__main__":
    main()
