"""New rows for share groups whose members have left: those that remain have longer turns, as there are fewer rows. Members that
were parked for one that outranks them have turns again when that has left."""

from collections.abc import Iterable

from scheduler_service.core.engine import Proposals
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.share_groups import arranged, is_ours, runs_in
from scheduler_service.policies.gandiva.slicing.rows import units_of
from scheduler_service.policies.gandiva.slicing.take_turns import rows_of


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
        share = arranged(state, group, units, runs)
        if share is not None:
            yield (share,)
