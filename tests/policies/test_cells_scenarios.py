"""Small clusters, and what each request must get there. Addresses are rack.node[device]."""

from random import Random

import pytest

from scheduler_service.core.errors import FailedPrecondition, NotFound, Refused
from scheduler_service.core.messages import FaultsSeen, VcRequested
from scheduler_service.core.model import JobState, Reason, RunPhase
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Pin, Quota, VcPolicy, Within
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.hived.policy import cells
from scheduler_service.policies.options import PreemptionSettings
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants

RACKS = (
    PoolPlan("singles", ("1.0", "5.0")),
    PoolPlan("rack3", ("2.0", "2.1", "2.2"), (("rack", 3),)),
    PoolPlan("rack4", ("3.0", "3.1", "3.2", "3.3", "4.0", "4.1", "4.2", "4.3"), (("pair", 2), ("rack", 2))),
    PoolPlan("ct1", ("ct1.0", "ct1.1", "ct1.2")),
    PoolPlan("p100", ("p.0", "p.1", "p.2", "p.3")),
)
MODELS = {"singles": "DGX2", "rack3": "DGX2", "rack4": "DGX2", "ct1": "CT1", "p100": "P100"}


def cluster_a() -> Tenants:
    """Single nodes, a rack of three, two racks of two pairs, three small nodes, four P100 nodes; two tenants."""
    tenants = Tenants({name: MODELS[plan.name] for plan in RACKS for name in plan.nodes}, RACKS)
    tenants.vc(
        "VC1",
        ("rack4", "node", 2),
        ("rack3", "node", 2),
        ("singles", "node", 2),
        ("rack4", "pair", 1),
        pins=[("pin", "rack4", "pair", 0)],
    )
    tenants.vc("VC2", ("p100", "node", 2), ("p100", "socket", 2), ("ct1", "node", 1))
    return tenants


def eights(*racks: tuple[int, ...], level: str = "rack") -> Tenants:
    """Nodes of eight devices, n1, n2, ..., in racks of so many."""
    names = tuple(f"n{number}" for rack in racks for number in rack)
    return Tenants(dict.fromkeys(names, "P100"), [PoolPlan("p", names, ((level, len(racks[0])),))])


def test_single_devices_keep_together_and_halves_stay_whole() -> None:
    a = cluster_a()
    assert a.at(a.ask("VC1", 1, model="DGX2")) == ["1.0[0]"]
    assert a.at(a.ask("VC1", 1, model="DGX2")) == ["1.0[1]"]
    assert a.at(a.ask("VC1", 8, model="DGX2")) == ["1.0[8..15]"]


def test_opportunistic_work_stays_off_nodes_with_guaranteed_work() -> None:
    a = cluster_a()
    for size in (1, 1, 8):
        a.ask("VC1", size, model="DGX2")
    job = a.ask("VC1", 1, model="DGX2", guarantee=OPPORTUNISTIC)
    assert a.at(job) == ["5.0[0]"]
    assert not a.guaranteed(job)


def test_a_pinned_cell_serves_those_who_name_it() -> None:
    a = cluster_a()
    assert a.at(a.ask("VC1", 16, 16, pin="pin")) == ["3.0[0..15]", "3.1[0..15]"]
    assert a.waits(a.ask("VC1", 1, pin="pin")) is Reason.BEYOND_QUOTA


def test_higher_priority_takes_a_pinned_cell_from_whole_gangs() -> None:
    a = cluster_a()
    a.step(VcRequested("VC1", False, policy=VcPolicy("priority")))
    low = a.ask("VC1", 16, 16, pin="pin")
    high = a.ask("VC1", 16, pin="pin", priority=1)
    assert a.waits(high) is Reason.WAITING_FOR_VICTIMS
    assert {run.phase for run in a.state.runs_of(low)} == {RunPhase.STOPPING}
    a.leave(low)
    assert a.at(high) == ["3.0[0..15]"]
    assert a.waits(low) is Reason.RECLAIMED


