"""What must hold of cells after every step (HiveD, section 3)."""

from collections import defaultdict

from scheduler_service.core.binding import coming_to, in_own_cells, kept_on, mask_of_earmark, running_in
from scheduler_service.core.change import with_share
from scheduler_service.core.errors import Broken
from scheduler_service.core.exchange import exchange_due, granted, in_force, moments
from scheduler_service.core.pools import Pools
from scheduler_service.core.state import State
from scheduler_service.core.values import Mask, mask_of
from scheduler_service.core.vc import Guarantee, Owner


def check_cells(state: State, pools: Pools) -> None:
    """Raises Broken, naming the first invariant that does not hold."""
    _check_runs(state)
    _check_kept(state)
    _check_bindings(state, pools)
    _check_exchanges(state)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def _check_runs(state: State) -> None:
    """Guaranteed runs are in cells of their virtual cluster; the tasks of a gang stand alike."""
    standing: dict[int, bool] = {}
    for key, run in state.runs.rows.items():
        job = state.jobs.rows[run.job_id]
        _require(run.vc == job.spec.vc, f"run {key} is of {run.vc!r} and its job of {job.spec.vc!r}")
        _require(standing.setdefault(run.job_id, run.guaranteed) == run.guaranteed, f"job {run.job_id} is guaranteed in part")
        if run.guaranteed and not state.settings.by_count:
            _require(in_own_cells(state, job, run.node, mask_of(run.devices)), f"run {key} is guaranteed outside its cells")


def _check_kept(state: State) -> None:
    """What is kept is kept once, in cells of the job's virtual cluster, and is idle or leaves by way of a victim."""
    kept: dict[int, Mask] = defaultdict(int)
    for operation in state.operations.rows.values():
        mask = mask_of_earmark(operation)
        if not mask:
            continue
        node, job = operation.node, state.jobs.rows[operation.job_id]
        _require(not mask & kept[node], f"earmark {operation.id}: a device is kept twice")
        kept[node] |= mask
        guest = job.spec.guarantee is Guarantee.OPPORTUNISTIC
        inside = state.settings.by_count or guest or in_own_cells(state, job, node, mask)
        _require(inside, f"earmark {operation.id} keeps devices outside the job's cells")
        held = mask & state.held_devices.get(node, 0)
        leaving: Mask = 0
        for key in operation.victims:
            leaving |= mask_of(state.runs.rows[key].devices)
        _require(not held & ~leaving, f"earmark {operation.id}: a device is held by somebody who was not told to leave")
        kept_now = with_share(operation.want, (mask & ~held).bit_count(), mask.bit_count())
        _require(kept_now == operation.kept, f"earmark {operation.id}: devices that are idle")
    _require(kept == state.kept_devices, "devices that are kept")


def _check_bindings(state: State, pools: Pools) -> None:
    """No cell is bound twice, in whole or in part; each unpinned one is in guaranteed use; nobody has more than he owns."""
    taken: dict[int, Mask] = defaultdict(int)
    kept = kept_on(state)
    for key, binding in state.bindings.rows.items():
        for node, mask in pools.inside(binding):
            _require(not mask & taken[node], f"cell {key} overlaps another that is bound")
            taken[node] |= mask
        used = bool(binding.pin) or bool(running_in(state, binding)) or bool(coming_to(state, binding, kept))
        _require(used, f"cell {key} is bound and not used")
        _require(binding.vc in state.vcs.rows, f"cell {key} is bound to a virtual cluster that is not there")
    traded = in_force(state.exchanges.rows.values())
    _require(traded == state.traded.in_force, "what windows add to quotas")
    for vc in state.vcs.rows.values():
        if state.settings.by_count:
            _require(
                state.regular.get(vc.name, 0) <= pools.devices_of(vc), f"virtual cluster {vc.name} has more than its quota"
            )
        for name, pool in pools.pools.items():
            for number, level in enumerate(pool.shape.levels):
                owned = sum(quota.cells for quota in vc.quotas if (quota.pool, quota.level) == (name, level))
                owned += traded.get((vc.id, name, level), 0)
                bound = len(pool.bound_of(Owner(vc.id), number))
                _require(bound <= owned, f"virtual cluster {vc.name} has {bound} {level} cells of {name}, and owns {owned}")


def _check_exchanges(state: State) -> None:
    """Nobody gives what it does not own, now or at any time that is agreed; what some are owed others owe; what is due was seen
    to."""
    now, live = state.cluster.clock_us, list(state.exchanges.rows.values())
    for exchange in live:
        lot, due = exchange.lot, exchange_due(exchange)
        _require({exchange.giver, exchange.taker} <= state.vcs.rows.keys(), f"exchange {exchange.id} is with nobody")
        _require(due is not None and due > now, f"exchange {exchange.id} was to open or close at {due}")
        for at in moments(live, max(now, lot.begin_us), lot.end_us):
            quotas = state.vcs.rows[exchange.giver].quotas
            owned = sum(quota.cells for quota in quotas if (quota.pool, quota.level) == (lot.pool, lot.level))
            owned += granted(live, at).get((exchange.giver, lot.pool, lot.level), 0)
            _require(owned >= 0, f"virtual cluster {exchange.giver} gives {-owned} {lot.level} more than it owns, at {at}")
    _require(sum(row.device_us for row in state.surpluses.rows.values()) == 0, "surpluses do not sum to zero")
    for order in state.orders.rows.values():
        _require(order.vc in state.vcs.rows, f"order {order.id} is nobody's")
        _require(order.expires_us > now, f"order {order.id} has expired at {order.expires_us} and is on the board")
