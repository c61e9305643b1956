"""Turns get longer if parks and resumes take too much of them, and shorter again when they do not.

What they take is found by `slicing/switching_cost.py`."""

from collections.abc import Iterable

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Retime
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import memo_of
from scheduler_service.policies.gandiva.share_groups import runs_in
from scheduler_service.policies.gandiva.slicing.probes import probe_subject
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.switching_cost import cost_of, longest_us, period_for, why_retimed


def stretch(state: State, vc: str, nodes: Iterable[int], settings: Settings) -> Proposals:
    """Looks at the share groups that begin on these nodes."""
    found = [(number, node) for node in nodes for number in state.groups_on.get(node, ())]
    for number, node in sorted(found):
        group = state.share_groups.rows[number]
        if group.devices[0][0] == node and _may_change(state, group, vc):
            if group.period_us == settings.period_us and state.switching.rows.keys().isdisjoint(group.members()):
                continue
            cost = cost_of(group.rows, runs_in(state, group), state.switching.rows, longest_us(settings))
            period = period_for(cost, group.period_us, settings)
            if period != group.period_us:
                yield (Retime(number, period, why_retimed(cost, group.period_us, period, settings)),)


def _may_change(state: State, group: ShareGroup, vc: str) -> bool:
    """Whether the turns may be changed now. While a packing is measured, the plan stays as it is. The period is that of the
    policy even if a user chose the rows."""
    if group.vc != vc or sum(row.weight > 0 for row in group.rows) < 2:
        return False
    if memo_of(state, probe_subject(vc, group.id)) is not None:
        return False
    return not any(key in state.promised_by for key in group.members())
