"""Memos: data that policies remember between steps."""

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros

ASKED, PLANNED = "asked", "planned"
"""First element of the value of a memo that waits for a plan (`Delegate`), or that has one (`PlanReady`), which follows."""


@dataclass(frozen=True)
class Memo:
    """A row for what a policy must remember. Policies are functions of the state, so this is as durable as other rows."""

    policy: str
    """The policy's name in the registry."""
    subject: str
    """The subject of the memo, in the policy's own terms: a job, a user, a pair of kinds of jobs. For a memo without a job,
    see `shared_subject`."""
    value: tuple[int | str, ...]
    job_id: int = 0
    """The job that this memo is deleted with when the job ends; 0: none."""
    due_us: Micros | None = None
    """When the policy is to be asked even if nothing else happens; None: it need not be."""
    due: bool = False
    """`due_us` was reached, and the policy has not written the memo again since."""


def shared_subject(vc: str, what: str) -> str:
    """Return the subject of a memo that belongs to no job. It includes the virtual cluster (empty: the site), so that the
    policy of that virtual cluster is asked when the memo is due, and so that no two virtual clusters share a memo.

    >>> shared_subject("vision", "user/ann"), shared_subject("", "user/ann")
    ('vision/user/ann', '/user/ann')
    """
    return f"{vc}/{what}"


def vc_of(subject: str) -> str:
    """Return the virtual cluster of a memo that belongs to no job; empty: the site.

    >>> vc_of("vision/user/ann"), vc_of("/user/ann")
    ('vision', '')
    """
    return subject.partition("/")[0]
