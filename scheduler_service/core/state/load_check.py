"""Consistency check of rows that are about to be loaded. No commit of Ebb leaves contradictions behind, but a manual change of
the database may, or a partly restored backup; without the check they would show only when two jobs fight for a device.

Cells are not checked here: who owns them depends on the current names of pools (see `startup_repair`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scheduler_service.core.model import Earmark, Job, JobState, Node, NodeState, OperationKind, OperationPhase, Run, RunKey
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.values import ZERO, Mask, Vector, add, fits, mask_of

_INACTIVE = frozenset({JobState.QUEUED, JobState.SUSPENDED})


def contradictions(rows: Iterable[tuple[str, Any, Any]]) -> Iterator[str]:
    """Yield each contradiction, with the jobs and nodes concerned, in one pass over the rows: (table name, key, row)."""
    tables: dict[str, dict[Any, Any]] = defaultdict(dict)
    for name, key, row in rows:
        tables[name][key] = row
    jobs, runs, nodes, kept = tables["job"], tables["run"], tables["node"], tables["earmark"]
    yield from _of_jobs(jobs, runs)
    yield from contradictions_of_groups(tables["share_group"], runs, nodes)
    yield from contradictions_of_operations(tables["operation"], jobs, runs)
    devices: dict[int, set[int]] = defaultdict(set)
    for node, index in tables["device"]:
        devices[node].add(index)
    yield from _of_devices(runs, nodes, devices)
    yield from _of_amounts(runs, nodes, kept)
    yield from _of_earmarks(jobs, runs, nodes, kept)


def _of_jobs(jobs: dict[int, Job], runs: dict[RunKey, Run]) -> Iterator[str]:
    """Check that a job has runs that have not ended exactly when its state says so, all of its last launch."""
    active = set()
    parked = {key.job_id for key, run in runs.items() if run.is_parked}
    for key, run in runs.items():
        job = jobs.get(key.job_id)
        if job is None:
            yield f"run {key} has not ended, and job {key.job_id} has"
        elif run.awaits:
            if key.run <= job.run:
                yield f"run {key} is to follow the one of job {job.id}, which is at run {job.run}"
            continue
        elif key.run != job.run:
            yield f"run {key} has not ended, and job {job.id} is at run {job.run}"
        active.add(key.job_id)
    for job in jobs.values():
        if job.configuration > (last := len(job.spec.alternatives)):
            yield f"job {job.id} is in configuration {job.configuration}, and the last that it has is {last}"
        inactive = (job.state in _INACTIVE and job.id not in parked) or job.elements is not None
        if inactive == (job.id in active):
            yield f"job {job.id} is {job.state.name}, and has {'' if job.id in active else 'no '}runs that have not ended"


def _of_devices(runs: dict[RunKey, Run], nodes: dict[int, Node], devices: dict[int, set[int]]) -> Iterator[str]:
    """Check that each device is held by at most one run or share group, and belongs to its node; so with the CPUs that take the
    place of devices."""
    holders: dict[tuple[int, int], RunKey] = {}
    for key, run in runs.items():
        node = nodes[run.node].name
        if run.demand.devices and (len(run.devices) != run.demand.devices or not devices[run.node].issuperset(run.devices)):
            yield f"run {key} asked for {run.demand.devices} devices of node {node} and holds {list(run.devices)}"
        for index in run.devices:
            other = holders.setdefault((run.node, index), key)
            if other is not key and not (run.group and run.group == runs[other].group):
                what = "device" if run.demand.devices else "CPU"
                yield f"{what} {index} of node {node} is held by run {other} and by run {key}"


def _of_amounts(runs: dict[RunKey, Run], nodes: dict[int, Node], kept: dict[int, Earmark]) -> Iterator[str]:
    """Check that no node has given more than it has."""
    taken: dict[int, Vector] = defaultdict(lambda: ZERO)
    shared: dict[int, set[int]] = defaultdict(set)
    for run in runs.values():
        taken[run.node] = add(taken[run.node], run.charged)
        if run.group:
            shared[run.node].update(run.devices)
    for node_id, devices in shared.items():
        taken[node_id] = add(taken[node_id], Vector(devices=len(devices)))
    for row in kept.values():
        taken[row.node] = add(taken[row.node], row.kept)
    for node_id, amount in taken.items():
        node = nodes[node_id]
        capacity = ZERO if node.state is NodeState.DELETED else node.capacity
        if not fits(amount, capacity):
            has, of_it = _text_of_amount(capacity), _text_of_amount(amount)
            yield f"node {node.name} has {has}, and of it {of_it} are held, or kept for jobs that wait"


def _text_of_amount(amount: Vector) -> str:
    return f"{amount.cpu_milli / 1000:g} CPUs, {amount.memory_mib} MiB and {amount.devices} devices"


def _of_earmarks(
    jobs: dict[int, Job], runs: dict[RunKey, Run], nodes: dict[int, Node], kept: dict[int, Earmark]
) -> Iterator[str]:
    """Check that each earmark is for a waiting job, keeps what no other keeps, and waits for runs that are stopping."""
    held: dict[int, dict[RunKey, Mask]] = defaultdict(dict)
    for key, run in runs.items() if kept else ():
        held[run.node][key] = mask_of(run.devices)
    named: dict[int, Mask] = defaultdict(int)
    for row in kept.values():
        what = f"earmark {row.id}, which keeps a part of node {nodes[row.node].name} for job {row.job_id},"
        job = jobs.get(row.job_id)
        if job is None or job.state is not JobState.QUEUED:
            yield f"{what} is for a job that does not wait"
        elif row.configuration > (last := len(job.spec.alternatives)):
            yield f"{what} is for its configuration {row.configuration}, and the last that it has is {last}"
        for key in row.victims:
            if key not in held[row.node] or not runs[key].phase.exits_soon:
                yield f"{what} waits for run {key}, which is not leaving that node"
        if row.mask & named[row.node]:
            yield f"{what} names a device that is kept for another job"
        named[row.node] |= row.mask
        for key, mask in held[row.node].items():
            if mask & row.mask and key not in row.victims:
                yield f"{what} names a device that run {key} holds, for which it does not wait"


def contradictions_of_groups(
    groups: Mapping[int, ShareGroup], runs: Mapping[RunKey, Run], nodes: Mapping[int, Node]
) -> Iterator[str]:
    """Check that a group and its members name each other, that it holds what they use, and that no other group holds it."""
    used: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for key, run in runs.items():
        if run.group and run.group not in groups:
            yield f"run {key} is in share group {run.group}, and there is no such group"
        elif run.group:
            used[run.group][run.node].update(run.devices)
            if key not in groups[run.group].members():
                yield f"run {key} is in share group {run.group}, which has no row with it"
    holders: dict[tuple[int, int], int] = {}
    for group in groups.values():
        yield from _of_members(group, runs)
        here = used[group.id]
        if group.devices != tuple((node, tuple(sorted(here[node]))) for node in sorted(here)):
            yield f"share group {group.id} holds {_text_of_devices(group.devices, nodes)}, and its members use other devices"
        for node, devices in group.devices:
            for index in devices:
                other = holders.setdefault((node, index), group.id)
                if other != group.id:
                    yield f"device {index} of node {_name(node, nodes)} is held by share groups {other} and {group.id}"


def _of_members(group: ShareGroup, runs: Mapping[RunKey, Run]) -> Iterator[str]:
    for key in group.members():
        run = runs.get(key)
        if run is None or run.group != group.id:
            yield f"share group {group.id} has run {key} in a row, which is not a member"
        elif (run.vc, run.guaranteed) != (group.vc, group.guaranteed):
            yield f"share group {group.id} and run {key} differ in their virtual cluster, or in whether they are guaranteed"


def _text_of_devices(devices: tuple[tuple[int, tuple[int, ...]], ...], nodes: Mapping[int, Node]) -> str:
    return " and ".join(f"devices {list(indices)} of node {_name(node, nodes)}" for node, indices in devices) or "nothing"


def _name(node: int, nodes: Mapping[int, Node]) -> str:
    row = nodes.get(node)
    return row.name if row is not None else f"{node}, which is not there"


def contradictions_of_operations(
    operations: Mapping[int, Operation], jobs: Mapping[int, Job], runs: Mapping[RunKey, Run]
) -> Iterator[str]:
    """Check that a job has at most one operation, and that it changes the job's launch."""
    active = {(key.job_id, key.run) for key in runs}
    other: dict[int, int] = {}
    for row in operations.values():
        first = other.setdefault(row.job_id, row.id)
        if first != row.id:
            yield f"job {row.job_id} has two operations, {first} and {row.id}"
        job = jobs.get(row.job_id)
        if job is None:
            yield f"operation {row.id} is of job {row.job_id}, which has ended"
        elif row.kind is OperationKind.RESIZE and row.phase is not OperationPhase.SAVING:
            waits = row.phase is OperationPhase.WAITING
            if waits != ((row.job_id, job.run) not in active) or waits != (job.state is JobState.QUEUED):
                yield f"operation {row.id} is {row.phase.name}, and job {row.job_id} is {job.state.name} at run {job.run}"
        elif (row.job_id, job.run) not in active or job.run not in (row.source.run, row.target.run if row.target else 0):
            yield f"operation {row.id} changes run {row.source}, which has ended"
        if row.target is not None and row.target not in runs:
            yield f"operation {row.id} goes to run {row.target}, which has ended"
