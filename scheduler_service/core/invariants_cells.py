"""What must hold of cells after every step (HiveD, section 3)."""

from collections import defaultdict

from scheduler_service.core.binding import mask_of_earmark, owned
from scheduler_service.core.cells.around import unbound
from scheduler_service.core.errors import Broken
from scheduler_service.core.pools import Pools, level_of
from scheduler_service.core.state import State
from scheduler_service.core.values import Mask, mask_of
from scheduler_service.core.vc import Owner


def check_cells(state: State, pools: Pools) -> None:
    """Raises Broken, naming the first invariant that does not hold."""
    _check_runs(state)
    _check_kept(state)
    _check_bindings(state, pools)


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
            _require(owned(state, job, run.node, mask_of(run.devices)), f"run {key} is guaranteed outside its cells")


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
        inside = state.settings.by_count or owned(state, job, node, mask)
        _require(inside, f"earmark {operation.id} keeps devices outside the job's cells")
        held = mask & state.held_devices.get(node, 0)
        leaving: Mask = 0
        for key in operation.victims:
            leaving |= mask_of(state.runs.rows[key].devices)
        _require(not held & ~leaving, f"earmark {operation.id}: a device is held by somebody who was not told to leave")
        _require((mask & ~held).bit_count() == operation.kept.devices, f"earmark {operation.id}: devices that are idle")
    _require(kept == state.kept_devices, "devices that are kept")


def _check_bindings(state: State, pools: Pools) -> None:
    """No cell is bound twice, in whole or in part; each unpinned one is in guaranteed use; nobody has more than he owns."""
    taken: dict[int, Mask] = defaultdict(int)
    for key, binding in state.bindings.rows.items():
        used = False
        for node, mask in pools.inside(binding):
            _require(not mask & taken[node], f"cell {key} overlaps another that is bound")
            taken[node] |= mask
            used = used or bool(mask & (state.guaranteed_devices.get(node, 0) | state.kept_devices.get(node, 0)))
        _require(used or bool(binding.pin), f"cell {key} is bound and not used")
        _require(binding.vc in state.vcs.rows, f"cell {key} is bound to a virtual cluster that is not there")
    for vc in state.vcs.rows.values():
        if state.settings.by_count:
            _require(
                state.regular.get(vc.name, 0) <= pools.devices_of(vc), f"virtual cluster {vc.name} has more than its quota"
            )
        for quota in vc.quotas:
            pool = pools.pools.get(quota.pool)
            level = None if pool is None else level_of(pool.shape, quota.level)
            if pool is not None and level is not None:
                _require(unbound(pool, Owner(vc.id), level) >= 0, f"virtual cluster {vc.name} has more {quota} than it owns")
