"""A job whose saves take longer than the site's grace period gets a longer one, and loses nothing when it is preempted."""

import sys
from pathlib import Path

from client_sdk import JobEventKind
from tests.harness import LIMIT, ROOT, Site
from tests.store.waiting import wait_for

SCRIPT = ROOT / "tests" / "e2e" / "slow_saves.py"


def test_a_job_whose_saves_take_long_gets_the_time_for_them(folder: Path) -> None:
    settings = folder / "scheduler.yaml"
    settings.write_text("default_grace: 1\ngrace_limit: 60\n")
    with Site(folder / "site", ("--config", str(settings)), nodes=("n1",)) as site:
        evidence = site.file("runs")
        env = {"EVIDENCE": str(evidence), "SAVE": "1.5", "PYTHONPATH": str(ROOT)}
        job = site.client.submit([sys.executable, str(SCRIPT)], env=env)
        assert job.spec.grace_period is not None
        assert job.spec.grace_period.total_seconds() == 1
        # A save takes 1.5 s, and a stop a step more.
        longer = wait_for(lambda: now if (now := site.client.get(job.id)).grace_wanted else None, LIMIT)
        assert longer.spec.grace_period == longer.grace_wanted
        assert longer.grace_wanted is not None
        assert 3 <= longer.grace_wanted.total_seconds() < 60
        at = wait_for(lambda: steps[0].step if (steps := site.client.get(job.id).steps) else None, LIMIT)
        site.client.requeue(job)
        lines = wait_for(lambda: found if len(found := evidence.read_text().splitlines()) == 2 else None, LIMIT)
        (run, step, grace) = lines[1].split()
        assert (run, float(grace)) == ("2", longer.grace_wanted.total_seconds())
        assert int(step) >= at, "it has saved in its grace period, which took longer than the site's"
        story = site.client.story(job.id)
        said = [event.text for event in story if event.kind is JobEventKind.UPDATED]
        assert said[0].startswith("grace period 1 s -> ")
        site.client.cancel(job)
        site.client.wait(job, timeout=LIMIT)
