"""Findings of checks, and how checks run so that none of them delays or ends the others."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    text: str
    do: str = ""
    """How to fix it; empty only if all is well."""


Check = Callable[[], Iterable[Finding]]


def ok(text: str) -> Finding:
    return Finding("ok", text)


def warning(text: str, do: str) -> Finding:
    """Return a finding that the agent works, but not as well as it might, or not forever."""
    return Finding("warning", text, do)


def problem(text: str, do: str) -> Finding:
    """Return a finding that an agent cannot start or serve like this, or its jobs cannot."""
    return Finding("problem", text, do)


def examine(checks: Mapping[str, Check], limit: float) -> dict[str, list[Finding]]:
    """Run all checks at the same time and wait at most `limit` seconds. A check that fails or hangs is itself a finding."""
    done: queue.SimpleQueue[tuple[str, list[Finding]]] = queue.SimpleQueue()

    def run(name: str, check: Check) -> None:
        try:
            found = list(check())
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            found = [warning(f"this could not be looked at: {why}", "look at it by hand; if that is all well, report this")]
        done.put((name, found))

    for name, check in checks.items():
        # A check that hangs, as in a dead network file system, must not keep the program from ending.
        threading.Thread(target=run, args=(name, check), daemon=True).start()
    end = time.monotonic() + limit
    found: dict[str, list[Finding]] = {}
    while len(found) < len(checks):
        try:
            name, of_check = done.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        found[name] = of_check
    hangs = [
        problem(f"this did not answer within {limit:g} s", "something there hangs: `dmesg` and `ps` (state D) may say what")
    ]
    return {name: found.get(name, hangs) for name in checks}
