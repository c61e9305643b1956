"""No job waits behind jobs that it outranks (Gandiva, section 4.2.2): whatever mixture of jobs that run alone, take turns, are
packed or parked holds the devices, a higher job has them as soon as those who hold them are parked. And a trial has nobody
stopped who could be parked instead.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import Event, RunParked, RunResumed, Step
from scheduler_service.core.model import EventKind, Job, JobState, Run, RunPhase
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.policy import first_waiting
from scheduler_service.policies.gandiva.slicing.mates import outranks
from tests.core.driver import spec
from tests.policies.test_gandiva_displacing import Sites, told
from tests.policies.test_gandiva_random import Histories
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)


def gives_way(state: State, run: Run, job: Job) -> bool:
    """Whether the job outranks the holder of the run, and nothing prevents that this one is parked or gets no turn."""
    holder = state.jobs.rows[run.job_id]
    free = not (holder.spec.shares or holder.resize_to or holder.sampling is not None or holder.id in state.operation_of)
    return outranks(job, holder) and free and run.phase.preemptible and run.key not in state.promised_by


def devices_for(state: State, job: Job, node: int) -> int:
    """How many devices of the node are idle, or held by jobs alone that give way to this one."""
    closed = state.faulty_devices.get(node, 0) | state.kept_devices.get(node, 0)
    for run in (state.runs.rows[key] for key in state.runs_on.get(node, ())):
        if run.given and not gives_way(state, run, job):
            closed |= sum(1 << index for index in run.devices)
    return sum(not closed >> index & 1 for index in range(state.nodes.rows[node].capacity.devices))


def waits_behind_lower_ones(state: State) -> str:
    """Empty: the job that is served next does not."""
    job = first_waiting(state, {Lane.TRIAL: 0, Lane.BEST_EFFORT: 0})
    if job is None or job.id in state.earmarks_of:
        return ""
    tasks = job.spec.tasks()
    room = sum(devices_for(state, job, node) // tasks[0].devices for node in state.nodes.rows)
    if room < len(tasks):
        return ""
    return (
        f"job {job.id} waits ({job.reason.name} {job.detail}) while jobs that it outranks hold what it needs: {state.runs.rows}"
    )


class Ranked(Histories):
    """Nodes have room for all who are parked."""

    def __init__(self, **own: float) -> None:
        self.preempted: list[str] = []
        super().__init__(**own)

    def step(self, *events: Event, after: int = 1) -> Step:
        taken = super().step(*events, after=after)
        self.preempted += [str(line) for line in taken.log if line.kind is EventKind.PREEMPTED]
        return taken


ACTIONS = st.tuples(
    st.sampled_from((*["submit"] * 2, *["rank"] * 5, "gang", *["end"] * 2, *["measure"] * 3, "park", "resume", "time", "late")),
    st.integers(0, 9),
    st.sampled_from((0, 1, 2, 4, 5, 6, 8, 9)),
)


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(ACTIONS, min_size=6, max_size=25), st.sampled_from(((1, 0), (0, 0), (1, 1))))
def test_no_job_waits_behind_those_that_it_outranks_and_nobody_is_stopped_who_can_be_parked(
    actions: list[tuple[str, int, int]], how: tuple[int, int]
) -> None:
    packing, migration = how
    d = Ranked(packing=packing, migration=migration)
    for action in actions:
        d.act(*action)
        d.check_turns()
        if action[0] != "late":
            assert not waits_behind_lower_ones(d.state)
    assert not d.preempted


@pytest.mark.parametrize("trial", [False, True])
@pytest.mark.parametrize("lower", range(1, 17))
def test_a_job_of_four_devices_starts_whatever_number_of_lower_jobs_has_them(lower: int, trial: bool) -> None:
    d = Ranked(packing=0, growth=0)
    d.submit(replace(spec(4), priority=9))
    for _ in range(lower):
        d.submit(spec(1))
        d.all_come_up()
    high = d.submit(replace(spec(4, trial=trial), priority=0 if trial else 5))
    d.all_come_up()
    assert d.job(high).state is JobState.RUNNING
    assert not d.preempted


# ---- virtual clusters --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(10), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from((1, 1, 1, 2, 4)), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=9),
    st.booleans(),
)
def test_in_a_virtual_cluster_a_job_of_four_devices_has_those_of_the_jobs_that_it_outranks(
    jobs: list[tuple[int, int, int]], trial: bool
) -> None:
    d = Sites(cpus=128)
    other = d.ask("b", 4)
    for devices, priority, ends in jobs:
        d.ask("a", devices, priority=priority)
        come_up(d)
        if not ends:
            d.end(min(job for job in d.state.jobs.rows if job != other))
            come_up(d)
    high = d.ask("a", 4, priority=2 if trial else 5, trial=trial)
    come_up(d)
    assert d.job(high).state is JobState.RUNNING
    assert d.guaranteed(high)
    assert d.guaranteed(other)
    assert not any(job.preempted_for_trial for job in d.state.jobs.rows.values())


def come_up(d: Sites) -> None:
    """What is to start or to park does."""
    for _ in range(50):
        before = d.taken
        for job_id in sorted(d.state.active):
            if any(run.phase is RunPhase.PARKING for run in d.state.runs_of(job_id)):
                told(d, RunParked, job_id, rung="cooperative", moved_bytes=1 << 30, residue_bytes=300 << 20)
            elif any(run.phase is RunPhase.RESUMING for run in d.state.runs_of(job_id)):
                told(d, RunResumed, job_id)
            else:
                d.begin(job_id)
        if d.taken == before:
            return
    raise AssertionError(f"this never ends: {sorted(d.state.active)}")
