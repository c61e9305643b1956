"""When members of a share group leave, those that are left take turns anew: with fewer rows, each has a longer turn."""

from scheduler_service.core.engine import Proposals
from scheduler_service.core.state.state import State
from scheduler_service.policies.introspection.groups import arranged, is_ours, runs_in
from scheduler_service.policies.overload.rows import fair_rows, units_of


def rearrange(state: State, vc: str) -> Proposals:
    """Looks at the groups on nodes on which something has changed."""
    if not state.share_groups.rows:
        return
    numbers = sorted({number for node in state.stirred for number in state.groups_on.get(node, ())})
    for number in numbers:
        group = state.share_groups.rows.get(number)
        if group is None or not is_ours(state, group, vc):
            continue
        runs = runs_in(state, group)
        units = units_of(group.rows, runs)
        if fair_rows(units) == group.rows:
            continue
        share = arranged(state, group, units, runs)
        if share is not None:
            yield (share,)
