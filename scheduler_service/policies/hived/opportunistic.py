"""Opportunistic work: all idle cells, shared between virtual clusters by weighted max-min fairness (HiveD, section 3.2).

The virtual cluster whose opportunistic runs hold the least, by its weight, is served next.
"""

from collections.abc import Generator, Iterable, Iterator, Set
from fractions import Fraction
from itertools import islice

from scheduler_service.core.cells.opportunistic_search import find_idle
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pool_queries import free_around, leaves_unbound, owned_positions
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.queries import all_leaves, node_at
from scheduler_service.core.cells.request import requested_cells
from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.cells.shape import leaves as leaves_of
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Bind, Place, Plan, Promote, Rng, Spot, Wait
from scheduler_service.core.model import Job, JobClass, Reason
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Guarantee, Owner, VirtualCluster
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.holdings import jobs_together, runs_together
from scheduler_service.core.state.preemption_rights import claim_of
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.resources.cpu_only_jobs import asks_no_cell, place_host_only
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived import nothing_to_preempt
from scheduler_service.policies.hived.guaranteed import Choice, holds_up, join_in_cells, spots_at, suits
from scheduler_service.policies.hived.host_overuse import overdrawn_nodes
from scheduler_service.policies.hived.opportunistic_victims import make_opportunistic_leave
from scheduler_service.policies.hived.preemption_in_vc import may_ask
from scheduler_service.policies.hived.queue_membership import in_pool
from scheduler_service.policies.stages import Where

LOOKED_AT = 16
"""Kinds of a virtual cluster's jobs that are tried before it is another's turn."""
PASSED = 128
"""Its jobs among which they are sought."""
TRIED = 64
"""Cells that are tried around what a run holds, before it stays opportunistic."""


def serve_opportunistic(state: State, rng: Rng) -> Generator[Plan, str | None, VirtualCluster | None]:
    """Serve jobs until one has started that is also in the queue for its virtual cluster's own cells: those behind it there
    come before all opportunistic work, and may fit where it did not. Returns that virtual cluster; None: all are served."""
    waiting = [state.vcs.rows[state.vc_ids[name]] for name, lane in state.queues if lane is Lane.OPPORTUNISTIC]
    if not waiting:
        return None
    nowhere: set[Needs] = set()
    in_vain: set[_Wanting] = set()
    everything = _all(state) if len(waiting) > 1 else (1, 1)
    while waiting:
        vc = waiting[0]
        if len(waiting) > 1:
            vc = min(waiting, key=lambda vc: (_holds(state, vc, everything), vc.id))
        started = yield from _serve_one(state, vc, nowhere, in_vain, rng)
        if started is None:
            waiting.remove(vc)
        elif started.spec.guarantee is Guarantee.OVERFLOW:
            return vc
    return None


def _all(state: State) -> tuple[int, int]:
    """Devices, and thousandths of CPUs that no device carries."""
    assert state.pools is not None
    beside = state.host.total_cpu() if state.host is not None else 0
    return all_leaves(state.pools, True), 1000 * all_leaves(state.pools, False) + beside


def _holds(state: State, vc: VirtualCluster, everything: tuple[int, int]) -> Fraction:
    """The part of all devices that its opportunistic runs hold, or of the CPUs that go with none: the larger one, by weight."""
    devices, cpus = state.opportunistic.get(vc.name, 0), state.opportunistic_cpus.get(vc.name, 0)
    held = zip((devices, cpus), everything, strict=True)
    return max(Fraction(mine, max(of_all, 1)) for mine, of_all in held) / vc.weight


_Wanting = tuple[int, JobClass, int, Needs]
"""A job's virtual cluster, class and priority, which decide what may be preempted for it, and its needs."""


def _wanting(vc: VirtualCluster, job: Job) -> _Wanting:
    return vc.id, job.spec.job_class, job.priority, job.needs()


def looked_at(state: State, vc: VirtualCluster) -> list[Job]:
    """The first of its jobs that are in the queue for idle cells, as they are served: trials first if they are so in its own
    cells. Those that wait for others to leave are not among them."""
    queue = state.queue(vc.name, Lane.OPPORTUNISTIC)
    looked = [state.jobs.rows[key[-1]] for key in islice(queue, PASSED) if key[-1] not in state.earmarks_of]
    if stages_within(vc.policy).trials_first:
        looked.sort(key=lambda job: job.spec.job_class is not JobClass.TRIAL)
    return looked


