"""Share groups as introspection sees them: which of them it may change, and what rows it would give them.

So it does for groups whose members have left: those that remain have longer turns, as there are fewer rows. Members that were
parked for one that outranks them have turns again when that has left.
"""

from collections.abc import Iterable, Mapping, Sequence

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Share
from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import memo_of
from scheduler_service.policies.gandiva.slicing.device_memory import allowances
from scheduler_service.policies.gandiva.slicing.probes import probe_subject
from scheduler_service.policies.gandiva.slicing.rows import Unit, units_of
from scheduler_service.policies.gandiva.slicing.take_turns import rows_of, would_do


def runs_in(state: State, group: ShareGroup) -> dict[RunKey, Run]:
    return {key: state.runs.rows[key] for key in group.members()}


def is_ours(state: State, group: ShareGroup, vc: str) -> bool:
    """Whether the rows are for introspection to change: those of its virtual cluster that no user has chosen, that are not
    being measured, and whose members are not about to stop."""
    if group.vc != vc or group.open:
        return False
    if memo_of(state, probe_subject(vc, group.id)) is not None:
        return False
    return not any(
        key in state.promised_by
        or key.job_id in state.operation_of
        or state.jobs.rows[key.job_id].spec.shares
        or not state.runs.rows[key].phase.preemptible
        for key in group.members()
    )


def arrange_rows(state: State, group: ShareGroup, units: Sequence[Unit], runs: Mapping[RunKey, Run]) -> Share | None:
    """The rows of these units, by who outranks whom, if they can be had."""
    jobs = {key.job_id: state.jobs.rows[key.job_id] for key in runs}
    rows = rows_of(units, jobs)
    for thrifty in (False, True):
        limits = allowances(state, rows, runs, jobs, thrifty)
        if limits is None:
            return None
        share = Share(rows, limits, group.period_us, group.open)
        if would_do(state, (share,)):
            return share
    return None


def devices_of(runs: Mapping[RunKey, Run], job_id: int) -> int:
    return sum(len(run.devices) for key, run in runs.items() if key.job_id == job_id)


def in_rows(rows: Sequence[Row], job_id: int) -> list[int]:
    """The places of the rows in which the job executes."""
    return [i for i, row in enumerate(rows) if any(key.job_id == job_id for key in row.runs)]


def rearrange(state: State, vc: str) -> Proposals:
    """Looks at the groups on nodes on which something has changed."""
    yield from _rearrange(state, vc, {number for node in state.pending.nodes for number in state.groups_on.get(node, ())})


def rearrange_by_rank(state: State, vc: str, nodes: Iterable[int]) -> Proposals:
    """Looks at the groups on these nodes that have rows without turns: the priority of a member may have changed since."""
    numbers = {number for node in nodes for number in state.groups_on.get(node, ())}
    without_turns = {number for number in numbers if not all(row.weight for row in state.share_groups.rows[number].rows)}
    yield from _rearrange(state, vc, without_turns)


def _rearrange(state: State, vc: str, numbers: Iterable[int]) -> Proposals:
    for number in sorted(numbers):
        group = state.share_groups.rows.get(number)
        if group is None or not is_ours(state, group, vc):
            continue
        runs = runs_in(state, group)
        units = units_of(group.rows, runs)
        if rows_of(units, state.jobs.rows) == group.rows:
            continue
        share = arrange_rows(state, group, units, runs)
        if share is not None:
            yield (share,)
