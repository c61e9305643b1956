"""Submits: is a job new, can it ever run, and what does it wait for?"""

from collections.abc import Iterable, Sequence

from scheduler_service.core.allocation.transitions import holds, waits
from scheduler_service.core.errors import AlreadyExists, FailedPrecondition, LookupNeeded, NotFound
from scheduler_service.core.handlers.admission import check_in_cells, limit_of_new_job
from scheduler_service.core.handlers.default_resources import names_all, taken_from, with_default_resources
from scheduler_service.core.handlers.virtual_clusters import pools_of
from scheduler_service.core.messages import Accepted, Submitted
from scheduler_service.core.model import Dependency, Elements, EventKind, Job, JobSpec, JobState
from scheduler_service.core.model.rows import make_row, with_changes
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.core.operations.history import known_from_history
from scheduler_service.core.state.resources import suitable_nodes
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_SUBMITTED = EventKind.SUBMITTED


def submit_requested(state: State, event: Submitted, now: Micros) -> Accepted:
    spec = event.spec
    if event.request_id and (known := state.requests.get((event.user, event.request_id))) is not None:
        check_same_request(state.jobs.rows[known], event)
        return Accepted(known)
    said = ""
    if not names_all(spec):
        spec, said = with_default_resources(state, spec)
    if state.pools is None:
        if spec.vc:
            pools_of(state)
        check_can_ever_run(state, spec)
    else:
        check_in_cells(state, state.pools, spec)
    limit_us = limit_of_new_job(state.settings, spec.job_class, spec.time_limit_us)
    waiting = still_awaited(state, spec.dependencies, event.ends)
    cluster = state.cluster
    job = make_row(
        Job,
        id=cluster.next_job,
        spec=spec,
        user=event.user,
        request_id=event.request_id,
        submitted_us=now,
        priority=spec.priority,
        time_limit_us=limit_us,
        waits_for=waiting,
        elements=Elements() if spec.array else None,
        grace_follows=not event.grace_given,
    )
    if waiting:
        job = with_changes(job, **waits(waiting))
    if state.settings.history_rows:
        job = known_from_history(state, job)
    state.put(state.cluster_table, 0, with_changes(cluster, next_job=job.id + 1))
    state.put(state.jobs, job.id, job)
    limit = f"time limit {limit_us / SECOND:g} s, the site's default" if limit_us != spec.time_limit_us else ""
    log_event(state, now, job.id, _SUBMITTED, text="; ".join(filter(None, (said, limit))))
    return Accepted(job.id)


def check_same_request(known: Job, event: Submitted) -> None:
    """Raises AlreadyExists unless the request_id came with the same spec as at first. A script that is run again from another
    shell inherits another environment, and still means the same job."""
    asked = with_changes(event.spec, inherited=known.spec.inherited)
    first = known.as_submitted()
    if not event.grace_given:
        asked = with_changes(asked, grace_us=first.grace_us)
    if not names_all(asked):
        asked = taken_from(first, asked)
    if first != asked:
        raise AlreadyExists(
            "REQUEST_ID_REUSED",
            f"request_id {known.request_id!r} was already used for job {known.id}, which asks for something else; "
            "take a new request_id for a new job",
            job_id=str(known.id),
        )


def check_can_ever_run(state: State, spec: JobSpec) -> None:
    """Raises FailedPrecondition if the nodes, all of them empty, could not run one of its configurations. As long as there are
    no nodes, no job is refused for its size."""
    is_plain = not (spec.gang or spec.alternatives or spec.cells.pool) and suitable_nodes.asks_nothing(spec)
    if is_plain and (not state.node_ids or state.free_resources.could_ever_fit(spec.demand)):  # nearly always
        return
    for number, one in enumerate(spec.in_each_configuration()):
        where = f"configuration {number}: " if spec.alternatives else ""
        if one.cells.pool:
            raise FailedPrecondition(
                "NO_POOLS",
                f"{where}the site has no virtual clusters, and so no pool {one.cells.pool!r}; name a model of device (--model) "
                "or a label of nodes (--node-label) instead",
                pool=one.cells.pool,
            )
        if state.node_ids:
            _check_nodes(state, one, where)


def _check_nodes(state: State, spec: JobSpec, where: str) -> None:
    _check_named(state, spec, where)
    among, asks, room = state.suitable_for(spec), suitable_nodes.node_requirements(spec), state.free_resources
    kind = "node of this cluster" if asks is None else f"node that {suitable_nodes.describe(asks)}"
    if among is not None and not among.bits:
        raise FailedPrecondition("NO_SUITABLE_NODE", f"{where}there is no {kind}; see `ebb node list` for what there is")
    for demand in dict.fromkeys(group.demand for group in spec.gang) if spec.gang else (spec.demand,):
        if not room.could_ever_fit(demand, among):
            raise FailedPrecondition(
                "NO_NODE_LARGE_ENOUGH",
                f"{where}no {kind} has {describe(demand)}, even when it is empty; "
                "ask for less, or see `ebb node list` for what there is",
            )
    if spec.gang and not room.could_ever_fit_all(spec.tasks(), among):
        raise FailedPrecondition(
            "CLUSTER_TOO_SMALL",
            f"{where}the {len(spec.tasks())} tasks, {describe(spec.demand)} in all, would not fit on this cluster at once, "
            "even when it is empty; ask for fewer or smaller tasks",
        )


def _check_named(state: State, spec: JobSpec, where: str) -> None:
    """Raises NotFound for a device model or a node that does not exist, and names the existing models."""
    model = spec.cells.model
    if model and model not in (known := {traits.model for traits in state.suitable_nodes.traits.values()} - {""}):
        names = ", ".join(sorted(known)) or "none"
        raise NotFound("NO_SUCH_MODEL", f"{where}no node has devices of the model {model!r}; there are: {names}", model=model)
    for name in (*spec.nodes.names, *spec.nodes.excluded):
        if name not in state.node_ids:
            raise NotFound(
                "NO_SUCH_NODE", f"{where}there is no node {name!r}; see `ebb node list` for what there is", node=name
            )


def describe(amount: Vector) -> str:
    """Describe for messages, as in "8 devices, 2 CPUs and 1024 MiB"."""
    return f"{amount.devices} devices, {amount.cpu_milli / 1000:g} CPUs and {amount.memory_mib} MiB"


def still_awaited(
    state: State, dependencies: Sequence[Dependency], ends: Iterable[tuple[int, JobState]]
) -> tuple[Dependency, ...]:
    """The dependencies that are not satisfied yet.

    Raises LookupNeeded for jobs that are not live and whose end is not among `ends`; FailedPrecondition if one can never be
    satisfied.
    """
    if not dependencies:
        return ()
    known = dict(ends)
    missing = tuple(d.job_id for d in dependencies if d.job_id not in state.jobs.rows and d.job_id not in known)
    if missing:
        raise LookupNeeded(missing)
    for dependency in dependencies:
        end = known.get(dependency.job_id)
        if dependency.job_id not in state.jobs.rows and end is not None and not holds(dependency.kind, end):
            raise FailedPrecondition(
                "DEPENDENCY_NEVER",
                f"job {dependency.job_id} has ended as {end.name}, so that what waits for it "
                f"{dependency.kind.name.lower().replace('_', '-')} would never start",
                job_id=str(dependency.job_id),
            )
    return tuple(d for d in dependencies if d.job_id in state.jobs.rows)
