"""Programs that save nothing themselves, and real CRIU: they are suspended, evicted and moved, and go on with what they had in
memory. With a scheduler and agents that share no storage."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from client_sdk import Client, Job, JobEventKind, JobState
from examples.cluster import Cluster
from node_agent.checkpoints.criu import unusable
from node_agent.run_state.model import clean
from tests.harness import LIMIT, leftovers
from tests.harness.site import quick_cluster
from tests.store.fixtures import short_dir
from tests.store.waiting import wait_for

WHY_NOT = clean(asyncio.run(unusable()))
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

NUMPY = """
import os, sys, time
import numpy as np
folder = sys.argv[1]
generator = np.random.default_rng()  # seeded by the kernel: executed anew, it gives other numbers
weights, word = generator.random(100_000), os.urandom(8).hex()
step = 0
while not os.path.exists(folder + "/end"):
    step += 1
    weights = 0.9 * weights + 0.1 * generator.random(100_000)
    print(f"{step} {word} {weights.sum().hex()}", flush=True)
    time.sleep(0.02)
np.save(folder + "/weights.npy", weights)
np.save(folder + "/next.npy", generator.random(4))
"""
"""A program that trains with numbers that are nowhere but in its memory."""
TORCH = """
import os, sys, time
import numpy as np
import torch
folder, word = sys.argv[1], os.urandom(8).hex()
torch.set_num_threads(2)


