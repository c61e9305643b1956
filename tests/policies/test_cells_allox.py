"""AlloX inside a virtual cluster: jobs are matched to the cells that it owns, and what else holds of cells holds as before."""

import pickle
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from scheduler_service.core.messages import HoldRequested, PlanReady, Step, Submitted, VcRequested
from scheduler_service.core.model import EventKind, Job, JobState, Reason
from scheduler_service.core.model.jobs import Array
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy, Within
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, other, request

QUEUED, STARTING, RUNNING = JobState.QUEUED, JobState.STARTING, JobState.RUNNING


def allox(**own: float) -> VcPolicy:
    return VcPolicy("allox", settings=tuple(sorted({"alpha": 1.0, **own}.items())))


def mixed(*quotas: tuple[str, str, int], nodes: int = 2, **own: float) -> Tenants:
    """Two pools with so many nodes each, of four devices. Virtual cluster A goes by AlloX, and B by fifo; B owns one device of
    each pool, or nothing if the pools have one node."""
    names = {pool: tuple(f"{pool[0]}{i}" for i in range(nodes)) for pool in ("v100", "k80")}
    plans = [PoolPlan(pool, nodes) for pool, nodes in names.items()]
    t = Tenants(dict.fromkeys([*names["v100"], *names["k80"]], "FOUR"), plans)
    t.vc("A", *(quotas or (("v100", "device", 1), ("k80", "device", 1))), policy=allox(**own))
    t.vc("B", *((("v100", "device", 1), ("k80", "device", 1)) if nodes > 1 else ()))
    return t


def either(on_v100: float, on_k80: float, size: int = 1, **more: Any) -> dict[str, Any]:
    """A job that takes so many seconds on devices of each pool."""
    alternative = other(size, pool="k80", estimate=on_k80)
    return {"pool": "v100", "estimate": on_v100, "alternatives": (alternative,), **more}


def submit(t: Tenants, *jobs: dict[str, Any], vc: str = "A", size: int = 1, user: str = "ann") -> list[int]:
    """All in one step; those that start run."""
    first = t.state.cluster.next_job
    t.step(*(Submitted(user, "", request(vc, size, **job)) for job in jobs))
    ids = list(range(first, first + len(jobs)))
    t.begin(*ids)
    return ids


def where(t: Tenants, *jobs: int) -> list[str]:
    """The pool of each job, or why it waits."""
    assert t.state.pools is not None
    return [
        t.state.pools.positions[t.state.runs_of(job)[0].node].pool if t.state.runs_of(job) else t.waits(job).name
        for job in jobs
    ]


def user_of(t: Tenants, jobs: Sequence[int]) -> list[str]:
    return sorted(t.job(job).user for job in jobs if t.job(job).state is RUNNING)


# ---- the right device ----------------------------------------------------------------------------------------------------


def test_each_job_gets_the_device_that_suits_it_whatever_came_first() -> None:
    t = mixed()
    slow, fast = submit(t, either(10, 12), either(10, 100))
    assert where(t, slow, fast) == ["k80", "v100"], "first come, first served would be the other way round"
    assert [t.job(job).configuration for job in (slow, fast)] == [1, 0]
    assert t.guaranteed(slow)
    assert t.guaranteed(fast)


def test_a_cell_stays_idle_if_the_job_is_done_sooner_in_another_one() -> None:
    t = mixed()
    first, second = submit(t, either(10, 100), either(10, 100))
    assert where(t, first, second) == ["v100", "BEYOND_QUOTA"]
    (third,) = submit(t, either(1000, 40))
    assert where(t, third) == ["k80"]
    t.end(first)
    assert where(t, second) == ["v100"]


def test_the_other_virtual_cluster_is_untouched_and_nobody_is_beyond_its_guarantee() -> None:
    t = mixed()
    mine = submit(t, *[either(10, 20)] * 4)
    assert sorted(where(t, *mine)) == ["BEYOND_QUOTA", "BEYOND_QUOTA", "k80", "v100"]
    theirs = [t.ask("B", 1, **either(10, 12)) for _ in range(3)]
    assert where(t, *theirs) == ["v100", "k80", "BEYOND_QUOTA"], "in order, and in its own cells"
    held = {(run.vc, where(t, run.job_id)[0]) for run in t.state.runs.rows.values() if run.guaranteed}
    assert held == {("A", "v100"), ("A", "k80"), ("B", "v100"), ("B", "k80")}
    assert len(t.state.runs.rows) == 4