def test_a_lazy_job_stays_until_somebody_needs_its_cells() -> None:
    a = cluster_a()
    a.step(VcRequested("VC2", False, policy=VcPolicy("priority")))
    lazy = a.ask("VC2", 2, model="CT1", lazy=True)
    at = a.at(lazy)
    high = a.ask("VC2", 2, model="CT1", priority=1)
    assert a.job(high).state is JobState.RUNNING
    assert (a.guaranteed(high), a.guaranteed(lazy)) == (True, False)
    assert a.at(lazy) == at != a.at(high)


def test_a_trial_has_the_cheapest_run_of_its_own_virtual_cluster_preempted() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two", "three"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 2), policy=VcPolicy("fitgpp"))
    tenants.vc("B", ("four-2x2", "node", 1))
    long, short, big = tenants.ask("A", 2, grace=60), tenants.ask("A", 2, grace=5), tenants.ask("A", 4, grace=5)
    other = tenants.ask("B", 2, grace=0)
    trial = tenants.ask("A", 2, trial=True)
    assert tenants.waits(trial) is Reason.WAITING_FOR_VICTIMS
    stopping = [job for job in (long, short, big, other) if tenants.job(job).state is JobState.STOPPING]
    assert stopping == [short]
    tenants.leave(short)
    assert tenants.guaranteed(trial)
    assert tenants.job(short).preempted_for_trial == 1


def test_in_a_pinned_cell_others_are_opportunistic_jobs() -> None:
    a = cluster_a()
    jobs = [a.ask("VC1", 16, pool="rack4", guarantee=OVERFLOW) for _ in range(8)]
    kept = {place.split("[")[0] for job in jobs if a.guaranteed(job) for place in a.at(job)}
    assert len(kept) == 4  # two nodes, and a pair of two
    assert not kept & {"3.0", "3.1"}
    owner = a.ask("VC1", 16, 16, pin="pin")
    assert a.waits(owner) is Reason.WAITING_FOR_VICTIMS
    a.end(*(job for job in jobs if a.job(job).state is JobState.STOPPING))
    assert a.at(owner) == ["3.0[0..15]", "3.1[0..15]"]


def test_what_does_not_fit_waits_and_holds_nothing() -> None:
    a = cluster_a()
    gang = a.ask("VC2", 8, 8, 4, model="P100")
    assert a.at(gang) == ["p.0[0..7]", "p.1[0..7]", "p.2[0..3]"]
    a.end(gang)
    refused = a.refused("VC2", 8, 8, 8, model="P100")
    assert refused.reason == "NEVER_IN_QUOTA"
    first = a.ask("VC2", 8, model="P100")
    waiting = a.ask("VC2", 8, 8, model="P100")
    assert a.waits(waiting) is Reason.BEYOND_QUOTA
    assert list(a.owned().values()).count("VC2") == 1  # the first job's node
    a.end(first)
    assert a.at(waiting) == ["p.0[0..7]", "p.1[0..7]"]


def test_members_of_a_gang_may_differ() -> None:
    a = cluster_a()
    assert a.at(a.ask("VC2", 7, 5, model="P100")) == ["p.0[0..6]", "p.1[0..4]"]


def test_refusals_name_what_is_wrong() -> None:
    a = cluster_a()
    wrong: list[tuple[Refused, type[Refused], str]] = [
        (a.refused("VC2", 1, model="DGX2"), FailedPrecondition, "NEVER_IN_QUOTA"),
        (a.refused("VC1", 1, model="H100"), NotFound, "NO_SUCH_MODEL"),
        (a.refused("VC3", 1), NotFound, "NO_SUCH_VC"),
        (a.refused("", 1), FailedPrecondition, "NO_VC"),
        (a.refused("VC1", 1, pin="pan"), NotFound, "NO_SUCH_PIN"),
        (a.refused("VC1", 1, pool="rack5"), NotFound, "NO_SUCH_POOL"),
        (a.refused("VC1", 1, pin="pin", guarantee=OPPORTUNISTIC), FailedPrecondition, "PIN_NEEDS_GUARANTEE"),
        (a.refused("VC2", 1, within="rack"), FailedPrecondition, "NEVER_IN_QUOTA"),
        (a.refused("VC2", 1, cpu=64_000), FailedPrecondition, "NEVER_IN_QUOTA"),
    ]
    for refusal, kind, reason in wrong:
        assert (type(refusal), refusal.reason) == (kind, reason)


