"""Jobs of virtual clusters that may run in several pools, or in several ways in one."""

from random import Random

import pytest

from scheduler_service.core.allocation.startup_repair import repair_at_startup
from scheduler_service.core.messages import VcRequested
from scheduler_service.core.model import JobState, NodeSelector, Reason
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Pin, VcPolicy
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.explain.explain import explain
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, other

NODES = {"g1": "FOUR", "g2": "FOUR", "c1": "CPU4", "c2": "CPU4"}


def site(**nodes: str) -> Tenants:
    """Pool g has nodes with four devices, pool c nodes with four CPUs."""
    nodes = nodes or NODES
    plans = [PoolPlan(pool, tuple(name for name in nodes if name.startswith(pool))) for pool in ("g", "c")]
    return Tenants(nodes, plans)


def two_pools(*quotas: tuple[str, str, int]) -> Tenants:
    t = site()
    t.vc("A", *(quotas or (("g", "node", 1), ("c", "node", 1))))
    return t


GPU_OR_CPU = {"pool": "g", "alternatives": (other(4, cpus=True, pool="c"),)}


def configurations(t: Tenants, *jobs: int) -> list[int]:
    return [t.job(job).configuration for job in jobs]


# ---- guaranteed --------------------------------------------------------------------------------------------------------


def test_a_job_is_in_a_queue_for_each_pool_and_starts_in_the_first_that_has_room() -> None:
    t = two_pools()
    first, second, third = (t.ask("A", 4, **GPU_OR_CPU) for _ in range(3))
    assert [t.at(job) for job in (first, second)] == [["g1[0..3]"], ["c1[0..3]"]]
    assert (configurations(t, first, second), t.guaranteed(second)) == ([0, 1], True)
    assert t.waits(third) is Reason.BEYOND_QUOTA
    queues = t.state.queues["A", Lane.BEST_EFFORT]
    assert sorted(named.pool for named in queues) == ["c", "g"]
    assert [len(list(queue)) for queue in queues.values()] == [1, 1]
    assert len(list(t.state.waiting("A", Lane.BEST_EFFORT))) == 1, "it is one job all the same"
    t.end(second)
    assert (configurations(t, third), t.at(third)) == ([1], ["c1[0..3]"])
    assert ("A", Lane.BEST_EFFORT) not in t.state.queues


def test_the_next_run_of_a_job_may_be_in_another_configuration() -> None:
    t = two_pools()
    first, second = (t.ask("A", 4, **GPU_OR_CPU) for _ in range(2))
    t.end(first)
    assert configurations(t, second) == [1], "what runs, runs on"
    t.step(*[t.exited(second, exit_code=1, unknown=False)], after=7)
    assert t.job(second).state is JobState.FAILED
    assert t.job(second).ran_in == (0, t.job(second).ran_us)


def test_it_holds_up_those_behind_it_in_every_pool_in_which_it_could_run_and_in_no_other() -> None:
    t = site(g1="FOUR", g2="FOUR", c1="CPU4")
    t.vc("A", ("g", "node", 1), ("c", "node", 1))
    runs = t.ask("A", 1, pool="g"), t.ask("A", 1, cpus=True, pool="c")
    blocks = t.ask("A", 4, **GPU_OR_CPU)
    behind = t.ask("A", 1, pool="g"), t.ask("A", 1, cpus=True, pool="c")
    assert [t.waits(job) for job in (blocks, *behind)] == [Reason.BEYOND_QUOTA, Reason.NONE, Reason.NONE]
    t.end(runs[1])
    assert configurations(t, blocks) == [1]
    assert t.states(*behind) == [JobState.RUNNING, JobState.QUEUED], "its devices are free, its CPUs are not"


def test_it_does_not_wait_behind_a_job_of_another_pool() -> None:
    t = two_pools()
    t.ask("A", 1, pool="g")
    blocked = t.ask("A", 4, pool="g")
    job = t.ask("A", 1, pool="g", alternatives=(other(1, cpus=True, pool="c"),))
    assert t.waits(blocked) is Reason.BEYOND_QUOTA
    assert (configurations(t, job), t.at(job)) == ([1], ["c1[0]"]), "pool g is held up, pool c is not"


def test_a_smaller_configuration_of_one_pool() -> None:
    t = two_pools(("g", "node", 1))
    t.ask("A", 1)
    job = t.ask("A", 4, alternatives=(other(2), other(1)))
    assert (configurations(t, job), len(t.at(job)), t.run(job).devices) == ([1], 1, (2, 3))


