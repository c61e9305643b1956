"""Simulated tenants exchange cells: what they request, what comes of it, and how it is told."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from scheduler_service.core.invariants import check
from scheduler_service.core.model.tenants.exchange import Exchange as Row
from scheduler_service.core.model.tenants.exchange import PostingKind
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.sim.exchange import lacking, lots
from scheduler_service.sim.experiments import config
from scheduler_service.sim.experiments.cases import Case, simulate, site_of
from scheduler_service.sim.experiments.config import ConfigError
from scheduler_service.sim.experiments.job_outcomes import Launch, Life
from scheduler_service.sim.experiments.sweep import sweep
from scheduler_service.sim.failures import Failure, Outages
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.virtual_clusters import at_submit
from scheduler_service.sim.world import World
from tests.sim.building import MINUTE, Listed, job, right

HOUR = 60 * MINUTE
GRACE_H = 0.01
QUICK = {"offer_after_h": 2, "offer_for_h": 20, "request_for_h": 3, "request_every_h": 1}


def case(exchange: dict[str, Any] | None, guarantee: str = "overflow", policy: str = "cells", **owns: int) -> Case:
    """As many nodes of 8 GPUs as the tenants own together."""
    return Case.model_validate(
        {
            "cluster": [{"nodes": sum(owns.values()), "gpus": 8}],
            "workload": {"kind": "hived", "jobs": 1},
            "policy": {"name": policy},
            "virtual_clusters": [{"name": name, "owns": {"gpu-8": {"node": count}}} for name, count in owns.items()],
            "guarantee": guarantee,
            "exchange": exchange,
        }
    )


def of(vc: str, gpus: int, hours: float, at_h: float = 0, tasks: int = 0) -> SimJob:
    return job(gpus, 60 * hours, 60 * at_h, grace=0, tasks=tasks)._replace(vc=vc)


def world_of(case: Case, jobs: Sequence[SimJob]) -> World:
    arrivals = Listed(list(map(at_submit(Guarantee[case.guarantee.upper()], case.policy.name), jobs)))
    return World(site_of(case, case.inventories()), arrivals)


def run(case: Case, *jobs: SimJob) -> World:
    """In every step the invariants hold, and the ledger sums up to nothing."""
    world = world_of(case, jobs)
    while (at := world.next_us()) is not None:
        world.advance(at)
        check(world.state)
        assert sum(row.device_us for row in world.state.surpluses.rows.values()) == 0
    return world


def lives(world: World) -> list[Life]:
    return [world.lives[number] for number in sorted(world.lives)]


def hours(*times: int | None) -> list[float]:
    return [time / HOUR for time in times if time is not None]


def guaranteed(launch: Launch) -> list[float]:
    """From when to when it held cells of its virtual cluster, in hours."""
    last = () if launch.guaranteed_us is None else (launch.guaranteed_us, launch.ended_us)
    return hours(*launch.guaranteed_before, *last)


def windows(world: World) -> list[tuple[int, int, int, list[float]]]:
    """Giver, taker, cells, and from when to when."""

    def told(row: Row) -> tuple[int, int, int, list[float]]:
        return row.giver, row.taker, row.lot.count, hours(row.opened_us, row.returned_us)

    return [told(world.exchanges[number]) for number in sorted(world.exchanges)]


def test_a_job_beyond_the_quota_becomes_guaranteed_in_cells_that_were_requested_again_and_again() -> None:
    """b owns one node and needs two. a's is idle; it is offered after two hours, taken at the next look for three, and then
    once more: in the moment in which the first window closes, so that the job never is without."""
    world = run(case(QUICK, a=1, b=1), of("b", 8, 9), of("b", 8, 7))
    first, second = lives(world)
    assert guaranteed(first.launches[0]) == [0, 9]
    assert guaranteed(second.launches[0]) == [2, 7]
    assert windows(world) == [(1, 2, 1, [2, 5]), (1, 2, 1, [5, 8])]


def test_a_window_that_is_not_followed_by_another_ends_the_guarantee() -> None:
    """a needs its own node at 3.5: it cannot have it before the window is over, and then b finds no offer. Its second job runs
    on until a's starts, which kills it, as it has no grace period, and does all of its work again in b's own node."""
    world = run(case(QUICK, a=1, b=1), of("b", 8, 9), of("b", 8, 7.5), of("a", 8, 4, at_h=3.5))
    theirs, own = lives(world)[1], lives(world)[2]
    assert [guaranteed(launch) for launch in theirs.launches] == [[2, 5], [9, 16.5]]
    assert hours(own.launches[0].placed_us) == [5]
    assert guaranteed(own.launches[0]) == [5, 9]


def test_without_exchange_it_stays_opportunistic() -> None:
    world = run(case(None, a=1, b=1), of("b", 8, 9), of("b", 8, 7))
    assert [guaranteed(life.launches[0]) for life in lives(world)] == [[0, 9], []]
    assert not world.exchanges


def test_what_a_tenant_lacks() -> None:
    """Of three nodes it has one left over; for two gangs, and three tasks that are less than a node, it needs five."""
    world = world_of(case(QUICK, a=4, b=3), [of("b", 8, 1), of("b", 8, 1)])
    world.advance(0)
    state = world.state
    a, b = (state.vcs.rows[number] for number in (1, 2))
    assert (lacking(state, a, 0), lacking(state, b, 0)) == ({}, {})
    more = [of("b", 8, 1, tasks=2), of("b", 8, 1, tasks=2), of("b", 5, 1), of("b", 2, 1), of("b", 2, 1)]
    world = world_of(case(QUICK, "guaranteed", a=4, b=3), [of("b", 8, 1), of("b", 8, 1), *more])
    world.advance(0)
    state = world.state
    assert lacking(state, state.vcs.rows[2], 0) == {"gpu-8": 4 + 2 - 1}


def test_jobs_in_others_cells_are_lacking_theirs() -> None:
    world = world_of(case(QUICK, a=4, b=1), [of("b", 8, 1, tasks=3), of("b", 8, 1), of("b", 1, 1)])
    world.advance(0)
    state = world.state
    guaranteed = [(run.vc, len(run.devices)) for run in state.runs.rows.values() if run.guaranteed]
    assert (state.opportunistic, guaranteed) == ({"b": 25}, [("b", 8)])
    assert lacking(state, state.vcs.rows[2], 0) == {"gpu-8": 4}


def test_tenants_request_what_they_lack_whenever_they_look() -> None:
    settings = case(QUICK, a=4, b=1)
    assert settings.exchange is not None
    tenants = settings.exchange.tenants()
    world = world_of(settings, [of("b", 8, 9, tasks=3), of("b", 8, 9)])
    world.advance(0)
    posted = tenants.requests(world.state, HOUR)
    assert {(posting.vc, posting.kind, posting.cells.pool, posting.cells.level) for posting in posted} == {
        ("b", PostingKind.REQUEST, "gpu-8", "node")
    }
    assert [posting.cells.count for posting in posted] == [2, 1]
    assert {(posting.cells.end_us, posting.expires_us) for posting in posted} == {(4 * HOUR, 2 * HOUR)}
    assert [tenants.next_us(at) for at in (0, 1, HOUR - 1, HOUR)] == [HOUR, HOUR, HOUR, 2 * HOUR]


@pytest.mark.parametrize("count", range(1, 40))
def test_requests_halve_what_is_left(count: int) -> None:
    parts = lots(count)
    assert sum(parts) == count
    rests = [sum(parts[place:]) for place in range(len(parts))]
    assert all(rest <= 2 * part < rest + 2 for part, rest in zip(parts, rests, strict=True))


def test_a_job_that_can_never_start_does_not_keep_the_exchange_going_for_ever() -> None:
    """It needs three nodes, of which one has died for good; what others leave idle its tenant requests, and gets, in vain."""
    made = case(QUICK, a=2, b=1)
    dead = Outages([Failure(1, HOUR // 2)])
    arrivals = Listed([at_submit(Guarantee.OVERFLOW, "cells")(of("b", 8, 2, at_h=1, tasks=3))])
    world = World(replace(site_of(made, made.inventories()), outages=dead), arrivals)
    while (at := world.next_us()) is not None:
        world.advance(at)
        assert at < 20 * HOUR
    assert lives(world)[0].end_us is None
    assert world.exchanges


def drawn(rng: Random) -> Iterator[SimJob]:
    for _ in range(rng.randint(20, 60)):
        gpus, tasks = rng.choice(((1, 0), (1, 0), (2, 0), (4, 0), (8, 0), (8, 2), (8, 3)))
        yield of(rng.choice("abc"), gpus, rng.choice((0.5, 2, 9, 30)), rng.uniform(0, 60), tasks)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
@pytest.mark.parametrize("policy", ["balanced", "auction"])
def test_whatever_is_exchanged_the_invariants_hold_and_every_job_ends(seed: int, policy: str) -> None:
    rng = Random(seed)
    settings = {
        "policy": policy,
        "offer_after_h": rng.choice((0.5, 3)),
        "offer_for_h": 12,
        "request_for_h": rng.choice((1, 2.5, 8)),
        "request_every_h": rng.choice((0.3, 1)),
        "keep": rng.choice((0, 1)),
    }
    world = run(case(settings, a=3, b=2, c=1), *drawn(rng))
    assert world.exchanges
    for life in lives(world):
        right(life)
        for launch in life.launches:
            spells = guaranteed(launch)
            assert spells == sorted(spells)
            if spells:
                assert hours(launch.placed_us)[0] <= spells[0]
                assert spells[-1] <= hours(launch.ended_us)[0]


# ---- as a case ---------------------------------------------------------------------------------------------------------

OWNED = {"res-b": 2, "res-c": 2, "res-d": 4}
HIVED = {
    "cluster": [{"nodes": sum(OWNED.values()), "gpus": 8}],
    "workload": {"kind": "hived", "jobs": 3000, "days": 3, "tenants": list(OWNED), "scale": 2},
    "policy": {"name": "cells"},
    "virtual_clusters": [{"name": name, "owns": {"gpu-8": {"node": count}}} for name, count in OWNED.items()],
}


def test_a_case_tells_its_exchanges_and_which_runs_lost_their_guarantee() -> None:
    made = Case.model_validate({**HIVED, "exchange": {"offer_after_h": 1, "request_for_h": 2}})
    outcome = simulate(made)
    again = simulate(Case.model_validate_json(made.model_dump_json()))
    assert outcome.exchanges.equals(again.exchanges)
    assert outcome.runs.equals(again.runs)
    rows = outcome.exchanges.to_pylist()
    assert rows
    for row in rows:
        assert row["giver"] != row["taker"]
        assert (row["pool"], row["level"], row["gpus"]) == ("gpu-8", "node", 8 * row["cells"])
        assert row["end_us"] - row["begin_us"] <= 2 * HOUR
        assert row["begin_us"] == row["opened_us"]
    spells = [times for times in outcome.runs["guaranteed_before_us"].to_pylist() if times]
    assert spells
    assert all(len(times) % 2 == 0 and times == sorted(times) for times in spells)


def test_exchanges_are_kept_beside_the_runs(tmp_path: Path) -> None:
    with_it = Case.model_validate({**HIVED, "exchange": {"offer_after_h": 1, "request_for_h": 2}})
    kept, other = sweep([with_it, Case.model_validate(HIVED)], tmp_path, on="local[1]", as_csv=True)
    table = pq.read_table(kept.folder / "exchanges.parquet")
    assert table.equals(simulate(with_it).exchanges)
    with (kept.folder / "exchanges.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    opened = [row["opened_us"] for row in table.to_pylist()]
    assert [round(float(row["opened_s"]) * 1e6) for row in rows] == opened
    with (kept.folder / "runs.csv").open(newline="") as lines:
        before = [[round(float(at) * 1e6) for at in row["guaranteed_before_s"].split()] for row in csv.DictReader(lines)]
    assert before == pq.read_table(kept.folder / "runs.parquet")["guaranteed_before_us"].to_pylist()
    assert not (other.folder / "exchanges.parquet").exists()


def test_without_the_option_there_is_nothing_of_it() -> None:
    outcome = simulate(Case.model_validate(HIVED))
    assert outcome.exchanges is None
    assert "guaranteed_before_us" not in outcome.runs.column_names


def test_only_cells_are_exchanged() -> None:
    made = Case.model_validate({**HIVED, "policy": {"name": "quota"}, "exchange": {}})
    assert simulate(made).exchanges is None


def test_the_option_is_part_of_what_results_depend_on() -> None:
    made = [Case.model_validate({**HIVED, "exchange": value}) for value in (None, {}, {"request_for_h": 2})]
    assert len({case.digest() for case in made}) == 3
    assert made[0].digest() == Case.model_validate(HIVED).digest()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"exchange": {"request_for_h": 200}}, "no offer for 100 hours meets a request for 200"),
        ({"exchange": {"offer_after_h": 0}}, "exchange.offer_after_h"),
        ({"exchange": {"offer_after": 3}}, "exchange.offer_after"),
        ({"exchange": {"policy": "none"}}, "exchange.policy"),
        ({"exchange": {}, "virtual_clusters": []}, "give virtual_clusters, too"),
    ],
)
def test_what_is_wrong_with_the_option_is_told(told: dict[str, Any], said: str) -> None:
    given = {name: value for name, value in {**HIVED, **told}.items() if name != "policy"}
    with pytest.raises(ConfigError, match=said):
        config.parse({**given, "policies": ["cells"]})
    with pytest.raises(ValidationError):
        Case.model_validate({**HIVED, **told})
