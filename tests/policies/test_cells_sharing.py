"""Share groups in cells: they are reclaimed, preempted, demoted and promoted as a whole."""

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Accepted, CancelRequested, Place, Rng, Share, Spot, Submitted
from scheduler_service.core.model import JobState, Reason, RunKey, StopReason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.queue_keys import is_in_queue
from scheduler_service.core.state.state import State
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, request

POOL = "four-2x2"


def site(*nodes: str, cells: int = 1, policy: VcPolicy | None = None) -> Tenants:
    tenants = Tenants(dict.fromkeys(nodes or ("one",), "FOUR"))
    tenants.vc("A", (POOL, "node", cells), **({} if policy is None else {"policy": policy}))
    tenants.vc("B")
    return tenants


def beside(
    tenants: Tenants, other: int, vc: str, *devices: int, guaranteed: bool = False, sliced: bool = False, **wants: object
) -> int:
    """A job that shares devices with the other, from its start."""
    job = tenants.state.cluster.next_job
    member, mine = tenants.run(other), RunKey(job, 1)
    rows = (Row((member.key,)), Row((mine,))) if sliced else (Row((member.key, mine)),)
    share = Share(rows, ((member.key, 4000), (mine, 4000)))
    plan = (Place(job, (Spot(member.node, devices),), guaranteed, share=share),)
    usual = tenants.policy

    def policy(state: State, rng: Rng) -> Proposals:
        if job in state.jobs.rows and is_in_queue(state.jobs.rows[job]):
            assert (yield plan) is None
        yield from usual(state, rng)

    tenants.policy = policy
    assert isinstance(tenants.reply(Submitted("ann", "", request(vc, len(devices), **wants))), Accepted)
    tenants.policy = usual
    tenants.begin(job)
    return job


def group(tenants: Tenants) -> ShareGroup:
    (found,) = tenants.state.share_groups.rows.values()
    return found


def states(tenants: Tenants, *jobs: int) -> list[JobState]:
    return [tenants.job(job).state for job in jobs]


RUN, STOP = JobState.RUNNING, JobState.STOPPING


@pytest.mark.parametrize("sliced", [False, True])
def test_a_group_is_reclaimed_as_a_whole(sliced: bool) -> None:
    """Also the member that is on none of the wanted devices. The switch is taken for which the fewest runs
    leave, the whole of each group."""
    tenants = site()
    tenants.change("A", (POOL, "switch", 1))
    one = tenants.ask("B", 2, guarantee=OPPORTUNISTIC)
    two = beside(tenants, one, "B", 1, 2, guarantee=OPPORTUNISTIC, sliced=sliced)
    three = tenants.ask("B", 1, guarantee=OPPORTUNISTIC)
    assert tenants.state.opportunistic == {"B": 4}
    mine = tenants.ask("A", 2)
    assert states(tenants, one, two, three) == [STOP, STOP, RUN]
    assert tenants.waits(mine) is Reason.WAITING_FOR_VICTIMS
    tenants.leave(one)
    tenants.leave(two)
    assert tenants.job(mine).state is RUN
    assert not tenants.state.share_groups.rows


def test_a_member_that_leaves_by_itself_has_no_more_time_than_the_others() -> None:
    """It was told to leave for another reason, which stays. Its grace period becomes shorter."""
    tenants = site()
    one = tenants.ask("B", 4, guarantee=OPPORTUNISTIC, grace=600)
    two = beside(tenants, one, "B", 0, guarantee=OPPORTUNISTIC, grace=600)
    tenants.step(CancelRequested(one))
    assert tenants.run(one).stop_grace_us == 600 * SECOND
    mine = tenants.ask("A", 4)
    reclaimed, cancelled = tenants.run(two), tenants.run(one)
    assert (cancelled.stop_reason, reclaimed.stop_reason) == (StopReason.CANCELLED, StopReason.RECLAIMED)
    assert cancelled.stop_grace_us == reclaimed.stop_grace_us == tenants.state.settings.reclaim_grace_us
    tenants.leave(one)
    tenants.leave(two)
    assert tenants.job(one).state is JobState.CANCELLED
    assert tenants.job(mine).state is RUN


