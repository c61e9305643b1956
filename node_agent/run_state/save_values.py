"""How a run saves, as plain values: what would save it, what it has said, and whether it had saved when it ended."""

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
    """Whether what a run had done was saved when it ended."""

    outcome: SaveOutcome
    step: int = -1
    """Of the last checkpoint, which holds all that was done if the outcome is SAVED; -1: unknown, or there is none."""
    detail: str = ""
    """For people: why it did not save, or why that cannot be known; of one that saved: what has saved it, unless it did so."""


class SaveMeans(IntEnum):
    """What saves a run when it is told to stop. Values as in ebb.agent.v1.SaveMeans."""

    UNKNOWN = 0
    NONE = 1
    """No process has registered or handles SIGTERM, the job has no checkpoint signal or command, CRIU does not dump it, and
    nothing is in its checkpoint folder."""
    FILES = 2
    """Nothing, but it has saved into its checkpoint folder before."""
    HANDLER = 3
    """A process handles SIGTERM; only its program knows what it does then."""
    REGISTERED = 4
    """A process has registered: it saves at its next step, and tells."""
    ASKED = 5
    """The job's checkpoint signal or command, or CRIU."""


@dataclass(frozen=True, slots=True)
class RunSaves:
    """What a run has said of its checkpoints in EBB_CHECKPOINT_FILE. Empty: nothing."""

    began_from: str = ""
    """The checkpoint that it has loaded."""
    saved: str = ""
    """The last one that it has saved."""
    step: int = -1
    """Of the newer of both; -1: unknown."""
    failed: str = ""
    """Why its last save failed; empty: it did not."""
    failures: int = 0
    """How many of its saves have failed so far."""


NOTHING_SAID = RunSaves()


@dataclass(frozen=True, slots=True)
class RunCheckpoints:
    """What is known of how a live run saves."""

    key: RunKey
    said: RunSaves
    means: SaveMeans = SaveMeans.UNKNOWN
    longest_step: float = 0.0
    """Of a run that saves between two steps: the longest time without the end of a step so far, in seconds; 0: it is short."""
    evaluated: bool = False
    """It evaluated then."""
