"""A site without virtual clusters, as the scope that AlloX chooses in."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Plan
from scheduler_service.core.model import Job, JobSpec, Reason
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.configuration_times import Known
from scheduler_service.policies.allox.slots import Held, Kinds, collect_held, without_reserved
from scheduler_service.policies.placing.closest import pack_closely
from scheduler_service.policies.placing.first_fit import no_room, offered_to, place_on
from scheduler_service.policies.placing.joining import join
from scheduler_service.policies.scope import Ints


class SiteSlots:
    """`scope.Slots` of a site: each configuration has one kind of slots, wherever these are."""

    def __init__(self, state: State, known: Known, reserved_cpu_milli: int, unknown_us: Micros) -> None:
        self._state = state
        self._known = known
        self._unknown_us = unknown_us
        self._kinds = Kinds(state, known, reserved_cpu_milli)
        self._held: Held | None = None

    def kinds(self, spec: JobSpec) -> Sequence[int]:
        return (self._kinds.number(self._known.need(spec)),)

    def place_of_kind(self, _kind: int) -> str:
        return ""

    def is_free(self, kind: int) -> bool:
        return self._kinds.is_free(self._kinds.kinds[kind])

    def free_at(self, kind: int) -> Ints:
        now = self._state.cluster.clock_us
        if self._held is None:
            self._held = collect_held(self._state, now, self._unknown_us)
        return self._kinds.free_at(self._kinds.kinds[kind], self._held, now)

    def share(self, spec: JobSpec) -> float:
        return self._kinds.share(spec)


class Site:
    """`scope.Scope` of a site."""

    vc = ""

    def __init__(self, state: State, known: Known, reserved_cpu_milli: int) -> None:
        self._state = state
        self._known = known
        self._reserved = reserved_cpu_milli

    @cached_property
    def _kinds(self) -> Kinds:
        """For what follows from capacities, which do not change while jobs start."""
        return Kinds(self._state, self._known, self._reserved)

    def slots(self, unknown_us: Micros) -> SiteSlots:
        return SiteSlots(self._state, self._known, self._reserved, unknown_us)

    def holders(self) -> Iterator[tuple[Job, int]]:
        jobs = (self._state.jobs.rows[job_id] for job_id in sorted(self._state.active))
        return ((job, job.configuration) for job in jobs)

    def place(self, one: Job) -> Place | None:
        """The place where a job that has one configuration alone has room; None: there is no room."""
        return _place(self._state, one, self._kinds.kind_of(one.spec).reserved)

    def start(self, one: Job, _where: str, why: str) -> Generator[Plan, str | None, bool]:
        action = self.place(one)
        return action is not None and (yield (replace(action, why=why),)) is None

    def tell(self, jobs: Sequence[Job]) -> Proposals:
        possible: dict[tuple[int, ...], bool] = {}
        for job in jobs:
            needs = self._known.ways_of(job).needs
            if needs not in possible:
                possible[needs] = any(map(self.has_slots, needs))
            if job.reason is not Reason.NO_ROOM or not possible[needs]:
                wait = no_room(self._state, job)
                if wait.reason is not job.reason:
                    yield (wait,)

    def has_slots(self, need: int) -> bool:
        """Whether the nodes that are open would have a slot for this need if they were empty."""
        return self._kinds.has_slots(need)


def _place(state: State, one: Job, reserved: int) -> Place | None:
    if (joined := join(state, one, avoid=one.avoid)) is not None:
        return joined
    tasks = one.spec.tasks()
    offered = without_reserved(offered_to(state, one), reserved)
    if one.avoid:
        without = offered.copy()
        without[:, list(one.avoid)] = -1
        if (nodes := pack_closely(state, tasks, without)) is not None:
            return place_on(state, one, nodes)
    nodes = pack_closely(state, tasks, offered)
    return None if nodes is None else place_on(state, one, nodes)
