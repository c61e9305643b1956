"""A restart under other settings while jobs live: virtual clusters come and go, pools are renamed, the policy is another."""

from random import Random

import pytest

from scheduler_service.core.messages import AcceptRequested, Cells, PostingChanged, PostRequested, RequeueRequested
from scheduler_service.core.model import EventKind, JobState, Reason
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.exchange import PostingKind
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import spec
from tests.policies.restarts import Restarts
from tests.policies.tenants import OPPORTUNISTIC

FOURS = "four-2x2"
NODE = (FOURS, "node", 1)
PLAIN = "a100-2x4"
FITGPP = stages("fitgpp", PreemptionSettings())


def teams(*, nodes: int = 1) -> Restarts:
    """`A` owns all, and `B` nothing."""
    t = Restarts(dict.fromkeys(("n1", "n2")[:nodes], "FOUR"))
    t.vc("A", (FOURS, "node", nodes))
    t.vc("B")
    return t


def eight() -> Restarts:
    """A node of eight devices, without virtual clusters."""
    d = Restarts({})
    d.turn_off(FITGPP.policy)
    d.join()
    return d


# ---- virtual clusters are turned off -----------------------------------------------------------------------------------


def test_a_guaranteed_run_ends_where_there_are_no_virtual_clusters_any_more_and_its_cells_go_back_when_there_are() -> None:
    t = teams()
    job = t.ask("A", 4)
    t.turn_off()
    t.end(job)
    assert t.job(job).state is JobState.SUCCEEDED
    d = t.submit(spec(2))
    t.start(d)
    assert t.state.bindings.rows, "who leads without virtual clusters leaves their cells alone"
    t.turn_on()
    assert not t.state.bindings.rows
    other = t.ask("A", 4)
    assert t.waits(other) is Reason.WAITING_FOR_VICTIMS, "whose runs those of no virtual cluster are in the way"
    t.leave(d)
    assert t.guaranteed(other)


def test_who_runs_on_while_they_are_off_is_guaranteed_again_when_they_are_on() -> None:
    t = teams(nodes=2)
    stays, ends = t.ask("A", 4), t.ask("A", 4)
    t.turn_off()
    t.end(ends)
    t.turn_on()
    assert t.guaranteed(stays)
    assert list(t.owned()) == [(FOURS, "node", 1)]


def test_what_was_kept_in_cells_is_kept_for_nobody_without_them() -> None:
    t = teams()
    opportunistic_job = t.ask("B", 4, guarantee=OPPORTUNISTIC)
    comes = t.ask("A", 4, trial=True)
    t.turn_off(FITGPP.policy)
    assert not t.state.earmarks.rows
    plain = t.submit(spec(4))
    t.leave(opportunistic_job)
    assert t.job(plain).state is not JobState.QUEUED
    [blocker] = explain(t.state, t.job(comes), t.now, Random(0), FITGPP).blockers
    assert blocker.reason is Reason.NEVER_IN_QUOTA
    assert blocker.detail == "the site has no virtual clusters now, and only jobs without one start: cancel it"


def test_a_trial_without_a_virtual_cluster_leaves_the_runs_of_one_alone() -> None:
    """They would never come back; and that they may not be preempted keeps nobody from preempting others."""
    t = teams(nodes=2)
    small = t.ask("A", 2, grace=0)
    t.turn_off(FITGPP.policy)
    other = t.submit(spec(4))
    t.start(other)
    more = t.submit(spec(2))
    t.start(more)
    trial = t.trial(2)
    assert t.job(trial).reason is Reason.WAITING_FOR_VICTIMS
    assert t.states(small, other, more) == [JobState.RUNNING, JobState.RUNNING, JobState.STOPPING]


def test_a_quota_that_became_smaller_while_they_were_off_holds_when_they_are_on() -> None:
    """An exchange is over meanwhile."""
    t = teams()
    offer = t.reply(PostRequested("A", "", PostingKind.OFFER, Cells(*NODE, 0, t.now + 60 * SECOND)))
    assert isinstance(offer, PostingChanged)
    t.step(AcceptRequested("B", "", offer.posting))
    job = t.ask("B", 4)
    assert t.guaranteed(job)
    t.turn_off()
    t.step(after=61)
    t.turn_on()
    assert not t.guaranteed(job)
    assert not t.owned()
    t.step()


# ---- virtual clusters are turned on ------------------------------------------------------------------------------------


