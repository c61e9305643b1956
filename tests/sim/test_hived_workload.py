"""The HiveD paper's jobs: what the paper gives must come out of it, and what was fitted must fit."""

import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from reproduction.hived import fit as hived_fit
from reproduction.hived.plan import levels
from reproduction.hived.published import BALANCED, DEFAULT, UTILISATION
from scheduler_service.sim.experiments.cases import Case, Nodes, Policy, jobs_in, preview, simulate
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.sharing.kinds import GANDIVA
from scheduler_service.sim.virtual_clusters import VirtualCluster
from scheduler_service.sim.workloads import BadTrace, Hived, hived, hived_fitted
from scheduler_service.sim.workloads.hived import (
    DAY_S,
    JOBS,
    NODE_GPUS,
    NODES,
    SIZES,
    TENANTS,
    apportion,
    balanced_quotas,
    quotas,
    sampled_quotas,
)
from scheduler_service.sim.workloads.hived_sample import MODELS

HERE = Path()
SMALL = Hived(jobs=4000)


def of(model: Hived, seed: int = 1, folder: Path = HERE) -> list[SimJob]:
    return list(hived.jobs(model, seed, folder))


def by_size(jobs: list[SimJob]) -> Counter[tuple[str, int]]:
    return Counter((job.vc, min(job.spec.demand.devices, SIZES[-1])) for job in jobs)


def offered(jobs: list[SimJob], days: float) -> float:
    """GPUs that the jobs would hold on average."""
    return sum(job.work_us * job.spec.demand.devices for job in jobs) / (days * DAY_S * 1e6)


@pytest.fixture(scope="module")
def whole() -> list[SimJob]:
    return of(Hived())


def test_table_2_comes_out_exactly(whole: list[SimJob]) -> None:
    expected = {(name, size): count for name, t in TENANTS.items() for size, count in zip(SIZES, t.jobs, strict=True) if count}
    assert by_size(whole) == expected
    assert len(whole) == JOBS == 141_950
    totals = [sum(column) for column in zip(*(t.jobs for t in TENANTS.values()), strict=True)]
    assert totals == [115_203, 2_926, 10_726, 10_795, 2_300]


def test_table_1_comes_out_exactly() -> None:
    shares = {name: round(100 * nodes / 273, 2) for name, nodes in quotas().items()}
    assert sum(quotas().values()) == 273
    assert list(shares.values()) == [0.37, 0.73, 0.73, 1.47, 1.83, 28.57, 8.79, 10.62, 11.36, 15.75, 19.78]
    assert sum(quotas(200).values()) == 196
    assert min(quotas(20).values()) == 1
    with pytest.raises(ValueError, match="10 are too few for 11"):
        quotas(10)


def test_all_jobs_ask_for_the_load_that_they_are_said_to(whole: list[SimJob]) -> None:
    for name, tenant in TENANTS.items():
        own = tenant.nodes * NODE_GPUS
        assert offered([job for job in whole if job.vc == name], 62) == pytest.approx(tenant.load * own, rel=1e-4)
    assert offered(whole, 62) == pytest.approx(UTILISATION * NODES * NODE_GPUS, rel=0.001)


@pytest.mark.long
def test_what_the_tenants_use_is_what_the_paper_prints() -> None:
    """Tables 4 and 5, of tenants of whom a single job is not as large as what they own; prod-c is given what is missing."""
    shapes: dict[str, list[hived_fit.Shape]] = {}
    for seed in (1, 2, 3):
        for name, hours in hived_fit.gpus_without_waits(of(Hived(), seed), 62).items():
            load = TENANTS[name].load * TENANTS[name].nodes * NODE_GPUS
            shapes.setdefault(name, []).append(hived_fit.Shape(hours / load))
    for name, tenant in TENANTS.items():
        fluctuation = float(np.mean([shape.fluctuation(UTILISATION * NODES / 273) for shape in shapes[name]]))
        effective = float(np.mean([100 * shape.share_used(tenant.load) for shape in shapes[name]]))
        if tenant.nodes > 2:
            assert fluctuation == pytest.approx(BALANCED[name].fluctuation, abs=0.15), name
            assert name == hived_fit.REST or effective == pytest.approx(DEFAULT[name].effective, abs=2.5), name


