"""What becomes of runs, and is reported. Plain frozen values, as in `model`."""

from dataclasses import dataclass

from node_agent.run_state.run_key import RunKey
from node_agent.run_state.save_values import SaveResult


@dataclass(frozen=True, slots=True)
class Ready:
    """A task of a gang is prepared, and can be reached at `address`; rank 0 keeps `port` for the gang to meet at."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Started:
    """The run's process was executed."""

    pid: int
    log_path: str
    program: str = ""
    """The file that was executed; empty where the launcher did not say."""
    restored: str = ""
    """What became of a dump of the job, for people; empty: there was none."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The run is over and nothing of its process group is left."""

    code: int = 0
    """0 when a signal ended it."""
    signal: int = 0
    yielded: bool = False
    """It said that it saved its work and left because it was told to."""
    launch_error: str = ""
    unknown: bool = False
    """Nobody collected its exit status."""
    out_of_memory: bool = False
    """It was killed for want of host memory: its own limit's or the node's."""
    node_stopped: bool = False
    """It was killed because the agent was told to stop, and its runs with it."""
    told: bool = False
    """It was to be stopped, so that this may be the answer to the signal."""
    done: bool = False
    """With code 0: it had said that its work is done."""
    checkpoint: str = ""
    """What came of its checkpoint signal or command, for people."""
    not_fetched: str = ""
    """Why its checkpoint could not be had from another node. The run did not begin."""
    out_of_device_memory: str = ""
    """How much of which device it used, where it was killed for that."""
    began_from: str = ""
    """The checkpoint that its program loaded, if it said so."""
    saved: str = ""
    """The last one that its program saved, if it said so."""
    save: SaveResult | None = None
    """Whether what it had done was saved; None: there was nothing to save."""


Phases = tuple[tuple[str, float], ...]
"""Durations in seconds, by name."""


@dataclass(frozen=True, slots=True)
class RunParked:
    """The run is suspended, as was desired."""

    rung: str
    bytes: int = 0
    residue_bytes: int = 0
    phases: Phases = ()
    saves: bool = False
    """It can save its checkpoint while it is parked."""


@dataclass(frozen=True, slots=True)
class RunResumed:
    """The run executes again."""

    rung: str
    phases: Phases = ()


@dataclass(frozen=True, slots=True)
class RunParkRefused:
    """The run could not be parked, and goes on; or it is parked and could not save, and stays parked."""

    reason: str
    lost: bool = False
    """It cannot go on: it was killed."""


RunEvent = Ready | Started | Exited | RunParked | RunResumed | RunParkRefused


@dataclass(frozen=True, slots=True)
class Report:
    """What the scheduler is told, again and again until it says that it is committed."""

    sequence: int
    key: RunKey
    event: RunEvent
