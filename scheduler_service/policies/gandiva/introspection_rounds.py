"""The introspective mode (Gandiva, section 4.2.2): every period, each server is looked at once, a part of the servers at a
time, so that no step takes long."""

from collections.abc import Generator

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Plan
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.growing import grow
from scheduler_service.policies.gandiva.memos import Round, forget, memo_of, remember_round, round_of, round_subject
from scheduler_service.policies.gandiva.migration import move, wanted_on_site
from scheduler_service.policies.gandiva.migration_in_cells import wanted_in
from scheduler_service.policies.gandiva.migration_to_pack import move_to_pack
from scheduler_service.policies.gandiva.packing import begin, judge, pairs
from scheduler_service.policies.gandiva.row_rotation import rotate
from scheduler_service.policies.gandiva.share_groups import rearrange_by_rank
from scheduler_service.policies.gandiva.slice_period import stretch
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.unpacking import unpack
from scheduler_service.policies.stages import Where

PART = 16
"""Servers that are looked at in one step."""
BEGUN = 4
"""Probes that begin in one step, at most."""


def look_at_servers(state: State, where: Where, settings: Settings) -> Proposals:
    """Looks at the next part of the servers, if it is time."""
    vc = where.vc
    memo = memo_of(state, round_subject(vc))
    runs = vc in state.guaranteed_runs or vc in state.opportunistic_runs if vc else bool(state.runs.rows)
    if memo is None:
        if runs:
            yield (remember_round(vc, Round(), _next_look(state, settings)),)
        return
    if not memo.due:
        return
    now = round_of(memo)
    count = state.free_resources.count
    first = now.part * PART + 1
    nodes = range(first, min(first + PART, count + 1))
    yield from rearrange_by_rank(state, vc, nodes)
    yield from stretch(state, vc, nodes, settings)
    probes = yield from _judge(state, vc, nodes, now.probes, settings)
    if settings.packing and settings.migration and settings.pack_moves:
        now = yield from move_to_pack(state, vc, nodes, now, settings)
    if settings.packing:
        probes += yield from _begin(state, vc, nodes, settings)
    if settings.growth:
        yield from grow(state, where, nodes, settings)
    if settings.migration:
        wanted = wanted_in(state, where, nodes, settings) if vc else wanted_on_site(state, nodes, settings)
        now = yield from move(state, vc, wanted, now, settings)
    if settings.migration and settings.rotate:
        yield from rotate(state, where, nodes, settings)
    if settings.packing and settings.migration and settings.pack_moves:
        now = yield from unpack(state, where, nodes, now, settings)
    part = now.part + 1 if first + PART <= count else 0
    if runs or probes:
        yield (remember_round(vc, now._replace(part=part, probes=tuple(probes)), _next_look(state, settings)),)
    else:
        yield (forget(round_subject(vc)),)


def _next_look(state: State, settings: Settings) -> int:
    parts = max(-(-state.free_resources.count // PART), 1)
    return state.cluster.clock_us + settings.period_us // parts


def _judge(
    state: State, vc: str, nodes: range, probes: tuple[int, ...], settings: Settings
) -> Generator[Plan, str | None, list[int]]:
    """Judge the probes on these nodes, and end those whose share group no longer exists. Returns the probes that continue."""
    left = []
    for number in probes:
        group = state.share_groups.rows.get(number)
        elsewhere = group is not None and group.devices[0][0] not in nodes
        plan = None if elsewhere else judge(state, vc, number, settings)
        if plan is None:
            left.append(number)
        elif plan:
            yield plan
    return left


def _begin(state: State, vc: str, nodes: range, settings: Settings) -> Generator[Plan, str | None, list[int]]:
    """Returns the share groups whose rows are probes now."""
    here = [(node, number) for node in nodes for number in state.groups_on.get(node, ())]
    groups = {number for node, number in here if state.share_groups.rows[number].devices[0][0] == node}
    begun = []
    for pair in pairs(state, vc, sorted(groups), settings):
        plan = begin(state, pair, settings)
        if plan is not None and (yield plan) is None:
            begun.append(pair.group)
            if len(begun) == BEGUN:
                break
    return begun
