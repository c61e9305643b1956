"""The policy of docs/writing-policies.md, step by step, with nothing but what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import yaml

from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import SECOND
from scheduler_service.policies import registry
from scheduler_service.policies.chosen_stages import order_of, stages, stages_within
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.registry import POLICIES, Entry
from scheduler_service.sim.experiments.cases import Case, Nodes, Policy, simulate
from tests.core.driver import Driver, spec
from tests.policies.tenants import Tenants, request

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "writing-policies.md").read_text()
BLOCKS = dict(re.findall(r"^```python\n# ([^\n]+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
STEPS = [name for name in BLOCKS if name.startswith("sjf.py")]


def registered(step: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy is a module of the tree, and has its line in the registry."""
    module = f"sjf_{re.sub('[^0-9]', '', step)}"
    (folder / f"{module}.py").write_text(BLOCKS[step])
    monkeypatch.syspath_prepend(str(folder))
    line = BLOCKS["registry line"].replace("scheduler_service.policies.sjf", module)
    entries: dict[str, Entry] = eval(f"{{{line}}}", {"Entry": Entry})  # as it stands in the dictionary of the registry
    for name, entry in entries.items():
        monkeypatch.setitem(POLICIES, name, entry)
    stages_within.cache_clear()


def test_the_page_has_every_step_and_no_other_code() -> None:
    assert len(BLOCKS) == TEXT.count("```python")
    assert STEPS == ["sjf.py, step 1", "sjf.py, step 3", "sjf.py, step 4"]


@pytest.mark.parametrize("step", STEPS)
def test_the_shortest_job_is_next(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(step, tmp_path, monkeypatch)
    assert "sjf" in registry.for_sites()
    made = stages("sjf", PreemptionSettings())
    d = Driver(made.policy, order=order_of(made))
    d.join()
    first = d.submit(with_changes(spec(8), estimate_us=60 * SECOND))
    d.start(first)
    jobs = [d.submit(with_changes(spec(8), estimate_us=seconds * SECOND)) for seconds in (900, 300, 600)]
    d.exit(first)
    assert d.states(*jobs) == [JobState.QUEUED, JobState.STARTING, JobState.QUEUED]
    told = explain(d.state, d.job(jobs[0]), d.now, Random(0), made)
    assert told.ahead_jobs == (jobs[2],)
    if step == STEPS[-1]:
        assert "expected to run for 900 s more" in told.blockers[0].detail


def submitted(t: Tenants, seconds: int) -> int:
    """A job of the virtual cluster A for all of its devices, that starts as soon as it is placed."""
    job = t.submit(with_changes(request("A", 4), estimate_us=seconds * SECOND))
    if t.job(job).state is JobState.STARTING:
        t.start(job)
    return job


def test_it_works_in_a_virtual_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(STEPS[-1], tmp_path, monkeypatch)
    t = Tenants({"f1": "FOUR"})
    t.vc("A", ("four-2x2", "node", 1), policy=VcPolicy("sjf", settings=(("patience", 600.0),)))
    long, short = (submitted(t, seconds) for seconds in (3600, 60))
    assert t.states(long, short) == [JobState.STOPPING, JobState.QUEUED]
    assert t.job(short).reason is Reason.WAITING_FOR_VICTIMS
    t.exit(long, yielded=True)
    t.exit(short)
    assert t.states(long) == [JobState.STARTING]


def test_it_works_in_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(STEPS[-1], tmp_path, monkeypatch)
    asked = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[0])["policies"]
    work = {"kind": "lognormal", "mean": 1800, "deviation": 3600}
    kind = {"work_s": work, "gpus": 4, "cpus": 1, "memory_gib": 1, "grace_s": 1, "estimate_error": 0}
    workload = {"kind": "generated", "jobs": 150, "kinds": [kind], "arrivals": {"kind": "poisson", "load": 1.2}}
    cluster = (Nodes(nodes=2, cpus=8, memory_gib=64, gpus=8),)
    completion = {}
    for policy in map(Policy.model_validate, asked):
        jobs = simulate(Case.model_validate({"cluster": cluster, "workload": workload, "policy": policy})).jobs
        completion[policy.name] = (jobs["end_us"].to_numpy() - jobs["submit_us"].to_numpy()).mean()
    assert completion["sjf"] < completion["las"] < completion["fifo"]


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    (tmp_path / "sjf.py").write_text(BLOCKS[STEPS[-1]])
    (tmp_path / "test_sjf.py").write_text(BLOCKS["test_sjf.py"])
    line = BLOCKS["registry line"].replace("scheduler_service.policies.sjf", "sjf")
    (tmp_path / "conftest.py").write_text(
        f"from scheduler_service.policies.registry import POLICIES, Entry\n\nPOLICIES.update({{{line}}})\n"
    )
    where = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "proto", ROOT / "third_party")))
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": where}, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{BLOCKS['test_sjf.py'].count('def test_')} passed" in done.stdout


def test_the_files_that_the_page_names_are_there() -> None:
    for path in re.findall(r"`((?:policies|core|tests)/[\w/]+\.py)`", TEXT):
        base = ROOT if path.startswith("tests") else ROOT / "scheduler_service"
        assert (base / path).is_file(), path