def _serve_one(
    state: State, vc: VirtualCluster, nowhere: set[Needs], in_vain: set[_Wanting], rng: Rng
) -> Generator[Plan, str | None, Job | None]:
    """Start one of its jobs and return it. `nowhere`: needs that have found no place in this step, and `in_vain`: not even with
    all gone that may be made to leave; there is ever less."""
    looked = looked_at(state, vc)
    tries = LOOKED_AT
    for job in looked:
        kind = job.needs()
        wanting = _wanting(vc, job)
        fresh = kind not in nowhere
        claim = claim_of(state, job) if job.spec.guarantee is Guarantee.OPPORTUNISTIC and wanting not in in_vain else None
        clears = claim is not None and may_ask(state, vc, claim)
        if not (fresh or clears):
            continue
        if not tries:
            break
        tries -= 1
        if fresh:
            action = place_opportunistic(state, job)
            if action is not None and (yield (action,)) is None:
                return job
            if (yield from _as_before(state, vc, job)):
                return state.jobs.rows[job.id]
            nowhere.add(kind)
        if clears:
            plans = (make_opportunistic_leave(state, vc, one, rng) for one in job.in_each_configuration())
            plan = next((plan for plan in plans if plan is not None), None)
            if plan is None:
                in_vain.add(wanting)
            else:
                yield plan
    first = next((job for job in looked if job.id not in state.earmarks_of), None)
    if first is not None and first.spec.guarantee is Guarantee.OPPORTUNISTIC:
        wait = why_not_opportunistic(first)
        yield (nothing_to_preempt.for_opportunistic(state, vc, first, wait) if _wanting(vc, first) in in_vain else wait,)
    return None


def _as_before(state: State, vc: VirtualCluster, job: Job) -> Generator[Plan, str | None, bool]:
    """Whether a job that has grown, and has no room, has started with fewer tasks."""
    overload = stages_within(vc.policy).overload
    plan = None if overload is None or not job.spec.elastic else overload(state, job, Where(vc.name, False, ()))
    if not plan or (yield plan) is not None:
        return False
    place = place_opportunistic(state, state.jobs.rows[job.id])
    return place is not None and (yield (place,)) is None


def place_opportunistic(state: State, job: Job) -> Place | None:
    """Start a job on idle resources, in the first of its configurations that fits: CPU-only work on CPUs that go with no
    device, if it can, other work where guaranteed work will want to be last. A job that names a pinned cell, which only its
    owner may use, gets no others."""
    if not job.spec.alternatives:
        return _place_configured(state, job)
    places = (_place_configured(state, one) for one in job.in_each_configuration())
    return next((place for place in places if place is not None), None)


def _place_configured(state: State, job: Job) -> Place | None:
    pools = state.pools
    assert pools is not None
    if state.host is not None and asks_no_cell(job.spec):
        nodes = place_host_only(job.spec, state.host, state.free_resources)
        if nodes is not None:
            return Place(job.id, tuple(Spot(node) for node in nodes), configuration=job.configuration)
    if (
        not job.spec.cells.pin
        and (shared := join_in_cells(state, job, False, lambda name: suits(pools, job.spec, name))) is not None
    ):
        return shared
    for name in pools.in_order():
        if job.spec.cells.pin or not suits(pools, job.spec, name):
            continue
        wanted = requested_cells(job.spec, pools.pools[name].shape, pools.share(name))
        placed = None if isinstance(wanted, str) else find_idle(pools.pools[name], wanted)
        spots = () if placed is None else tuple(spots_at(pools, name, placed))
        if spots and not overdrawn_nodes(state, job, spots):
            return Place(job.id, spots, configuration=job.configuration)
    return None


def why_not_opportunistic(job: Job) -> Wait:
    return Wait(job.id, Reason.NO_ROOM, "no idle cells that would do")


# ---- promotion ---------------------------------------------------------------------------------------------------------


def promote(state: State, vc: VirtualCluster, jobs: Set[int], held: Set[Choice] = frozenset()) -> Proposals:
    """Runs of these jobs become guaranteed where they are, as soon as the virtual cluster can have those cells. `held`: the
    choices for which others wait that come before them. A cell that is bound around one job may be what another before it
    wanted, so that all are asked again until none is promoted."""
    left = set(jobs)
    while left and (promoted := (yield from _promote_once(state, vc, left, held))):
        left -= promoted


