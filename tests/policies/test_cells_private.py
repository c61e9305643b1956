"""Each tenant has what its private cluster would give it: the same requests and ends there and on the shared cluster.

The private cluster is brute force: the tenant's own cells as plain sets of leaves. What runs on the shared cluster is mapped
into it: a bound cell is one of the tenant's cells of that level, and where its tasks are inside it is where they are here.
For each request every placement is tried. Where there is one, the shared cluster must have bound the cells in that decision,
whatever the other tenants, opportunistic work and, within the spare, faults do.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import CancelRequested, FaultsSeen
from scheduler_service.core.model import JobState, RunPhase
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Within
from tests.policies.cells_watch import begins, head
from tests.policies.plain_cells import Plain, short
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants
from tests.thorough import examples

LEVELS = ("device", "switch", "node", "rack")
SIZES = {"device": 1, "switch": 2, "node": 4, "rack": 8}
MINE, OTHER = "A", "B"

Cell = tuple[str, tuple[str, int] | int]
"""One of the tenant's cells: its level, and what it is bound to or its number."""
Free = dict[Cell, frozenset[int]]
"""The leaves of each that are not in use, counted from its first."""


class Shared:
    """Two racks or three of two nodes of four devices; tenants A and B; a spare rack where devices break."""

    def __init__(self, mine: Counter[str], other: Counter[str], racks: int) -> None:
        names = tuple(f"n{i}" for i in range(2 * racks))
        self.plain = Plain("p", LEVELS, (1, 2, 4, 8), 2, names)
        self.tenants = Tenants(dict.fromkeys(names, "FOUR"), [PoolPlan("p", names, (("rack", 2),))], bad_node_strikes=0)
        self.mine = mine
        for name, quotas in ((MINE, mine), (OTHER, other)):
            self.tenants.vc(name, *(("p", level, count) for level, count in quotas.items()))

    def private(self) -> Free:
        """The tenant's cells, and which of their leaves no guaranteed job of its has."""
        state, plain = self.tenants.state, self.plain
        used = set()
        for node, mask in state.guaranteed_devices.items():
            used |= {plain.leaf(state.nodes.rows[node].name, device) for device in range(4) if mask >> device & 1}
        for earmark in state.earmarks.rows.values():
            name = state.nodes.rows[earmark.node].name
            used |= {plain.leaf(name, device) for devices in earmark.devices for device in devices}
        free: Free = {}
        left = Counter(self.mine)
        for (_, level, index), row in state.bindings.rows.items():
            if state.vcs.rows[row.vc].name == MINE:
                left[level] -= 1
                first = index * SIZES[level]
                free[level, ("bound", index)] = frozenset(i for i in range(SIZES[level]) if first + i not in used)
        for level, count in left.items():
            assert count >= 0, f"more {level} cells than it owns"
            free |= {(level, number): frozenset(range(SIZES[level])) for number in range(count)}
        return free


def fits(free: Free, tasks: list[int], within: str = "", whole: str = "") -> bool:
    """Whether there is any way at all to place the tasks, all of them in one cell of a level if one is named."""
    if not within:
        return _all_fit(_nodes(free), tasks, whole)
    domains: list[list[frozenset[int]]] = []
    for (level, _), leaves in free.items():
        size = SIZES[within]
        if SIZES[level] >= size:
            domains += [
                _split(frozenset(i for i in leaves if first <= i < first + size)) for first in range(0, SIZES[level], size)
            ]
    return any(_all_fit(domain, tasks, whole) for domain in domains)


def _nodes(free: Free) -> list[frozenset[int]]:
    return [node for leaves in free.values() for node in _split(leaves)]


def _split(leaves: frozenset[int]) -> list[frozenset[int]]:
    """By node: a task never spans two."""
    return [part for first in (0, 4) if (part := frozenset(i for i in leaves if first <= i < first + 4))]


def _all_fit(nodes: list[frozenset[int]], tasks: list[int], whole: str) -> bool:
    if not tasks:
        return True
    for at, node in enumerate(nodes):
        for chosen in _choices(node, tasks[0], whole):
            if _all_fit([*nodes[:at], node - chosen, *nodes[at + 1 :]], tasks[1:], whole):
                return True
    return False


def _choices(node: frozenset[int], size: int, whole: str) -> Iterator[frozenset[int]]:
    if whole:
        cells = (frozenset(range(first, first + SIZES[whole])) for first in range(0, 8, SIZES[whole]))
        yield from (cell for cell in cells if cell <= node)
    else:
        yield from map(frozenset, combinations(sorted(node), size))


