"""The precedence of jobs that wait: those behind them may start if they delay none of them.

A job that waits holds up others on the nodes that are open and could take it, were they empty. There it lacks something, such
as devices. A job behind it cannot delay it if it takes nothing on these nodes, or nothing of what is lacking there and leaves
enough of everything else: so a job without devices may start while another waits for devices. CPUs and memory that come with
the devices which the waiting one lacks need not be left (`coming_with_devices`). For a gang, a node is to keep what as many
tasks need as it could hold. None of this depends on how long jobs run.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import islice

from scheduler_service.core.messages import Place
from scheduler_service.core.model import Job
from scheduler_service.core.model.values import ZERO, Vector, add, fits, minimum, times
from scheduler_service.core.state.resources.free_resources import Kept
from scheduler_service.core.state.resources.node_bits import nodes_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import place

_MOST_PARTS = 32
"""If different amounts are kept on more sets of nodes than these, nothing may be taken on others."""
_LOOKED_AT = 16
"""The most nodes on which it is worked out what comes with their devices, for a job that has no room elsewhere."""


class Precedence:
    """The resources that are to be left on nodes for the jobs that wait, as far as they were looked at."""

    def __init__(self, find: Callable[[State, Job], Place | None] = place, *, joins: bool = False) -> None:
        """`find`: where a job has room, by the policy. `joins`: it lets jobs that wait join others on the devices of these."""
        self._find, self._joins = find, joins
        self.kept: list[Kept] = []
        """The kept resources, in parts that have no node in common."""
        self.jobs: set[int] = set()
        """The jobs that wait."""
        self.nodes = 0
        """All nodes that the waiting jobs could use."""

    def covers(self, state: State, job: Job) -> bool:
        """Whether a job that waits could use any of the nodes that this one could."""
        return any(part.bits & self.nodes for part in parts_of(state, job))

    def reaches_beyond(self, state: State, job: Job) -> bool:
        """Whether a job could use a node that none of those that wait could."""
        return any(part.bits & ~self.nodes for part in parts_of(state, job))

    def add(self, state: State, job: Job) -> None:
        """Add a job that waits, too."""
        self.jobs.add(job.id)
        for part in parts_of(state, job):
            self._merge(*part)

    def _merge(self, bits: int, need: Vector | None, devices: int) -> None:
        self.nodes |= bits
        merged: list[Kept] = []
        for old in self.kept:
            if (both := old.bits & bits) == old.bits:
                merged.append(Kept(both, _larger_of_each(old.need, need), min(old.devices, devices)))
            elif both:
                most = _larger_of_each(old.need, need) if len(self.kept) < _MOST_PARTS else None
                merged += [Kept(both, most, min(old.devices, devices)), old._replace(bits=old.bits & ~bits)]
            else:
                merged.append(old)
            bits &= ~old.bits
        if bits:
            merged.append(Kept(bits, need, devices))
        self.kept = merged

    def place(self, state: State, job: Job) -> Place | None:
        """Find room for the job besides what is kept; None: there is no room."""
        return self._place_beside(state, job, self.kept)

    def _place_beside(self, state: State, job: Job, kept: Sequence[Kept]) -> Place | None:
        with state.free_resources.keeping(kept):
            action = self._find(state, job)
        if action is None and not self._joins and (less := _without_what_comes(state, job, kept)):
            with state.free_resources.keeping(less):
                action = self._find(state, job)
        return action

    def leaves_enough(self, state: State, job: Job, action: Place) -> bool:
        """Whether the job leaves there what is kept. One that joins others on a device, or takes others' place, does not."""
        taken: dict[int, Vector] = {}
        for spot, demand in zip(action.spots, job.spec.tasks(), strict=True):
            if self.nodes >> spot.node & 1:
                taken[spot.node] = add(taken.get(spot.node, ZERO), demand)
        for node, amount in taken.items():
            need = next((part.need for part in self.kept if part.bits >> node & 1), ZERO)
            if need is None or (action.share is not None and need != ZERO):
                return False
            beside = (n + k if n else 0 for n, k in zip(amount, need, strict=True))
            if need != ZERO and not fits(Vector(*beside), state.free_resources.free(node)):
                return False
        return True

    def is_hopeless(self) -> bool:
        """Whether jobs that ask for the same as one that has no room besides what is kept have none either."""
        return True

    def note_placed(self, state: State, job: Job, action: Place) -> None:
        """Note that the job starts there."""

    def kept_elsewhere(self) -> list[Kept]:
        """For `FreeResources.keeping`: nothing at all may be taken on nodes that a job which waits could use."""
        return [Kept(self.nodes, None)] if self.nodes else []


