"""Changes that the policies have not looked at yet."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Pending:
    """Changes since the policies last settled, kept up by the indices: they tell policies where to look. They do not
    follow from rows: a restored state begins with everything to be looked at."""

    policies: bool = False
    """Something happened that may let a job start."""
    queue_grew: bool = False
    """Jobs were queued, each behind another: for those before them this changes nothing."""
    market: bool = False
    """Something happened that may let cells be exchanged."""
    inventory: bool = False
    """Nodes came, left, opened or closed."""
    jobs: set[int] = field(default_factory=set)
    """Jobs that came, ended, began to run or stopped, if their order depends on memos."""
    accounts: set[tuple[str, str]] = field(default_factory=set)
    """Policies and subjects that are charged with something else."""
    nodes: set[int] = field(default_factory=set)
    """Nodes on which runs or share groups changed, if some policy introspects."""
    vcs: set[int] = field(default_factory=set)
    """Virtual clusters that have other cells bound, if any has a proxy."""

    def copy(self) -> "Pending":
        sets = self.jobs.copy(), self.accounts.copy(), self.nodes.copy(), self.vcs.copy()
        return Pending(self.policies, self.queue_grew, self.market, self.inventory, *sets)

    def look_at_all(self) -> None:
        """Have the policies look at everything, not at the ends of queues alone."""
        self.policies = self.market = self.inventory = True
        self.queue_grew = False
