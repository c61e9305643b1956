"""What is measured of cell exchange, against what a plain count over every moment gives."""

from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from reproduction.hived import exchange as e
from reproduction.hived import measures as m
from scheduler_service.core.model.values import Micros
from scheduler_service.sim.experiments.metrics import HOUR_US
from tests.reproduction.test_hived_measures import END, NODES, Job, Run, drawn, history, tasks_at

OWN = {"a": 24, "b": 8}


class Window(NamedTuple):
    giver: str
    taker: str
    cells: int
    opened: int | None
    returned: int | None


def table(windows: list[Window]) -> Any:
    return pa.table(
        {
            "giver": pa.array([window.giver for window in windows], pa.string()),
            "taker": pa.array([window.taker for window in windows], pa.string()),
            "gpus": pa.array([8 * window.cells for window in windows], pa.int64()),
            "opened_us": pa.array([window.opened for window in windows], pa.int64()),
            "returned_us": pa.array([window.returned for window in windows], pa.int64()),
        }
    )


def use(jobs: list[Job], guaranteed: bool = True) -> e.Use:
    h, _, runs = history(jobs, guaranteed)
    return e.Use(m.uses(h, runs), m.all_uses(h, runs), h.vcs[1])


def gained(name: str, without: e.Use, with_it: e.Use, windows: list[Window], begin: Micros = 0, end: Micros = 40) -> e.Gained:
    return e.gain_of_tenant(name, OWN[name], without, with_it, e.windows(table(windows), END), begin, end)


ALONE = [Job("b", 8, 0, [Run([1], 0, 30)]), Job("b", 8, 1, [Run([2], 10, 20, guaranteed=None)])]
"""b uses its own node for 30, and another's, with no guarantee, for 10."""
TRADED = [ALONE[0], Job("b", 8, 1, [Run([2], 10, 20)])]
"""The same, but guaranteed in an exchanged cell."""


def test_what_is_used_beyond_ones_own_counts_as_far_as_one_gave_as_much() -> None:
    """b takes a node for 20 and uses it for 10; what it gives itself is a quarter of what it takes, then all, then more."""
    without, with_it = use(ALONE), use(TRADED)
    took = Window("a", "b", 1, 10, 30)
    found = gained("b", without, with_it, [took])
    assert (found.effective, found.increased, found.gain) == (0.75, 0, 0)
    assert found.regular == pytest.approx(1)
    assert [hours * HOUR_US for hours in (found.given_h, found.taken_h, found.had_h)] == pytest.approx([0, 8 * 20, 8 * 10])
    for given, share in ((5, 0.25), (8, 0.4), (10, 0.5)):
        found = gained("b", without, with_it, [took, Window("b", "a", 1, 30, 30 + given)])
        assert found.increased == pytest.approx(share * 8 * 10 / (8 * 40))
        assert found.gain == pytest.approx(found.increased / 0.75)
    assert e.matched_share(5, 5) == e.matched_share(9, 5) == 1


def test_what_runs_without_a_guarantee_gains_nothing() -> None:
    found = gained("b", use(ALONE), use(ALONE), [Window("a", "b", 1, 10, 30), Window("b", "a", 1, 30, 40)])
    assert (found.increased, found.had_h) == (0, 0)


def test_who_takes_back_what_it_gave_gains_nothing() -> None:
    """b gives its node for all of the time, and takes another for as long, in which its job runs."""
    found = gained("b", use(ALONE), use([ALONE[0]]), [Window("b", "a", 1, 0, 40), Window("a", "b", 1, 0, 40)])
    assert (found.increased, found.given_h, found.taken_h, found.regular) == (0, 0, 0, found.effective)


def test_use_goes_up_and_down_against_all_that_is_used() -> None:
    """Eqn 3 of 16 GPUs for 10, 8 for 20, none for 10, where 8 are owned; also of those that have no guarantee."""
    found = gained("b", use(ALONE), use(TRADED), [])
    assert found.fluctuation == pytest.approx((64 * 10 + 64 * 10) ** 0.5 / 40**0.5 / 8)


