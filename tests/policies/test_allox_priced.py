"""allox-priced: prices, turns, the limit, and what it has in common with allox."""

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.messages import Accepted, PlanReady, Submitted
from scheduler_service.core.model import JobClass, JobSpec, JobState
from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.allox.allox_priced import starts
from scheduler_service.policies.allox.matching.problem import NEVER
from scheduler_service.policies.allox.matching_input import Question
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver
from tests.policies.test_allox import CPU_NODE, GPU_NODE, ON_GPU, either, submit

QUEUED, STARTING = JobState.QUEUED, JobState.STARTING
SHARE = 0.25
"""Of each job's fastest configuration."""


def question(
    times: Sequence[tuple[int, int]],
    free_at: tuple[Sequence[int], ...],
    users: Sequence[int] = (),
    received: Sequence[float] = (0.0,),
    levels: Sequence[int] = (),
    arrived: Sequence[int] = (),
    now: int = 0,
) -> Question:
    """Jobs with their times on two kinds of slots; all of one user, and of one level, unless something else is said."""
    table, count = np.array(times, np.int64).reshape(-1, 2), len(times)
    return Question(
        now=now,
        alpha=0,
        jobs=np.arange(count),
        levels=np.array(levels or [0] * count, np.int64),
        users=np.array(users or [0] * count, np.int64),
        received=tuple(received),
        arrived=np.array(arrived or [0] * count, np.int64),
        times=table,
        configurations=np.tile([0, 1], (count, 1)),
        values=SHARE * table.min(axis=1, keepdims=True) / table,
        free_at=tuple(np.array(slots, np.int64) for slots in free_at),
        where=("",) * len(free_at),
    )


def answer(of: Question, limit: float = 1e6, patience: float = 0) -> list[tuple[int, int]]:
    """Pairs of a job and a configuration."""
    found = starts(of, limit, patience)
    return list(zip(found[::2], found[1::2], strict=True))


# ---- prices --------------------------------------------------------------------------------------------------------------


def test_a_slower_slot_is_taken_sooner_the_more_jobs_wait_for_the_fast_ones() -> None:
    """Four fast slots are free in 10 s, and four slow ones now. A job takes 10 s or 24 s. If it is alone, it waits, since
    10 + 10 * (1 + 1/4) is less than 24. The first of four jobs does not wait: 10 + 10 * (1 + 4/4) is more than 24. When it has
    started, three jobs are left, and a fast slot counts 27.5; then two, and 25. The last job is alone."""
    fast, slow = [10] * 4, [0] * 4
    assert answer(question([(10, 24)], (fast, slow))) == []
    assert answer(question([(10, 24)] * 4, (fast, slow))) == [(0, 1), (1, 1), (2, 1)]


def test_a_price_at_most_doubles_the_time() -> None:
    for slow, found in ((31, []), (29, [(0, 1)])):
        assert answer(question([(10, slow), *[(11, NEVER)] * 5], ([10], [0]))) == found


def test_a_kind_without_slots_or_on_which_a_job_cannot_run_is_left_out() -> None:
    assert answer(question([(10, 20)], ([], [0]))) == [(0, 1)]
    assert answer(question([(10, NEVER)], ([50], [0]))) == []
    assert answer(question([(NEVER, NEVER), (NEVER, 30)], ([0], [0]))) == [(1, 1)]


# ---- turns ---------------------------------------------------------------------------------------------------------------


