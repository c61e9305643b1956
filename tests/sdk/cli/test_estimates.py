"""How `ebb show` tells how long a job is expected to take in each of its configurations."""

from datetime import timedelta

import pytest

from client_sdk import Configuration, ConfigurationEstimate, EstimateSource, Job, JobSpec, Resources
from client_sdk.cli import configurations
from client_sdk.cli.show import _lines

GPU, CPUS = Resources(cpus=1, devices=1), Resources(cpus=8)


def job(*estimates: ConfigurationEstimate, **fields: object) -> Job:
    other = Configuration(resources=CPUS, estimate=timedelta(minutes=5))
    spec = JobSpec(command=("true",), resources=GPU, alternatives=(other,))
    return Job(id=1, spec=spec, run=1, estimates=estimates, **fields)  # type: ignore[arg-type]


def known(**fields: object) -> ConfigurationEstimate:
    return ConfigurationEstimate(configuration=0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        (known(time=timedelta(seconds=100), sources=(EstimateSource.USER,)), "1:40, by user"),
        (
            known(
                time=timedelta(seconds=100),
                error=timedelta(seconds=11),
                sources=(EstimateSource.HISTORY, EstimateSource.SAMPLE),
                memory_mib=2048,
            ),
            "1:40, standard error 0:11, by history and sample, memory 2GiB",
        ),
        (known(detail="the program counted no steps"), "time unknown: the program counted no steps"),
        (known(detail="its sample failed", impossible=True), "impossible: its sample failed"),
    ],
)
def test_what_is_known_of_a_configuration(estimate: ConfigurationEstimate, shown: str) -> None:
    assert configurations.estimate_text(job(estimate), 0) == shown
    assert configurations.lines(job(estimate))["configuration 0"].endswith(f"({shown}) <- its run")
    assert configurations.lines(job(estimate))["configuration 1"].endswith("(0:05:00 estimated)")


def test_a_run_that_is_a_sample_is_marked() -> None:
    assert configurations.lines(job(sampling=True))["configuration 0"].endswith("<- its run, a sample")


def test_a_job_without_a_choice_shows_what_is_expected() -> None:
    plain = Job(id=1, spec=JobSpec(command=("true",), resources=GPU))
    assert "expected" not in _lines(plain)
    told = known(time=timedelta(seconds=100), error=timedelta(seconds=11), sources=(EstimateSource.HISTORY,))
    of = Job(id=1, spec=plain.spec, estimates=(told,))
    assert _lines(of)["expected"] == "1:40, standard error 0:11, by history"