def _promote_once(state: State, vc: VirtualCluster, jobs: Set[int], held: Set[Choice]) -> Generator[Plan, str | None, set[int]]:
    """Promote jobs once, and return them. Looked at are those that are in its cells already, or in the pin that they name, and
    those that are not too large for what it may have bound: if all of its cells are in use, hardly one of many."""
    pools, owner = state.pools, Owner(vc.id)
    assert pools is not None
    unbound, inside, promoted = _unbound(pools, owner, held), set[int](), set[int]()
    for name, pool in pools.pools.items():
        for mine in (owner, *(Owner(vc.id, pin.name) for pin in vc.pins if pin.pool == name)):
            if (name, mine) not in held:
                inside |= jobs & _running_on(state, name, pool.visited_nodes(mine))
    for job_id in sorted(jobs if unbound else inside):
        job = state.jobs.rows[job_id]
        job = job.in_configuration(job.configuration)
        if all(run.guaranteed for run in state.runs_of(job_id)):  # with another that shares its devices
            promoted.add(job_id)
            continue
        if job_id not in inside and _devices_held(state, job_id) > unbound:
            continue
        position = pools.positions.get(state.runs_of(job_id)[0].node)
        if position is None or (position.pool, Owner(vc.id, job.spec.cells.pin)) in held:
            continue
        plan = _in_place(state, vc, job_id)
        if plan is None or not holds_up(state, vc, in_pool(job, position.pool)):
            continue  # in a cluster of its own it would not run, and take nothing from others
        if (yield plan) is None:
            promoted.add(job_id)
        unbound = _unbound(pools, owner, held)
        for action in plan:
            if isinstance(action, Bind):
                shape = pools.pools[action.pool].shape
                cell = leaves_of(shape, shape.levels.index(action.level), action.index)
                inside |= jobs & _running_on(state, action.pool, [slot for slot, _ in cell])
    return promoted


def _unbound(pools: Pools, owner: Owner, held: Set[Choice]) -> int:
    return sum(leaves_unbound(pool, owner) for name, pool in pools.pools.items() if (name, owner) not in held)


def _devices_held(state: State, job_id: int) -> int:
    """The number of devices that a job holds: of a gang, those of the tasks that are left; what two runs share counts once."""
    return len({(run.node, device) for run in state.runs_of(job_id) for device in run.devices})


def _running_on(state: State, pool: str, slots: Iterable[int]) -> set[int]:
    """The jobs with a run on one of these nodes."""
    assert state.pools is not None
    nodes = (node_at(state.pools, pool, slot) for slot in slots)
    return {key.job_id for node in nodes if node is not None for key in state.runs_on.get(node, ())}


def _in_place(state: State, vc: VirtualCluster, job_id: int) -> Plan | None:
    """Binds cells around what the job holds, where that is in none of its virtual cluster's cells yet: those that it fills, the
    largest first, and else the smallest around a leaf. A job that names a pin has that, and for a pin nothing is bound."""
    pools = state.pools
    assert pools is not None
    owner = Owner(vc.id, state.jobs.rows[job_id].launch_spec.cells.pin)
    others = [state.jobs.rows[one] for one in jobs_together(state, job_id)]
    if any(one.launch_spec.cells.pin != owner.pin or one.spec.guarantee is Guarantee.OPPORTUNISTIC for one in others):
        return None  # what one of them may have, the others may not
    bound: list[Bind] = []
    with state.supposing():
        for run in runs_together(state, job_id):
            position = pools.positions.get(run.node)
            if position is None or run.phase.exits_soon:
                return None
            places = positions(position, mask_of(run.devices))
            if not bind_around(state, pools.pools[position.pool], position.slot, places, owner, bound, iter(range(TRIED))):
                return None
    return (*bound, Promote(job_id))


def bind_around(
    state: State, pool: Pool, slot: int, places: Mask, owner: Owner, bound: list[Bind], tries: Iterator[int]
) -> bool:
    """Supposes that all of these leaves are in the owner's cells, and notes those that are bound for it. False: they cannot be;
    then none is bound."""
    places &= ~owned_positions(pool, owner, slot)
    if not places:
        return True
    found = list(free_around(pool, owner, slot, (places & -places).bit_length() - 1))
    for level, index in sorted(found, key=lambda cell: _fills(pool.shape, slot, places, *cell)):
        if next(tries, None) is None:
            return False
        name = pool.shape.levels[level]
        state.put(state.bindings, (pool.name, name, index), Binding(pool.name, name, index, owner.vc, owner.pin))
        bound.append(Bind(owner.vc, pool.name, name, index))
        if bind_around(state, pool, slot, places, owner, bound, tries):
            return True
        bound.pop()
        state.put(state.bindings, (pool.name, name, index), None)
    return False


def _fills(shape: Shape, slot: int, places: Mask, level: int, index: int) -> tuple[bool, int]:
    """The sort key of cells to try: first those that these leaves fill, the largest first; then others, the smallest first."""
    beyond = any(at != slot or mask & ~places for at, mask in leaves_of(shape, level, index))
    return beyond, level if beyond else -level
