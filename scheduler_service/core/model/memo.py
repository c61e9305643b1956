"""What a policy remembers between two steps."""

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros

ASKED, PLANNED = "asked", "planned"
"""How the value of a memo begins that waits for a plan (`Delegate`), and that has one (`PlanReady`), which follows."""


@dataclass(frozen=True)
class Memo:
    """Policies are functions of the state: what one must remember is a row, which is durable like all others."""

    policy: str
    """By the policy's name in the registry."""
    subject: str
    """What the memo is about, in words of the policy's own: a job, a user, a pair of kinds of jobs. Of a memo without a job,
    see `shared`."""
    value: tuple[int | str, ...]
    job_id: int = 0
    """The memo goes with this job when that ends; 0: with none."""
    due_us: Micros | None = None
    """When the policy is to be asked, though nothing else happens; None: it need not be."""
    due: bool = False
    """The time was reached, and the policy has not written the memo again since."""


def shared(vc: str, what: str) -> str:
    """The subject of a memo that goes with no job. The virtual cluster is a part of it, so that the policy of that virtual
    cluster is asked when the memo is due (empty: the site's), and so that no two virtual clusters share a memo.

    >>> shared("vision", "user/ann"), shared("", "user/ann")
    ('vision/user/ann', '/user/ann')
    """
    return f"{vc}/{what}"


def vc_of(subject: str) -> str:
    """Of a memo that goes with no job: the virtual cluster that it belongs to; empty: the site.

    >>> vc_of("vision/user/ann"), vc_of("/user/ann")
    ('vision', '')
    """
    return subject.partition("/")[0]
