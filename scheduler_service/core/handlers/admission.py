"""Checks of a job at its submit: whether its virtual cluster can ever have what it asks for, so that no job waits forever; and
the time limits of the site: the default for jobs that name none, and the longest that a job may have."""

from collections.abc import Mapping

from scheduler_service.core.cells.feasibility import why_never
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.request import requested_cells
from scheduler_service.core.errors import FailedPrecondition, NotFound, Refused, no_such_vc
from scheduler_service.core.exchange.ownership import most_cells
from scheduler_service.core.model import JobClass, JobSpec
from scheduler_service.core.model.configurations import ANY_NODE
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.resources.cpu_only_jobs import asks_no_cell, could_ever
from scheduler_service.core.state.state import State


def check_in_cells(state: State, pools: Pools, spec: JobSpec) -> None:
    """Raises an error that says why not. A job that may run as opportunistic only has to fit in some pool, all of it idle. As
    long as there are no nodes, no job is refused for its size."""
    vc = _find_vc(state, spec.vc)
    if not spec.alternatives:
        _check_configuration(state, pools, vc, spec, "")
        return
    for number, one in enumerate(spec.in_each_configuration()):
        _check_configuration(state, pools, vc, one, f"configuration {number}: ")


def _check_configuration(state: State, pools: Pools, vc: VirtualCluster, spec: JobSpec, where: str) -> None:
    _check_names(pools, vc, spec, where)
    if not pools.pools:
        return
    loose = spec.guarantee is not Guarantee.GUARANTEED and asks_no_cell(spec)
    if loose and state.host is not None and could_ever(spec, state.host):
        return
    reasons: list[str] = []
    for name in pools.in_order():
        if spec.cells.pool not in ("", name) or spec.cells.model not in ("", pools.models[name]):
            continue
        if spec.device_memory_mib and spec.device_memory_mib > (there := pools.device_memory_mib(name)):
            reasons.append(f"pool {name}: its devices have {there} MiB, and the job asks for {spec.device_memory_mib}")
            continue
        if spec.gpu_memory_mib > (usable := pools.usable_mib(name)):
            reasons.append(
                f"pool {name}: jobs may use {usable} MiB of a device that they share, and it names {spec.gpu_memory_mib}"
            )
            continue
        why = _why_never(state, pools, vc, spec, name)
        if not why:
            return
        reasons.append(f"pool {name}: {why}")
    guaranteed = spec.guarantee is Guarantee.GUARANTEED
    raise FailedPrecondition(
        "NEVER_IN_QUOTA" if guaranteed else "NO_POOL_FITS",
        f"{where}virtual cluster {vc.name} can never have this: {'; '.join(reasons) or 'it owns no cells of such a kind'}. "
        + ("Ask for less, or let the job run as opportunistic (--overflow)" if guaranteed else "Ask for less"),
        vc=vc.name,
    )


def _why_never(state: State, pools: Pools, vc: VirtualCluster, spec: JobSpec, pool: str) -> str:
    shape = pools.pools[pool].shape
    wanted = requested_cells(spec, shape, pools.share(pool))
    if isinstance(wanted, str):
        return wanted
    if spec.guarantee is not Guarantee.GUARANTEED:
        shaped = bool(spec.gang) or any(within.required for within in spec.cells.within)
        return why_never(wanted, shape, (0,) * shape.top + (pools.tops(pool),)) if shaped else ""
    if not spec.cells.pin:
        return why_never(wanted, shape, most_cells(state, pools, vc, pool))
    pin = next(pin for pin in vc.pins if pin.name == spec.cells.pin)
    if pin.pool != pool:
        return f"pin {pin.name} is not in it"
    owned = [int(level == pin.level) for level in shape.levels]
    return why_never(wanted, shape, tuple(owned))


def _find_vc(state: State, name: str) -> VirtualCluster:
    if name in state.vc_ids:
        return state.vcs.rows[state.vc_ids[name]]
    if not name:
        known = ", ".join(sorted(state.vc_ids)) or "none yet"
        raise FailedPrecondition("NO_VC", f"say which virtual cluster the job belongs to (--vc, or EBB_VC); there are: {known}")
    raise no_such_vc(name, state.vc_ids)


def _check_names(pools: Pools, vc: VirtualCluster, spec: JobSpec, where: str) -> None:
    """Refuses pools, models and pins that do not exist, or that this job cannot name."""
    cells = spec.cells
    wrong: Refused | None = None
    if spec.nodes is not ANY_NODE and spec.nodes != ANY_NODE:
        wrong = FailedPrecondition(
            "NODES_BY_CELLS",
            f"{where}the site has virtual clusters, and their cells say on which nodes a job runs; leave out names and labels "
            "of nodes, and name a pool (--pool), a model of device (--model) or a pin (--pin)",
        )
    elif cells.pin and spec.guarantee is not Guarantee.GUARANTEED:
        wrong = FailedPrecondition(
            "PIN_NEEDS_GUARANTEE", "a pinned cell is for guaranteed jobs; leave out the pin, or overflow"
        )
    elif cells.pin and cells.pin not in {pin.name for pin in vc.pins}:
        names = ", ".join(pin.name for pin in vc.pins) or "none"
        wrong = NotFound("NO_SUCH_PIN", f"virtual cluster {vc.name} has no pin {cells.pin!r}; it has: {names}", vc=vc.name)
    elif cells.pool and pools.pools and cells.pool not in pools.pools:
        names = ", ".join(pools.in_order())
        wrong = NotFound("NO_SUCH_POOL", f"{where}there is no pool {cells.pool!r}; there are: {names}", pool=cells.pool)
    elif cells.model and pools.pools and cells.model not in pools.models.values():
        names = ", ".join(sorted({model for model in pools.models.values() if model}))
        wrong = NotFound("NO_SUCH_MODEL", f"{where}there is no device {cells.model!r}; there are: {names}", model=cells.model)
    if wrong is not None:
        raise wrong


CLASS_NAMES: Mapping[JobClass, str] = {JobClass.TRIAL: "trial", JobClass.BEST_EFFORT: "best-effort"}


def limit_of_new_job(settings: Settings, job_class: JobClass, asked_us: Micros) -> Micros:
    """The time limit of a job whose user asks for this one; 0: none. Raises FailedPrecondition if it is too long."""
    if asked_us:
        check_limit(settings, job_class, asked_us)
        return asked_us
    place = _place(job_class)
    return settings.default_time_limits_us[place] or settings.longest_time_limits_us[place]


def check_limit(settings: Settings, job_class: JobClass, limit_us: Micros) -> None:
    """Raises FailedPrecondition if a job of the class may not have this time limit; 0: none."""
    longest_us = settings.longest_time_limits_us[_place(job_class)]
    if longest_us and not 0 < limit_us <= longest_us:
        name, longest = CLASS_NAMES[job_class], f"{longest_us / SECOND:g} s"
        asked = f"a time limit of {limit_us / SECOND:g} s is too long" if limit_us else "a time limit is needed"
        raise FailedPrecondition(
            "TIME_LIMIT_TOO_LONG",
            f"{asked}: {name} jobs of this site may run for {longest} at most (longest_time_limit in the scheduler's "
            f"configuration); ask for {longest} or less, and have a longer job save its work and be submitted again",
            job_class=name,
            longest_s=f"{longest_us / SECOND:g}",
        )


def _place(job_class: JobClass) -> int:
    return 0 if job_class is JobClass.TRIAL else 1
