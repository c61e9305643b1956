"""Invariants of cells, which hold after every step (HiveD, section 3)."""

from collections import defaultdict
from collections.abc import Sequence

from scheduler_service.core.allocation.bindings import coming_to, in_own_cells, kept_for, kept_on, running_in
from scheduler_service.core.allocation.earmarks import with_share
from scheduler_service.core.allocation.operations import targets
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.queries import nodes_in
from scheduler_service.core.errors import claim
from scheduler_service.core.exchange.quota_timeline import granted_cells, in_force, moments
from scheduler_service.core.model import Job, Run
from scheduler_service.core.model.tenants.exchange import exchange_due
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Owner, quota_of
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.holdings import devices_released
from scheduler_service.core.state.state import State


def check_cells(state: State, pools: Pools) -> None:
    """Raises Broken, naming the first invariant that does not hold."""
    for job_id in state.active:
        _check_standing(state, state.jobs.rows[job_id], state.runs_of(job_id))
    for operation in state.operations.rows.values():
        waiting = [run for run in targets(state, operation) if run.awaits]
        _check_standing(state, state.jobs.rows[operation.job_id], waiting)
    _check_kept(state)
    _check_bindings(state, pools)
    _check_exchanges(state)


def _check_standing(state: State, job: Job, runs: Sequence[Run]) -> None:
    """Guaranteed runs are in cells of their virtual cluster; the tasks of a gang have the same guarantee, except the last ones
    of an elastic job, which may be beyond it."""
    for before, run in zip([*runs[:1], *runs[:-1]], runs, strict=True):
        claim(run.vc == job.spec.vc, f"run {run.key} is of {run.vc!r} and its job of {job.spec.vc!r}")
        alike = run.guaranteed == before.guaranteed
        counted = run.phase.exits_soon or run.task >= len(job.launch_spec.tasks()) - job.beyond
        beyond = job.spec.elastic and before.guaranteed and not run.guaranteed and counted
        claim(alike or beyond, f"job {job.id} is guaranteed in part")
        if run.guaranteed:
            claim(in_own_cells(state, job, run.node, mask_of(run.devices)), f"run {run.key} is guaranteed outside its cells")


def _check_kept(state: State) -> None:
    """A kept device is kept once, in a cell of the job's virtual cluster, and is idle or will be released by a victim."""
    kept: dict[int, Mask] = defaultdict(int)
    for earmark in state.earmarks.rows.values():
        mask = earmark.mask
        if not mask:
            continue
        node, job = earmark.node, kept_for(state, earmark)
        claim(not mask & kept[node], f"earmark {earmark.id}: a device is kept twice")
        kept[node] |= mask
        opportunistic = job.spec.guarantee is Guarantee.OPPORTUNISTIC
        inside = opportunistic or in_own_cells(state, job, node, mask)
        claim(inside, f"earmark {earmark.id} keeps devices outside the job's cells")
        held = mask & state.held_devices.get(node, 0)
        leaving = devices_released(state, [state.runs.rows[key] for key in earmark.victims]).get(node, 0)
        claim(not held & ~leaving, f"earmark {earmark.id}: a device is held by somebody who was not told to leave")
        kept_now = with_share(earmark.want, (mask & ~held).bit_count(), mask.bit_count())
        claim(kept_now == earmark.kept, f"earmark {earmark.id}: devices that are idle")
    claim(kept == state.kept_devices, "devices that are kept")


def _check_bindings(state: State, pools: Pools) -> None:
    """No cell is bound twice, even in part; unpinned ones are in guaranteed use; no virtual cluster has more than it owns."""
    taken: dict[int, Mask] = defaultdict(int)
    kept = kept_on(state)
    for key, binding in state.bindings.rows.items():
        for node, mask in nodes_in(pools, binding):
            claim(not mask & taken[node], f"cell {key} overlaps another that is bound")
            taken[node] |= mask
        used = bool(binding.pin) or bool(running_in(state, binding)) or bool(coming_to(state, binding, kept))
        claim(used, f"cell {key} is bound and not used")
        claim(binding.vc in state.vcs.rows, f"cell {key} is bound to a virtual cluster that is not there")
    traded = in_force(state.exchanges.rows.values())
    claim(traded == state.exchange_index.in_force, "what windows add to quotas")
    for vc in state.vcs.rows.values():
        for name, pool in pools.pools.items():
            for number, level in enumerate(pool.shape.levels):
                owned = quota_of(vc, name, level) + traded.get((vc.id, name, level), 0)
                bound = len(pool.bound_of(Owner(vc.id), number))
                claim(bound <= owned, f"virtual cluster {vc.name} has {bound} {level} cells of {name}, and owns {owned}")


def _check_exchanges(state: State) -> None:
    """No virtual cluster gives what it does not own, now or at any agreed time; surpluses sum to zero; no deadline was
    missed."""
    now, live = state.cluster.clock_us, list(state.exchanges.rows.values())
    for exchange in live:
        lot, due = exchange.lot, exchange_due(exchange)
        claim({exchange.giver, exchange.taker} <= state.vcs.rows.keys(), f"exchange {exchange.id} is with nobody")
        claim(due is not None and due > now, f"exchange {exchange.id} was to open or close at {due}")
        for at in moments(live, max(now, lot.begin_us), lot.end_us):
            owned = quota_of(state.vcs.rows[exchange.giver], lot.pool, lot.level)
            owned += granted_cells(live, at).get((exchange.giver, lot.pool, lot.level), 0)
            claim(owned >= 0, f"virtual cluster {exchange.giver} gives {-owned} {lot.level} more than it owns, at {at}")
    claim(sum(row.device_us for row in state.surpluses.rows.values()) == 0, "surpluses do not sum to zero")
    for posting in state.postings.rows.values():
        claim(posting.vc in state.vcs.rows, f"posting {posting.id} is nobody's")
        claim(posting.expires_us > now, f"posting {posting.id} has expired at {posting.expires_us} and is on the board")