def test_a_group_loses_its_guarantee_and_has_it_again_as_a_whole() -> None:
    tenants = site()
    one = tenants.ask("A", 2, guarantee=OVERFLOW)
    two = beside(tenants, one, "A", 0, 1, guarantee=OVERFLOW, guaranteed=True)
    assert group(tenants).guaranteed
    assert tenants.state.guaranteed_devices == {1: 0b11}
    tenants.change("A")
    assert not group(tenants).guaranteed
    assert [tenants.guaranteed(job) for job in (one, two)] == [False, False]
    assert tenants.state.opportunistic == {"A": 2}
    assert not tenants.state.bindings.rows
    tenants.change("A", (POOL, "node", 1))
    assert group(tenants).guaranteed
    assert [tenants.guaranteed(job) for job in (one, two)] == [True, True]


@pytest.mark.parametrize("name", ["fitgpp", "lrtp", "priority", "las"])
def test_members_in_their_own_cells_are_preempted_together(name: str) -> None:
    settings = (("threshold", 1.0),) if name == "las" else ()
    tenants = site(policy=VcPolicy(name, settings=settings))
    one = tenants.ask("A", 2)
    two = beside(tenants, one, "A", 1, 2, guaranteed=True)
    tenants.step(after=5)
    first = tenants.ask("A", 4, trial=name in ("fitgpp", "lrtp"), priority=1 if name == "priority" else 0)
    assert states(tenants, one, two) == [STOP, STOP]
    tenants.leave(one)
    tenants.leave(two)
    assert tenants.job(first).state is RUN


def test_an_opportunistic_trial_preempts_a_group_of_its_own_virtual_cluster() -> None:
    tenants = site()
    tenants.step()
    state = tenants.state
    row = state.vcs.rows[state.vc_ids["B"]]
    state.put(state.vcs, row.id, with_changes(row, policy=VcPolicy("fitgpp")))
    state.adopt()
    one = tenants.ask("B", 4, guarantee=OPPORTUNISTIC)
    two = beside(tenants, one, "B", 0, guarantee=OPPORTUNISTIC)
    trial = tenants.ask("B", 2, guarantee=OPPORTUNISTIC, trial=True)
    assert states(tenants, one, two) == [STOP, STOP]
    tenants.leave(one)
    tenants.leave(two)
    assert tenants.job(trial).state is RUN


def refused(tenants: Tenants, other: int, waiting: int, *devices: int, guaranteed: bool) -> str:
    """Why the job that waits may not share these devices with the other."""
    member, mine = tenants.run(other), RunKey(waiting, 1)
    share = Share((Row((member.key, mine)),), ((member.key, 4000), (mine, 4000)))
    plan = (Place(waiting, (Spot(member.node, devices),), guaranteed, share=share),)
    with tenants.state.supposing():
        return str(enact(tenants.state, plan, tenants.now))


def test_who_may_not_share() -> None:
    tenants = site()
    one, two = tenants.ask("A", 2, cpu=7000), tenants.ask("A", 2)
    mine, others = tenants.ask("A", 2, cpu=7000), tenants.ask("B", 2, guarantee=OPPORTUNISTIC)
    assert refused(tenants, two, mine, 2, 3, guaranteed=True) == "None"
    assert "not guaranteed as others" in refused(tenants, two, mine, 2, 3, guaranteed=False)
    assert "another virtual cluster's" in refused(tenants, two, others, 2, 3, guaranteed=False)
    assert "has no right to a device" in refused(tenants, two, others, 2, 3, guaranteed=True)
    assert tenants.free("one").cpu_milli == 8000, "there is enough, which goes with other devices"
    needs = "those who would share device 0 of node one need 7 CPUs and 1024 MiB of the node, with what is parked"
    assert refused(tenants, one, mine, 0, 1, guaranteed=True) == f"{needs}; 4 CPUs and 16384 MiB go with the device"


def test_members_of_a_group_never_need_more_than_goes_with_their_devices_whoever_leaves() -> None:
    tenants = site()
    wide, narrow = tenants.ask("A", 3, cpu=1000), tenants.ask("A", 1, cpu=3800)
    mine = tenants.ask("A", 1, cpu=3800)
    assert tenants.job(mine).state is JobState.QUEUED
    why = refused(tenants, wide, mine, 0, guaranteed=True)
    assert "need 4.134 CPUs and" in why, "if the wide one left, its other devices would lack their CPUs"
    assert tenants.job(narrow).state is RUN