def test_the_same_seed_gives_the_same_and_another_one_does_not() -> None:
    assert of(SMALL) == of(SMALL)
    assert of(SMALL, 2) != of(SMALL)


def test_a_tenants_jobs_are_the_same_without_the_others() -> None:
    alone = of(SMALL.model_copy(update={"tenants": ("prod-a", "res-b")}))
    assert alone == [job for job in of(SMALL) if job.vc in ("prod-a", "res-b")]
    case = Case(cluster=(Nodes(nodes=24, gpus=8),), workload=Hived(jobs=4000, tenants=("prod-a",)), policy=Policy(name="fifo"))
    assert jobs_in(case.workload) == preview(case)[0] == sum(job.vc == "prod-a" for job in alone)
    came = simulate(case).jobs["submit_us"].to_pylist()
    assert came == [job.submit_us for job in alone if job.vc == "prod-a"], "and come when they do with them"


def test_a_tenants_jobs_are_told_apart_by_when_they_come() -> None:
    jobs = of(SMALL)
    assert len({(job.vc, job.submit_us) for job in jobs}) == len(jobs)
    assert all(a.submit_us <= b.submit_us for a, b in pairwise(jobs))


def test_scale_and_days() -> None:
    once, twice = of(SMALL), of(SMALL.model_copy(update={"scale": 2}))
    assert [job.submit_us for job in once] == [job.submit_us for job in twice]
    assert offered(twice, SMALL.span_days) == pytest.approx(2 * offered(once, SMALL.span_days), rel=1e-3)
    assert SMALL.span_days == pytest.approx(62 * 4000 / JOBS)
    spread = of(SMALL.model_copy(update={"days": 30}))
    assert 28 * DAY_S < max(job.submit_us for job in spread) / 1e6 < 31 * DAY_S


def test_wide_jobs_are_of_whole_nodes_and_no_wider_than_what_their_tenant_owns() -> None:
    wide = [job for job in of(Hived(tenants=("res-a", "res-b", "prod-c"))) if job.spec.demand.devices >= 16]
    for job in wide:
        (group,) = job.spec.gang
        assert (group.demand.devices, group.size * 8) == (8, job.spec.demand.devices)
        assert group.size <= max(2, TENANTS[job.vc].nodes)
    widths = Counter(job.spec.gang[0].size for job in wide if job.vc == "prod-c")
    assert widths[2] / widths.total() == pytest.approx(199 / 282, abs=0.06)
    assert set(widths) == {2, 3, 4, 8, 16}


def test_durations_and_batches_are_phillys() -> None:
    """Of 1-GPU jobs: quantiles, against the tenant's stretch; and that batches are there, alike within."""
    jobs = [job for job in of(Hived(tenants=("prod-e",))) if job.spec.demand.devices == 1]
    work = np.sort([job.work_us for job in jobs]).astype(float)
    q10, q50, q90 = (work[int(share * len(work))] for share in (0.1, 0.5, 0.9))
    assert np.log(q50 / q10) == pytest.approx(np.log(1120 / 62), abs=0.6)
    assert np.log(q90 / q50) == pytest.approx(np.log(8510 / 1120), abs=0.6)
    close = [abs(np.log(a.work_us / b.work_us)) for a, b in pairwise(jobs) if b.submit_us - a.submit_us < 20e6]
    rng = Random(1)
    any_two = [abs(np.log(a.work_us / b.work_us)) for a, b in (rng.sample(jobs, 2) for _ in range(5000))]
    assert len(close) > 0.5 * len(jobs)
    assert np.median(close) < 0.6 * np.median(any_two)