def test_a_gang_beside_a_single_task() -> None:
    t = two_pools(("g", "node", 2), ("c", "node", 1))
    t.ask("A", 1)
    job = t.ask("A", 4, 4, pool="g", alternatives=(other(2, cpus=True, pool="c"), other(2, 2, within="node", pool="g")))
    assert (configurations(t, job), t.at(job)) == ([1], ["c1[0..1]"])
    second = t.ask("A", 4, 4, pool="g", alternatives=(other(2, 2, within="node", pool="g"),))
    assert (configurations(t, second), t.at(second)) == ([1], ["g2[0..1]", "g2[2..3]"])
    assert len(t.job(second).task_nodes) == 2


def test_devices_with_enough_memory() -> None:
    """Those of pool g have 16 384 MiB."""
    t = two_pools()
    job = t.ask("A", 1, pool="g", memory=16_384, alternatives=(other(1, cpus=True, pool="c"),))
    assert configurations(t, job) == [0]
    refused = t.refused("A", 1, cpus=True, pool="c", alternatives=(other(1, pool="g", memory=16_385),))
    assert refused.reason == "NEVER_IN_QUOTA"
    assert "configuration 1: " in str(refused)
    assert "pool g: its devices have 16384 MiB, and the job asks for 16385" in str(refused)


# ---- overflow and opportunistic ----------------------------------------------------------------------------------------


def test_overflow_takes_its_own_cells_in_any_configuration_before_idle_ones_in_the_first() -> None:
    t = two_pools(("c", "node", 1))
    first = t.ask("A", 4, guarantee=OVERFLOW, **GPU_OR_CPU)
    second = t.ask("A", 4, guarantee=OVERFLOW, **GPU_OR_CPU)
    third = t.ask("A", 4, guarantee=OVERFLOW, **GPU_OR_CPU)
    assert configurations(t, first, second, third) == [1, 0, 0]
    assert [t.guaranteed(job) for job in (first, second, third)] == [True, False, False]


def test_opportunistic_work_takes_the_first_configuration_for_which_something_is_idle() -> None:
    t = site()
    t.vc("A")
    jobs = [t.ask("A", 4, guarantee=OPPORTUNISTIC, **GPU_OR_CPU) for _ in range(5)]
    assert configurations(t, *jobs) == [0, 0, 1, 1, 0]
    assert t.waits(jobs[4]) is not Reason.NONE
    t.end(jobs[3])
    assert configurations(t, jobs[4]) == [1]


@pytest.mark.parametrize("guarantee", [OVERFLOW, OPPORTUNISTIC])
def test_what_was_reclaimed_comes_back_in_the_other_configuration(guarantee: Guarantee) -> None:
    t = site(g1="FOUR", c1="CPU4")
    t.vc("A")
    t.vc("B", ("g", "node", 1))
    job = t.ask("A", 4, guarantee=guarantee, **GPU_OR_CPU)
    t.step(after=30)
    owner = t.ask("B", 4, pool="g")
    t.leave(job)
    assert (t.at(owner), t.at(job), configurations(t, job)) == (["g1[0..3]"], ["c1[0..3]"], [1])
    assert t.job(job).ran_in == (30_000_000, 0)


def test_overflow_is_promoted_in_the_configuration_in_which_it_runs() -> None:
    t = site(g1="FOUR", c1="CPU4")
    t.vc("A", ("c", "node", 1))
    first = t.ask("A", 4, cpus=True, pool="c")
    job = t.ask("A", 4, guarantee=OVERFLOW, **GPU_OR_CPU)
    assert (configurations(t, job), t.guaranteed(job)) == ([0], False)
    t.end(first)
    assert not t.guaranteed(job), "what it holds is in pool g, of which its virtual cluster owns nothing"
    t.change("A", ("c", "node", 1), ("g", "node", 1))
    assert t.guaranteed(job)


def test_nodes_are_not_named_where_cells_say_where_a_job_runs() -> None:
    t = two_pools()
    named = other(1)._replace(nodes=NodeSelector(labels=(("zone", "a"),)))
    refused = t.refused("A", 1, alternatives=(named,))
    assert (refused.reason, str(refused)[:17]) == ("NODES_BY_CELLS", "configuration 1: ")


# ---- what is kept --------------------------------------------------------------------------------------------------------


def test_what_is_kept_is_for_the_configuration_that_made_room() -> None:
    t = site(g1="FOUR", c1="CPU4")
    t.vc("A", ("c", "node", 1))
    t.vc("B")
    guest = t.ask("B", 4, cpus=True, pool="c", guarantee=OPPORTUNISTIC)
    job = t.ask("A", 2, cpus=True, pool="c", alternatives=(other(3, cpus=True, pool="c"),))
    kept = t.earmark(job)
    assert kept is not None
    assert (kept.configuration, kept.want.cpu_milli) == (0, 2000)
    t.cancel(job)
    t.change("A")
    assert t.state.earmarks_of == {}
    t.leave(guest)


