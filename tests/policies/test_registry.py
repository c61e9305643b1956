"""The registry is the only list of policies: everybody who names one reads it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

import scheduler_service.sim as sim
from scheduler_service.commands.main import main
from scheduler_service.config import Config
from scheduler_service.policies import registry
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import Options, PreemptionSettings
from scheduler_service.policies.registry import POLICIES, Entry, for_sites, for_virtual_clusters, register
from scheduler_service.policies.stages import Stages
from scheduler_service.sim.policies.victim_scores import CHOICES
from scheduler_service.sim.site import Policy as SimulatedPolicy
from scheduler_service.sim.virtual_clusters import VirtualCluster

DOCS = Path(__file__).parents[2] / "docs"


def test_every_policy_can_be_made_and_says_what_it_is() -> None:
    assert set(sim.policies.SCORES) == set(CHOICES)  # those of the simulator are there, too
    for name, entry in POLICIES.items():
        assert entry.about
        assert isinstance(stages(name, PreemptionSettings()), Stages), name


def test_an_unknown_policy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"there is no policy 'fifi'; there are fitgpp, .*fifo"):
        stages("fifi", PreemptionSettings())
    with pytest.raises(ValidationError, match="there is no policy 'priority'"):
        SimulatedPolicy(name="priority")  # it is for virtual clusters alone


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="there is a policy 'fifo' already"):
        register("fifo", Entry("another", "nowhere:stages"))


def test_a_registered_policy_is_made_from_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []
    fifo = registry.factory("fifo")

    def mine(options: Options) -> Stages:
        asked.append(options)
        return fifo(options)

    monkeypatch.setitem(POLICIES, "mine", Entry("for this test", mine))
    stages("mine", PreemptionSettings(cap=7), backfilled=True)
    assert asked == [Options(PreemptionSettings(cap=7), backfill=True)]


def test_the_configuration_and_the_command_line_know_those_for_sites() -> None:
    for name in for_sites():
        assert Config(database="postgresql://nowhere", policy=name).policy == name
    with pytest.raises(ValidationError, match="fitgpp"):
        Config(database="postgresql://nowhere", policy="cells")
    shown = CliRunner().invoke(main, ["serve", "--help"]).output
    assert f"[{'|'.join(for_sites())}]" in re.sub(r"\s+", "", shown)


def test_simulated_virtual_clusters_know_those_for_them() -> None:
    for name in for_virtual_clusters():
        assert VirtualCluster(name="a", policy=name).policy == name
    with pytest.raises(ValidationError, match="priority"):
        VirtualCluster(name="a", policy="thrifty")


def test_the_documents_name_every_policy_that_can_be_chosen() -> None:
    operating, tenants = ((DOCS / f"{page}.md").read_text() for page in ("operating", "virtual-clusters"))
    assert all(re.search(rf"\b{name}\b", operating) for name in for_sites())
    assert all(re.search(rf"\b{name}\b", tenants) for name in for_virtual_clusters())


def test_whoever_wants_the_names_alone_loads_no_policy() -> None:
    code = (
        "import sys; from scheduler_service.policies.registry import for_sites; for_sites();"
        "sys.exit(any(name.startswith(('numpy', 'scheduler_service.core')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
