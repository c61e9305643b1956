"""What a step costs where there are cells: a number of calls, which grows neither with the cluster nor with what runs in it."""

from random import Random

from scheduler_service.core.engine import step
from scheduler_service.core.messages import Event, Submitted
from tests.core.test_cells_cost import calls
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, request

POOL = "four-2x2"


def cost(tenants: Tenants, event: Event) -> int:
    """The calls of a step that takes it; the second time, when what is looked up by mask is known."""
    count = 0
    for _ in range(2):
        count = calls(lambda: step(tenants.state, (event,), tenants.now, Random(0), tenants.policy))
        tenants.state.undo()
    return count


def test_jobs_that_overflowed_and_have_to_stay_so_are_not_looked_at() -> None:
    """A's one node is in use, and nobody else's can become A's."""

    def with_overflowing(count: int) -> int:
        tenants = Tenants({f"node-{i:02}": "FOUR" for i in range(24)})
        tenants.vc("A", (POOL, "node", 1))
        tenants.vc("B", (POOL, "node", 4))
        first = tenants.ask("A", 4)
        others = [tenants.ask("A", 2, guarantee=OVERFLOW) for _ in range(count)]
        assert [tenants.guaranteed(job) for job in (first, *others)] == [True] + [False] * count
        return cost(tenants, Submitted("ann", "", request("B", 1)))

    assert with_overflowing(32) <= with_overflowing(4) + 20


def test_those_that_may_yet_be_promoted_are() -> None:
    """Those that stand in A's own cells, and as many others as fit in what A may have bound; none of them is passed by."""
    tenants = Tenants(dict.fromkeys(("one", "two", "three"), "FOUR"))
    tenants.vc("A", (POOL, "switch", 1))
    full = tenants.ask("A", 2)
    large, small = tenants.ask("A", 4, guarantee=OVERFLOW), tenants.ask("A", 2, guarantee=OVERFLOW)
    tenants.end(full)
    assert [tenants.guaranteed(job) for job in (large, small)] == [False, True]
    tenants.change("A", (POOL, "switch", 1), (POOL, "node", 1))
    assert [tenants.guaranteed(job) for job in (large, small)] == [True, True]


def test_a_whole_cell_for_a_opportunistic_job_costs_the_same_in_a_cluster_of_any_size() -> None:
    """One node has two idle devices that are no cell, one is idle, and all others are in use."""

    def of_nodes(count: int) -> int:
        tenants = Tenants({f"node-{i:02}": "FOUR" for i in range(count)})
        tenants.vc("A")
        small = {tenants.at(job)[0]: job for job in [tenants.ask("A", 1, guarantee=OPPORTUNISTIC) for _ in range(4)]}
        last = f"node-{count - 1:02}"
        for _ in range(count - 2):
            tenants.ask("A", 4, guarantee=OPPORTUNISTIC)
        tenants.end(small[f"{last}[0]"], small[f"{last}[2]"])
        whole = request("A", 2, levels=("switch",), guarantee=OPPORTUNISTIC)
        counted = cost(tenants, Submitted("ann", "", whole))
        assert tenants.at(tenants.ask("A", 2, levels=("switch",), guarantee=OPPORTUNISTIC)) == ["node-00[0..1]"]
        return counted

    assert of_nodes(40) <= of_nodes(5) + 20


def test_whom_to_send_away_costs_the_same_however_many_there_are() -> None:
    """Opportunistic jobs hold every device, so that each cell costs as much. So many cells are chosen between, and no more."""

    def of_nodes(count: int) -> int:
        tenants = Tenants({f"node-{i:02}": "FOUR" for i in range(count)})
        tenants.vc("A", (POOL, "device", 2))
        tenants.vc("B")
        for _ in range(count // 10):
            tenants.ask("B", *[2] * 20, guarantee=OPPORTUNISTIC)
        return cost(tenants, Submitted("ann", "", request("A", 1)))

    assert of_nodes(100) <= of_nodes(70) + 20
