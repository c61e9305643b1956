"""Simulated jobs that take a time of their own in each of their configurations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.messages import VcRequested
from scheduler_service.core.model import Configuration, JobSpec
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import Quota, VcPolicy
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.experiments.history import History
from scheduler_service.sim.experiments.metrics import numbers
from scheduler_service.sim.experiments.results import Lives
from scheduler_service.sim.failures import Failure, Outages
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.world import Site, World
from tests.sim.building import Listed, node

ON_CPU = Configuration(Vector(4000, 0, 0))
GPU, CPU = node(1), Inventory(Vector(4000, 0, 0), (), ())


def either(on_gpu: int, on_cpu: int, at: int = 0, user: str = "user") -> SimJob:
    """A job that takes so many microseconds on a GPU, and on CPUs; the estimates are right."""
    other = ON_CPU._replace(estimate_us=on_cpu)
    spec = JobSpec(("x",), Vector(0, 0, 1), estimate_us=on_gpu, alternatives=(other,))
    return SimJob(spec, on_gpu, at, user, times_us=(on_gpu, on_cpu))


def world(jobs: list[SimJob], *nodes: Inventory, **facts: object) -> World:
    made = stages("allox", PreemptionSettings(), own={"alpha": 1})
    simulated = World(Site(nodes, made.policy, order=order_of(made), **facts), Listed(jobs))  # type: ignore[arg-type]
    simulated.run()
    return simulated


times = st.integers(1, 10**9)


@given(work=times, other=times, done=st.floats(0, 1))
def test_a_run_that_finishes_has_done_all_of_its_work(work: int, other: int, done: float) -> None:
    job = SimJob(JobSpec(("x",), Vector()), work, times_us=(work, other))
    left = work - int(done * work)
    for configuration in (0, 1):
        assert min(job.does_us(configuration, job.takes_us(configuration, left)), left) == left
    assert job.takes_us(0, left) == left
    assert job.takes_us(1, work) == other


def test_each_configuration_takes_its_own_time() -> None:
    lives = world([either(10 * SECOND, 30 * SECOND)] * 2, GPU, CPU).lives.values()
    ran = {life.launches[0].configuration: life.launches[0].worked_us() for life in lives}
    assert ran == {0: 10 * SECOND}, "to wait for the GPU takes 20 seconds, and to run on the CPU 30"
    lives = world([either(10 * SECOND, 15 * SECOND)] * 2, GPU, CPU).lives.values()
    ran = {life.launches[0].configuration: life.launches[0].worked_us() for life in lives}
    assert ran == {0: 10 * SECOND, 1: 15 * SECOND}
    assert [life.done_us for life in lives] == [10 * SECOND] * 2


def test_work_that_was_lost_with_a_node_is_done_again_in_another_configuration() -> None:
    """The GPU dies after 4 of 10 seconds and stays away. All of the work, not 6 seconds of it, is then done on the CPU."""
    outages = Outages((Failure(1, 4 * SECOND, None),), SECOND, 2 * SECOND)
    (life,) = world([either(10 * SECOND, 30 * SECOND)], GPU, CPU, outages=outages).lives.values()
    assert [launch.configuration for launch in life.launches] == [0, 1]
    assert (life.done_us, life.lost_us) == (10 * SECOND, 4 * SECOND)
    assert life.launches[1].worked_us() == 30 * SECOND


def test_what_is_asked_for_follows_the_configuration() -> None:
    """While one job runs on the CPU, the load counts its CPUs and not a GPU."""
    simulated = World(
        Site((GPU, CPU), (made := stages("allox", PreemptionSettings(), own={"alpha": 1})).policy, order=order_of(made)),
        Listed([either(10 * SECOND, 15 * SECOND)] * 2),
    )
    simulated.advance(0)
    assert simulated._load.asked == Vector(4000, 0, 1)
    simulated.run()
    assert simulated._load.asked == Vector()


def test_figures_count_what_each_run_asked_for() -> None:
    lives = Lives()
    for life in world([either(10 * SECOND, 15 * SECOND)] * 2, GPU, CPU).lives.values():
        lives.add(life)
    jobs, runs = lives.tables()
    assert runs["configuration"].to_pylist() == [0, 1]
    assert runs["gpus"].to_pylist() == [1, 0]
    found = numbers(History(jobs, runs, Vector(4000, 0, 1)))
    assert found["utilisation.gpu"] == 10 / 15
    assert found["utilisation.cpu"] == 1
    assert "gpu_h.useful" not in found


@pytest.mark.parametrize("own", [{}, {"long": 0.0, "period": 1.0}], ids=["at once", "by plans"])
def test_a_virtual_cluster_goes_by_allox(own: dict[str, float]) -> None:
    """Each of its jobs gets the right one of its cells. The same jobs of another virtual cluster are served in order."""
    quotas = Quota("gpu-1", "device", 1), Quota("cpu-4", "node", 1)
    policies = {"matched": VcPolicy("allox", settings=(("alpha", 1.0), *own.items())), "in order": VcPolicy("fifo")}
    jobs = []
    for vc in policies:
        for at, on_cpu in enumerate((12 * SECOND, 100 * SECOND)):
            job = either(10 * SECOND, on_cpu, at=0, user=f"{vc} {at}")
            jobs.append(job._replace(spec=with_changes(job.spec, vc=vc)))
    simulated = World(
        Site(
            (GPU, GPU, CPU, CPU),
            stages("cells", PreemptionSettings()).policy,
            Settings(pools=()),
            order_of(stages("cells", PreemptionSettings())),
            vcs=tuple(VcRequested(vc, True, quotas, policy=policy) for vc, policy in policies.items()),
            plan_delay_us=SECOND // 2,
        ),
        Listed(jobs),
    )
    simulated.run()
    runs = {life.job.user: life.launches[0] for life in simulated.lives.values()}
    took = {user: (run.configuration, run.worked_us() // SECOND) for user, run in runs.items()}
    assert took == {"matched 0": (1, 12), "matched 1": (0, 10), "in order 0": (0, 10), "in order 1": (1, 100)}