def test_doomed_cells_are_those_that_nobody_could_have_any_more() -> None:
    tenants = Tenants(dict.fromkeys(("2.0", "2.1", "2.2"), "DGX2"), [RACKS[1]])
    tenants.vc("VC1", ("rack3", "node", 2))
    tenants.vc("VC2", ("rack3", "node", 1))
    tenants.ask("VC1", 16)

    def shown() -> tuple[int, int]:
        return tenants.doomed("VC1", "rack3", "node"), tenants.doomed("VC2", "rack3", "node")

    everything = tuple((index, "XID 79") for index in range(16))
    tenants.step(FaultsSeen("2.1", "a", everything))
    assert shown() == (0, 0)
    second = tenants.ask("VC2", 16)
    assert tenants.at(second) == ["2.2[0..15]"]
    assert shown() == (1, 0)
    tenants.end(second)
    assert shown() == (0, 0)
    tenants.step(FaultsSeen("2.2", "a", everything))
    assert shown() == (1, 1)
    tenants.step(FaultsSeen("2.2", "a", ()))
    assert shown() == (0, 0)


def test_more_than_there_is_cannot_be_promised() -> None:
    tenants = Tenants(dict.fromkeys(("ct1.0", "ct1.1", "ct1.2"), "CT1"), [RACKS[3]])
    answer = tenants.reply(
        VcRequested("VC1", True, (Quota("ct1", "node", 3), Quota("ct1", "device", 2)), (Pin("pin", "ct1", "device", 0),))
    )
    assert isinstance(answer, FailedPrecondition)
    assert answer.reason == "INFEASIBLE_QUOTAS"
    assert answer.metadata == {"pool": "ct1", "level": "node", "missing": "1"}
    assert not tenants.state.vcs.rows


def test_tasks_that_belong_in_one_rack_get_one() -> None:
    tenants = eights((1, 2), (3, 4))
    tenants.vc("VC1", ("p", "rack", 2))
    assert tenants.at(tenants.ask("VC1", 1)) == ["n1[0]"]
    assert tenants.at(tenants.ask("VC1", 8, 8, within="rack")) == ["n3[0..7]", "n4[0..7]"]


def test_tasks_that_belong_in_one_socket_get_one() -> None:
    tenants = eights((1, 2), (3, 4))
    tenants.vc("VC1", ("p", "rack", 2))
    tenants.ask("VC1", 1)
    four = tenants.ask("VC1", 1, 1, 1, 1, within="socket")
    assert sorted(tenants.at(four)) == ["n1[4]", "n1[5]", "n1[6]", "n1[7]"]
    tenants.end(four)
    socket = tenants.ask("VC1", 4, levels=("socket",))
    assert tenants.at(socket) == ["n1[4..7]"]
    tenants.end(socket)
    assert tenants.at(tenants.ask("VC1", 5))[0].startswith("n1[")
    spread = tenants.ask("VC1", 1, 1, 1, 1, within="node")
    assert sorted(tenants.at(spread)) == ["n2[0]", "n2[1]", "n2[2]", "n2[3]"]


def test_constraints_may_be_inside_one_another() -> None:
    tenants = eights((1, 2), (3, 4))
    tenants.vc("VC1", ("p", "rack", 2))
    tenants.ask("VC1", 5)
    assert tenants.at(tenants.ask("VC1", 2, 4, 4, within=(Within("rack"), Within("switch", True, 0)))) == [
        "n1[6..7]",
        "n2[0..3]",
        "n2[4..7]",
    ]
    job = tenants.ask("VC1", 2, 3, 3, within=(Within("node"), Within("switch", True, 0), Within("socket", True, 1)))
    assert tenants.at(job) == ["n3[4..5]", "n3[0..2]", "n3[3,6,7]"]


def test_what_is_only_preferred_gives_way() -> None:
    for required in (True, False):
        tenants = eights((1, 2), (3, 4))
        tenants.vc("VC1", ("p", "rack", 2))
        second = [tenants.ask("VC1", 8) for _ in range(3)][1]
        tenants.end(second)
        job = tenants.ask("VC1", 8, 8, within=Within("rack", required))
        if required:
            assert tenants.waits(job) is Reason.BEYOND_QUOTA
        else:
            assert tenants.at(job) == ["n2[0..7]", "n4[0..7]"]


