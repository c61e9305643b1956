"""Who waits for whom in a virtual cluster: a job holds up others only in pools and pins that it could use.

The property is that of `test_precedence.py`, inside virtual clusters: take a job away that waits, and those that would then
start on nodes that it could not use start with the job there, too, unless one before them took that room.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import Accepted, DrainRequested, Event, HoldRequested, Submitted
from scheduler_service.core.model import JobSpec, JobState
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest, Guarantee, VcPolicy
from scheduler_service.policies import registry
from tests.core.driver import Driver
from tests.policies.tenants import Tenants, request
from tests.thorough import examples

FOURS, TWOS = "four-2x2", "ct1-2"
NODES = {"f0": "FOUR", "f1": "FOUR", "f2": "FOUR", "t0": "CT1", "t1": "CT1"}
PINNED = "f1"
SIZES = {FOURS: 4, TWOS: 2}
"""Devices of a node."""
OWNED = {FOURS: 4, TWOS: 2}
"""Devices of the virtual cluster's cells, beside its pin."""
HIGHEST = 9
"""The priority of the head, and of some that run: it does not outrank these."""


class Drawn(NamedTuple):
    closed: frozenset[str]
    """Nodes that are drained before the head comes."""
    running: Sequence[JobSpec]
    head: JobSpec
    others: Sequence[JobSpec]


NAMED = st.sampled_from(({}, {}, {"pool": FOURS}, {"pool": TWOS}, {"pin": "mine"}, {"model": "CT1"}))
STANDING = st.sampled_from((Guarantee.GUARANTEED, Guarantee.GUARANTEED, Guarantee.OVERFLOW, Guarantee.OPPORTUNISTIC))

FULL = {4: {"pool": FOURS}, 2: {"pool": TWOS}, 0: {"pin": "mine"}}
"""All that the virtual cluster has in a pool, or its pin."""


@st.composite
def specs(draw: st.DrawFn, vc: str = "A", priorities: tuple[int, ...] = (0, 0, 1)) -> JobSpec:
    sizes = draw(st.sampled_from(((1,), (1,), (2,), (2,), (4,), (1, 1), (2, 2))))
    guarantee, named = draw(STANDING), draw(NAMED)
    if vc != "A":
        guarantee, named = Guarantee.OPPORTUNISTIC, {}
    elif guarantee is not Guarantee.GUARANTEED and "pin" in named:
        named = {}
    trial, priority = draw(st.integers(0, 2)) == 0, draw(st.sampled_from(priorities))
    return request(vc, *sizes, guarantee=guarantee, trial=trial, priority=priority, **named)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """What the head asks for is mostly in use, by one that it may not have preempted."""
    size, named = draw(st.sampled_from(tuple(FULL.items())))
    full = request("A", size or 4, priority=HIGHEST, trial=True, **named)
    head = request("A", draw(st.integers(1, size or 4)), trial=draw(st.booleans()), **named)
    return Drawn(
        draw(st.frozensets(st.sampled_from(tuple(NODES)), max_size=1)),
        [full, *draw(st.lists(st.one_of(specs(priorities=(0, HIGHEST)), specs("B")), max_size=3))],
        draw(st.one_of(st.just(head), st.just(head), specs())),
        draw(st.lists(specs(), min_size=1, max_size=4)),
    )


def usable(d: Driver, job: JobSpec, closed: frozenset[str]) -> set[int]:
    """The nodes that the job could use if they were empty, and no others: by what it names, and by how much its virtual cluster
    owns there."""
    cells: CellRequest = job.cells
    tasks = [task.devices for task in job.tasks()]
    found = set()
    for name, model in NODES.items():
        pool = FOURS if model == "FOUR" else TWOS
        named = cells.pool in ("", pool) and cells.model in ("", "FOUR" if pool == FOURS else "CT1")
        pinned = name == PINNED
        owned = job.guarantee is not Guarantee.GUARANTEED or sum(tasks) <= (SIZES[FOURS] if cells.pin else OWNED[pool])
        if named and owned and max(tasks) <= SIZES[pool] and pinned == bool(cells.pin) and name not in closed:
            found.add(d.state.node_ids[name])
    return found


def built(of: Drawn, policy: str, with_head: bool) -> tuple[Tenants, int, list[int]] | None:
    """The site after all have come that were not refused: with the head, or with the head held back by its user. None: the head
    was refused."""
    d = Tenants(dict(NODES))
    d.vc("A", (FOURS, "node", 1), (TWOS, "node", 1), pins=[("mine", FOURS, "node", 1)], policy=VcPolicy(policy))
    d.vc("B", (FOURS, "node", 1), (TWOS, "node", 1))
    d.settles = False
    for job in of.running:
        d.step(Submitted("ann", "", job))
    d.begin(*sorted(d.state.active))
    waiting = [job_id for job_id, job in d.state.jobs.rows.items() if job.state is JobState.QUEUED]
    events: list[Event] = [DrainRequested(name, "", "op") for name in sorted(of.closed)]
    d.step(*events, *(HoldRequested(job) for job in waiting))
    head = d.state.cluster.next_job
    events = [Submitted("ann", "", with_changes(of.head, priority=HIGHEST))]
    events += [] if with_head else [HoldRequested(head)]
    first, *replies = d.step(*events, *(Submitted("ann", "", other) for other in of.others)).replies
    if not isinstance(first, Accepted):
        return None
    return d, head, [reply.job_id for reply in replies if isinstance(reply, Accepted) and reply.job_id != head]


def served_on(d: Driver, job: int) -> set[int]:
    """The nodes on which it runs, or is to run as soon as others have left."""
    earmarks = (d.state.earmarks.rows[i] for i in d.state.earmarks_of.get(job, ()))
    return {run.node for run in d.state.runs_of(job)} | {earmark.node for earmark in earmarks}


@pytest.mark.parametrize("policy", registry.for_virtual_clusters())
def test_what_would_start_without_the_head_where_it_could_not_starts_with_it(policy: str) -> None:
    reached = 0

    @settings(max_examples=examples(8))
    @given(drawn())
    def holds(of: Drawn) -> None:
        nonlocal reached
        there_is = built(of, policy, with_head=True)
        there_is_not = built(of, policy, with_head=False)
        if there_is is None or there_is_not is None:
            return
        (d, head, others), (without, _, _) = there_is, there_is_not
        job = d.state.jobs.rows[head]
        if job.state is not JobState.QUEUED or head in d.state.earmarks_of:
            return  # it does not wait
        could = usable(d, job.spec, of.closed)
        taken: set[int] = set()
        for other in others:
            there, here = served_on(without, other), served_on(d, other)
            if there and not there & could:
                reached += 1
                assert here or there & taken, f"job {other} would start on {there} without job {head}, which waits for {could}"
            taken |= here | there

    holds()
    assert reached, "the histories reach what this is about"
