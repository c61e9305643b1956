"""`ebb-sim run` simulates the service as it is installed, or by the preset `paper` what `python -m reproduction` does."""

from pathlib import Path
from typing import Any

import pytest

from reproduction.fitgpp import plan
from scheduler_service import presets
from scheduler_service.config import Config as Service
from scheduler_service.engine_settings import settings_of
from scheduler_service.sim.experiments.cases import Policy
from scheduler_service.sim.experiments.config import Config, ConfigError, parse

SITE = {"cluster": {"nodes": 1, "gpus": 8}, "workload": {"kind": "fitgpp", "jobs": 10}}


def parsed(*policies: Any) -> Config:
    return parse({**SITE, "policies": list(policies)})


def policies(*told: Any) -> list[Policy]:
    return [case.policy for case in parsed(*told).cases(Path())]


@pytest.mark.parametrize("preset", presets.SERVICE)
def test_a_simulated_policy_has_the_services_defaults(preset: str) -> None:
    service = Service(database="postgresql://nowhere", preset=preset)  # type: ignore[arg-type]
    (simulated,) = policies({"name": "fitgpp", "preset": preset})
    assert simulated.engine_settings() == settings_of(service)._replace(fault_retries=0), "nothing vanishes in a simulation"
    assert (simulated.backfill, simulated.trials_in_flight) == (service.backfill, service.fitgpp_trials_in_flight)
    assert (simulated.s, simulated.cap) == (service.fitgpp_s, service.fitgpp_cap)


def test_the_papers_preset_is_what_is_reproduced() -> None:
    simulated = policies(*({"name": name, "preset": "paper"} for name in ("fifo", "lrtp", "rand", "fitgpp")))
    for policy, published in zip(simulated, plan.POLICIES, strict=True):
        assert policy.in_effect == published.in_effect


def test_without_a_preset_it_is_the_sites_and_what_is_given_wins() -> None:
    site, given = policies("fitgpp", {"name": "fitgpp", "min_run": 0})
    assert (site.backfill, site.min_run, given.backfill, given.min_run) == (True, 60, True, 0)


def test_titles_mention_what_is_unusual_for_the_preset() -> None:
    told = ("fitgpp", {"name": "fitgpp", "preset": "paper"}, {"name": "fitgpp", "backfill": False})
    assert [policy.title for policy in policies(*told)] == ["fitgpp", "fitgpp (paper)", "fitgpp not backfill"]
    with pytest.raises(ConfigError, match="two policies are called 'fifo'"):
        parsed("fifo", {"name": "fifo", "backfill": True})


def test_a_preset_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policies\.0\.preset: Input should be 'site' or 'paper'"):
        parsed({"name": "fifo", "preset": "papers"})