def _without_what_comes(state: State, job: Job, kept: Sequence[Kept]) -> list[Kept]:
    """The resources kept from a job without devices, less what comes with the devices that the waiting ones lack. On few nodes,
    as this costs a look at their runs. Empty, if it is the same."""
    needs = job.spec.tasks()
    if job.spec.alternatives or any(need.devices for need in needs):
        return []
    may, left = state.free_resources.fitting(reduce(minimum, needs), state.suitable_for(job.spec)), _LOOKED_AT
    rest, less = list[Kept](), list[Kept]()
    for part in kept:
        bits = part.bits
        if part.need is not None and part.devices:
            for node in islice(nodes_of(bits & may & ~state.free_resources.nodes_with_free(part.devices)), left):
                left -= 1
                need = _beside_what_comes(state, node, part.need, part.devices)
                if need != part.need:
                    less.append(Kept(1 << node, need))
                    bits ^= 1 << node
        rest.append(part._replace(bits=bits))
    return rest + less if less else []


def coming_with_devices(state: State, node: int) -> Vector:
    """CPUs and memory that come free there with each device, whichever run releases it; nothing, if devices may come free
    without their runs' CPUs: those that are faulty or kept for a job, that several runs share, or whose run is parked."""
    if state.faulty_devices.get(node) or any(row.node == node for row in state.earmarks.rows.values()):
        return ZERO
    each: list[Vector] = []
    for key in state.runs_on.get(node, ()):
        run = state.runs.rows[key]
        if run.group or run.parking is not None or run.parked_mib:
            return ZERO
        if devices := run.demand.devices:
            each.append(Vector(run.demand.cpu_milli // devices, run.demand.memory_mib // devices))
    return reduce(minimum, each, each[0]) if each else ZERO


def _beside_what_comes(state: State, node: int, need: Vector, devices: int) -> Vector:
    """The part of `need` to be left on a node for jobs that start there only once so many devices are free."""
    lacking = devices - state.free_resources.free(node).devices
    come = times(coming_with_devices(state, node), lacking) if lacking > 0 else ZERO
    return Vector(max(need.cpu_milli - come.cpu_milli, 0), max(need.memory_mib - come.memory_mib, 0), need.devices)


def parts_of(state: State, job: Job) -> Iterator[Kept]:
    """In each of the job's configurations, the nodes that could take one of its tasks, and what each is to keep for it."""
    for one in job.in_each_configuration():
        among = state.suitable_for(one.spec)
        if not one.spec.gang:
            seats = state.open_nodes.seats(one.spec.demand, among)
            if seats.bits:
                yield Kept(seats.bits, one.spec.demand, 0 if one.spec.shares else one.spec.demand.devices)
            continue
        bits, need = 0, ZERO
        for group in one.spec.gang:
            seats = state.open_nodes.seats(group.demand, among)
            bits |= seats.bits
            need = add(need, times(group.demand, min(group.size, seats.most)))
        if bits:
            yield Kept(bits, need, min(group.demand.devices for group in one.spec.gang))


def may_delay(state: State, job: Job, other: Job) -> bool:
    """Whether the job could delay the other one, if it started: an open node could take either."""
    mine = 0
    for part in parts_of(state, job):
        mine |= part.bits
    return any(part.bits & mine for part in parts_of(state, other))


def _larger_of_each(a: Vector | None, b: Vector | None) -> Vector | None:
    return None if a is None or b is None else Vector(*map(max, a, b))
