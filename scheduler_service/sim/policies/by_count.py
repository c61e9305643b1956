"""What HiveD is compared with: virtual clusters whose quota is a number of devices (`quota` says how).

A run is guaranteed here where its virtual cluster's devices, wherever they are, are no more than its quota.
"""

from itertools import islice

from scheduler_service.core.allocation.bindings import entitled
from scheduler_service.core.cells.queries import devices_of
from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Action, AddEarmark, Place, Plan, Promote, Reclaim, Rng, Spot, Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.model.values import ZERO, add, first_of, mask_of
from scheduler_service.core.model.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.state.queue_keys import OWN_LANES, Lane
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.state import State
from scheduler_service.policies.cells.guaranteed import place_on_cells_kept
from scheduler_service.policies.options import Options
from scheduler_service.policies.placing.first_fit import start_on_earmarks
from scheduler_service.policies.stages import Stages
from scheduler_service.sim.policies.quota import Low, make_room, place, turns, within


def by_count() -> Policy:
    """The YARN capacity scheduler as HiveD's evaluation refines it."""

    def policy(state: State, _rng: Rng) -> Proposals:
        assert state.pools is not None
        yield from start_on_earmarks(state, place_on_cells_kept)
        quotas = {vc.name: devices_of(state.pools, vc) for vc in state.vcs.rows.values()}
        for name in turns({name: state.guaranteed.get(name, 0) for name in quotas}, quotas):
            yield from _serve(state, state.vcs.rows[state.vc_ids[name]], quotas[name])

    return policy


def stages(_options: Options) -> Stages:
    return Stages(by_count())


def _serve(state: State, vc: VirtualCluster, quota: int) -> Proposals:
    """The tenant's jobs in order, the first of which holds up those behind it. What is beyond the quota takes what nobody
    uses, if it is content with that."""
    yield from _promote(state, vc, quota)
    skip = 0
    while (job := _head(state, vc, skip)) is not None:
        if job.id in state.earmarks_of:
            skip += 1
            continue
        asks, used = job.spec.demand.devices, state.guaranteed.get(vc.name, 0)
        needs = [demand.devices for demand in job.spec.tasks()]
        regular = job.spec.guarantee is not Guarantee.OPPORTUNISTIC and within(used, quota, asks)
        plan: Plan | None = None
        nodes, free = _free(state)
        spots = place(needs, free)
        if spots is not None and (regular or job.spec.guarantee is not Guarantee.GUARANTEED):
            plan = (Place(job.id, _spots(state, [nodes[at] for at in spots], needs), guaranteed=regular),)
        elif regular:
            plan = _make_room(state, job, needs, nodes, free)
        if plan is None:
            detail = "no node has so many devices together" if regular else f"{vc.name} uses {used} of its {quota} devices"
            yield (Wait(job.id, Reason.NO_ROOM if regular else Reason.BEYOND_QUOTA, detail),)
            return
        if (yield plan) is not None:
            return


def _free(state: State) -> tuple[list[int], list[int]]:
    """Nodes that are open, and how many idle devices each has."""
    nodes = [node for node in sorted(state.nodes.rows) if state.free_resources.is_open(node)]
    return nodes, [state.idle_devices.get(node, 0).bit_count() for node in nodes]


def _spots(state: State, nodes: list[int], needs: list[int]) -> tuple[Spot, ...]:
    taken: dict[int, int] = {}
    spots = []
    for node, need in zip(nodes, needs, strict=True):
        devices = first_of(state.idle_devices.get(node, 0) & ~taken.get(node, 0), need)
        taken[node] = taken.get(node, 0) | mask_of(devices)
        spots.append(Spot(node, devices))
    return tuple(spots)


def _make_room(state: State, job: Job, needs: list[int], nodes: list[int], free: list[int]) -> Plan | None:
    """Whoever is beyond a quota leaves, as few devices as may be."""
    at = {node: i for i, node in enumerate(nodes)}
    low: dict[int, list[tuple[int, int]]] = {}
    for run in state.runs.rows.values():
        if not run.guaranteed and run.stop_us is None and run.node in at and run.key not in state.promised_by:
            low.setdefault(run.job_id, []).append((at[run.node], len(run.devices)))
    whole = [Low(job_id, tuple(parts)) for job_id, parts in low.items() if len(parts) == len(state.active[job_id])]
    choice = make_room(needs, free, whole)
    if choice is None:
        return None
    actions: list[Action] = [Reclaim(job_id, job.id) for job_id in choice.leave]
    leaving = {run.key: run for job_id in choice.leave for run in state.runs_of(job_id)}
    tasks = job.spec.tasks()
    for node in sorted({nodes[i] for i in choice.nodes}):
        ranks = tuple(rank for rank, i in enumerate(choice.nodes) if nodes[i] == node)
        mine = [run for run in leaving.values() if run.node == node]
        offered = state.idle_devices.get(node, 0)
        for run in mine:
            offered |= mask_of(run.devices)
        want, devices = ZERO, []
        for rank in ranks:
            want = add(want, tasks[rank])
            chosen = first_of(offered, needs[rank])
            offered &= ~mask_of(chosen)
            devices.append(chosen)
        held = {index for chosen in devices for index in chosen}
        victims = tuple(sorted(run.key for run in mine if held & set(run.devices)))
        actions.append(AddEarmark(job.id, node, want, victims, None, ranks, tuple(devices)))
    return (*actions, Wait(job.id, Reason.WAITING_FOR_VICTIMS))


def _promote(state: State, vc: VirtualCluster, quota: int) -> Proposals:
    """The oldest runs beyond the quota come within it as there is room in it."""
    for job_id in sorted(state.overflowing.get(vc.name, ())):
        job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
        if not within(state.guaranteed.get(vc.name, 0), quota, job.spec.demand.devices):
            return
        if all(run.stop_us is None and not run.guaranteed for run in runs) and all(
            entitled(state, job, run.node, mask_of(run.devices)) for run in runs
        ):
            yield (Promote(job_id),)


def _head(state: State, vc: VirtualCluster, skip: int) -> Job | None:
    """The job behind so many others in the tenant's queue."""
    first: list[QueueKey] = []
    for lane in (*OWN_LANES, Lane.OPPORTUNISTIC):
        first += islice(state.waiting(vc.name, lane), skip + 1)
    ordered = sorted(set(first))
    return state.jobs.rows[ordered[skip][-1]] if skip < len(ordered) else None
