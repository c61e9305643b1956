"""Requests to the launcher and its events, as the agent's values."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from node_agent.run_state.model import Process, RunKey

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Connected:
    """A launcher is there; `runs` are those of this spool whose end it will report."""

    runs: Mapping[RunKey, Process]
    others: Mapping[str, Process]
    """Runs of another spool that it still has, by name."""


@dataclass(frozen=True, slots=True)
class Spawned:
    key: RunKey
    pid: int
    start_ticks: int
    child: bool
    """Whether this launcher will report its end."""
    program: str = ""
    """The file that was executed; empty if an older launcher does not say."""
    restored: bool | None = None
    """Whether CRIU has restored the process; None: it was not asked to."""


@dataclass(frozen=True, slots=True)
class NotSpawned:
    """The command could not be executed."""

    key: RunKey
    error: str


@dataclass(frozen=True, slots=True)
class Unable:
    """This node could not launch the command, and did not; the command itself may be fine."""

    key: RunKey
    error: str


@dataclass(frozen=True, slots=True)
class Absent:
    """The run was looked for, and had never been launched."""

    key: RunKey


@dataclass(frozen=True, slots=True)
class Lost:
    """The launcher died when it was about to launch the run; no such process exists now."""

    key: RunKey


@dataclass(frozen=True, slots=True)
class Ended:
    key: RunKey
    code: int
    signal: int


Outcome = Spawned | NotSpawned | Unable | Absent | Lost | Ended


@dataclass(frozen=True, slots=True)
class Beside:
    """An event of the checkpoint command of a run, and not of the run."""

    event: Outcome


Event = Connected | Outcome | Beside


@dataclass(frozen=True, slots=True)
class Restore:
    """Lets CRIU restore a run instead of executing its command."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    root: int
    """The process that is then the run."""
    limit: float
    """Seconds until CRIU is killed, and the command executed."""


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    key: RunKey
    command: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: StrPath
    run_directory: StrPath
    """Folder made by the launcher, which has the log."""
    cpus: frozenset[int] | None
    group: str = ""
    """The control group for the process; empty: none of its own."""
    beside: bool = False
    """Whether this is the checkpoint command of the run, which joins the run's control group."""
    restore: Restore | None = None
    """None: the command is executed."""


def event_of(message: dict[str, Any], key: RunKey) -> Outcome:
    match message["event"]:
        case "spawned":
            return Spawned(key, message["pid"], message["start"], message["child"], *_process_facts(message))
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


def _process_facts(message: dict[str, Any]) -> tuple[str, bool | None]:
    return message.get("program", ""), message.get("restored")
