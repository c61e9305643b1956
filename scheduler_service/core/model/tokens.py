"""Access control: the roles, and the tokens that identify callers."""

from dataclasses import dataclass
from enum import IntEnum

from scheduler_service.core.model.values import Micros


class Role(IntEnum):
    """The purpose of a token. Numbers are in the database and never change."""

    USER = 1
    """Submits jobs, changes its own jobs, and sees everything."""
    OPERATOR = 2
    """A user who may also change others' jobs, and drain and fence nodes."""
    AGENT = 3
    """Speaks for nodes, and does nothing else."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept: the secret itself is known to its owner alone."""

    id: int
    subject: str
    """The token's owner: the user of the jobs that are submitted with it."""
    role: Role
    last_chars: str
    """The end of the secret, by which its owner recognizes it."""
    created_us: Micros
    expires_us: Micros | None = None
    revoked_us: Micros | None = None

    def has_expired(self, now: Micros) -> bool:
        return self.expires_us is not None and self.expires_us <= now
