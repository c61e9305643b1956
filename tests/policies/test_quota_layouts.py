"""A new quota demotes a guaranteed run only if no layout of the virtual clusters' cells spares all of them."""

from collections.abc import Iterator, Mapping
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.messages import Accepted, VcChanged, VcRequested
from scheduler_service.core.model.tenants.virtual_clusters import Owner, Quota
from scheduler_service.core.model.values import mask_of
from tests.policies.tenants import Tenants
from tests.thorough import examples

FOURS = "four-2x2"
NODE, SWITCH, DEVICE = (FOURS, "node"), (FOURS, "switch"), (FOURS, "device")


def made(t: Tenants, name: str, *quotas: tuple[str, str, int], create: bool = True) -> VcChanged:
    answer = t.reply(VcRequested(name, create, tuple(Quota(*quota) for quota in quotas)))
    assert isinstance(answer, VcChanged), answer
    return answer


def split_over_nodes() -> tuple[Tenants, list[int]]:
    """A owns a node and two devices, and has a run of one device on each of two nodes; the third node is empty."""
    t = Tenants(dict.fromkeys(("one", "two", "three"), "FOUR"))
    t.vc("A", (*NODE, 1), (*DEVICE, 2))
    t.vc("filler", (*DEVICE, 3))
    first = t.ask("A", 1)
    filler = [t.ask("filler", 1) for _ in range(3)]
    second = t.ask("A", 1)
    t.end(*filler)
    t.delete("filler")
    assert t.at(first)[0][:3] != t.at(second)[0][:3]
    return t, [first, second]


def test_cells_are_laid_out_otherwise_rather_than_a_run_demoted() -> None:
    t, jobs = split_over_nodes()
    where = [t.at(job) for job in jobs]
    assert made(t, "B", (*NODE, 1)).demoted == ()
    assert [t.guaranteed(job) for job in jobs] == [True, True]
    assert [t.at(job) for job in jobs] == where
    assert t.guaranteed(t.ask("B", 4)), "what was promised can be had"
    assert t.guaranteed(t.ask("A", 1)), "and what A owns still"


def test_the_runs_that_lose_their_guarantee_are_said_where_nothing_else_does() -> None:
    t = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    t.vc("A", (*DEVICE, 2))
    t.vc("filler", (*DEVICE, 3))
    first = t.ask("A", 1)
    filler = [t.ask("filler", 1) for _ in range(3)]
    second = t.ask("A", 1)
    t.end(*filler)
    t.delete("filler")
    changed = made(t, "B", (*NODE, 1))
    assert len(changed.demoted) == 1
    assert [t.guaranteed(first), t.guaranteed(second)].count(False) == 1
    (lost,) = changed.demoted
    assert not t.guaranteed(lost.job_id)


# ---- against all layouts ----------------------------------------------------------------------------------------------------