def test_users_of_a_virtual_cluster_take_turns_by_their_progress() -> None:
    t = mixed(("v100", "node", 1), alpha=0)
    running = submit(t, *[{"pool": "v100", "estimate": 60}] * 4, user="ann")
    waiting = [*submit(t, *[{"pool": "v100", "estimate": 10}] * 4, user="ann")]
    waiting += submit(t, *[{"pool": "v100", "estimate": 90}] * 4, user="bob")
    for job in running[:2]:
        t.end(job)
    assert user_of(t, [*running, *waiting]) == ["ann", "ann", "bob", "bob"]


def test_users_of_other_virtual_clusters_do_not_count() -> None:
    """Bob holds much in B, and nothing in A."""
    t = mixed(("v100", "device", 1), alpha=0)
    submit(t, *[{"pool": "v100", "estimate": 60}], vc="B", user="bob")
    (running,) = submit(t, {"pool": "v100", "estimate": 60}, user="ann")
    (of_ann,) = submit(t, {"pool": "v100", "estimate": 10}, user="ann")
    (of_bob,) = submit(t, {"pool": "v100", "estimate": 90}, user="bob")
    t.end(running)
    assert t.states(of_ann, of_bob) == [RUNNING, QUEUED], "neither has anything in A; ann comes first by name"


def test_a_job_that_names_no_pool_is_matched_to_each_pool_by_itself() -> None:
    """If the pools were one kind of slots, the job would take the first one, and the other job would find nothing."""
    t = mixed()
    anywhere, only_k80 = submit(t, {"estimate": 10}, {"pool": "k80", "estimate": 10})
    assert where(t, anywhere, only_k80) == ["v100", "k80"]


# ---- what else holds -----------------------------------------------------------------------------------------------------


def test_higher_priority_and_trials_come_first() -> None:
    t = mixed(("v100", "device", 1))
    (running,) = submit(t, {"pool": "v100", "estimate": 10})
    job = {"pool": "v100"}
    short, urgent, trial = submit(t, job | {"estimate": 1}, job | {"estimate": 500, "priority": 5}, job | {"trial": True})
    order = []
    for ends in (running, trial, urgent):
        t.end(ends)
        order += [job for job in (short, urgent, trial) if job not in order and t.state.runs_of(job)]
    assert order == [trial, urgent, short]


def test_opportunistic_runs_in_its_cells_are_reclaimed_and_the_story_says_why_in_this_configuration() -> None:
    t = mixed(("v100", "node", 1), ("k80", "node", 1), nodes=1)
    guests = [t.ask("B", 4, guarantee=OPPORTUNISTIC, pool=pool) for pool in ("v100", "k80")]
    taken = t.step(Submitted("ann", "", request("A", 4, **either(10, 100, 4))))
    job = max(t.state.jobs.rows)
    assert t.waits(job) is Reason.WAITING_FOR_VICTIMS
    assert t.states(*guests) == [JobState.STOPPING, RUNNING], "the one in the way alone leaves"
    told = [line.text for line in taken.log if line.job_id == job and line.kind is EventKind.PREEMPTING]
    assert told == ["configuration 0 (estimated: configuration 0 10 s, configuration 1 100 s)"]
    (behind,) = submit(t, either(10, 100, 4), size=4)
    assert where(t, behind) == ["BEYOND_QUOTA"], "what is kept for a job is in use until that job has run"
    t.leave(guests[0])
    assert where(t, job) == ["v100"]


def test_a_gang_starts_when_its_cell_is_free_as_a_whole() -> None:
    t = mixed(("v100", "node", 1))
    first, second = submit(t, {"pool": "v100", "estimate": 10}, {"pool": "v100", "estimate": 20})
    gang = t.ask("A", 2, 2, pool="v100", within=Within("node"), estimate=30)
    assert where(t, gang) == ["BEYOND_QUOTA"]
    t.end(first)
    assert where(t, gang) == ["BEYOND_QUOTA"]
    t.end(second)
    assert t.at(gang) == ["v0[0..1]", "v0[2..3]"]


def test_a_gang_whose_cell_is_not_free_holds_up_nobody() -> None:
    """Two devices are free, in two switches: so far as they are counted, the gang has a slot."""
    t = mixed(("v100", "node", 1))
    jobs = submit(t, *[{"pool": "v100", "estimate": 10}] * 4)
    places = dict(zip((t.at(job)[0] for job in jobs), jobs, strict=True))
    t.end(places["v0[0]"], places["v0[2]"])
    gang = t.ask("A", 1, 1, pool="v100", within=Within("switch"), estimate=1)
    single = t.ask("A", 1, pool="v100", estimate=1000)
    assert where(t, gang, single) == ["BEYOND_QUOTA", "v100"]


