"""The equations of share groups, against a cycle that is gone through row by row."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.model import Run, RunKey, RunPhase
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import Vector
from scheduler_service.core.sharing.changes import with_idle_turns, with_packed, with_sliced, with_weights, without_runs
from scheduler_service.core.sharing.equations import (
    excess,
    is_exclusive,
    limit_mib,
    most_used_mib,
    parked_mib,
    time_share,
    used_mib,
    users_of,
)

MEMORY = 1000
SETTINGS = st.builds(
    lambda percent, residue: Settings(device_memory_limit_percent=percent, parked_residue_mib=residue),
    st.sampled_from((92, 100, 50)),
    st.sampled_from((0, 1, 30)),
)


@st.composite
def groups(draw: st.DrawFn) -> tuple[tuple[Row, ...], list[Run]]:
    """Rows over up to five runs on two nodes of three devices; each run is in a row."""
    runs = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        devices = tuple(sorted(draw(st.sets(st.integers(0, 2), min_size=1))))
        node, memory = draw(st.integers(1, 2)), draw(st.sampled_from((0, 1, 100, 300, 460)))
        demand = Vector(1, 1, len(devices))
        runs.append(Run(number, 1, node, devices, demand, RunPhase.RUNNING, 0, group=1, device_memory_mib=memory))
    left, rows = [run.key for run in runs], list[Row]()
    while left:
        members = draw(st.sets(st.sampled_from(left), min_size=1))
        left = [key for key in left if key not in members]
        again = draw(st.sets(st.sampled_from([run.key for run in runs])))
        rows.append(Row(tuple(sorted(members | again)), draw(st.integers(1, 3))))
    return tuple(rows), runs


@given(groups(), SETTINGS)
def test_no_device_is_ever_fuller_than_the_equation_says(made: tuple[tuple[Row, ...], list[Run]], settings: Settings) -> None:
    """And at some moment one is as full."""
    rows, runs = made
    limit = limit_mib(MEMORY, settings)
    fullest = {}
    for device, users in users_of(runs).items():
        moments = []
        for row in rows:
            used = 0
            for run in users:
                used += used_mib(run, limit) if run.key in row.runs else settings.parked_residue_mib
            moments.append(used)
        fullest[device] = max(moments)
        assert most_used_mib(rows, users, limit, settings.parked_residue_mib) == max(moments)
    found = excess(rows, runs, dict.fromkeys(fullest, MEMORY), settings)
    assert (found is None) == all(used <= limit for used in fullest.values())
    if found is not None:
        assert (found.used_mib, found.limit_mib) == (fullest[found.device], limit)


@given(groups(), SETTINGS)
def test_what_is_parked_has_room_on_its_node(made: tuple[tuple[Row, ...], list[Run]], settings: Settings) -> None:
    """Whichever row is active: what its node keeps for each run is as much as the run has on its devices when it is parked."""
    rows, runs = made
    memory = dict.fromkeys(users_of(runs), MEMORY)
    for run in runs:
        parked = [run.key not in row.runs for row in rows]
        needs = sum(used_mib(run, limit_mib(MEMORY, settings)) for _ in run.devices)
        assert parked_mib(rows, run, memory, settings) == (needs if any(parked) else 0)


@given(groups())
def test_time_shares_are_those_of_a_cycle(made: tuple[tuple[Row, ...], list[Run]]) -> None:
    rows, runs = made
    cycle = [row for row in rows for _ in range(row.weight)]
    for run in runs:
        assert time_share(rows, run.key) == Fraction(sum(run.key in row.runs for row in cycle), len(cycle))


@given(groups())
def test_alone_is_who_never_meets_another_on_a_device(made: tuple[tuple[Row, ...], list[Run]]) -> None:
    rows, runs = made
    shares = any(set(a.devices) & set(b.devices) for a in runs for b in runs if a is not b and a.node == b.node)
    assert is_exclusive(rows, runs) == (len(rows) == 1 and not shares)


@given(groups(), st.sets(st.integers(1, 5)), st.integers(1, 4))
def test_rows_after_a_change(made: tuple[tuple[Row, ...], list[Run]], gone: set[int], weight: int) -> None:
    rows, runs = made
    new = RunKey(9, 1)
    for place in range(len(rows)):
        assert set(with_packed(rows, place, [new])[place].runs) == {*rows[place].runs, new}
    assert without_runs(with_packed(rows, 0, [new]), {new}) == rows
    assert with_sliced(rows, [new], weight) == (*rows, Row((new,), weight))
    assert [row.weight for row in with_weights(rows, range(1, len(rows) + 1))] == list(range(1, len(rows) + 1))
    left = without_runs(rows, {run.key for run in runs if run.job_id in gone})
    assert all(row.runs and not any(key.job_id in gone for key in row.runs) for row in left)
    assert {key for row in left for key in row.runs} == {run.key for run in runs if run.job_id not in gone}


def test_a_run_that_names_no_memory_shares_with_nobody() -> None:
    """It may use all that runs may use: the residue of another is too much already."""
    alone = Run(1, 1, 1, (0,), Vector(1, 1, 1), RunPhase.RUNNING, 0)
    other = Run(2, 1, 1, (0,), Vector(1, 1, 1), RunPhase.RUNNING, 0, device_memory_mib=1)
    memory = {(1, 0): 81_920}
    assert excess((Row((alone.key,)),), [alone], memory, Settings()) is None
    for rows in (with_packed((Row((alone.key,)),), 0, [other.key]), with_sliced((Row((alone.key,)),), [other.key])):
        found = excess(rows, [alone, other], memory, Settings())
        assert found is not None
        assert found.limit_mib == 75_366


def run_on(job: int, *devices: int, task: int = 0) -> Run:
    return Run(job, 1, 1, devices, Vector(1, 1, len(devices)), RunPhase.RUNNING, 0, group=1, task=task)


def test_who_has_no_turn_has_one_once_nobody_who_has_turns_uses_its_devices() -> None:
    high, low, gang = run_on(1, 1, 2), run_on(2, 0), (run_on(3, 0), run_on(3, 2, task=1))
    rows = (Row((high.key,)), Row((low.key,), 0), Row(tuple(run.key for run in gang), 0))
    assert with_idle_turns(rows, [high, low, *gang]) == (Row((high.key, low.key)), rows[2]), "the gang waits for device 2"
    assert with_idle_turns(rows[:2], [high, low]) == (Row((high.key, low.key)),)
    assert with_idle_turns(rows[::2], [high, *gang]) == rows[::2]


def test_those_who_have_turns_again_and_want_the_same_devices_take_turns() -> None:
    high, one, two, both = run_on(1, 1), run_on(2, 0), run_on(3, 0, 2), run_on(4, 3)
    rows = (Row((high.key,), 2), Row((one.key, both.key), 0), Row((two.key, both.key), 0))
    turns = (Row((high.key, one.key, both.key), 2), Row((two.key,)))
    assert with_idle_turns(rows, [high, one, two, both]) == turns