def covers(shape: Shape, level: int, cell: int, used: set[int], others: set[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every way to have these leaves inside cells, (level, index), that have no leaf of others."""
    size = shape.size(level)
    leaves = set(range(cell * size, (cell + 1) * size))
    if not leaves & used:
        yield ()
        return
    if not leaves & others:
        yield ((level, cell),)
    if level:
        fan = size // shape.size(level - 1)
        parts = [list(covers(shape, level - 1, cell * fan + part, used, others)) for part in range(fan)]
        for chosen in product(*parts):
            yield tuple(one for part in chosen for one in part)


def layouts(t: Tenants, new: Mapping[str, Mapping[int, int]]) -> Iterator[dict[Owner, tuple[tuple[int, int], ...]]]:
    """Every layout in which no run is moved or loses its guarantee, and nobody has more cells than it owns."""
    state = t.state
    assert state.pools is not None
    pool, nodes = state.pools.pools[FOURS], {node: slot for slot, node in state.pools.nodes[FOURS].items()}
    shape = pool.shape
    used: dict[str, set[int]] = {name: set() for name in new}
    for run in state.runs.rows.values():
        if run.guaranteed:
            used[run.vc] |= {nodes[run.node] * shape.devices + device for device in run.devices}
            assert mask_of(run.devices)
    tops = range(len(nodes) * shape.devices // shape.size(shape.top))
    choices = []
    for name, owned in new.items():
        others = set().union(*(leaves for other, leaves in used.items() if other != name))
        ways = []
        for chosen in product(*(list(covers(shape, shape.top, top, used[name], others)) for top in tops)):
            cells = tuple(one for part in chosen for one in part)
            if all(sum(level == at for level, _ in cells) <= owned.get(at, 0) for at in range(shape.top + 1)):
                ways.append(cells)
        choices.append(ways)
    for chosen in product(*choices):
        yield {Owner(number): cells for number, cells in enumerate(chosen, 1)}


def some_layout_does(t: Tenants, new: Mapping[str, Mapping[int, int]]) -> bool:
    assert t.state.pools is not None
    shape = t.state.pools.pools[FOURS].shape
    for layout in layouts(t, new):
        pool = Pool(shape, "")
        for slot in t.state.pools.nodes[FOURS]:
            pool.set_node(slot, (1 << shape.devices) - 1)
        for owner, owned in zip(layout, new.values(), strict=True):
            for level, count in owned.items():
                pool.set_quota(owner, level, count)
        for owner, cells in layout.items():
            for level, index in cells:
                pool.bind(level, index, owner)
        if not any(pool.shortfall()):
            return True
    return False


def quotas(*owned: tuple[int, int, int]) -> st.SearchStrategy[dict[str, int]]:
    """Nodes, switches and devices."""
    return st.sampled_from(owned).map(lambda counts: dict(zip(("node", "switch", "device"), counts, strict=True)))


@settings(max_examples=examples(50))
@given(
    nodes=st.sampled_from((3, 3, 2)),
    first=quotas((1, 0, 2), (1, 0, 2), (1, 1, 1), (0, 1, 2), (0, 2, 3)),
    second=quotas((0, 0, 3), (0, 1, 1), (1, 0, 1)),
    asked=st.sampled_from(("ABBBA", "ABBBAA", "AABAB", "ABABAB")).flatmap(st.permutations),
    two=st.integers(0, 8),
    leave=st.sampled_from(("B", "B", "A", "")),
    stay=st.integers(0, 8),
    third=quotas((1, 0, 0), (1, 0, 2), (0, 1, 0), (0, 2, 1), (1, 1, 0)),
    grows=st.sampled_from(("C", "C", "A")),
)
def test_nobody_is_demoted_if_some_layout_spares_all(
    nodes: int,
    first: dict[str, int],
    second: dict[str, int],
    asked: list[str],
    two: int,
    leave: str,
    stay: int,
    third: dict[str, int],
    grows: str,
) -> None:
    """Jobs of one device, but perhaps for one of two; then those of one virtual cluster leave, but perhaps for one."""
    t = Tenants(dict.fromkeys(("one", "two", "three")[:nodes], "FOUR"))
    given_ = {"A": first, "B": second}
    for name, owned in given_.items():
        answer = t.reply(VcRequested(name, True, tuple(Quota(FOURS, level, count) for level, count in owned.items() if count)))
        if not isinstance(answer, VcChanged):
            return  # there are too few cells for both
    replies = [t.asked(name, 2 if place == two else 1) for place, name in enumerate(asked)]
    jobs = [reply.job_id for reply in replies if isinstance(reply, Accepted)]
    t.begin(*jobs)
    for place, job in enumerate(jobs):
        if place != stay and job in t.state.jobs.rows and t.job(job).spec.vc == leave and t.state.runs_of(job):
            t.end(job)
    if grows == "A":
        third = {level: max(count, first[level]) for level, count in third.items()}
    every = {**given_, grows: third}
    assert t.state.pools is not None
    levels = t.state.pools.pools[FOURS].shape.levels
    wanted = {name: {levels.index(level): count for level, count in owned.items()} for name, owned in every.items()}
    spares = some_layout_does(t, wanted)
    answer = t.reply(
        VcRequested(grows, grows == "C", tuple(Quota(FOURS, level, count) for level, count in third.items() if count))
    )
    if isinstance(answer, VcChanged):
        assert bool(answer.demoted) != spares, f"{answer.demoted} were demoted"
    else:
        assert not spares