def test_the_user_who_has_less_is_first_unless_the_other_ones_job_is_much_shorter() -> None:
    """With its job a user would have 0.5, or 1: jobs of the second one have to be 8 times as short."""
    for short, first in ((7, 0), (9, 1)):
        of = question([(63, NEVER), (63 // short, NEVER)], ([0], []), users=(0, 1), received=(0.25, 0.75))
        assert answer(of) == [(first, 0)]


def test_what_starts_counts_for_the_next_turn() -> None:
    of = question([(10, NEVER), (11, NEVER), (12, NEVER)], ([0, 0], []), users=(0, 0, 1), received=(0, 0))
    assert answer(of) == [(0, 0), (2, 0)]


def test_jobs_of_higher_priority_are_first() -> None:
    of = question([(90, NEVER), (10, NEVER)], ([0], []), levels=(0, 1))
    assert answer(of) == [(0, 0)]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(1, 4))
def test_one_user_on_one_kind_is_served_shortest_first(times: list[int], slots: int) -> None:
    found = answer(question([(time, NEVER) for time in times], ([0] * slots, [])))
    assert [times[job] for job, _ in found] == sorted(times)[:slots]


def test_each_job_starts_once_and_on_a_free_slot() -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        count = int(rng.integers(1, 12))
        free_at = tuple(np.sort(rng.integers(0, 3, int(rng.integers(0, 5))) * 20) for _ in range(2))
        of = question(rng.integers(1, 100, (count, 2)).tolist(), free_at, rng.integers(0, 3, count).tolist(), (0.5, 0, 0.1))
        found = answer(of, limit=1.2)
        assert len({job for job, _ in found}) == len(found)
        for kind, slots in enumerate(free_at):
            assert sum(on == kind for _, on in found) <= np.count_nonzero(slots == 0)


# ---- the limit -----------------------------------------------------------------------------------------------------------


def test_a_user_far_above_the_average_starts_nothing_until_patience_is_over() -> None:
    """The average is 0.6, and the limit 0.72."""
    for now, found in ((19, []), (20, [(0, 0)])):
        of = question([(10, NEVER)], ([0], []), users=(0,), received=(1.0, 0.2), now=now)
        assert answer(of, limit=1.2, patience=2) == found
    assert answer(question([(10, NEVER)], ([0], []), received=(0.7, 0.5)), 1.2, 2) == [(0, 0)]


def test_a_user_alone_is_never_above_the_limit() -> None:
    assert len(answer(question([(10, NEVER)] * 4, ([0] * 4, []), received=(9.0,)), limit=1, patience=1e6)) == 4


def test_below_an_equal_share_nobody_is_held_back() -> None:
    """Two users: half of a kind of slot each, whatever the average is."""
    for received, found in ((0.5, [(0, 0)]), (0.51, [])):
        of = question([(10, NEVER)], ([0], []), users=(0,), received=(received, 0.01))
        assert answer(of, limit=1, patience=1e6) == found


def test_a_job_that_was_held_back_starts_when_its_patience_is_over_though_nothing_else_happens() -> None:
    """An equal share of eight GPUs is four. Ann's jobs start until she has more: five of them, and the sixth is held back."""
    made = stages("allox-priced", PreemptionSettings(), own={"limit": 1, "patience": 2})
    d = Driver(made.policy, order=order_of(made))
    for number in range(8):
        d.join(f"gpu-{number}", GPU_NODE)
    submit(d, JobSpec(("true",), ON_GPU, estimate_us=1000 * SECOND), user="bob")
    jobs = submit(d, *[JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND)] * 6, user="ann")
    assert d.states(*jobs) == [STARTING] * 5 + [QUEUED]
    (memo,) = d.state.memos.rows.values()
    assert memo.due_us == d.job(jobs[-1]).submitted_us + 20 * SECOND
    d.step(after=19)
    assert d.job(jobs[-1]).state is QUEUED
    d.step(after=1)
    assert d.job(jobs[-1]).state is STARTING
    assert not d.state.memos.rows


# ---- as allox ------------------------------------------------------------------------------------------------------------


def test_the_plan_for_a_long_queue_is_made_elsewhere() -> None:
    made = stages("allox-priced", PreemptionSettings(), own={"long": 0})
    d = Driver(made.policy, order=order_of(made))
    d.join("gpu", GPU_NODE)
    d.join("cpu", CPU_NODE)
    taken = d.step(Submitted("ann", "", either(10, 20)), Submitted("ann", "", either(30, 40)))
    (one,) = taken.delegated
    assert one.policy == "allox-priced"
    d.step(PlanReady(one.policy, one.subject, pickle.loads(pickle.dumps(one.question))()))
    jobs = [reply.job_id for reply in taken.replies if isinstance(reply, Accepted)]
    assert d.states(*jobs) == [STARTING, STARTING]
    assert [d.job(job).configuration for job in jobs] == [0, 1]


def test_trials_come_first() -> None:
    made = stages("allox-priced", PreemptionSettings(), own={})
    d = Driver(made.policy, order=order_of(made))
    d.join("gpu", GPU_NODE)
    (running,) = submit(d, JobSpec(("true",), ON_GPU, estimate_us=10 * SECOND))
    d.start(running)
    short, trial = submit(
        d,
        JobSpec(("true",), ON_GPU, estimate_us=SECOND),
        JobSpec(("true",), ON_GPU, JobClass.TRIAL, estimate_us=900 * SECOND),
    )
    d.exit(running)
    assert d.states(short, trial) == [QUEUED, STARTING]


@pytest.mark.parametrize(("name", "value"), [("limit", 0.9), ("patience", -1), ("unknown", 0), ("alpha", 0.5)])
def test_settings_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        stages("allox-priced", PreemptionSettings(), own={name: value})
