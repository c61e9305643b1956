"""Packing is for overload alone (Gandiva, section 4.2.2): if devices of a server are idle, no job waits and none takes turns
there, a packed job has them to itself. The packed jobs that do the least together come first."""

from collections.abc import Generator, Iterator

from scheduler_service.core.messages import Plan, Remember
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import Round
from scheduler_service.policies.gandiva.migration import (
    first_waiting,
    may_move,
    moved_subject,
    name_of,
    onto_idle,
    under_way,
)
from scheduler_service.policies.gandiva.packing import learnt_verdict
from scheduler_service.policies.gandiva.share_groups import is_ours, runs_in
from scheduler_service.policies.gandiva.slicing.probes import NAME
from scheduler_service.policies.gandiva.slicing.rows import units_of
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import would_do
from scheduler_service.policies.stages import Where


def unpack(state: State, where: Where, nodes: range, now: Round, settings: Settings) -> Generator[Plan, str | None, Round]:
    """Move at most one job of each of these servers. Returns the round with what is left of its hour."""
    now = now.with_hour_at(state.cluster.clock_us)
    if any(first_waiting(state, where.vc)):
        return now
    for node in nodes:
        if now.moves >= settings.moves_per_hour:
            break
        if not state.idle_devices.get(node, 0) or under_way(state, node) or not state.free_resources.is_open(node):
            continue
        for plan in _leaving(state, where, node, settings):
            if would_do(state, plan) and (yield plan) is None:
                now = now._replace(moves=now.moves + 1)
                break
    return now


def _leaving(state: State, where: Where, node: int, settings: Settings) -> Iterator[Plan]:
    idle, packed = state.idle_devices.get(node, 0).bit_count(), list[tuple[int, int]]()
    for number in sorted(state.groups_on.get(node, ())):
        group = state.share_groups.rows[number]
        if len(group.rows) > 1:
            return
        if is_ours(state, group, where.vc):
            for unit in units_of(group.rows, runs_in(state, group)):
                known = learnt_verdict(state, group.vc, unit.jobs[:1], unit.jobs[1:]) if len(unit.jobs) > 1 else None
                packed += [(known[1] if known else 0, job_id) for job_id in unit.jobs if len(unit.jobs) > 1]
    for _, job_id in sorted(packed, key=lambda each: (each[0], -each[1])):
        job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
        if len(runs) == 1 and runs[0].demand.devices <= idle and may_move(state, where.vc, job, settings):
            why = f"it is packed with others, and devices of {name_of(state, node)} are idle that nobody waits for"
            if (plan := onto_idle(state, where, job, runs, node, why)) is not None:
                yield (*plan, Remember(NAME, moved_subject(job_id), (state.cluster.clock_us,), job_id))
