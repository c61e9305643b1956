"""The search for a job's cells: what it must not overlook, and what it must not cost."""

import pytest

from scheduler_service.core.messages import Accepted, FaultsSeen, Submitted
from scheduler_service.core.model import JobSpec, JobState, Reason, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy, Within
from scheduler_service.core.model.values import ZERO, Vector, add, times
from tests.policies.tenants import OPPORTUNISTIC, Tenants, request
from tests.policies.test_cells_cost import cost


def fours(count: int, *above: tuple[str, int]) -> Tenants:
    """Nodes of four devices, n1 and on, in cells of their own above."""
    names = tuple(f"n{number}" for number in range(1, count + 1))
    return Tenants(dict.fromkeys(names, "FOUR"), [PoolPlan("p", names, above)])


def grouped(vc: str, *groups: tuple[int, int], within: tuple[Within, ...] = (), priority: int = 0) -> JobSpec:
    """A gang of groups: so many tasks of so many devices."""
    gang = tuple(TaskGroup(count, Vector(1000, 64, devices)) for count, devices in groups)
    demand = ZERO
    for group in gang:
        demand = add(demand, times(group.demand, group.size))
    return with_changes(request(vc, 1, within=within, priority=priority), demand=demand, gang=gang)


def submit(tenants: Tenants, spec: JobSpec) -> int:
    answer = tenants.reply(Submitted("ann", "", spec))
    assert isinstance(answer, Accepted), answer
    tenants.begin(answer.job_id)
    return answer.job_id


# ---- cells of which part is faulty -------------------------------------------------------------------------------------


def test_a_partly_faulty_cell_that_does_not_do_hides_no_whole_one() -> None:
    tenants = fours(4, ("rack", 2))
    tenants.vc("A", ("p", "rack", 2))
    for name in ("n1", "n2"):
        tenants.step(FaultsSeen(name, "a", ((0, "XID 79"), (1, "XID 79"))))
    assert tenants.at(tenants.ask("A", 4)) == ["n3[0..3]"]
    assert tenants.at(tenants.ask("A", 4)) == ["n4[0..3]"]
    assert tenants.at(tenants.ask("A", 2)) == ["n1[2..3]"]


def test_nor_another_partly_faulty_one() -> None:
    tenants = fours(2)
    tenants.vc("A", ("p", "node", 2))
    tenants.step(FaultsSeen("n1", "a", ((1, "XID 79"), (3, "XID 79"))))
    tenants.step(FaultsSeen("n2", "a", ((0, "XID 79"), (1, "XID 79"))))
    assert tenants.at(tenants.ask("A", 2, levels=("switch",))) == ["n2[2..3]"]


def test_tasks_that_are_to_be_together_are_not_held_up_by_a_faulty_cell() -> None:
    tenants = fours(2)
    tenants.vc("A", ("p", "node", 2))
    tenants.step(FaultsSeen("n1", "a", ((0, "XID 79"), (2, "XID 79"))))
    assert tenants.at(tenants.ask("A", 1, 1, within="switch")) == ["n2[0]", "n2[1]"]


def test_nobody_has_to_leave_where_another_cell_is_whole() -> None:
    tenants = fours(3)
    tenants.vc("A", ("p", "node", 3), policy=VcPolicy("priority"))
    low = tenants.ask("A", 4)
    assert tenants.at(low) == ["n1[0..3]"]
    tenants.step(FaultsSeen("n2", "a", ((0, "XID 79"), (2, "XID 79"))))
    assert tenants.at(tenants.ask("A", 2, levels=("switch",), priority=1)) == ["n3[0..1]"]
    assert tenants.job(low).state is JobState.RUNNING


# ---- groups in cells -----------------------------------------------------------------------------------------------------


def test_nodes_that_are_alike_differ_by_what_is_around_them() -> None:
    """n1 and n2 are a pair, which the second group needs; so the first one must have n3 and n5, which are as empty."""
    tenants = fours(8, ("pair", 2), ("rack", 4))
    tenants.vc("A", ("p", "rack", 1))
    filled = {tenants.at(job)[0][:2]: job for job in [tenants.ask("A", 4) for _ in range(8)]}
    tenants.end(*(filled[name] for name in ("n1", "n2", "n3", "n5")))
    within = (Within("rack", True, 0), Within("pair", True, 1))
    job = submit(tenants, grouped("A", (2, 4), (2, 3), within=within))
    assert [place[:2] for place in tenants.at(job)] == ["n3", "n5", "n1", "n2"]


