"""Turns get longer if switching takes more than 2 % of them: what the policy does with what nodes measure."""

from dataclasses import replace

import pytest

from scheduler_service.core.allocation.startup_repair import repair_at_startup
from scheduler_service.core.enact import enact
from scheduler_service.core.messages import Retime, Running, Submitted, SwitchingMeasured
from scheduler_service.core.model import EventKind, JobState, Reason, RunKey
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.state import State
from tests.core.driver import spec
from tests.core.parts import part
from tests.policies.introspected import Introspected
from tests.policies.sharing_runs import gang_of


def in_turns(jobs: int = 2, **own: float) -> tuple[Introspected, list[int]]:
    """Jobs that take turns on all devices of one server."""
    d = Introspected("n1", packing=0, migration=0, **own)
    return d, [d.begin(4) for _ in range(jobs)]


def a_round(d: Introspected) -> list[str]:
    """What members of groups read of their turns."""
    return [line.text for _ in range(2) for line in d.step(after=60).log if line.kind is EventKind.RETIMED]


def told_in_a_round(d: Introspected) -> dict[RunKey, float]:
    """The seconds of a cycle that nodes are told of runs."""
    orders = [order for _ in range(2) for order in d.step(after=60).orders]
    plans = {order.key: order.desired.share for order in orders if isinstance(order.desired, Running)}
    return {key: plan.period_us / SECOND for key, plan in plans.items() if plan is not None}


def test_parks_of_5_s_in_turns_of_10_s_take_2_percent_in_the_end() -> None:
    d, (a, b) = in_turns(period=20)
    assert d.period_of(a) == 20
    d.switches(a, b, park=5)
    said = a_round(d)
    assert d.period_of(a) == 560, "the least of the lengths in use of which 10 s are at most 2 %"
    assert (
        said
        == [
            "a cycle of turns takes 560 s instead of 20 s: to park and resume takes 10 s of each, which is 1.8 % of the cycle; "
            "before, 50 %"
        ]
        * 2
    ), "of each member's story"
    assert not a_round(d)


def test_agents_are_told_the_new_period_and_nothing_else_changes() -> None:
    d, (a, b) = in_turns()
    before, rows = d.group_of(a), d.rows_of(a)
    d.switches(a, b, park=1, resume=1)
    told = told_in_a_round(d)
    group = d.group_of(a)
    assert before is not None
    assert group is not None
    assert group == replace(before, period_us=210 * SECOND, generation=before.generation + 1)
    assert d.rows_of(a) == rows
    assert told == {d.run(job).key: 210 for job in (a, b)}


def test_cheap_turns_keep_their_period() -> None:
    d, (a, b) = in_turns()
    d.switches(a, b, park=0.2, resume=0.3)
    assert not a_round(d)
    assert d.period_of(a) == 60


def test_a_park_that_outlasts_a_turn_is_tried_with_longer_turns_until_it_ends_in_time() -> None:
    d, (a, b) = in_turns(period=20)
    periods = []
    for outlasted in (5, 12.5):
        d.switches(a, outlasted=outlasted)
        assert "a park of job 1 takes" in a_round(d)[0]
        periods.append(d.period_of(a))
    assert periods == [50, 140]
    d.switches(a, wait=20)
    d.switches(b, wait=0.1)
    a_round(d)
    assert d.period_of(a) == 200, "five times 20 s for each row"
    assert not a_round(d)


def test_a_program_that_never_parks_ends_in_usual_turns() -> None:
    d, (a, b) = in_turns()
    d.switches(b, wait=0.1)
    for outlasted, period in ((15, 150), (37.5, 420), (105, 600), (150, 60)):
        d.switches(a, outlasted=outlasted)
        a_round(d)
        assert d.period_of(a) == period
    assert not a_round(d)


def test_turns_get_shorter_when_they_cost_less() -> None:
    d, (a, b) = in_turns()
    d.switches(a, b, park=3)
    a_round(d)
    assert d.period_of(a) == 300
    d.switches(a, park=2.5)
    assert not a_round(d), "by less than a quarter"
    d.switches(a, b, park=0.2)
    assert "takes 60 s instead of 300 s" in a_round(d)[0]


def test_they_get_shorter_when_the_one_that_was_slow_has_left_and_longer_at_once_for_one_more() -> None:
    d, (a, b, c) = in_turns(3)
    d.switches(a, park=0.1)
    d.switches(b, park=0.1)
    d.switches(c, park=4)
    a_round(d)
    assert d.period_of(a) == 210
    e = d.begin(4)
    assert d.period_of(e) == 210, "what is known of the others is not forgotten"
    assert len(d.rows_of(e)) == 4
    d.switches(e, park=0.1)
    d.leaves(c)
    a_round(d)
    assert d.period_of(e) == 60


def test_a_job_that_comes_to_slow_ones_has_the_right_turns_at_once() -> None:
    """Both groups have been measured; the new job joins them on all devices."""
    d = Introspected("n1", packing=0, migration=0)
    jobs = [d.begin(2) for _ in range(4)]
    d.switches(*jobs, park=1)
    told = d.step(Submitted("ann", "", spec(4))).log
    (placed,) = [line for line in told if line.kind is EventKind.PLACED]
    assert placed.text.endswith("(3 rows, 105 s a cycle because of what switching takes)")
    assert d.period_of(placed.job_id) == 105


