"""A virtual cluster as the scope of a policy that chooses which jobs start (`policies/scope.py`)."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import AddEarmark, Place, Plan, Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.guaranteed import plan_in_cells, why_not
from scheduler_service.policies.hived.opportunistic import why_not_opportunistic
from scheduler_service.policies.hived.queue_membership import in_pool
from scheduler_service.policies.hived.vc_slots import CellSlots, holders


class VcScope:
    """`scope.Scope` of a virtual cluster: its own cells."""

    def __init__(self, state: State, vc: VirtualCluster, after_start: Callable[[], Proposals]) -> None:
        """`after_start`: whom the virtual cluster serves each time that a job has started, before it serves others."""
        self._state, self._row, self._after_start = state, vc, after_start
        self._told: dict[int, Wait] = {}
        """For jobs that did not start, by id: what each waits for, if that is not its own cells."""

    @property
    def vc(self) -> str:
        return self._row.name

    def slots(self, unknown_us: Micros) -> CellSlots:
        return CellSlots(self._state, self._row, unknown_us)

    def holders(self) -> list[tuple[Job, int]]:
        return holders(self._state, self._row)

    def start(self, one: Job, where: str, why: str) -> Generator[Plan, str | None, bool]:
        plan = plan_in_cells(self._state, self._row, in_pool(one, where))
        if plan is None or (yield _with_reason(plan, why)) is not None:
            return False
        if not any(isinstance(action, Place | AddEarmark) for action in plan):
            if isinstance(last := plan[-1], Wait):  # others leave first, and nothing is kept for the job meanwhile
                self._told[one.id] = last
            return False
        yield from self._after_start()
        return True

    def tell(self, jobs: Sequence[Job]) -> Proposals:
        known: dict[tuple[Needs, Guarantee], Wait] = {}
        for job in jobs:
            alike = job.needs(), job.spec.guarantee
            if alike not in known:
                known[alike] = why_waits(self._state, self._row, job)
            wait = self._told.get(job.id, known[alike])
            if (job.reason, job.detail) != (wait.reason, wait.detail):
                yield (replace(wait, job_id=job.id),)


def why_waits(state: State, vc: VirtualCluster, job: Job) -> Wait:
    """Why a job waits that has no room in the virtual cluster's cells."""
    wait = why_not(state, vc, job)
    overflows = job.spec.guarantee is Guarantee.OVERFLOW
    return why_not_opportunistic(job) if overflows and wait.reason is Reason.NEVER_IN_QUOTA else wait


def _with_reason(plan: Plan, why: str) -> Plan:
    return tuple(replace(action, why=why) if isinstance(action, Place | AddEarmark) else action for action in plan)
