"""Jobs that may run in several ways: what a configuration is, and what a plan makes of it."""

from typing import Any

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.lifecycle.desired import desired_order
from scheduler_service.core.messages import (
    AddEarmark,
    Place,
    Running,
    Spot,
    Submitted,
)
from scheduler_service.core.model import (
    Configuration,
    EventKind,
    JobSpec,
    NodeSelector,
    TaskGroup,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import Vector
from tests.core.configured import LARGE, SMALL, either, on_cpus, site
from tests.core.driver import spec
from tests.core.test_enact import DECISION, Desk

# ---- what a configuration is -------------------------------------------------------------------------------------------


def test_an_alternative_takes_command_and_environment_from_the_job_where_it_gives_none() -> None:
    job = with_changes(spec(8), command=("a",), environment=(("A", "1"), ("B", "1")), estimate_us=9, device_memory_mib=1)
    nodes = NodeSelector(names=("n2",))
    alternatives = (on_cpus(), on_cpus(2, command=("b",), environment=(("B", "2"), ("C", "2")), estimate_us=5, nodes=nodes))
    first, second, third = with_changes(job, alternatives=alternatives).in_each_configuration()
    assert first == job
    assert (second.command, second.environment, second.demand) == (job.command, job.environment, Vector(4_000, 1024))
    assert (second.estimate_us, second.device_memory_mib) == (0, 0), "what is of its own is not taken over"
    assert (third.command, third.environment) == (("b",), (("A", "1"), ("B", "2"), ("C", "2")))
    assert (third.estimate_us, third.nodes) == (5, nodes)
    assert all(one.alternatives == () for one in (first, second, third))


def test_a_view_is_of_one_configuration_and_knows_its_number() -> None:
    d = site()
    job = d.job(d.submit(either(8, on_cpus(), on_cpus(2))))
    views = job.in_each_configuration()
    assert [(view.configuration, view.spec) for view in views] == list(enumerate(job.spec.in_each_configuration()))
    assert [job.in_configuration(number) for number in range(3)] == list(views)
    assert all(view.launch_spec is view.spec for view in views)
    plain = d.job(d.submit(spec()))
    assert plain.in_each_configuration() == (plain,)
    assert plain.in_configuration(0) is plain


def test_each_configuration_is_checked_when_the_job_comes() -> None:
    d = site()
    for wrong, reason in (
        (on_cpus(5), "NO_NODE_LARGE_ENOUGH"),
        (on_cpus(nodes=NodeSelector(names=("n9",))), "NO_SUCH_NODE"),
        (on_cpus(nodes=NodeSelector(labels=(("zone", "a"),))), "NO_SUITABLE_NODE"),
        (on_cpus(cells=CellRequest(model="T4")), "NO_SUCH_MODEL"),
        (on_cpus(cells=CellRequest(pool="p")), "NO_POOLS"),
        (Configuration(Vector(12_000, 3072), (TaskGroup(12, Vector(3_000, 16_384)),)), "CLUSTER_TOO_SMALL"),
    ):
        refused = d.reply(Submitted("ann", "", either(8, on_cpus(), wrong)))
        assert isinstance(refused, Exception), wrong
        assert (getattr(refused, "reason", ""), str(refused)[:17]) == (reason, "configuration 2: ")
    assert not d.state.jobs.rows


# ---- plans -------------------------------------------------------------------------------------------------------------


def desk(*specs: JobSpec) -> Desk:
    """n1 has eight devices and three CPUs, n2 four CPUs; jobs 1, 2, ... wait."""
    d = Desk()
    d.join("n1", LARGE)
    d.join("n2", SMALL)
    for what in specs:
        d.submit(what)
    return d


ON_N2 = either(8, on_cpus(nodes=NodeSelector(names=("n2",))))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Place(1, (Spot(2),), configuration=2), "job 1 has no configuration 2"),
        (Place(1, (Spot(1),), configuration=1), "node 1 is none of those that job 1 asks for"),
        (Place(1, (Spot(2),)), "job 1 does not fit on n2"),
        (Place(1, (Spot(2, (0,)),), configuration=1), "job 1: wrong number of devices"),
        (Place(2, (Spot(2),), configuration=1), "job 2 has 2 tasks, and not 1"),
        (Place(3, (Spot(1),), configuration=1), "job 3 has no configuration 1"),
        (AddEarmark(1, 2, SMALL, (), DECISION, configuration=2), "job 1 has no configuration 2"),
        (AddEarmark(1, 1, SMALL, (), DECISION, configuration=1), "node 1 is none of those that job 1 asks for"),
    ],
)
def test_a_plan_for_what_the_configuration_is_not_is_refused(plan: Any, why: str) -> None:
    two = Configuration(Vector(2_000, 2_048), (TaskGroup(2, Vector(1_000, 1_024)),))
    d = desk(ON_N2, either(8, two), spec())
    before = d.state.snapshot()
    assert enact(d.state, (plan,), d.now) == why
    assert d.state.snapshot() == before


def test_all_earmarks_of_a_job_are_in_one_configuration() -> None:
    d = desk(either(8))
    kept = AddEarmark(1, 1, Vector(1000, 1024, 8), (), DECISION), AddEarmark(1, 2, SMALL, (), DECISION, configuration=1)
    assert enact(d.state, kept, d.now) == "job 1 has earmarks in another configuration"
    assert not d.state.earmarks.rows


def test_what_is_kept_in_one_configuration_lets_no_other_onto_a_node_that_does_not_suit_it() -> None:
    d = desk(ON_N2)
    d.do(AddEarmark(1, 1, Vector(1000, 1024, 8), (), DECISION))
    plan = Place(1, (Spot(1),), configuration=1)
    assert enact(d.state, (plan,), d.now) == "node 1 is none of those that job 1 asks for"
    assert enact(d.state, (Place(1, (Spot(1, tuple(range(8))),)),), d.now) is None


def test_a_launch_is_told_the_configuration_that_was_chosen() -> None:
    d = desk(either(8, on_cpus(command=("b",), environment=(("X", "1"),))))
    d.do(Place(1, (Spot(2),), configuration=1))
    job, run = d.job(1), d.run(1)
    assert (job.configuration, run.demand, run.devices) == (1, Vector(4_000, 1024), ())
    order = desired_order(job, run)
    assert order is not None
    assert isinstance(order.desired, Running)
    told = order.desired.job.launch_spec
    assert (told.command, told.environment, order.desired.job.configuration) == (("b",), (("X", "1"),), 1)


def test_the_story_says_which_configuration_is_placed() -> None:
    d = site()

    def placed(what: JobSpec) -> list[str]:
        taken = d.step(Submitted("ann", "", what))
        return [event.text for event in taken.log if event.kind is EventKind.PLACED]

    two = Configuration(Vector(1_000, 1_024, 2), (TaskGroup(2, Vector(500, 512, 1)),))
    assert placed(spec(2)) == [""]
    assert placed(either(7, two)) == ["configuration 1, on n1"]
    assert placed(either(4)) == ["configuration 0"]
    assert placed(either(4)) == ["configuration 1"]
    assert placed(either(4)) == []