def test_jobs_without_a_virtual_cluster_run_on_until_somebody_has_a_right_to_what_they_hold() -> None:
    d = eight()
    job = d.submit(devices=8)
    d.start(job)
    d.turn_on()
    d.step()
    assert d.job(job).state is JobState.RUNNING
    d.vc("A", (PLAIN, "node", 1))
    mine = d.ask("A", 8)
    assert d.job(job).reason is Reason.RECLAIMED
    d.leave(job)
    assert d.guaranteed(mine)
    assert d.job(job).state is JobState.QUEUED
    d.end(mine)
    assert d.job(job).state is JobState.QUEUED, "it waits for ever"
    [blocker] = explain(d.state, d.job(job), d.now, Random(0), stages("cells", PreemptionSettings())).blockers
    assert blocker.reason is Reason.NEVER_IN_QUOTA


def test_such_a_job_may_be_requeued_and_cancelled() -> None:
    d = eight()
    job = d.submit(devices=8)
    d.start(job)
    d.turn_on()
    d.step(RequeueRequested(job))
    d.exit(job, yielded=True)
    assert d.job(job).state is JobState.QUEUED
    d.cancel(job)
    assert d.job(job).state is JobState.CANCELLED


def test_what_is_kept_for_a_trial_without_a_virtual_cluster_is_kept_no_more() -> None:
    d = eight()
    job = d.submit(devices=8)
    d.start(job)
    trial = d.trial(4)
    assert d.job(trial).reason is Reason.WAITING_FOR_VICTIMS
    d.turn_on()
    assert not d.state.earmarks.rows
    d.exit(job, yielded=True)
    assert [d.job(one).state for one in (job, trial)] == [JobState.QUEUED] * 2


@pytest.mark.parametrize("policy", ["fifo", "allox"])
def test_work_without_devices_leaves_for_whom_there_are_devices_and_too_few_cpus_beside_it(policy: str) -> None:
    """Nobody else has it leave."""
    d = eight()
    small, large = d.submit(devices=0, cpu=2_000), d.submit(devices=0, cpu=20_000)
    d.start(small, large)
    d.turn_on()
    d.vc("A", (PLAIN, "node", 1), policy=VcPolicy(policy))
    d.vc("B")
    assert d.waits(d.ask("B", 8, cpu=30_000, guarantee=OPPORTUNISTIC)) is Reason.NO_ROOM
    d.ask("B", 1, cpu=4_000, guarantee=OPPORTUNISTIC)
    assert d.states(small, large) == [JobState.RUNNING] * 2
    mine = d.ask("A", 6, cpu=24_000)
    assert d.waits(mine) is Reason.WAITING_FOR_VICTIMS
    assert d.states(small, large) == [JobState.RUNNING, JobState.STOPPING]
    told = explain(d.state, d.job(mine), d.now, Random(0), stages("cells", PreemptionSettings()))
    assert [blocker.reason for blocker in told.blockers] == [Reason.WAITING_FOR_VICTIMS]
    assert "CPUs or memory that go with its devices are held by runs from before" in told.blockers[0].detail
    d.leave(large)
    assert d.guaranteed(mine)
    more = d.ask("A", 1, cpu=4_000)
    assert d.waits(more) is Reason.WAITING_FOR_VICTIMS
    d.leave(small)
    assert d.guaranteed(more)


@pytest.mark.parametrize("policy", ["fifo", "allox"])
def test_a_run_with_more_cpus_than_go_with_its_devices_leaves_for_whom_wants_those_beside_it(policy: str) -> None:
    d = eight()
    job = d.submit(devices=2, cpu=20_000)
    d.start(job)
    d.turn_on()
    d.vc("A", (PLAIN, "node", 1), policy=VcPolicy(policy))
    mine = d.ask("A", 4, cpu=16_000)
    assert d.waits(mine) is Reason.WAITING_FOR_VICTIMS
    assert d.job(job).reason is Reason.RECLAIMED
    d.leave(job)
    assert d.guaranteed(mine)


def test_cpus_that_were_a_job_s_own_are_so_again_and_who_began_meanwhile_leaves() -> None:
    t = Restarts({"c1": "CPU4"})
    t.vc("A", ("cpu-4", "node", 1))
    mine = t.ask("A", 2, cpus=True)
    t.turn_off()
    other = t.submit(spec(0, cpu=2000))
    t.start(other)
    t.turn_on()
    assert t.guaranteed(mine)
    assert t.at(mine) == ["c1[0..1]"]
    more = t.ask("A", 2, cpus=True)
    assert t.waits(more) is Reason.WAITING_FOR_VICTIMS
    t.leave(other)
    assert t.guaranteed(more)
    t.turn_off()
    t.end(mine, more)
    t.turn_on()
    assert not t.owned()


