"""A cluster whose scheduler is started again under other settings."""

from typing import Any

from scheduler_service.core.allocation.startup_repair import repair_at_startup
from scheduler_service.core.engine import Policy
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import Event, Step
from scheduler_service.core.model.settings import PoolPlan, Settings
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.journal import net
from scheduler_service.core.state.load_check import contradictions
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.hived.policy import cells
from tests.policies.tenants import Tenants


class Restarts(Tenants):
    """Tenants of a cluster, on which jobs without a virtual cluster run at times."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.renamed = False
        """Whether cells have other names than those that were promised: invariants then do not hold."""
        super().__init__(*args, **settings)

    def restart(self, settings: Settings, policy: Policy, renamed: bool = False) -> None:
        """The state is loaded, as a new leader loads it, and goes on. To load it again changes nothing."""
        rows = [(table.name, key, row) for table in self.state.tables() for key, row in table.rows.items()]
        assert not list(contradictions(rows))
        state = State(self.state.cluster, settings, self.state.order_of)
        state.restore(row for row in rows if row[0] != "cluster")
        repair_at_startup(state)
        for change in net(state.journal.entries):
            if change.table == "run":
                self.runs[change.key] = change.new
        state.adopt()
        self.state, self.policy, self.renamed = state.rebuild(), policy, renamed
        repair_at_startup(state)
        assert not net(state.journal.entries), "what was put right is right"

    def turn_off(self, policy: Policy = fifo) -> None:
        self.restart(self.state.settings._replace(pools=None), policy)

    def turn_on(self, *plans: PoolPlan, renamed: bool = False, **settings: Any) -> None:
        self.restart(self.state.settings._replace(pools=plans, **settings), cells(), renamed)

    def step(self, *events: Event, after: int = 0) -> Step:
        if not self.renamed:
            return super().step(*events, after=after)
        self.now += after * SECOND
        self.taken += 1
        taken = self._take(events)
        self._check_step(taken, len(events))
        for reply in taken.replies:
            assert not isinstance(reply, Exception) or isinstance(reply, Refused), reply
        self.state.adopt()
        return taken
