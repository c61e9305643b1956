"""A driver that checkpoints no process, for the agent's helper: the states and failures of the real one, in a file.

The file holds {"pids": {pid: state}, "fail": {call: message}, "broken": [call], "hang": [call]}. A call in `fail` raises and
changes nothing, a call in `broken` leaves the process failed, and a call in `hang` does not return.
"""

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from node_agent.devices.checkpoint_helper import answer_agent


def write_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """At once: the other process may be reading."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(plan))
    new.replace(path)


class FakeDriver:
    def __init__(self, path: Path) -> None:
        self._path = path

    def state(self, pid: int) -> str:
        return self._find("state", pid)

    def lock(self, pid: int, timeout_ms: int) -> None:
        if timeout_ms < 1:
            raise ValueError("a lock without a time limit")
        self._go("lock", pid, "running", "locked")

    def checkpoint(self, pid: int) -> None:
        self._go("checkpoint", pid, "locked", "checkpointed")

    def restore(self, pid: int, gpu_pairs: Mapping[str, str]) -> None:
        if gpu_pairs and len(set(gpu_pairs.values())) < len(gpu_pairs):
            raise ValueError("CUDA_ERROR_INVALID_VALUE")
        self._go("restore", pid, "checkpointed", "locked")

    def unlock(self, pid: int) -> None:
        self._go("unlock", pid, "locked", "running")

    def _go(self, call: str, pid: int, before: str, after: str) -> None:
        if self._find(call, pid) != before:
            raise ValueError("CUDA_ERROR_ILLEGAL_STATE")
        plan = self._read()
        broken = call in plan.get("broken", [])
        plan["pids"][str(pid)] = "failed" if broken else after
        write_plan(self._path, plan)
        if broken:
            raise ValueError("CUDA_ERROR_UNKNOWN")

    def _find(self, call: str, pid: int) -> str:
        plan = self._read()
        while call in plan.get("hang", []):
            signal.pause()
        if why := plan.get("fail", {}).get(call):
            raise ValueError(why)
        if str(pid) not in plan["pids"]:
            raise ValueError("CUDA_ERROR_INVALID_VALUE")
        return str(plan["pids"][str(pid)])

    def _read(self) -> Any:
        return json.loads(self._path.read_text())


if __name__ == "__main__":
    path = Path(sys.argv[1])
    why_not = json.loads(path.read_text()).get("unusable", "")
    answer_agent(None if why_not else FakeDriver(path), why_not)
