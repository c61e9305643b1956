"""Gangs that train by PyTorch over two agents are stopped at a hundred random moments, and lose no step, from end to end."""

import json
import time
from pathlib import Path
from random import Random

import pytest

from client_sdk import FailedPrecondition, Job, JobState
from tests.e2e.test_gang_stops import Training
from tests.harness import LIMIT, ROOT, Site
from tests.sdk.forked import Server
from tests.sdk.gang_stops import MOMENTS, TorchGang, newest_in
from tests.store.waiting import wait_for

SCRIPT = ROOT / "tests" / "sdk" / "ddp_rank.py"
GRACE = 60.0
ACTIVE = (JobState.STARTING, JobState.RUNNING)


@pytest.mark.usefixtures("training_packages")
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("tasks", [2, 4])
def test_no_step_is_lost_at_25_moments(site: Site, tmp_path: Path, tasks: int, seed: int) -> None:
    """A hundred in all. Moments that come late in the life of a run end it, and the next gang begins."""
    random = Random(10 * tasks + seed)
    left = random.choices(MOMENTS, k=25)
    unbroken = losses(tmp_path, tasks)
    while left:
        training = Training(site, SCRIPT, tasks=tasks, grace=GRACE, OPTIONS=json.dumps({"pause": 0.02}))
        least, now = 0, site.client.get(training.job)
        while left and not now.ended:
            now, least = stopped_at(training, left.pop(), random, now.run or 1, least, tasks)
        ended = site.client.wait(training.job, timeout=4 * LIMIT)
        assert ended.state is JobState.SUCCEEDED, training.told("step")
        assert [training.told("done")[ended.run][rank]["losses"] for rank in range(tasks)] == unbroken


def losses(folder: Path, tasks: int) -> list[list[float]]:
    """Those of a gang that nobody stops."""
    server = Server("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "client_sdk.training")
    try:
        return TorchGang(server, folder / "unbroken", tasks).whole()
    finally:
        server.close()


def stopped_at(training: Training, moment: str, random: Random, run: int, least: int, tasks: int) -> tuple[Job, int]:
    """Stops a run at a moment. Returns the job when its next run is placed or the job has ended, and the step that is saved."""
    client = training.site.client
    goal = least + random.randrange(1, 12)

    def has_come() -> bool:
        if moment == "launched":
            return client.get(training.job).state in ACTIVE
        told = training.told(moment)[run].values()
        return any(line["step"] >= goal for line in told) if moment == "step" else bool(told)

    wait_for(lambda: has_come() or client.get(training.job).ended, 2 * LIMIT)
    time.sleep(random.choice((0.0, 0.001, 0.01, 0.1)))  # the moment is random, and no result depends on it
    by_hand = random.random() < 0.3
    try:
        (client.suspend if by_hand else client.requeue)(training.job)
    except FailedPrecondition:
        assert client.get(training.job).state in (JobState.SUCCEEDED, JobState.STOPPING)
    if by_hand:
        now = wait_for(
            lambda: job if (job := client.get(training.job)).state is JobState.SUSPENDED or job.ended else None, 2 * GRACE
        )
        if not now.ended:
            client.resume(training.job)
    now = wait_for(
        lambda: job if (job := client.get(training.job)).ended or (job.run > run and job.state in ACTIVE) else None, 2 * GRACE
    )
    begun = {line["step"] for line in training.told("loaded")[run].values()}
    assert begun <= {least}, f"{moment}: run {run} began at {begun}, and {least} is saved"
    if now.ended:
        return now, least
    # There is no folder before an agent has taken the order.
    folders = list(training.site.cluster.checkpoints.glob(f"*/job-{training.job.id}"))
    saved = newest_in(folders[0], tasks) if folders else 0
    assert saved >= max(least, training.reached(run)), f"{moment}: step {saved} of {training.reached(run)} is saved"
    return now, saved
