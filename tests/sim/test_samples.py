"""Simulated jobs that count their steps are sampled by the same mechanism as those of a live site."""

from itertools import pairwise

from scheduler_service.core.model import Configuration, JobSpec, StopReason
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.sim.experiments.cases import Case, simulate
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.workloads.allox import Allox
from scheduler_service.sim.workloads.allox import jobs as allox_jobs
from tests.sim.test_configurations import CPU, GPU, ON_CPU, world


def job(on_gpu: int, on_cpu: int, measured: tuple[int, int] | None = None, grace: Micros = SECOND) -> SimJob:
    """In seconds: what the job takes, and what a sample takes it to take. Nobody has estimated anything."""
    spec = JobSpec(("x",), Vector(0, 0, 1), grace_us=grace, alternatives=(ON_CPU,))
    times, seen = ((on_gpu, on_cpu), measured or (on_gpu, on_cpu))
    in_us = [tuple(second * SECOND for second in of) for of in (times, seen)]
    return SimJob(spec, in_us[0][0], times_us=in_us[0], samples_us=in_us[1])


def only(simulated: SimJob) -> Life:
    (life,) = world([simulated], GPU, CPU).lives.values()
    return life


def test_a_job_is_sampled_in_each_configuration_and_then_done_in_the_faster_one() -> None:
    life = only(job(1000, 400))
    assert [launch.configuration for launch in life.launches] == [0, 1, 1]
    assert [launch.why for launch in life.launches] == [StopReason.SAMPLED, StopReason.SAMPLED, None]
    assert [launch.worked_us() for launch in life.launches[:2]] == [30 * SECOND, 12 * SECOND]
    assert (life.done_us, life.lost_us) == (1000 * SECOND, 0)
    assert life.end_us == (30 + 1 + 12 + 1 + 400 - 24) * SECOND, "two samples, two stops, and what is left of the work"


def test_a_sample_that_is_not_saved_is_done_again() -> None:
    life = only(job(1000, 400, grace=0))
    assert (life.done_us, life.lost_us) == (1000 * SECOND, 60 * SECOND)
    assert life.end_us == (30 + 12 + 400) * SECOND


def test_what_the_sample_says_is_what_counts() -> None:
    """The sample is wrong, and so is the choice."""
    assert only(job(1000, 400, measured=(300, 500))).launches[-1].configuration == 0


def test_a_job_that_counts_no_steps_goes_on_where_it_is() -> None:
    life = only(job(1000, 800)._replace(samples_us=()))
    (launch,) = life.launches
    assert (launch.why, launch.worked_us()) == (None, 1000 * SECOND)


def test_three_configurations_are_sampled_one_after_the_other() -> None:
    third = Configuration(Vector(2000, 0, 0))
    of = job(1000, 400)
    of = of._replace(
        spec=JobSpec(("x",), Vector(0, 0, 1), grace_us=SECOND, alternatives=(ON_CPU, third)),
        times_us=(*of.times_us, 200 * SECOND),
        samples_us=(*of.samples_us, 200 * SECOND),
    )
    life = only(of)
    assert [launch.configuration for launch in life.launches] == [0, 1, 2, 2]
    assert all(before.ended_us == after.placed_us for before, after in pairwise(life.launches))


def test_the_papers_jobs_with_samples_take_as_long_as_they_do() -> None:
    """The same jobs; in the one list profiling is a longer run, in the other there are samples."""
    longer, sampled = (list(allox_jobs(Allox(jobs=20, samples=samples), 1)) for samples in (False, True))
    for before, now in zip(longer, sampled, strict=True):
        assert (before.submit_us, before.user) == (now.submit_us, now.user)
        assert abs(before.work_us - 1.03 * now.work_us) <= 1
        assert (now.spec.estimate_us, before.samples_us) == (0, ())
        assert abs(before.spec.estimate_us - 1.03 * now.samples_us[0]) <= 2


def case(samples: bool) -> Case:
    cluster = (Nodes(nodes=2, gpus=1, cpus=4, memory_gib=64), Nodes(nodes=2, gpus=0, cpus=20, memory_gib=64))
    return Case(cluster=cluster, workload=Allox(jobs=30, samples=samples), policy=Policy(name="allox"), seed=3)


def test_a_case_with_samples_is_another_case_and_one_without_is_the_same_as_before() -> None:
    plain, sampled = case(samples=False), case(samples=True)
    assert plain.digest() != sampled.digest()
    assert '"samples"' in sampled.model_dump_json()


def test_all_jobs_of_a_case_with_samples_are_done() -> None:
    done = simulate(case(samples=True))
    assert [status for status in done.jobs["end_us"].to_pylist() if status is None] == []
    assert len(done.jobs) == 30