def test_jobs_of_all_sizes_may_run_alike() -> None:
    """Those of one GPU then hold as much of the GPU time as they are of the GPUs that are asked for; else next to nothing."""

    def of_one_gpu(durations: str) -> float:
        model = Hived.model_validate({"tenants": ("prod-e",), "durations": durations})
        held = [(job.spec.demand.devices, job.work_us * job.spec.demand.devices) for job in of(model)]
        return sum(us for gpus, us in held if gpus == 1) / sum(us for _, us in held)

    asked = sum(gpus * count for gpus, count in zip(SIZES, TENANTS["prod-e"].jobs, strict=True))
    assert of_one_gpu("alike") == pytest.approx(TENANTS["prod-e"].jobs[0] / asked, abs=0.1)
    assert of_one_gpu("by_size") < 0.4


def test_quantiles_of_a_table() -> None:
    table = hived_fitted.DURATIONS_S[1]
    assert [round(hived_fitted.quantile(table, share)) for share in (*hived_fitted.SHARES[:-1], 1.0)] == list(table)
    assert hived_fitted.quantile(table, 0.375) == pytest.approx((122 * 1120) ** 0.5)
    assert all(
        len(of) == len(hived_fitted.SHARES) for of in (*hived_fitted.DURATIONS_S.values(), *hived_fitted.BATCHES.values())
    )


def test_whole_numbers_in_proportion() -> None:
    assert apportion([1, 1, 1], 10) == [4, 3, 3]
    assert apportion([0.1, 5, 95], 20, least=1) == [1, 1, 18]
    assert sum(Hived(jobs=777).counts()[name][size] for name in TENANTS for size in range(5)) == 777
    assert sum(balanced_quotas().values()) == 273
    assert balanced_quotas()["prod-c"] > 3 * quotas()["prod-c"], "it asks for far more than it owns"


def test_the_scale_for_a_utilisation_is_found() -> None:
    model = Hived(jobs=3000, days=20)
    scale = hived_fit.scale_for(0.4, model, 1, quotas(), NODES)
    found = hived_fit.regular(of(model.model_copy(update={"scale": scale})), 20, quotas(), NODES)
    assert found == pytest.approx(0.4, abs=0.02)


def test_the_fit_finds_loads_that_come_to_the_whole() -> None:
    found = hived_fit.fit_tenants((1,), Hived(jobs=6000, days=62), halvings=2)
    assert set(found) == set(TENANTS)
    assert sum(t.load * t.nodes for t in found.values()) == pytest.approx(UTILISATION * NODES)
    assert found["res-a"].load == DEFAULT["res-a"].effective / 100


def told(jobs: list[SimJob]) -> set[tuple[str, int, int, int]]:
    return {(job.vc, job.submit_us, job.work_us, job.spec.demand.devices) for job in jobs}


def test_a_sample_is_of_the_same_jobs() -> None:
    """In proportion, of tenants that own something on so few nodes, and none wider than that."""
    whole, owned = Hived(jobs=22_895, days=10), sampled_quotas(12)
    sample, jobs = of(whole.model_copy(update={"nodes": 12})), of(whole)
    assert told(sample) < told(jobs)
    assert owned == {"res-f": 4, "prod-a": 1, "prod-b": 1, "prod-c": 1, "prod-d": 2, "prod-e": 3}
    could = [job for job in jobs if job.spec.demand.devices <= 8 * owned.get(job.vc, 0)]
    assert told(sample) < told(could)
    assert len(sample) == pytest.approx(len(could) * 12 / NODES, rel=0.15)
    assert all(job.kind == "" for job in sample)


def test_a_tenants_sample_does_not_depend_on_the_others() -> None:
    model = Hived(jobs=22_895, days=10, nodes=24, models=True)
    alone = of(model.model_copy(update={"tenants": ("prod-b",)}))
    assert alone == [job for job in of(model) if job.vc == "prod-b"]
    assert model.expected_jobs() is None
    assert Hived(jobs=400).expected_jobs() == 400


def test_jobs_are_of_table_3s_models() -> None:
    """The domains 6:3:1, and jobs that are otherwise the same."""
    jobs = of(Hived(jobs=9000, models=True))
    assert told(jobs) == told(of(Hived(jobs=9000)))
    count = Counter(job.kind for job in jobs)
    assert set(count) <= set(GANDIVA)
    for share, models in MODELS.values():
        assert sum(count[name] for name in set(models)) / len(jobs) == pytest.approx(share, abs=0.02)


