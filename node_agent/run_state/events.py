"""Events of runs that are reported. Plain frozen values, as in `model`."""

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
    """The file that was executed; empty if the launcher did not say."""
    restored: str = ""
    """The fate of a dump of the job, for people; empty: there was no dump."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The run has ended and nothing of its process group is left."""

    code: int = 0
    """0 if a signal ended it."""
    signal: int = 0
    yielded: bool = False
    """It said that it saved its work and exited because it was asked to."""
    launch_error: str = ""
    unknown: bool = False
    """Its exit status was not collected."""
    out_of_memory: bool = False
    """It was killed because host memory ran out: its own limit's or the node's."""
    node_stopped: bool = False
    """It was killed because the agent was told to stop all runs and exit."""
    told: bool = False
    """It was to be stopped, so this may be its answer to the signal."""
    done: bool = False
    """It exited with code 0, and had said that its work is done."""
    checkpoint: str = ""
    """The result of its checkpoint signal or command, for people."""
    not_fetched: str = ""
    """Why its checkpoint could not be had from another node. The run did not begin."""
    out_of_device_memory: str = ""
    """How much of which device it used, if it was killed for that."""
    began_from: str = ""
    """The checkpoint that its program loaded, if it said so."""
    saved: str = ""
    """The last checkpoint that its program saved, if it said so."""
    save: SaveResult | None = None
    """Whether its work was saved; None: there was nothing to save."""
    job_fault: bool = False
    """With a launch error: something that the job names, such as its command, cannot be used on this node."""


Phases = tuple[tuple[str, float], ...]
"""Durations in seconds, by name."""


@dataclass(frozen=True, slots=True)
class RunParked:
    """The run is suspended, as desired."""

    rung: str
    bytes: int = 0
    residue_bytes: int = 0
    phases: Phases = ()
    saves: bool = False
    """It can save its checkpoint while parked."""


@dataclass(frozen=True, slots=True)
class RunResumed:
    """The run executes again."""

    rung: str
    phases: Phases = ()


@dataclass(frozen=True, slots=True)
class RunParkRefused:
    """The run could not be parked, and keeps running; or it is parked and could not save, and stays parked."""

    reason: str
    lost: bool = False
    """It cannot continue: it was killed."""


RunEvent = Ready | Started | Exited | RunParked | RunResumed | RunParkRefused


@dataclass(frozen=True, slots=True)
class Report:
    """A report to the scheduler, sent until the scheduler says that it is committed."""

    sequence: int
    key: RunKey
    event: RunEvent
