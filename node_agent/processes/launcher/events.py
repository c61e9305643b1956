"""What the launcher is asked for, and what it tells, as the agent has it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from node_agent.run_state.model import Process, RunKey

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Connected:
    """A launcher is there; `runs` are those of this spool whose end it is going to tell."""

    runs: Mapping[RunKey, Process]
    others: Mapping[str, Process]
    """Runs of another spool that it still has, by their names."""


@dataclass(frozen=True, slots=True)
class Spawned:
    key: RunKey
    pid: int
    start_ticks: int
    child: bool
    """This launcher is going to tell its end."""
    program: str = ""
    """The file that was executed; empty where an older launcher does not say."""
    restored: bool | None = None
    """Whether CRIU has restored the process; None: it was not asked to."""


@dataclass(frozen=True, slots=True)
class NotSpawned:
    """The command could not be executed."""

    key: RunKey
    error: str


@dataclass(frozen=True, slots=True)
class Unable:
    """Nothing is known to be wrong with the command: this node could not launch it, and did not."""

    key: RunKey
    error: str


@dataclass(frozen=True, slots=True)
class Absent:
    """Was looked for, and was never launched."""

    key: RunKey


@dataclass(frozen=True, slots=True)
class Lost:
    """It was about to be launched when its launcher died; there is no such process now."""

    key: RunKey


@dataclass(frozen=True, slots=True)
class Ended:
    key: RunKey
    code: int
    signal: int


Outcome = Spawned | NotSpawned | Unable | Absent | Lost | Ended


@dataclass(frozen=True, slots=True)
class Beside:
    """Of the checkpoint command of a run, and not of the run."""

    event: Outcome


Event = Connected | Outcome | Beside


@dataclass(frozen=True, slots=True)
class Restore:
    """Has CRIU restore a run in place of executing its command."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    root: int
    """The process that is the run then."""
    limit: float
    """Seconds until CRIU is killed, and the command executed."""


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    key: RunKey
    command: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: StrPath
    run_directory: StrPath
    """The launcher makes it. Its log is in it."""
    cpus: frozenset[int] | None
    group: str = ""
    """The control group that it is to be in; empty: none of its own."""
    beside: bool = False
    """The checkpoint command of the run, which joins the run in its control group."""
    restore: Restore | None = None
    """None: the command is executed."""


def event_of(message: dict[str, Any], key: RunKey) -> Outcome:
    match message["event"]:
        case "spawned":
            return Spawned(key, message["pid"], message["start"], message["child"], *_of_process(message))
        case "failed":
            return NotSpawned(key, message["error"])
        case "unable":
            return Unable(key, message["error"])
        case "absent":
            return Absent(key)
        case "lost":
            return Lost(key)
        case "exited":
            return Ended(key, message["code"], message["signal"])
        case other:
            raise ValueError(f"unknown event {other!r} from the launcher")


def _of_process(message: dict[str, Any]) -> tuple[str, bool | None]:
    return message.get("program", ""), message.get("restored")