def test_faulty_nodes_are_first_for_those_who_have_lost_most() -> None:
    tenants = eights((1, 2), (3, 4), (5, 6))
    tenants.vc("VC1", ("p", "rack", 2))
    tenants.vc("VC2", ("p", "rack", 1))
    for name in ("n4", "n5", "n6"):
        tenants.step(FaultsSeen(name, "a", tuple((index, "XID 79") for index in range(8))))
    assert tenants.at(tenants.ask("VC1", 1)) == ["n3[0]"]
    assert tenants.at(tenants.ask("VC2", 1)) == ["n1[0]"]
    assert tenants.waits(tenants.ask("VC1", 4, 4, 4, 4)) in (Reason.BEYOND_QUOTA, Reason.CELLS_FAULTY)


def test_figure_2_fragments_stay_with_those_who_made_them() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.vc("B", ("four-2x2", "node", 1))
    small = [tenants.ask("A", 1) for _ in range(4)]
    assert [tenants.at(job) for job in small] == [["one[0]"], ["one[1]"], ["one[2]"], ["one[3]"]]
    tenants.end(small[1], small[3])
    assert tenants.at(tenants.ask("A", 2)) == ["one[1,3]"]
    assert tenants.at(tenants.ask("B", 4)) == ["two[0..3]"]


def test_opportunistic_runs_leave_for_whoever_owns_the_cells() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.vc("B", ("four-2x2", "node", 1))
    opportunistic_jobs = [tenants.ask("A", 2, guarantee=OPPORTUNISTIC) for _ in range(4)]
    assert sorted(place for job in opportunistic_jobs for place in tenants.at(job)) == [
        "one[0..1]",
        "one[2..3]",
        "two[0..1]",
        "two[2..3]",
    ]
    owner = tenants.ask("B", 4)
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    leaving = [job for job in opportunistic_jobs if tenants.job(job).state is JobState.STOPPING]
    assert len(leaving) == 2
    assert len({tenants.at(job)[0].split("[")[0] for job in leaving}) == 1
    assert list(tenants.owned().values()) == ["B"]  # bound in the same decision
    tenants.leave(leaving[0])
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    tenants.leave(leaving[1])
    assert tenants.job(owner).state is JobState.RUNNING
    assert tenants.guaranteed(owner)
    assert [tenants.waits(job) for job in leaving] == [Reason.RECLAIMED, Reason.RECLAIMED]


def test_what_overflows_is_promoted_where_it_is() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.vc("B", ("four-2x2", "node", 1))
    first, second = tenants.ask("A", 4), tenants.ask("A", 4, guarantee=OVERFLOW)
    assert (tenants.guaranteed(first), tenants.guaranteed(second)) == (True, False)
    at = tenants.at(second)
    tenants.end(first)
    assert tenants.guaranteed(second)
    assert tenants.at(second) == at


def test_what_is_left_of_a_gang_is_promoted_where_it_is() -> None:
    """What its other tasks held before they ended is nothing that it needs."""
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "switch", 2))
    tenants.ask("A", 2)
    gang = tenants.ask("A", 1, 1, 1, guarantee=OVERFLOW)
    assert not tenants.guaranteed(gang)
    tenants.step(tenants.exited(gang, 0), tenants.exited(gang, 1))
    assert [run.task for run in tenants.state.runs_of(gang)] == [2]
    assert tenants.guaranteed(gang)


def test_as_in_the_paper_what_overflows_is_not_promoted() -> None:
    """Its cells go to whoever asks next, and it leaves for them."""
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.policy = cells(promotes=False)
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.vc("B", ("four-2x2", "node", 1))
    first, second = tenants.ask("A", 4), tenants.ask("A", 4, guarantee=OVERFLOW)
    tenants.end(first)
    assert not tenants.guaranteed(second)
    assert tenants.owned() == {}
    both = [tenants.ask(vc, 4) for vc in "BA"]
    assert tenants.waits(both[1]) is Reason.WAITING_FOR_VICTIMS
    assert tenants.job(second).state is JobState.STOPPING