def test_less_of_a_node_is_for_work_without_devices() -> None:
    """Who was submitted last leaves, until what is left is enough for the others."""
    t = Restarts({"n1": "FOUR"}, host_percent=50)
    t.vc("A", (FOURS, "node", 1))
    first, second = (t.ask_host("A", 4000, 1024, guarantee=OPPORTUNISTIC) for _ in range(2))
    t.turn_on(host_percent=25)
    assert t.states(first, second) == [JobState.RUNNING, JobState.STOPPING]
    mine = t.ask("A", 4, cpu=12_000)
    assert t.waits(mine) is Reason.WAITING_FOR_VICTIMS
    t.leave(second)
    assert t.guaranteed(mine)
    assert t.states(first, second) == [JobState.RUNNING, JobState.QUEUED]


# ---- pools have other names --------------------------------------------------------------------------------------------


def test_a_cell_whose_job_ended_while_its_pool_had_another_name_is_not_bound_for_ever() -> None:
    plans = [PoolPlan(name, ("n1", "n2")) for name in "pq"]
    t = Restarts(dict.fromkeys(("n1", "n2"), "FOUR"), plans[:1])
    t.vc("A", ("p", "node", 1))
    t.vc("B", ("p", "node", 1))
    job = t.ask("A", 4)
    t.turn_on(plans[1], renamed=True)
    assert t.owned(), "its pool may have its name again"
    t.end(job)
    t.turn_on(plans[0])
    assert not t.owned()
    t.change("A")
    t.change("B", ("p", "node", 2))
    both = [t.ask("B", 4), t.ask("B", 4)]
    assert [t.guaranteed(one) for one in both] == [True, True]


def test_who_runs_on_meanwhile_is_in_its_cell_when_the_pool_has_its_name_again() -> None:
    plans = [PoolPlan(name, ("n1", "n2")) for name in "pq"]
    t = Restarts(dict.fromkeys(("n1", "n2"), "FOUR"), plans[:1])
    t.vc("A", ("p", "node", 2))
    stays, ends = t.ask("A", 4), t.ask("A", 4)
    for _ in range(2):
        t.turn_on(plans[1], renamed=True)
        t.step()
    t.turn_on(plans[0])
    t.step()
    assert list(t.owned()) == [("p", "node", 0), ("p", "node", 1)]
    t.end(ends)
    assert list(t.owned()) == [("p", "node", 0)]
    assert t.guaranteed(stays)


def test_cells_that_were_left_for_those_who_were_in_none_of_their_own_go_back_when_it_is_said_anew_what_is_owned() -> None:
    plans = [PoolPlan("p", ("n1",)), PoolPlan("q", ("n2",)), PoolPlan("r", ("n1",))]
    t = Restarts(dict.fromkeys(("n1", "n2"), "FOUR"), plans[:2])
    t.vc("A", ("p", "node", 1), ("q", "node", 1))
    stays, ends = t.ask("A", 4), t.ask("A", 4)
    t.turn_off()
    t.end(ends)
    t.turn_on(*plans[1:], renamed=True)
    assert list(t.owned()) == [("p", "node", 0), ("q", "node", 0)]
    t.renamed = False
    t.change("A", ("q", "node", 1))
    assert not t.guaranteed(stays)
    assert not t.owned()


# ---- the policy is another ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backfilled", "settings"),
    [
        ("fifo", False, PreemptionSettings()),
        ("fifo", True, PreemptionSettings()),
        ("lrtp", False, PreemptionSettings()),
        ("fitgpp", False, PreemptionSettings(in_order=True)),
    ],
)
@pytest.mark.parametrize("left_before", [False, True])
def test_a_trial_for_which_all_is_kept_starts_by_whatever_policy(
    name: str, backfilled: bool, settings: PreemptionSettings, left_before: bool
) -> None:
    """Whoever stands before it waits, and could not have that room."""
    d = eight()
    d.join("n2")
    victims = [d.submit(devices=8, grace=1), d.submit(devices=8, grace=2)]
    d.start(*victims)
    d.trial(8)
    behind = d.trial(8)
    d.submit(spec(8))
    leaving = d.earmark(behind).victims[0].job_id  # type: ignore[union-attr]
    if left_before:
        d.settles, policy = False, d.policy
        d.policy = lambda *_: iter(())  # type: ignore[assignment,return-value]
        d.exit(leaving, yielded=True)
        d.settles, d.policy = True, policy
    d.restart(d.state.settings, stages(name, settings, backfilled).policy)
    taken = d.step() if left_before else d.exit(leaving, yielded=True)
    assert d.job(behind).state is JobState.STARTING
    assert EventKind.EARMARK_DROPPED not in [event.kind for event in taken.log]