class Numbers(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.rand(64, 100)


model = torch.nn.Linear(100, 100)
optimizer = torch.optim.Adam(model.parameters())
step = 0
for batch in torch.utils.data.DataLoader(Numbers(), batch_size=None, num_workers=2):
    step += 1
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total = float(model.weight.detach().double().sum())
    print(f"{step} {word} {total.hex()}", flush=True)
    time.sleep(0.01)
    if os.path.exists(folder + "/end"):
        break
np.save(folder + "/weights.npy", np.array([total]))
"""


class Pair:
    """A scheduler and two nodes, whose agents use CRIU."""

    def __init__(self, folder: Path) -> None:
        self.cluster: Cluster = quick_cluster(folder)
        self.folder = self.cluster.folder
        self.cluster.start_scheduler()
        for node in ("n1", "n2"):
            checkpoints = str(self.folder / node / "checkpoints")
            self.cluster.start_agent(node, "dgx-a100", "--checkpoints", checkpoints, "--criu", "on")
        self.client = Client(self.cluster.address, timeout=LIMIT)
        self.jobs = 0
        wait_for(lambda: len(self.client.nodes()) == 2, LIMIT)

    def submit(self, *command: str) -> tuple[Job, Path]:
        self.jobs += 1
        folder = self.folder / f"job-{self.jobs}"
        folder.mkdir()
        return self.client.submit([*command, str(folder)], grace=60), folder

    def until(self, job: Job, state: JobState) -> Job:
        return wait_for(lambda: (now := self.client.get(job)).state is state and now, LIMIT)

    def lines(self, job: Job) -> list[str]:
        """What the job has printed, run after run."""
        logs = [run.log_path for run in self.client.runs(job) if run.log_path]
        return [line for log in sorted(logs, key=_number) for line in Path(log).read_text().splitlines()]

    def advances(self, job: Job) -> None:
        before = len(self.lines(job))
        wait_for(lambda: len(self.lines(job)) > before + 5, LIMIT)

    def texts(self, job: Job, kind: JobEventKind) -> list[str]:
        return [event.text for event in self.client.story(job.id) if event.kind is kind]

    def close(self) -> None:
        self.client.close()
        self.cluster.close()


def _number(log: str) -> int:
    return int(Path(log).parent.name.partition(".")[2])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with short_dir() as folder:
        made = Pair(folder / "pair")
        try:
            yield made
        finally:
            made.close()
        assert not leftovers(made.folder)


def check(pair: Pair, job: Job, folder: Path) -> None:
    """Ends the job, and has it be one program that took each step once, bit for bit."""
    (folder / "end").touch()
    assert pair.client.wait(job, timeout=LIMIT).state is JobState.SUCCEEDED
    printed = [line.split() for line in pair.lines(job)]
    assert [int(step) for step, _, _ in printed] == list(range(1, len(printed) + 1))
    assert len({word for _, word, _ in printed}) == 1, "it was one process"
    assert float(np.load(folder / "weights.npy").sum()).hex() == printed[-1][2]


def test_a_job_goes_on_after_a_suspend_with_what_it_had_in_memory(pair: Pair) -> None:
    job, folder = pair.submit(sys.executable, "-c", NUMPY)
    for run in (1, 2):
        pair.until(job, JobState.RUNNING)
        pair.advances(job)
        pair.client.suspend(job)
        pair.until(job, JobState.SUSPENDED)
        stood = len(pair.lines(job))
        pair.client.resume(job)
        pair.until(job, JobState.RUNNING)
        wait_for(lambda stood=stood: len(pair.lines(job)) > stood, LIMIT)
        assert f"CRIU restored run {run}, which was saved on n" in pair.texts(job, JobEventKind.STARTED)[-1]
    check(pair, job, folder)
    assert any("CRIU saved its memory (" in event.text for event in pair.client.story(job.id))


def test_a_pytorch_program_with_workers_goes_on_under_the_hook(pair: Pair) -> None:
    """The hook counts its steps and keeps files open in the folder of its run. The workers, which share memory with it, handle
    SIGTERM, and are not taken for programs that save."""
    job, folder = pair.submit(sys.executable, "-c", TORCH)
    pair.until(job, JobState.RUNNING)
    wait_for(lambda: len(pair.lines(job)) > 20, LIMIT)
    pair.client.suspend(job)
    pair.until(job, JobState.SUSPENDED)
    pair.client.resume(job)
    pair.until(job, JobState.RUNNING)
    pair.advances(job)
    assert "CRIU restored run 1" in pair.texts(job, JobEventKind.STARTED)[-1]
    check(pair, job, folder)


def test_a_job_migrates_with_what_it_has_in_memory(pair: Pair) -> None:
    job, folder = pair.submit(sys.executable, "-c", NUMPY)
    pair.until(job, JobState.RUNNING)
    pair.advances(job)
    source = pair.client.get(job).node
    other = {"n1": "n2", "n2": "n1"}[source]
    pair.client.migrate(job, other)
    wait_for(lambda: pair.texts(job, JobEventKind.MIGRATED), LIMIT)
    assert pair.client.get(job).node == other
    assert f"CRIU restored run 1, which was saved on {source}" in pair.texts(job, JobEventKind.STARTED)[-1]
    pair.advances(job)
    check(pair, job, folder)


def test_a_job_that_leaves_a_drained_node_goes_on_at_another(pair: Pair) -> None:
    job, folder = pair.submit(sys.executable, "-c", NUMPY)
    pair.until(job, JobState.RUNNING)
    pair.advances(job)
    source = pair.client.get(job).node
    pair.client.drain(source, evict=True)
    wait_for(lambda: (now := pair.client.get(job)).state is JobState.RUNNING and now.node != source, LIMIT)
    pair.client.undrain(source)
    pair.advances(job)
    check(pair, job, folder)


def test_a_job_with_a_connection_cannot_be_dumped_and_says_why(pair: Pair) -> None:
    listens = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname());"
        "a = s.accept();"
        "print('ready', flush=True); time.sleep(600)"
    )
    job, _ = pair.submit(sys.executable, "-c", listens)
    pair.until(job, JobState.RUNNING)
    wait_for(lambda: pair.lines(job) == ["ready"], LIMIT)
    pair.client.suspend(job)
    pair.until(job, JobState.SUSPENDED)
    said = [event.text for event in pair.client.story(job.id) if "CRIU could not save it (" in event.text]
    assert said, [event.text for event in pair.client.story(job.id)]
    assert "onnected TCP socket" in said[0], said
    assert "; SIGTERM followed" in said[0]
    pair.client.cancel(job)
