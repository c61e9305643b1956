"""Asks the training processes of a run to park or resume, through their control files (`ebb_inject.ebb_hook.control`).

The files belong to the run, so anything may be in them. A process publishes its answer in memory that it has mapped, which
triggers no event: the agent polls the file, at first after a millisecond, later less often.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ebb_inject.ebb_hook import control

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02
_PAUSE_GROWTH = 1.05
"""Growth of the pause: an answer is seen late by a twentieth of the time that it took."""
_MOST_BYTES = 1 << 50
"""More bytes than any program can have moved."""
_REASON_LIMIT = 500


class Answer(NamedTuple):
    """The last answer of a process, made plausible."""

    number: int
    state: str
    reason: str
    bytes: int
    residue: int
    saves: bool
    """Whether it can save its checkpoint while parked."""
    seconds: Mapping[str, float]


class Replies(NamedTuple):
    answers: Mapping[str, Answer]
    """Answers of the processes that have answered the request, by control file."""
    why: str
    """Why not all of them have done what was asked; empty if they have."""
    is_late: bool = False
    """The deadline had passed."""
    is_abandoned: bool = False


def answer_of(path: str) -> Answer | None:
    """Return the last answer of a process; None if it has not answered."""
    try:
        found = control.answer(path)
    except OSError:
        return None
    if found is None:
        return None
    seconds = found.get("seconds")
    durations = seconds.items() if isinstance(seconds, dict) else ()
    return Answer(
        _whole_number(found.get("request")),
        str(found.get("state")),
        str(found.get("reason", ""))[:_REASON_LIMIT],
        _whole_number(found.get("bytes")),
        _whole_number(found.get("residue")),
        found.get("saves") is True,
        {str(name)[:32]: float(took) for name, took in list(durations)[:16] if _is_duration(took)},
    )


def _whole_number(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= _MOST_BYTES else 0


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 1e6


async def ask(
    folder: str,
    command: int,
    wanted: str,
    *,
    deadline: float,
    at_step: int = 0,
    most_bytes: int = 0,
    abandoned: Callable[[], bool] = lambda: False,
) -> Replies:
    """Ask all processes of a run, also those that get a control file meanwhile, and wait until each has reached the state
    `wanted` or has ended, or one has refused, or it is `abandoned`, or the deadline (monotonic) has passed."""
    sent: dict[str, int] = {}
    answers: dict[str, Answer] = {}
    pause = _FIRST_PAUSE
    while True:
        try:
            live = control.live(folder)
            for path in live:
                if path not in sent:
                    sent[path] = control.send(path, command, at_step, most_bytes)
        except OSError as error:
            return Replies(answers, f"a process cannot be asked: {error}")
        for path in live:
            if (found := answer_of(path)) is not None and found.number == sent[path]:
                answers[path] = found
                if found.state != wanted:
                    return Replies(answers, found.reason or f"a process answers that it is {found.state}")
        waiting = [path for path in live if path not in answers]
        if not waiting:
            return Replies({path: answers[path] for path in live}, "")
        if abandoned():
            return Replies(answers, "it is not wanted any more", is_abandoned=True)
        if time.monotonic() >= deadline:
            why = f"{len(waiting)} of {len(live)} processes have not come to the end of a step in time"
            return Replies(answers, why, is_late=True)
        await asyncio.sleep(pause)
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)


def tell(folder: str, command: int) -> None:
    """Ask all processes of a run, without waiting. One that cannot be asked is left out."""
    try:
        for path in control.live(folder):
            control.send(path, command)
    except OSError:
        return


async def resume_processes(folder: str, deadline: float) -> str:
    """Resume all parked processes; return why some do not. Others get the request, but are not waited for.

    A process that lacks memory says so and stays parked, so it is asked again until the deadline.
    """
    pause = _FIRST_PAUSE
    try:
        sent = {path: control.send(path, control.RESUME) for path in control.live(folder)}
        while True:
            parked, why = [], ""
            for path in control.live(folder):
                found = answer_of(path)
                if found is None or found.state not in (control.PARKED, control.SAVED):
                    continue
                parked.append(path)
                if found.number >= sent.get(path, 0) and found.reason:
                    why = found.reason
                    sent[path] = control.send(path, control.RESUME)
            if not parked:
                return ""
            if time.monotonic() >= deadline:
                return why or f"{len(parked)} processes have not resumed in time"
            await asyncio.sleep(pause)
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
    except OSError as error:
        return f"a process cannot be asked: {error}"