def test_the_elements_of_an_array_start_one_after_the_other_in_the_right_cells() -> None:
    t = mixed(("v100", "device", 1), ("k80", "device", 2))
    array = with_changes(request("A", 1, **either(10, 12)), array=Array(4))
    t.step(Submitted("ann", "", array))
    elements = sorted(t.state.active)
    assert sorted(where(t, *elements)) == ["k80", "k80", "v100"]
    assert t.waits(1) is Reason.BEYOND_QUOTA


def test_pinned_cells_serve_those_who_name_them() -> None:
    t = mixed()
    t.vc("C", ("k80", "device", 1), pins=(("x", "v100", "device", 3),), policy=allox())
    pinned, second, other_one = submit(t, {"pin": "x"}, {"pin": "x", "estimate": 5}, {"pool": "k80"}, vc="C")
    assert sorted(t.states(pinned, second)) == [QUEUED, RUNNING], "the shorter one first"
    assert t.at(second) == ["v0[3]"]
    assert where(t, other_one) == ["k80"]
    t.end(second)
    assert t.at(pinned) == ["v0[3]"]


def test_what_overflowed_is_promoted_once_nobody_waits_for_the_cells() -> None:
    t = mixed(("k80", "device", 1))
    first = t.ask("A", 1, pool="k80", estimate=10)
    overflows = t.ask("A", 1, pool="k80", estimate=10, guarantee=OVERFLOW)
    waits = t.ask("A", 1, pool="k80", estimate=1000)
    assert (where(t, first, waits), t.guaranteed(overflows)) == (["k80", "BEYOND_QUOTA"], False)
    t.end(first)
    assert (t.guaranteed(waits), t.guaranteed(overflows)) == (True, False)
    t.end(waits)
    assert t.guaranteed(overflows)


def test_what_overflowed_does_not_take_the_cells_for_which_a_larger_job_waits() -> None:
    t = mixed(("k80", "device", 2))
    first, second = (t.ask("A", 1, pool="k80", estimate=10) for _ in range(2))
    overflows = t.ask("A", 1, pool="k80", estimate=10, guarantee=OVERFLOW)
    gang = t.ask("A", 1, 1, pool="k80", estimate=10)
    t.end(first)
    assert (where(t, gang), t.guaranteed(overflows)) == (["BEYOND_QUOTA"], False)
    t.end(second)
    assert (t.guaranteed(gang), t.guaranteed(overflows)) == (True, False)
    t.end(gang)
    assert t.guaranteed(overflows)


def test_who_lost_its_cells_has_such_again_before_those_that_it_outranks() -> None:
    """The virtual cluster owns nothing for a while. Then two cells are free at once, for the three who want one."""
    t = mixed(("k80", "device", 1))
    loses = t.ask("A", 1, pool="k80", estimate=10)
    urgent, later = submit(t, {"pool": "k80", "estimate": 10, "priority": 1}, {"pool": "k80", "estimate": 10})
    t.change("A", ("k80", "device", 0))
    assert not t.guaranteed(loses)
    t.change("A", ("k80", "device", 2))
    assert (t.guaranteed(loses), t.guaranteed(urgent), t.waits(later)) == (True, True, Reason.BEYOND_QUOTA)


def test_a_job_that_the_virtual_cluster_can_run_no_more_says_so() -> None:
    t = mixed(("k80", "node", 1))
    (job,) = submit(t, {"pool": "k80"}, size=4)
    (waits,) = submit(t, {"pool": "k80"}, size=4)
    t.change("A", ("k80", "device", 1))
    assert t.waits(waits) is Reason.NEVER_IN_QUOTA
    t.end(job)
    assert t.waits(waits) is Reason.NEVER_IN_QUOTA


# ---- long queues ---------------------------------------------------------------------------------------------------------


def delegated(taken: Step) -> list[PlanReady]:
    """What comes of the questions that the step delegates."""
    plans = (pickle.loads(pickle.dumps(one.question))() for one in taken.delegated)
    return [PlanReady(one.policy, one.subject, plan) for one, plan in zip(taken.delegated, plans, strict=True)]


def test_each_virtual_cluster_has_plans_of_its_own() -> None:
    t = mixed(long=0, period=5)
    t.vc("C", ("v100", "device", 1), ("k80", "device", 1), policy=allox(long=0, period=5))
    asked = [either(10, 12), either(10, 100)]
    taken = t.step(*(Submitted("ann", "", request(vc, 1, **job)) for vc in "AC" for job in asked))
    plans = delegated(taken)
    assert [plan.subject for plan in plans] == ["A/plan", "C/plan"]
    assert not t.state.active
    slow, fast, *others = sorted(t.state.jobs.rows)
    t.step(HoldRequested(others[0]))
    t.step(*plans)
    assert where(t, slow, fast, others[1]) == ["k80", "v100", "v100"]
    assert t.job(others[0]).state is QUEUED, "it was held meanwhile"


