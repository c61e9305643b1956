"""A job that may run on GPUs or on CPUs, on two nodes that have the one and the other."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import Job, JobEventKind, JobState
from tests.harness import LIMIT, WHOLE_NODE, Site, run
from tests.store.fixtures import short_dir
from tests.store.waiting import wait_for

PROGRAM = """
import json, os, sys, time
from client_sdk.training import device
told = {"args": sys.argv[2:], "node": os.environ["EBB_NODE"], "lr": os.environ["LR"], "device": list(device())}
print(json.dumps(told), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
open(os.environ["EBB_DONE_FILE"], "w").close()
"""
MODEL = "Simulated A100-SXM4-80GB"


@pytest.fixture
def site() -> Iterator[Site]:
    """Node big has eight GPUs, and node small has none."""
    with short_dir() as folder, Site(folder / "site", nodes=()) as made:
        for name, devices, labels in (("big", "dgx-a100", "zone=a,disk=nvme"), ("small", "cpu-20c", "zone=b")):
            made.cluster.start_agent(name, devices, "--labels", labels)
            made.nodes.append(name)
        made.wait_connected()
        yield made


def ebb(site: Site, *arguments: str | Path) -> str:
    done = run([Path(sys.executable).with_name("ebb"), *arguments], EBB_ADDRESS=site.cluster.address)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(site: Site, job: Job) -> dict[str, object]:
    """What the job's run says of itself."""
    text = wait_for(lambda: site.output(site.client.get(job.id)).strip(), LIMIT)
    found: dict[str, object] = json.loads(text.splitlines()[-1])
    return found


def test_it_runs_where_it_fits_and_comes_back_in_the_other_configuration(site: Site) -> None:
    release, program = site.file("release"), site.file("program.py")
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(release)]
    alternative = f"cpus=4 node-labels=zone=b env=LR=0.1 command='{' '.join(command)} --cpu'"
    submit = ["submit", "-q", "--cwd", "/", "--memory", "64MiB", "--env", "LR=0.4", "--env", f"PYTHONPATH={Path.cwd()}"]

    def submitted() -> Job:
        out = ebb(
            site, *submit, "--gpus", str(WHOLE_NODE), "--cpus", "1", "--grace", "30s", "--or", alternative, "--", *command
        )
        return site.client.get(int(out))

    assert "disk=nvme" in ebb(site, "node", "list", "-o", "wide")
    job = site.until(submitted(), JobState.RUNNING)
    assert told(site, job) == {"args": [], "node": "big", "lr": "0.4", "device": ["cuda", 8, MODEL, 81920, 0]}
    second = site.until(submitted(), JobState.RUNNING)
    assert told(site, second) == {"args": ["--cpu"], "node": "small", "lr": "0.1", "device": ["cpu", 0, "", 0, 1]}
    ebb(site, "cancel", str(second.id))
    site.client.wait(second, LIMIT)

    nodes = site.client.nodes()
    site.cluster.kill("scheduler", signal.SIGKILL)
    site.restart_scheduler()
    site.wait_connected(since=nodes)
    assert {node.name: node.labels["zone"] for node in site.client.nodes()} == {"big": "a", "small": "b"}
    trial = site.short(job_class="trial", devices=WHOLE_NODE)
    back = wait_for(lambda: now if (now := site.client.get(job.id)).run == 2 and now.state is JobState.RUNNING else None, LIMIT)
    site.succeeded(trial)
    assert (back.configuration, back.node, back.devices) == (1, "small", ())
    assert told(site, back) == {"args": ["--cpu"], "node": "small", "lr": "0.1", "device": ["cpu", 0, "", 0, 1]}
    assert "1: 4 CPUs" in ebb(site, "list", "-o", "wide")
    shown = ebb(site, "show", str(job.id))
    assert [line.endswith("<- its run") for line in shown.splitlines() if line.startswith("configuration ")] == [False, True]
    assert f"job {job.id} is RUNNING on small in configuration 1: 4 CPUs" in ebb(site, "explain", str(job.id))
    placed = [event.text for event in site.client.story(job.id) if event.kind is JobEventKind.PLACED]
    assert placed == ["configuration 0", "configuration 1"]
    preempted = [event for event in site.client.story(job.id) if event.kind is JobEventKind.PREEMPTED]
    assert [event.cause_job_id for event in preempted] == [trial.id]

    third = site.until(submitted(), JobState.RUNNING)
    assert (third.configuration, third.node) == (0, "big")
    release.touch()
    site.succeeded(back, third)
