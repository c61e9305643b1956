"""Other scores: what each prefers, and that every plan can be carried out."""

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from scheduler_service.core.enact import enact
from scheduler_service.core.invariants import check
from scheduler_service.core.messages import Preempt
from scheduler_service.core.model import Job, JobClass, JobSpec, RunKey, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.indices.runs import refresh_candidate
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.fitgpp.policy import fitgpp_victims
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.placing.first_fit import place
from scheduler_service.sim.policies.victim_scores import CHOICES, with_term
from tests.policies.cluster import Builder, clusters, seeded
from tests.policies.test_gang_victims import clusters as clusters_with_gangs

SIZES = PreemptionSettings(s=0.0)
NEEDS = st.lists(st.builds(Vector, st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=3)
MINUTE = 60


def told(name: str, state: State, demand: Vector, settings: PreemptionSettings = PreemptionSettings()) -> list[int]:  # noqa: B008
    plan = CHOICES[name](state, _trial(demand), settings, seeded())
    return [act.job_id for act in plan or () if isinstance(act, Preempt)]


def _trial(*tasks: Vector) -> Job:
    total = Vector(*(sum(amounts) for amounts in zip(*tasks, strict=True)))
    gang = tuple(TaskGroup(1, task) for task in tasks) if len(tasks) > 1 else ()
    return Job(10_000, JobSpec(("true",), total, JobClass.TRIAL, gang=gang), "ann", "", 0)


def began(built: Builder, key: RunKey | None, at: int) -> None:
    assert key is not None
    built.state.put(built.state.runs, key, with_changes(built.state.runs.rows[key], placed_us=at * SECOND))


def at(built: Builder, now: int) -> State:
    built.state.put(built.state.cluster_table, 0, with_changes(built.state.cluster, clock_us=now * SECOND))
    return built.done()


# ---- whatever they choose ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHOICES)
@given(st.one_of(clusters(), clusters_with_gangs()), NEEDS, st.integers(0, 2))
def test_every_plan_can_be_carried_out(name: str, state: State, needs: list[Vector], cap: int) -> None:
    trial = _trial(*needs)
    state.put(state.jobs, trial.id, trial)
    assume(place(state, trial) is None)
    settings = PreemptionSettings(cap=cap)
    plan = CHOICES[name](state, trial, settings, seeded())
    usual = fitgpp_victims(state, trial, settings, seeded())
    event(f"plan: {plan is not None}")
    if usual is None and name != "thrifty":
        assert plan is None, "nobody can do what all of them together cannot"
    if plan is None:
        assert usual is None or name == "patient"
        return
    assert enact(state, plan, state.cluster.clock_us) is None
    check(state)
    assert trial.id in state.earmarks_of


@pytest.mark.parametrize("name", CHOICES)
@given(clusters(), NEEDS)
def test_nothing_depends_on_the_order_of_rows(name: str, state: State, needs: list[Vector]) -> None:
    other = State(state.cluster)
    other.restore((t.name, k, row) for t in state.tables() if t.name != "cluster" for k, row in reversed(t.rows.items()))
    for run in reversed(other.runs.rows.values()):
        other.candidates.drop(run.key)
    for run in reversed(other.runs.rows.values()):
        refresh_candidate(other, run.key)
    plans = [CHOICES[name](one, _trial(*needs), PreemptionSettings(), seeded()) for one in (state, other)]
    assert plans[0] == plans[1]


@given(clusters(), NEEDS)
def test_a_term_that_says_nothing_changes_nothing(state: State, needs: list[Vector]) -> None:
    silent = with_term("fitgpp", lambda field: np.zeros(len(field.job)))
    trial = _trial(*needs)
    assert silent(state, trial, PreemptionSettings(), seeded()) == fitgpp_victims(state, trial, PreemptionSettings(), seeded())


def test_policies_have_their_names() -> None:
    for name, choice in CHOICES.items():
        assert stages(name, PreemptionSettings()).victims is not None, choice


# ---- what each prefers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "chosen"), [("young", 1), ("old", 0)])
def test_age(name: str, chosen: int) -> None:
    built = Builder()
    node = built.node(Vector(8, 8, 4))
    keys = [built.run(node, Vector(4, 4, 2), grace=1) for _ in range(2)]
    for key, when in zip(keys, (0, 9 * MINUTE), strict=True):
        began(built, key, when)
    wanted = keys[chosen]
    assert wanted is not None
    assert told(name, at(built, 10 * MINUTE), Vector(1, 1, 2)) == [wanted.job_id]


def test_waste_is_size_times_grace() -> None:
    """Eqn 3 prefers the large quick one: 1 + 1.8 / 2 against 1/8 + 1.8. It wastes 8 GPU-seconds, the other 2: + 1 and + 1/4."""
    built = Builder()
    node = built.node(Vector(0, 0, 12))
    large, small = built.run(node, Vector(0, 0, 8), grace=1), built.run(node, Vector(0, 0, 1), grace=2)
    state, settings = built.done(), PreemptionSettings(s=1.8)
    assert large is not None
    assert small is not None
    plan = fitgpp_victims(state, _trial(Vector(0, 0, 4)), settings, seeded())
    assert [act.job_id for act in plan or () if isinstance(act, Preempt)] == [large.job_id]
    assert told("waste", state, Vector(0, 0, 4), settings) == [small.job_id]


def test_snug_leaves_no_fragments() -> None:
    """Of equal runs the one on the node where nothing else is free, though the other was submitted last."""
    built = Builder()
    full, roomy = built.node(Vector(4, 4, 4)), built.node(Vector(4, 4, 7))
    fitting = built.run(full, Vector(2, 2, 4), grace=1)
    built.run(roomy, Vector(2, 2, 4), grace=1)
    assert fitting is not None
    assert told("snug", built.done(), Vector(2, 2, 4), SIZES) == [fitting.job_id]


def test_movable_takes_one_that_can_go_on_elsewhere() -> None:
    """The smaller run fits nowhere else: the free node has no memory for it."""
    built = Builder()
    here, there = built.node(Vector(9, 16, 8)), built.node(Vector(9, 2, 8))
    movable = built.run(here, Vector(4, 1, 4), grace=1)
    stuck = built.run(here, Vector(3, 8, 4), grace=1)
    built.run(there, Vector(1, 1, 4), trial=True)
    state = built.done()
    assert movable is not None
    assert stuck is not None
    assert told("movable", state, Vector(2, 2, 4), SIZES) == [movable.job_id]
    smaller = min((movable, stuck), key=lambda key: state.candidates.size[state.candidates._slots[key]])
    assert told("snug", state, Vector(2, 2, 4), SIZES) == [smaller.job_id]


def test_pairs_leave_where_both_are_gone_before_one() -> None:
    built = Builder()
    one, two = built.node(Vector(0, 0, 4)), built.node(Vector(0, 0, 4))
    built.run(one, Vector(0, 0, 4), grace=100)
    quick = [built.run(two, Vector(0, 0, 2), grace=grace) for grace in (10, 20)]
    state = built.done()
    assert sorted(told("pairs", state, Vector(0, 0, 4))) == [key.job_id for key in quick if key]
    assert [told("pairs", state, Vector(0, 0, 2))] == [[key.job_id] for key in quick[:1] if key], "one will do"


def test_a_gang_is_one_victim_and_leaves_where_it_is_better_than_a_pair() -> None:
    """It is as large as the two, and gone at once; they take 9 s."""
    built = Builder()
    node = built.node(Vector(0, 0, 8))
    for _ in range(2):
        built.run(node, Vector(0, 0, 2), grace=9)
    gang = built.gang([(node, Vector(0, 0, 2)), (node, Vector(0, 0, 2))], grace=1)
    assert told("pairs", built.done(), Vector(0, 0, 4)) == [gang]


def test_a_pair_that_is_no_better_stays() -> None:
    """Both halves are as large as the whole, and leave no sooner."""
    built = Builder()
    one, two = built.node(Vector(0, 0, 4)), built.node(Vector(0, 0, 4))
    whole = built.run(one, Vector(0, 0, 4), grace=20)
    for _ in range(2):
        built.run(two, Vector(0, 0, 2), grace=20)
    assert whole is not None
    assert told("pairs", built.done(), Vector(0, 0, 4)) == [whole.job_id]


@pytest.mark.parametrize(("recent", "waits"), [(3, True), (2, False)])
def test_patience_where_enough_will_end(recent: int, waits: bool) -> None:
    """Grace is a minute, and so many runs that would make room began within the last minute."""
    built = Builder()
    keys = [built.run(built.node(Vector(4, 4, 4)), Vector(1, 1, 4), grace=MINUTE) for _ in range(5)]
    for i, key in enumerate(keys):
        began(built, key, 570 if i < recent else 100)
    assert (told("patient", at(built, 600), Vector(1, 1, 4)) == []) == waits