def test_a_smaller_virtual_cluster_keeps_its_runs_as_opportunistic() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 2))
    jobs = [tenants.ask("A", 4), tenants.ask("A", 4)]
    tenants.change("A", ("four-2x2", "node", 1))
    assert sorted(tenants.guaranteed(job) for job in jobs) == [False, True]
    tenants.vc("B", ("four-2x2", "node", 1))
    owner = tenants.ask("B", 4)
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS


def test_why_a_job_waits_for_cells() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.vc("B", ("four-2x2", "node", 1))

    def why(job: int) -> list[tuple[Reason, str]]:
        told = explain(tenants.state, tenants.job(job), tenants.now, Random(0), stages("cells", PreemptionSettings()))
        return [(blocker.reason, blocker.detail) for blocker in told.blockers]

    tenants.ask("A", 4)
    first, second = tenants.ask("A", 4), tenants.ask("A", 1, guarantee=OVERFLOW)
    assert why(first) == [(Reason.BEYOND_QUOTA, "the cells of virtual cluster A are in use")]
    assert not tenants.guaranteed(second)
    third = tenants.ask("A", 4, guarantee=OVERFLOW)
    assert why(third) == [
        (Reason.BEHIND, "1 job is before it in virtual cluster A"),
        (Reason.BEYOND_QUOTA, "the cells of virtual cluster A are in use"),
        (Reason.NO_ROOM, "no idle cells that would do"),
    ]
    owner = tenants.ask("B", 4)
    assert why(owner) == [(Reason.WAITING_FOR_VICTIMS, "1 run is leaving for it")]


def before(tenants: Tenants, job: int) -> tuple[int, ...]:
    """The jobs that are said to be before it."""
    stage = stages("cells", PreemptionSettings())
    return explain(tenants.state, tenants.job(job), tenants.now, Random(0), stage).ahead_jobs


@pytest.mark.parametrize("policy", ["fifo", "priority", "fitgpp"])
def test_a_trial_that_waits_is_before_the_best_effort_job_that_it_holds_up(policy: str) -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 2), policy=VcPolicy(policy))
    tenants.ask("A", 2, trial=True)  # no trial has this one leave
    first, waits = tenants.ask("A", 1), tenants.ask("A", 4, 4, trial=True)
    second = tenants.ask("A", 1)
    assert tenants.guaranteed(first)
    assert tenants.job(second).state is JobState.QUEUED
    assert (before(tenants, waits), before(tenants, second)) == ((), (waits,))


@pytest.mark.parametrize("policy", ["fifo", "fitgpp"])
def test_trials_are_before_all_best_effort_jobs_where_they_are_served_first(policy: str) -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", ("four-2x2", "node", 1), policy=VcPolicy(policy))
    tenants.ask("A", 4, trial=True)
    waits, trial = tenants.ask("A", 1), tenants.ask("A", 4, trial=True)
    assert before(tenants, waits) == ((trial,) if policy == "fitgpp" else ())
    assert before(tenants, trial) == (() if policy == "fitgpp" else (waits,))


def test_who_waits_for_cells_that_there_never_will_be_holds_up_nobody() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 2))
    running = [tenants.ask("A", 4), tenants.ask("A", 4)]
    never, waits = tenants.ask("A", 4, 4), tenants.ask("A", 4)
    assert before(tenants, waits) == (never,)
    tenants.change("A", ("four-2x2", "node", 1))
    assert tenants.waits(never) is Reason.NEVER_IN_QUOTA
    assert before(tenants, waits) == ()
    tenants.end(*running)
    assert tenants.guaranteed(waits)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_virtual_cluster_with_jobs_is_not_deleted(size: int) -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", ("four-2x2", "node", 1))
    job = tenants.ask("A", size)
    taken = tenants.delete("A")
    refusal = taken.replies[0]
    assert isinstance(refusal, FailedPrecondition)
    assert refusal.reason == "VC_IN_USE"
    tenants.end(job)
    tenants.delete("A")
    assert not tenants.state.vcs.rows
    assert not tenants.state.bindings.rows