def test_a_new_leader_keeps_the_turns_until_it_hears_what_they_cost() -> None:
    d, (a, b) = in_turns()
    d.switches(a, b, park=3)
    a_round(d)
    assert d.period_of(a) == 300
    rows = [(table.name, key, row) for table in d.state.tables() if table.durable for key, row in table.rows.items()]
    state = State(d.state.cluster, d.state.settings, d.state.order_of)
    state.restore(row for row in rows if row[0] != "cluster")
    repair_at_startup(state)
    state.adopt()
    d.state = state
    assert not d.state.switching.rows
    assert not a_round(d)
    d.switches(a, park=0.1)
    assert not a_round(d), "of the other one nothing is known"
    d.switches(b, park=0.1)
    a_round(d)
    assert d.period_of(a) == 60


def test_a_gang_on_two_servers_and_its_neighbours_have_one_period() -> None:
    d = Introspected("n1", "n2", packing=0, migration=0)
    jobs = [d.begin(4), d.begin(4)]
    gang = d.submit(gang_of(2, 4))
    d.step(*(d.ready(gang, task) for task in (0, 1)))
    d.step(*(d.started(gang, task) for task in (0, 1)))
    assert {d.where(gang, task).name for task in (0, 1)} == {"n1", "n2"}
    d.switches(jobs[0], park=2)
    told = told_in_a_round(d)
    (group,) = d.state.share_groups.rows.values()
    assert group.period_us == 105 * SECOND
    assert told == dict.fromkeys(group.members(), 105)


@pytest.mark.parametrize("known", ["before", "after"])
def test_a_gang_that_begins_in_its_turn_is_not_late_within_a_cycle(known: str) -> None:
    d = Introspected("n1", "n2", packing=0, migration=0)
    jobs = [d.begin(4) for _ in range(4)]
    if known == "before":
        d.switches(*jobs, park=5, resume=5)
        a_round(d)
    gang = d.submit(gang_of(2, 4))
    d.step(*(d.ready(gang, task) for task in (0, 1)))
    if known == "after":
        assert d.period_of(gang) == 60
        d.switches(*jobs, park=5, resume=5)
        assert any("600 s instead of 60 s" in line for line in a_round(d))
    assert d.period_of(gang) == 600
    begins = d.job(gang).start_by_us
    assert begins is not None
    left = (begins - d.now) // SECOND
    assert left >= 600
    d.step(after=left - 1)
    assert d.job(gang).state is JobState.STARTING
    assert [d.node(name).strikes for name in ("n1", "n2")] == [0, 0]
    d.step(d.started(gang, 0))
    d.step(after=1)
    assert d.job(gang).reason is Reason.GANG_NOT_READY, "one that did not begin in its turn"
    assert [d.node(name).strikes for name in ("n1", "n2")] == [0, 1]


def test_while_packing_is_measured_the_turns_stay_as_they_are() -> None:
    d = Introspected("n1", migration=0)
    a, b, c = (d.begin(what=replace(spec(4), name=name)) for name in "abc")
    d.profile({a: 100, b: 100, c: 100})
    while not any(len(row) > 1 for row in d.rows_of(a)):
        d.step(after=30)
    d.switches(a, b, c, park=3)
    assert not a_round(d)
    for _ in range(20):
        if not [subject for _, subject in d.state.memos.rows if "probe/" in subject]:
            break
        assert d.period_of(a) == 60
        packed = {job for row in d.rows_of(a) if len(row) > 1 for job in row}
        d.measure({job: 300 if job in packed else 100 for job in (a, b, c)})
    assert d.rows_of(a) == [[a], [b], [c]]
    a_round(d)
    assert d.period_of(a) == 480


@pytest.mark.parametrize(
    "event",
    [
        SwitchingMeasured("n9", RunKey(1, 1), Switching(park_us=5)),
        SwitchingMeasured("n1", RunKey(9, 1), Switching(park_us=5)),
        SwitchingMeasured("n1", RunKey(1, 2), Switching(park_us=5)),
        SwitchingMeasured("n1", RunKey(1, 1), Switching(park_us=-5)),
    ],
)
def test_what_is_said_of_others_or_cannot_be_changes_nothing(event: SwitchingMeasured) -> None:
    d, _ = in_turns()
    d.step(event)
    assert not d.state.switching.rows


def test_what_is_known_ends_with_the_run_and_is_not_durable() -> None:
    d, (a, b) = in_turns()
    taken = d.switches(a, b, park=3)
    assert {change.table for change in taken.changes} == {"cluster"}
    d.leaves(a)
    assert set(d.state.switching.rows) == {d.run(b).key}


def test_plans_that_cannot_be_are_refused() -> None:
    d, (a, _) = in_turns()
    assert enact(d.state, (Retime(99, SECOND, ""),), d.now) == "there is no share group 99"
    group = d.group_of(a)
    assert group is not None
    assert "period of 0 us" in (enact(d.state, (Retime(group.id, 0, ""),), d.now) or "")


@pytest.mark.parametrize("period", [10, 120])
def test_parts_of_a_device_take_turns_of_the_period_whatever_switching_costs(period: int) -> None:
    """Whoever put them together."""
    d = Introspected("n1", packing=0, migration=0, period=period, switching_cost=0)
    d.begin(3)
    a, b = (d.submit(part(0.5)) for _ in range(2))
    assert d.group_of(a) == d.group_of(b)
    said = a_round(d)
    assert d.period_of(a) == period
    assert said == [f"a cycle of turns takes {period} s instead of 60 s: by the settings, whatever parks and resumes take"] * 2
    d.switches(a, b, park=5)
    assert a_round(d) == []
