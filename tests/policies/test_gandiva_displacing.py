"""Jobs take the place of jobs that they outrank, which are parked or moved; a trial does so before it has anybody preempted."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler_service.core.messages import NodeSeen, RunParked, RunParkRefused, RunReady, RunResumed, Step, VcRequested
from scheduler_service.core.model import EventKind, JobState, OperationKind, Reason, StopReason
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.hived.policy import cells
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec
from tests.policies.introspected import Introspected
from tests.policies.sharing_runs import gang_of
from tests.policies.tenants import OPPORTUNISTIC, Tenants, inventory

GIB = 1 << 30
RUN, PARKED, QUEUED = JobState.RUNNING, JobState.SUSPENDED, JobState.QUEUED


def told(d: Driver, kind: Any, job: int, **facts: Any) -> Step:
    """What the nodes of all tasks report."""
    node = d.where(job)
    return d.step(*(kind(node.name, node.boot_id, d._next(node), run.key, **facts) for run in d.state.runs_of(job)))


def parked(d: Driver, job: int) -> Step:
    return told(d, RunParked, job, rung="cooperative", moved_bytes=GIB, residue_bytes=300 << 20)


class Sites(Tenants):
    """Two nodes, each of one of two virtual clusters: `a` introspects, and `b` does not. Half of what nodes have of CPUs and
    memory goes with no device, for those who are parked."""

    def __init__(self, cpus: int = 16) -> None:
        """`cpus`: of each node."""
        settings = Settings(pools=(), host_percent=50)
        Driver.__init__(self, cells(), settings, order=order_of(stages("cells", PreemptionSettings())))
        for name in ("n1", "n2"):
            seen = inventory("FOUR")
            self.step(
                NodeSeen(name, "a", replace(seen, capacity=seen.capacity._replace(cpu_milli=1000 * cpus, memory_mib=4 << 20)))
            )
        self.vc("a", ("four-2x2", "node", 1), policy=VcPolicy("gandiva"))
        self.vc("b", ("four-2x2", "node", 1))


def site(*nodes: str, **own: float) -> Introspected:
    return Introspected(*(nodes or ("n1",)), **own)


def test_a_trial_takes_a_parked_slot_and_nobody_is_preempted_for_it() -> None:
    d = site()
    other = d.begin(4)
    trial = d.begin(what=spec(4, trial=True))
    assert d.job(other).state is JobState.STOPPING
    assert d.state.operations.rows[d.state.operation_of[other]].kind is OperationKind.PARK
    parked(d, other)
    d.all_begin()
    assert d.states(other, trial) == [PARKED, RUN]
    assert d.job(other).preempted_for_trial == 0
    d.leaves(trial)
    told(d, RunResumed, other)
    assert d.job(other).state is RUN
    assert d.job(other).run == 1, "it goes on, and has lost nothing"
    assert not [subject for _, subject in d.state.memos.rows if subject.startswith("displaced")]


def test_another_trial_takes_turns_with_the_first_and_not_with_who_is_parked() -> None:
    d = site()
    other = d.begin(4)
    first = d.begin(what=spec(4, trial=True))
    parked(d, other)
    d.all_begin()
    second = d.begin(what=spec(4, trial=True))
    assert d.rows_of(first) == [[first], [second]]
    assert d.states(other, first, second) == [PARKED, RUN, RUN]


def test_a_trial_has_a_run_preempted_that_cannot_be_parked() -> None:
    d = site()
    other = d.begin(4)
    trial = d.begin(what=spec(4, trial=True))
    told(d, RunParkRefused, other, why="it does not know how")
    assert d.run(other).stop_reason is StopReason.PREEMPTED
    assert d.job(trial).reason is Reason.WAITING_FOR_VICTIMS
    d.step(d.exited(other, yielded=True))
    d.all_begin()
    assert d.states(other, trial) == [QUEUED, RUN]


def test_without_preemption_it_waits_then() -> None:
    d = site(preempting=0)
    other = d.begin(4)
    trial = d.begin(what=spec(4, trial=True))
    told(d, RunParkRefused, other, why="it does not know how")
    assert d.states(other, trial) == [RUN, QUEUED]
    d.step(after=60)
    assert d.states(other, trial) == [RUN, QUEUED], "it is left alone for ten minutes"


def test_a_trial_has_the_turns_of_lower_jobs_however_many_rows_they_have() -> None:
    d = site(rows=2)
    first, second = d.begin(4), d.begin(4)
    assert d.rows_of(first) == [[first], [second]]
    trial = d.begin(what=spec(2, trial=True))
    assert d.rows_of(trial) == [[trial], [first], [second]]
    assert d.states(first, second, trial) == [RUN] * 3


@pytest.mark.parametrize("trial", [False, True])
def test_only_as_many_are_parked_as_make_room_the_lowest_first(trial: bool) -> None:
    d = site()
    low, mid, lowest = (d.begin(what=replace(spec(1), priority=priority)) for priority in (-1, 0, -2))
    d.begin(what=replace(spec(1), priority=7))
    high = d.submit(replace(spec(2, trial=trial), priority=1))
    going = [job for job in d.state.jobs.rows if d.job(job).state is JobState.STOPPING]
    assert going == sorted((low, lowest)), f"job {mid} has a higher priority"
    for job in going:
        parked(d, job)
    d.all_begin()
    assert d.job(high).state is RUN


def test_nobody_is_parked_for_a_job_of_lower_or_equal_priority() -> None:
    d = site()
    high = d.begin(what=replace(spec(4), priority=1))
    for job in (spec(1), replace(spec(1, trial=True), priority=0)):
        waits = d.submit(job)
        assert d.job(waits).state is QUEUED
        d.cancel(waits)
    assert (d.job(high).state, d.state.operation_of) == (RUN, {})
    equal = d.begin(what=replace(spec(4), priority=1))
    assert d.rows_of(equal) == [[high], [equal]], "of equals, nobody outranks the other: they take turns"


def test_what_was_parked_does_not_come_back_before_those_who_outrank_it() -> None:
    d = site()
    low = d.begin(4)
    high = d.begin(what=replace(spec(4), priority=2))
    parked(d, low)
    d.all_begin()
    next_high, equal = d.submit(replace(spec(4), priority=1)), d.submit(spec(4))
    d.step(d.exited(high, done=True))
    d.all_begin()
    assert d.states(low, next_high, equal) == [PARKED, RUN, QUEUED]
    d.leaves(next_high)
    told(d, RunResumed, low)
    assert d.job(low).state is RUN, "and not after those whom it is equal to"


def saves(d: Driver, job: int) -> Step:
    """It is parked, and its program can save while it is."""
    return told(d, RunParked, job, rung="cooperative", moved_bytes=GIB, saves=True)


def test_what_was_parked_goes_on_elsewhere_if_there_is_room_and_its_own_devices_are_taken() -> None:
    d = site("n1", "n2", growth=0)
    low = d.begin(4)
    filler, high = (d.begin(what=replace(spec(4), priority=2)) for _ in range(2))
    saves(d, low)
    d.all_begin()
    assert d.states(low, filler, high) == [PARKED, RUN, RUN]
    d.leaves(filler)
    (moves,) = d.state.operations.rows.values()
    assert (moves.kind, moves.job_id) == (OperationKind.MIGRATE, low)
    (target,) = [run for run in d.state.runs.rows.values() if run.awaits]
    node = d.state.nodes.rows[target.node]
    assert node.name == "n2"
    d.step(after=301)  # it was not ready in time
    (again,) = d.state.operations.rows.values()
    assert (again.kind, again.target) != (OperationKind.MIGRATE, target.key)
    (target,) = [run for run in d.state.runs.rows.values() if run.awaits]
    d.step(RunReady(node.name, node.boot_id, d._next(node), target.key, "n2:1"))
    d.step(d.exited(low, yielded=True, told=True))
    d.all_begin()
    assert (d.states(low), d.nodes_of(low), d.state.memos_of.get(low, set())) == ([RUN], ["n2"], set())


def test_a_lower_job_moves_to_idle_devices_where_there_are_some() -> None:
    d = site("n1", "n2", defragment_free=100, growth=0)
    lower = [d.begin(1) for _ in range(5)]
    assert d.nodes_of(*lower) == ["n1"] * 4 + ["n2"]
    d.leaves(lower[0])
    d.step(after=700)
    high = d.submit(replace(spec(4), priority=1))
    assert d.job(high).state is QUEUED
    (moves,) = d.state.operations.rows.values()
    assert moves.kind is OperationKind.MIGRATE
    assert moves.job_id == lower[4]
    (target,) = [run for run in d.state.runs.rows.values() if run.awaits]
    node = d.state.nodes.rows[target.node]
    assert node.name == "n1"
    d.step(RunReady(node.name, node.boot_id, d._next(node), target.key, "n1:1"))
    d.step(d.exited(lower[4], yielded=True))
    d.all_begin()
    assert d.nodes_of(high, lower[4]) == ["n2", "n1"]


def test_in_a_virtual_cluster_it_is_the_same_and_the_others_have_their_cells() -> None:
    d = Sites()
    low = d.ask("a", 4)
    other = d.ask("b", 4)
    trial = d.ask("a", 4, trial=True)
    assert d.job(low).state is JobState.STOPPING
    parked(d, low)
    d.begin(trial)
    assert d.states(low, trial, other) == [PARKED, RUN, RUN]
    assert d.guaranteed(trial)
    assert d.guaranteed(other)
    borrowed = d.ask("b", 4, guarantee=OPPORTUNISTIC)
    d.end(trial)
    assert d.job(borrowed).state is QUEUED, "its cells are for whoever was parked in them"
    told(d, RunResumed, low)
    assert d.job(low).state is RUN
    assert d.guaranteed(low)


def test_a_trial_of_a_virtual_cluster_has_a_guaranteed_run_preempted_that_cannot_be_parked() -> None:
    d = Sites()
    low = d.ask("a", 4)
    trial = d.ask("a", 4, trial=True)
    d.step(after=10)
    told(d, RunParkRefused, low, why="it does not know how")
    assert d.run(low).stop_reason is StopReason.PREEMPTED
    d.leave(low)
    d.begin(trial)
    assert d.guaranteed(trial)


@pytest.mark.parametrize("size", [2, 4])
def test_what_was_parked_in_vain_has_its_cells_again_before_a_lower_job_that_waits(size: int) -> None:
    d = Sites()
    low = d.ask("a", 4)
    trial = d.ask("a", 4, trial=True)
    waits = d.ask("a", size, priority=-1)
    d.cancel(trial)
    parked(d, low)
    assert d.job(low).reason is Reason.RESUMED
    assert d.guaranteed(low)
    assert d.waits(waits) is Reason.BEYOND_QUOTA


def test_what_was_parked_goes_on_if_the_policy_is_another_one() -> None:
    d = Sites()
    low = d.ask("a", 4)
    high = d.ask("a", 4, priority=1)
    parked(d, low)
    d.step(VcRequested("a", False, policy=VcPolicy("fifo")))
    d.end(high) if d.job(high).state is not RUN else d.leave(high)
    d.step(after=601)
    d.step()
    told(d, RunResumed, low)
    assert d.job(low).state is RUN


def test_the_story_says_for_whom() -> None:
    d = site()
    low = d.begin(4)
    high = d.submit(replace(spec(4), priority=1))
    taken = parked(d, low)
    (blocker,) = explain(d.state, d.job(low), d.now, Random(0), stages("gandiva", PreemptionSettings())).blockers
    assert blocker.detail.startswith("another job has its place; it goes on when")
    assert blocker.cause_job == high
    kinds = [line.kind for line in taken.log if line.job_id == low]
    assert kinds == [EventKind.PARKED]
    assert d.job(high).state is JobState.STARTING


# ---- jobs that take turns ------------------------------------------------------------------------------------------------


def weights(d: Introspected, job: int) -> list[int]:
    group = d.group_of(job)
    assert group is not None
    return [row.weight for row in group.rows]


def test_a_trial_has_the_turns_of_jobs_that_it_outranks_and_nobody_is_preempted() -> None:
    d = site()
    one, two = d.begin(4), d.begin(4)
    assert d.rows_of(one) == [[one], [two]]
    trial = d.begin(what=spec(2, trial=True))
    assert d.states(one, two, trial) == [RUN] * 3
    assert (d.rows_of(trial), weights(d, trial)) == ([[trial], [one], [two]], [1, 0, 0])
    assert not any(run.stop_us for run in d.state.runs.rows.values())
    second = d.begin(what=spec(2, trial=True))
    assert d.state.jobs.rows[second].state is RUN
    assert (d.rows_of(second), weights(d, trial)) == ([[trial, second], [one], [two]], [1, 0, 0])
    for minutes in range(4):
        d.step(after=60 * minutes + 60)
        assert weights(d, one) == [1, 0, 0], "introspection leaves the turns to the trials"
    d.leaves(trial)
    assert weights(d, one) == [1, 0, 0]
    d.leaves(second)
    assert (d.rows_of(one), weights(d, one)) == ([[one], [two]], [1, 1]), "they have their turns again"
    assert sum(job.preempted_for_trial for job in d.state.jobs.rows.values()) == 0


def test_a_job_has_the_turns_of_a_task_that_has_begun_before_its_gang_has() -> None:
    d = site("n1", "n2", growth=0)
    both = [d.begin(4) for _ in range(2)]
    gang = d.submit(gang_of(2, 4))
    d.step(*(d.ready(gang, task) for task in range(2)))
    assert d.run(gang).group == d.run(both[0]).group == d.run(both[1]).group != 0
    high = d.submit(replace(spec(4), priority=1))
    assert d.job(high).state is QUEUED
    d.step(d.started(gang))
    assert d.job(high).state is JobState.STARTING


def test_a_job_of_higher_priority_has_turns_and_others_of_its_priority_take_turns_with_it() -> None:
    d = site()
    one, two = d.begin(4), d.begin(4)
    high = d.begin(what=replace(spec(4), priority=5))
    assert (d.rows_of(high), weights(d, high)) == ([[high], [one], [two]], [1, 0, 0])
    equal = d.begin(what=replace(spec(4), priority=5))
    assert (d.rows_of(high), weights(d, high)) == ([[high], [equal], [one], [two]], [1, 1, 0, 0])
    low = d.submit(spec(4))
    assert d.job(low).reason is Reason.NO_ROOM, "no turn is left for it"


def test_who_has_no_turn_goes_to_devices_that_came_free_and_others_keep_their_turns() -> None:
    d = site("n1", "n2")
    full = d.begin(what=spec(4, trial=True))
    jobs = [d.begin(2) for _ in range(4)]
    trial = d.begin(what=spec(2, trial=True))
    aside = [job for job in jobs if d.run(job).group == d.run(trial).group]
    assert (len(aside), sorted(weights(d, trial))) == (2, [0, 0, 1])
    (turns,) = {d.run(job).group for job in jobs if job not in aside}
    assert [row.weight for row in d.state.share_groups.rows[turns].rows] == [1, 1]
    d.leaves(full)
    for _ in range(12):
        d.step(after=60)
    moving = {d.state.operations.rows[number].kind for number in d.state.operation_of.values()}
    assert moving == {OperationKind.MIGRATE}
    assert set(d.state.operation_of) & set(aside)


def test_a_trial_ends_a_probe_and_those_that_were_packed_take_turns_after_it() -> None:
    d = site(preempting=1, packing_gain=0)
    one, two = d.begin(4), d.begin(4)
    d.profile({one: 100, two: 100})
    while d.rows_of(one) != [[one, two]]:
        d.measure({one: 100, two: 100})
    assert [subject for _, subject in d.state.memos.rows if "probe" in subject], "packing is being tried"
    trial = d.begin(what=spec(4, trial=True))
    assert d.states(one, two, trial) == [RUN] * 3
    assert (d.rows_of(trial), weights(d, trial)) == ([[trial], [one], [two]], [1, 0, 0])
    assert not [subject for _, subject in d.state.memos.rows if "probe" in subject]
    d.leaves(trial)
    assert (d.rows_of(one), weights(d, one)) == ([[one], [two]], [1, 1])


def test_jobs_that_are_packed_for_good_are_parked_together_and_stay_packed() -> None:
    d = site(packing_gain=0)
    one, two = d.begin(4), d.begin(4)
    d.profile({one: 100, two: 100})
    for _ in range(6):
        d.measure({one: 110, two: 110} if d.rows_of(one) == [[one, two]] else {one: 100, two: 100})
    assert not [subject for _, subject in d.state.memos.rows if "probe" in subject], "the verdict is there"
    trial = d.begin(what=spec(4, trial=True))
    assert (d.rows_of(trial), weights(d, trial)) == ([[trial], [one, two]], [1, 0])
    d.leaves(trial)
    assert (d.rows_of(one), weights(d, one)) == ([[one, two]], [1])


def test_in_a_virtual_cluster_a_trial_has_the_turns_of_its_own_alone() -> None:
    d = Sites()
    other = d.ask("b", 4)
    one, two = d.ask("a", 4), d.ask("a", 4)
    trial = d.ask("a", 4, trial=True)
    group = d.state.share_groups.rows[d.run(trial).group]
    assert [([key.job_id for key in row.runs], row.weight) for row in group.rows] == [([trial], 1), ([one], 0), ([two], 0)]
    assert (group.vc, group.guaranteed) == ("a", True)
    assert not d.run(other).group
    assert not any(run.stop_us for run in d.state.runs.rows.values())
    d.end(trial)
    assert [row.weight for row in d.state.share_groups.rows[d.run(one).group].rows] == [1, 1]