QUOTAS = st.fixed_dictionaries(
    {"device": st.integers(0, 3), "switch": st.integers(0, 2), "node": st.integers(0, 2), "rack": st.integers(0, 1)}
).map(Counter)


def _leaves(quotas: Counter[str]) -> int:
    return sum(SIZES[level] * count for level, count in quotas.items())


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck), print_blob=False)
@given(data=st.data(), mine=QUOTAS.filter(bool), other=QUOTAS, faulty=st.booleans())
def test_a_request_that_the_private_cluster_could_serve_is_served(
    data: st.DataObject, mine: Counter[str], other: Counter[str], faulty: bool
) -> None:
    if not _leaves(mine):
        return
    racks = -(-(_leaves(mine) + _leaves(other)) // 8) + faulty
    shared = Shared(mine, other, racks)
    served = 0
    for _ in range(25):
        what = data.draw(st.sampled_from(("mine", "mine", "mine", "ends", "ends", "other", "guests", "leave", "fault")))
        if what == "mine":
            served += _mine_asks(shared, data)
        elif what == "fault":
            if faulty:
                _one_breaks(shared, data)
        else:
            _noise(shared, data, what)


def _mine_asks(shared: Shared, data: st.DataObject) -> bool:
    tenants = shared.tenants
    whole = data.draw(st.sampled_from(("", "", *LEVELS[:3])))
    if whole:
        tasks, within = [SIZES[whole]], ""
    else:
        tasks = data.draw(st.lists(st.sampled_from((1, 1, 2, 3, 4)), min_size=1, max_size=3))
        within = data.draw(st.sampled_from(("", "", *LEVELS[1:])))
    could = not any(short(tenants.state, shared.plain)) and fits(shared.private(), tasks, within, whole)
    wants = {"levels": (whole,)} if whole else {}
    reply = tenants.asked(MINE, *tasks, within=Within(within) if within else (), **wants)
    if isinstance(reply, Exception):
        assert not could, f"{tasks} {within} {whole} was refused: {reply}"
        return False
    tenants.begin(reply.job_id)
    job = tenants.job(reply.job_id)
    if not begins(tenants.state, job):
        assert not could, f"{tasks} {within} {whole} waits, though there is room in {shared.private()}"
        tenants.step(CancelRequested(job.id))  # as on the private cluster: what could not be served is not there
        return False
    return True


def _noise(shared: Shared, data: st.DataObject, what: str) -> None:
    tenants, state = shared.tenants, shared.tenants.state
    if what == "ends":
        over = [job.id for job in state.jobs.rows.values() if job.state is JobState.RUNNING]
        if over:
            tenants.end(data.draw(st.sampled_from(sorted(over))))
    elif what == "other":
        if head(state, OTHER) is None:
            reply = tenants.asked(OTHER, data.draw(st.sampled_from((1, 2, 3, 4))), guarantee=OVERFLOW)
            tenants.begin(*() if isinstance(reply, Exception) else (reply.job_id,))
    elif what == "guests":
        for _ in range(data.draw(st.integers(1, 6))):
            reply = tenants.asked(OTHER, data.draw(st.sampled_from((1, 2, 4))), guarantee=OPPORTUNISTIC)
            tenants.begin(*() if isinstance(reply, Exception) else (reply.job_id,))
    else:
        told = {key.job_id for key, run in state.runs.rows.items() if run.phase is RunPhase.STOPPING}
        if told:
            tenants.leave(data.draw(st.sampled_from(sorted(told))))


def _one_breaks(shared: Shared, data: st.DataObject) -> None:
    """A device of a node on which nothing guaranteed is, no more than the spare covers; or it is well again."""
    state = shared.tenants.state
    node = data.draw(st.sampled_from(sorted(state.nodes.rows)))
    row = state.nodes.rows[node]
    if state.guaranteed_devices.get(node) or state.kept_devices.get(node):
        return
    broken = [(0, "XID 79")] if data.draw(st.booleans()) else []
    others = [at for at, mask in state.faulty_devices.items() if at != node]
    if not (broken and others):
        shared.tenants.step(FaultsSeen(row.name, row.boot_id, tuple(broken)))


@pytest.mark.parametrize(
    ("tasks", "within", "whole", "expected"),
    [
        ([4], "", "", True),
        ([2, 1], "switch", "", False),
        ([4, 4], "rack", "", False),
        ([2], "", "switch", True),
        ([3, 3], "", "", False),
    ],
)
def test_the_brute_force_itself(tasks: list[int], within: str, whole: str, expected: bool) -> None:
    free: Free = {("node", 0): frozenset(range(4)), ("node", 1): frozenset({0, 3})}
    assert fits(free, tasks, within, whole) is expected