def test_a_tenant_without_jobs_gives_all_that_it_likes_and_gains_nothing() -> None:
    found = gained("a", use(ALONE), use(TRADED), [Window("a", "b", 1, 10, 30)])
    assert (found.effective, found.increased, found.gain, found.had_h) == (0, 0, 0, 0)
    assert found.given_h * HOUR_US == pytest.approx(160)


def test_a_window_that_was_never_opened_is_none_and_one_that_is_open_ends_with_the_simulation() -> None:
    found = e.windows(table([Window("a", "b", 1, None, 7), Window("a", "b", 2, 50, None)]), END)
    assert (found.giver, found.gpus.tolist(), found.begin.tolist(), found.end.tolist()) == (["a"], [16], [50], [END])


def exchanges(rng: Random) -> list[Window]:
    made = []
    for _ in range(rng.randint(1, 6)):
        opened = rng.choice((None, rng.randrange(END - 10)))
        returned = None if opened is None else rng.choice((None, rng.randint(opened, END)))
        giver, taker = rng.choice((("a", "b"), ("b", "a")))
        made.append(Window(giver, taker, rng.randint(1, 2), opened, returned))
    return made


def in_force(windows: list[Window], side: int, name: str, at: int) -> int:
    there = (w for w in windows if w.opened is not None and w.opened <= at < (END if w.returned is None else w.returned))
    return sum(8 * window.cells for window in there if window[side] == name)


@pytest.mark.parametrize("seed", range(80))
def test_gpus_beyond_the_own_at_every_moment(seed: int) -> None:
    rng = Random(seed)
    jobs, windows = drawn(rng), exchanges(rng)
    begin, end = rng.randint(0, 20), rng.randint(30, END)
    traded, used = e.windows(table(windows), END), use(jobs)
    for name, own in OWN.items():
        expected, given, taken = 0.0, 0, 0
        for at in range(begin, end):
            mine = [(node, gpus) for vc, node, gpus in tasks_at(jobs, at) if vc == name]
            cells = len({node for node, _ in mine})
            expected += sum(gpus for _, gpus in mine) * max(cells - own / 8, 0) / max(cells, 1)
            gave, took = (in_force(windows, side, name, at) for side in (0, 1))
            given += max(gave - took, 0)
            taken += max(took - gave, 0)
        found = e.gain_of_tenant(name, own, used, used, traded, begin, end)
        assert found.had_h * HOUR_US == pytest.approx(expected)
        assert [found.given_h * HOUR_US, found.taken_h * HOUR_US] == pytest.approx([given, taken])
        assert found.increased == pytest.approx(expected * min(1, given / taken if taken else 0) / (own * (end - begin)))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_given_and_had_up_to_each_edge(seed: int) -> None:
    """What low-priority jobs use is lent by all who have something idle, the nodes that are nobody's included."""
    rng = Random(seed)
    jobs, windows = drawn(rng), exchanges(rng)
    edges = np.arange(END + 1, dtype=np.float64)
    gpus = NODES * 8 + 100
    found = e.balances(use(jobs), OWN, gpus, e.windows(table(windows), END), edges)
    sums = {name: np.zeros(4) for name in OWN}
    for at in range(END):
        regular, every = tasks_at(jobs, at), tasks_at(jobs, at, False)
        low = sum(count for *_, count in every) - sum(count for *_, count in regular)
        idle = gpus - sum(count for *_, count in regular)
        for name, own in OWN.items():
            mine = sum(count for vc, _, count in regular if vc == name)
            gave, took = (in_force(windows, side, name, at) for side in (0, 1))
            lent = low * max(own - gave + took - mine, 0) / idle
            borrowed = sum(count for vc, _, count in every if vc == name) - mine
            sums[name] += (gave, took, lent, borrowed)
            assert [curve[at] * HOUR_US for curve in found[name]] == pytest.approx(sums[name].tolist())