def test_a_plan_that_nobody_waits_for_any_more_is_forgotten() -> None:
    """Nobody is in the queue any more when it comes, and later not either."""
    t = mixed(long=0, period=5)
    taken = t.step(Submitted("ann", "", request("A", 1, **either(10, 100))))
    (plan,) = delegated(taken)
    t.cancel(1)
    assert t.state.memos.rows
    t.step(plan)
    assert not t.state.memos.rows


def test_the_memo_goes_when_the_virtual_cluster_gets_another_policy() -> None:
    t = mixed(long=0, period=5)
    (plan,) = delegated(t.step(Submitted("ann", "", request("A", 1, **either(10, 100)))))
    t.step(VcRequested("A", False, policy=VcPolicy("fifo")))
    t.step(plan)
    assert where(t, 1) == ["v100"]
    t.step(after=51)
    assert not t.state.memos.rows


def test_a_short_queue_is_served_at_once_again() -> None:
    t = mixed(long=2, period=5)
    running = submit(t, either(10, 12), either(10, 12))
    waiting = submit(t, *[either(10, 12)] * 3)
    assert list(t.state.memos.rows) == [("allox", "A/plan")]
    t.end(running[0])
    assert {t.job(job).state for job in waiting} == {QUEUED}, "a plan is being made"
    t.cancel(waiting[2])
    assert not t.state.memos.rows
    assert sorted(t.states(*waiting[:2])) == [QUEUED, STARTING]


# ---- the story -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_k80", "waits"), [(20, ""), (200, "after a wait of 7 s")])
def test_the_story_compares_when_each_configuration_could_have_started(on_k80: float, waits: str) -> None:
    t = mixed()
    (first,) = submit(t, {"pool": "v100", "estimate": 10})
    t.step(after=3)
    taken = t.step(Submitted("ann", "", request("A", 1, **either(100, on_k80))))
    job: Job = t.job(max(t.state.jobs.rows))
    if not waits:
        (told,) = [line.text for line in taken.log if line.kind is EventKind.PLACED]
        assert told == f"configuration 1 (estimated: configuration 0 100 s after a wait of 7 s, configuration 1 {on_k80} s)"
        return
    assert job.state is QUEUED, "it is done sooner if it waits"
    t.end(first)
    assert where(t, job.id) == ["v100"]


def test_a_job_that_waits_although_there_is_room_is_told_so() -> None:
    t = mixed()
    first, second = submit(t, either(10, 100), either(10, 100))
    job = t.job(second)
    (blocker,) = explain(t.state, job, t.now, Random(0), stages("cells", PreemptionSettings())).blockers
    assert (blocker.reason, blocker.detail.partition(",")[0]) == (Reason.BEYOND_QUOTA, "there is room")
    assert blocker.detail.endswith("it would run for: configuration 0 10 s, configuration 1 100 s")
    blocking = t.ask("A", 1, pool="k80", estimate=500)
    blockers = explain(t.state, job, t.now, Random(0), stages("cells", PreemptionSettings())).blockers
    assert [blocker.holder_jobs for blocker in blockers] == [(first,), (blocking,)]


def test_a_job_is_behind_jobs_of_higher_levels_alone() -> None:
    t = mixed(("v100", "device", 1))
    job = {"pool": "v100", "estimate": 10}
    submit(t, job)
    third, second, last, first = submit(
        t, job | {"priority": 1}, job | {"priority": 1, "trial": True}, job, job | {"trial": True}
    )
    found = {
        one: explain(t.state, t.job(one), t.now, Random(0), stages("cells", PreemptionSettings()))
        for one in (third, last, first)
    }
    assert {one: why.ahead_jobs for one, why in found.items()} == {
        third: (second, first),
        last: (second, first, third),
        first: (second,),
    }
    (beside,) = submit(t, job)
    assert explain(t.state, t.job(beside), t.now, Random(0), stages("cells", PreemptionSettings())).ahead == 3, (
        "not behind the last"
    )


def test_a_queue_is_not_long_because_of_jobs_that_wait_for_others_to_leave() -> None:
    """For them everything is decided: the third job has the last cell in the same decision."""
    t = Tenants({"n1": "FOUR"}, [PoolPlan("p", ("n1",))])
    t.vc("C", ("p", "device", 3), policy=allox(long=2, period=5))
    t.vc("B")
    opportunistic = [t.ask("B", 1, guarantee=OPPORTUNISTIC) for _ in range(4)]
    jobs = [t.ask("C", 1) for _ in range(3)]
    assert [t.waits(job) for job in jobs] == [Reason.WAITING_FOR_VICTIMS] * 3
    assert [t.job(job).state for job in opportunistic].count(JobState.STOPPING) == 3
