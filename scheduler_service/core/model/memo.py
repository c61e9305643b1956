"""What a policy remembers between two steps."""

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros


@dataclass(frozen=True)
class Memo:
    """Policies are functions of the state: what one must remember is a row, which is durable like all others."""

    policy: str
    """By the policy's name in the registry."""
    subject: str
    """What the memo is about, in words of the policy's own: a job, a user, a pair of kinds of jobs."""
    value: tuple[int | str, ...]
    job_id: int = 0
    """The memo goes with this job when that ends; 0: with none."""
    due_us: Micros | None = None
    """When the policy is to be asked, though nothing else happens; None: it need not be."""
    due: bool = False
    """The time was reached, and the policy has not written the memo again since."""