def test_what_came_later_leaves_the_digests_of_cases() -> None:
    """Those of before are in folders that people keep."""
    assert case_of(Hived(jobs=400)).digest() == "d7f16807c3bbb7d2"
    changed = [Hived(jobs=400), Hived(jobs=400, nodes=12), Hived(jobs=400, models=True)]
    assert len({case_of(model).digest() for model in changed}) == 3
    inside = [VirtualCluster(name="a"), VirtualCluster(name="a", policy="las", settings=(("threshold", 60.0),))]
    digests = [case_of(Hived(jobs=400), virtual_clusters=(vc,), policy=Policy(name="cells")).digest() for vc in inside]
    assert digests[0] == "cf36c796fbd4c768" != digests[1]


def case_of(model: Hived, **more: Any) -> Case:
    made = Case(cluster=(Nodes(nodes=24, gpus=8),), workload=model, policy=Policy(name="fifo"))
    return made.model_copy(update=more)


def test_cells_of_every_level() -> None:
    assert levels({8: 1, 4: 1, 2: 1, 1: 1}, 32) == {8: 1, 4: 2, 2: 4, 1: 8}
    assert levels({8: 1}, 24) == {8: 3, 4: 0, 2: 0, 1: 0}
    assert levels({1: 5}, 8) == {8: 0, 4: 0, 2: 0, 1: 8}
    assert levels({}, 8) == {8: 0, 4: 0, 2: 0, 1: 8}
    for gpus in (8, 16, 248, 624):
        assert sum(level * count for level, count in levels({8: 0.61, 4: 0.2, 2: 0.07, 1: 0.12}, gpus).items()) == gpus


# -- on the Philly trace -------------------------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Eleven virtual clusters: vc-0 with the most jobs; a job of n GPUs runs n x 1000 s."""
    rng = Random(1)
    lines = ["submit_s,duration_s,num_gpus,vc"]
    for vc in range(11):
        for _ in range(60 - 4 * vc):
            gpus = rng.choice((1, 2, 4, 8, 16, 32))
            day = rng.uniform(20, 21 + 0.1 * vc) if vc == 0 else rng.uniform(20, 105)
            lines.append(f"{day * DAY_S:.0f},{min(gpus, 16) * 1000},{gpus},vc-{vc}")
    with gzip.open(tmp_path / "philly.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    return tmp_path


def test_phillys_times_and_durations_in_table_2s_mix(trace: Path) -> None:
    model = Hived(jobs=5000, days=60, file=Path("philly.csv.gz"))
    jobs = of(model, folder=trace)
    assert by_size(jobs) == by_size(of(Hived(jobs=5000)))
    assert of(model, folder=trace) == jobs
    largest = [job for job in jobs if job.vc == "prod-e"]
    assert max(job.submit_us for job in largest) < 0.02 * 60 * DAY_S * 1e6, "the busiest tenant has the busiest VC's times"
    for name in ("prod-e", "res-f"):
        works = {min(job.spec.demand.devices, 16): job.work_us for job in jobs if job.vc == name}
        assert works[8] / works[1] == pytest.approx(8, rel=1e-3)
    assert offered(jobs, 60) == pytest.approx(UTILISATION * NODES * 8, rel=0.001)


def test_a_trace_without_enough_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("submit_s,duration_s,num_gpus,vc\n2000000,60,1,a\n")
    with pytest.raises(BadTrace, match="has not jobs of all sizes, and of 11 virtual clusters, in its days 20 to 105"):
        of(Hived(jobs=100, file=Path("short.csv")), folder=tmp_path)


def test_the_digest_of_a_case_knows_the_trace(trace: Path) -> None:
    case = Case(cluster=(Nodes(gpus=8),), workload=Hived(jobs=100, file=Path("philly.csv.gz")), folder=trace)
    before = case.digest()
    with gzip.open(trace / "philly.csv.gz", "at") as file:
        file.write("2000000,60,1,vc-1\n")
    assert case.digest() != before