def test_a_cell_that_is_asked_for_inside_a_smaller_one_is_that() -> None:
    tenants = fours(2, ("pair", 2))
    tenants.vc("A", ("p", "pair", 1))
    for devices in (2, 1):
        tenants.ask("A", devices)  # so that a single device is left of n1
    job = submit(tenants, grouped("A", (2, 1), (1, 1), within=(Within("node"), Within("pair", True, 1))))
    assert [place[:2] for place in tenants.at(job)] == ["n2", "n2", "n2"]


# ---- many tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["guaranteed", "opportunistic"])
def test_a_gang_may_be_of_thousands(guarantee: str) -> None:
    tenants = Tenants({f"n{number:03}": "P100" for number in range(128)})
    tenants.settles = False  # else each step is taken once more
    tenants.vc("A", ("p100-2x2x2", "node", 128))
    spec = grouped("A", (1024, 1))
    if guarantee == "opportunistic":
        spec = with_changes(spec, guarantee=OPPORTUNISTIC)
    answer = tenants.reply(Submitted("ann", "", spec))
    assert isinstance(answer, Accepted), answer
    assert len({(run.node, run.devices) for run in tenants.state.runs_of(answer.job_id)}) == 1024


def test_a_gang_costs_the_same_in_a_cluster_of_any_size() -> None:
    """In as many bound cells as there are racks, each with a node that has room."""

    def of_racks(count: int) -> int:
        tenants = fours(4 * count, ("rack", 4))
        tenants.settles = False  # else each step is taken once more
        tenants.vc("A", ("p", "rack", count))
        for _ in range(count):
            submit(tenants, grouped("A", (3, 4), (1, 1), within=(Within("rack"),)))
        return cost(tenants, Submitted("ann", "", grouped("A", (3, 2), (2, 1))))

    assert of_racks(16) <= of_racks(8) + 30


def test_a_gang_that_does_not_fit_is_not_tried_in_every_way() -> None:
    """Two devices are missing. One look at what there is says so, whatever the number of tasks."""

    def waiting(tasks: int) -> int:
        tenants = fours(8)
        tenants.vc("A", ("p", "node", 8))
        tenants.ask("A", 2)
        spec = grouped("A", (tasks, 32 // tasks))
        job = submit(tenants, spec)
        assert tenants.waits(job) is Reason.BEYOND_QUOTA
        return cost(tenants, Submitted("ann", "", request("A", 1)))

    assert waiting(32) <= waiting(8) + 3 * (32 - 8)  # as many as are counted


def test_whom_a_gang_has_preempted_is_found_without_trying_all() -> None:
    """Each of the four that leave makes room for eight; until the last has, no order of the tasks helps."""

    def preempting(nodes: int) -> int:
        tenants = Tenants({f"n{number}": "P100" for number in range(nodes)})
        tenants.vc("A", ("p100-2x2x2", "node", nodes), policy=VcPolicy("priority"))
        for _ in range(nodes):
            tenants.ask("A", 8)
        return cost(tenants, Submitted("ann", "", grouped("A", (8 * nodes, 1), priority=1)))

    assert preempting(8) < 4 * preempting(4)


@pytest.mark.parametrize("times_over", [1, 3])
def test_what_would_just_fit_is_never_said_to_be_impossible(times_over: int) -> None:
    """Tasks that fill every node to the last device, if one finds how; who does not find it in time does not say never."""
    tenants = Tenants({f"n{number}": "P100" for number in range(3 * times_over)})
    tenants.vc("A", ("p100-2x2x2", "node", 3 * times_over))
    answer = tenants.asked("A", *([5, 4, 3, 3, 3, 2, 2, 2] * times_over))
    assert isinstance(answer, Accepted), answer


def test_what_can_never_fit_is_said_to_be_so_however_many_its_tasks() -> None:
    tenants = Tenants({f"n{number}": "P100" for number in range(8)})
    tenants.vc("A", ("p100-2x2x2", "node", 8))
    assert tenants.reply(Submitted("ann", "", grouped("A", (13, 5)))).reason == "NEVER_IN_QUOTA"
    assert tenants.reply(Submitted("ann", "", grouped("A", (65, 1)))).reason == "NEVER_IN_QUOTA"