def test_a_pin_of_an_alternative_is_its_own() -> None:
    """In its cells the job is guaranteed, and the job's other configurations have nothing to do with the pin."""
    t = site(g1="FOUR", g2="FOUR", c1="CPU4")
    t.vc("A", ("c", "node", 1), pins=[("mine", "g", "node", 1)])
    t.vc("B")
    runs = t.ask("A", 4, cpus=True, pool="c")
    guests = [t.ask("B", 4, pool="g", guarantee=OPPORTUNISTIC) for _ in range(2)]
    job = t.ask("A", 4, cpus=True, pool="c", alternatives=(other(4, pin="mine"),))
    kept = t.earmark(job)
    assert kept is not None
    assert (kept.configuration, t.state.nodes.rows[kept.node].name) == (1, "g2")
    with t.state.supposing():
        repair_at_startup(t.state)
        assert t.earmark(job) == kept, "a new leader keeps it, too"
    t.leave(*(guest for guest in guests if t.job(guest).state is JobState.STOPPING))
    assert (t.at(job), configurations(t, job), t.guaranteed(job)) == (["g2[0..3]"], [1], True)
    t.step(VcRequested("A", False, t.state.vcs.rows[t.state.vc_ids["A"]].quotas, (Pin("mine", "g", "node", 0),)))
    assert not t.guaranteed(job), "its pin is elsewhere now"
    t.end(runs)
    assert not t.guaranteed(job)


def test_a_job_with_a_pin_runs_outside_it_in_its_other_configuration() -> None:
    t = site(g1="FOUR", c1="CPU4")
    t.vc("A", ("c", "node", 1), pins=[("mine", "g", "node", 0)])
    first = t.ask("A", 4, pin="mine")
    job = t.ask("A", 4, pin="mine", alternatives=(other(4, cpus=True, pool="c"),))
    assert (configurations(t, job), t.guaranteed(job)) == ([1], True)
    t.step(VcRequested("A", False, t.state.vcs.rows[t.state.vc_ids["A"]].quotas, ()))
    assert (t.guaranteed(first), t.guaranteed(job)) == (False, True)


def test_one_configuration_moves_out_of_cells_that_are_others_now_and_another_stays() -> None:
    t = two_pools()
    job = t.ask("A", 4, pool="g", alternatives=(other(4, cpus=True, pool="c", vacates=True),))
    second = t.ask("A", 4, pool="g", alternatives=(other(4, cpus=True, pool="c", vacates=True),))
    t.change("A")
    assert t.states(job, second) == [JobState.RUNNING, JobState.STOPPING]


# ---- why it waits ----------------------------------------------------------------------------------------------------------


def test_why_it_waits_is_told_for_each_configuration() -> None:
    t = two_pools()
    holder = t.ask("A", 4, pool="g")
    job = t.ask("A", 4, pool="g", alternatives=(other(2, 2, pool="g"), other(3, cpus=True, pool="c")))
    assert configurations(t, job) == [2]
    second = t.ask("A", 4, pool="g", alternatives=(other(2, 2, pool="g"), other(3, cpus=True, pool="c")))
    found = explain(t.state, t.job(second), t.now, Random(0), stages_within(t.state.vcs.rows[1].policy))
    assert [(blocker.reason, blocker.holder_jobs) for blocker in found.blockers] == [
        (Reason.BEYOND_QUOTA, (holder,)),
        (Reason.BEYOND_QUOTA, (holder,)),
        (Reason.BEYOND_QUOTA, (job,)),
    ]
    assert [blocker.detail[:17] for blocker in found.blockers] == [f"configuration {number}; " for number in range(3)]


# ---- trials ----------------------------------------------------------------------------------------------------------------


def test_a_trial_has_a_run_preempted_in_the_configuration_that_can_have_it() -> None:
    t = site(g1="FOUR", c1="CPU4")
    t.vc("A", ("g", "node", 1), ("c", "node", 1), policy=VcPolicy("fitgpp"))
    t.ask("A", 4, pool="g", trial=True)
    victim = t.ask("A", 4, cpus=True, pool="c")
    trial = t.ask("A", 4, trial=True, **GPU_OR_CPU)
    assert t.job(victim).state is JobState.STOPPING
    kept = t.earmark(trial)
    assert kept is not None
    assert kept.configuration == 1
    t.leave(victim)
    assert (t.at(trial), configurations(t, trial)) == (["c1[0..3]"], [1])
