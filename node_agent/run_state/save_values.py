"""How a run saves, as plain values: what would save it, what it has reported, and whether it had saved when it ended."""

from dataclasses import dataclass
from enum import IntEnum

from node_agent.run_state.run_key import RunKey


class SaveOutcome(IntEnum):
    """Values as in ebb.v1.SaveOutcome."""

    UNKNOWN = 0
    """It cannot be known."""
    SAVED = 1
    NOT_SAVED = 2


@dataclass(frozen=True, slots=True)
class SaveResult:
    """Whether the work of a run was saved when it ended."""

    outcome: SaveOutcome
    step: int = -1
    """Step of the last checkpoint, which holds all the work if the outcome is SAVED; -1: unknown, or no checkpoint."""
    detail: str = ""
    """Why it did not save, or why that is unknown, for people; if it was saved, by what, unless by itself."""


class SaveMeans(IntEnum):
    """The means by which a run is saved when it is told to stop. Values as in ebb.agent.v1.SaveMeans."""

    UNKNOWN = 0
    NONE = 1
    """No process has registered or handles SIGTERM, the job has no checkpoint signal or command, CRIU does not dump it, and
    nothing is in its checkpoint folder."""
    FILES = 2
    """Nothing saves it, but it has saved into its checkpoint folder before."""
    HANDLER = 3
    """A process handles SIGTERM; only its program knows what it does then."""
    REGISTERED = 4
    """A process has registered: it saves at its next step, and reports that."""
    ASKED = 5
    """The job's checkpoint signal or command, or CRIU."""


@dataclass(frozen=True, slots=True)
class RunSaves:
    """A run's own account of its checkpoints, from EBB_CHECKPOINT_FILE. Empty: nothing."""

    began_from: str = ""
    """The checkpoint that it has loaded."""
    saved: str = ""
    """The last one that it has saved."""
    step: int = -1
    """Step of the newer of both; -1: unknown."""
    failed: str = ""
    """Why its last save failed; empty: it succeeded."""
    failures: int = 0
    """Number of its saves that have failed so far."""


NOTHING_SAID = RunSaves()


@dataclass(frozen=True, slots=True)
class RunCheckpoints:
    """How a live run saves, as far as is known."""

    key: RunKey
    said: RunSaves
    means: SaveMeans = SaveMeans.UNKNOWN
    longest_step: float = 0.0
    """For a run that saves between two steps: the longest time without the end of a step so far, in seconds; 0: it is short."""
    evaluated: bool = False
    """It evaluated then."""
