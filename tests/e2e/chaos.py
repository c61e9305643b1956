"""Training jobs in chaos: moves that are drawn from a seed, and what holds all the time and in the end."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from client_sdk import EbbError, Job, JobState, OperationPhase, TaskGroup
from tests.e2e.chaos_site import NODES, ChaosSite
from tests.harness import LIMIT, ROOT
from tests.harness.processes import job_processes
from tests.store.waiting import wait_for

RANK = ROOT / "tests" / "e2e" / "chaos_rank.py"
MOST_TASKS = 2
KINDS = ("whole", "other", "elastic", "half", "third", "packed", "squeezed")
"""Of jobs: two on devices of their own, an elastic one, two that take turns, and two that execute at the same time."""
CHANGES = {
    "park": 4, "suspend": 2, "resume": 8, "migrate": 6, "resize": 4, "requeue": 2, "kill a process": 2,
    "kill an agent": 3, "kill the scheduler": 3, "stop an agent": 2, "cut a link": 2, "silence a link": 2, "fill a disk": 2,
}  # fmt: skip
"""What happens, and how often."""


UNDER_GANDIVA = CHANGES | {"trial": 4, "cancel before its turn": 4, "crowd": 3}
"""What else happens where jobs take turns."""
DEVICES = 8
"""Of each node."""


class Move(NamedTuple):
    """Drawn before anything begins, so that the same seed makes the same moves."""

    pause: float
    """Seconds after the move before it."""
    what: str
    job: str
    node: str
    number: float
    """Between 0 and 1: how long, or how many."""


def moves(seed: int, count: int, changes: Mapping[str, int] = CHANGES) -> list[Move]:
    random = Random(f"chaos-{seed}")
    kinds = random.choices(list(changes), list(changes.values()), k=count)
    return [Move(random.uniform(0, 1.2), what, random.choice(KINDS), random.choice(NODES), random.random()) for what in kinds]


class Chaos:
    """The jobs, the moves, and what became of them."""

    def __init__(self, site: ChaosSite, began: float) -> None:
        self.site = site
        self._began = began
        self._folder = site.site.file("chaos")
        (self._folder / "locks").mkdir(parents=True)
        self.guests: list[Job] = []
        """Jobs that come and go meanwhile: trials, and those that are cancelled before they begin."""
        self.jobs: dict[str, Job] = {}
        for kind in KINDS:
            self.jobs[kind] = self._submit(kind)

    def say(self, text: str) -> None:
        """pytest shows it if the test fails."""
        sys.stdout.write(f"{time.monotonic() - self._began:6.2f} s  {text}\n")

    # ---- jobs ----------------------------------------------------------------------------------------------------------

    def _submit(self, kind: str) -> Job:
        options: dict[str, Any] = {"tasks": [TaskGroup(count=1, devices=1, cpus=1, memory="512MiB")]}
        if kind == "elastic":
            options |= {"min_tasks": 1, "max_tasks": MOST_TASKS}
            if not self.site.shared_storage:
                options["nodes"] = NODES[:1]  # the tasks of a gang need one directory
        elif kind in ("half", "third"):
            options = {"devices": {"half": 0.5, "third": 0.3}[kind]}
        elif kind in ("packed", "squeezed"):
            options = {"devices": 0.4, "share": "packed"}
        command = [sys.executable, str(RANK)]
        environment = self._environment(kind)
        return self.site.site.client.submit(command, name=kind, env=environment, grace=30, retries=100, **options)

    def _environment(self, kind: str) -> dict[str, str]:
        variables = {
            "EVIDENCE": str(self._evidence(kind)),
            "LOCKS": str(self._folder / "locks"),
            "END": str(self._folder / "end"),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}",
            "OMP_NUM_THREADS": "1",
        }
        return variables | ({"ELASTIC": "1"} if kind == "elastic" else {})

    def _evidence(self, kind: str) -> Path:
        return self._folder / f"{kind}.jsonl"

    def lines(self, kind: str, event: str = "") -> list[dict[str, Any]]:
        path = self._evidence(kind)
        text = path.read_text() if path.exists() else ""
        lines = map(json.loads, text.split("\n")[:-1])  # the last one may still be written
        return [line for line in lines if event in ("", line["event"])]

    def wait_steps(self) -> None:
        """Until every job has done a step."""
        wait_for(lambda: all(self.lines(kind, "step") for kind in KINDS), 3 * LIMIT)

    # ---- moves ---------------------------------------------------------------------------------------------------------

    def make(self, move: Move) -> None:
        self._pause(move.pause)
        seconds = 0.2 + 3 * move.number
        about = f"{move.what}: {move.job}, {move.node}, {move.number:.2f}"
        try:
            self._make(move, seconds)
        except EbbError as error:  # it may be no time for this, and the scheduler may be gone
            self.say(f"{about}: {error}")
        else:
            self.say(about)
        self.check_now()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            for done in self.site.heal():
                self.say(done)
            if (left := end - time.monotonic()) <= 0:
                return
            time.sleep(min(0.02, left))

    def _make(self, move: Move, seconds: float) -> None:
        site, job = self.site, self.jobs[move.job]
        match move.what:
            case "park":
                site.client.suspend(job, park=True)
            case "suspend":
                site.client.suspend(job)
            case "resume":
                for each in self.jobs.values():
                    if site.client.get(each).state is JobState.SUSPENDED:
                        site.client.resume(each)
            case "migrate":
                site.client.migrate(job, move.node)
            case "resize":
                site.client.resize(self.jobs["elastic"], 1 + int(move.number * MOST_TASKS))
            case "requeue":
                site.client.requeue(job)
            case "trial":
                self._invite(1 + int(move.number * DEVICES), job_class="trial", priority=5)
            case "cancel before its turn":
                self._invite(0.5)
                site.client.cancel(self.guests[-1])
            case "crowd":
                for _ in range(len(NODES) * DEVICES // 2):
                    self._invite(2)
            case "kill a process":
                site.kill_process(job_processes(site.site.folder).get(job.id, [])[:1])
            case "kill an agent":
                site.kill(move.node, seconds)
            case "kill the scheduler":
                site.kill_scheduler(seconds)
            case "stop an agent":
                site.stop_agent(move.node, seconds)
            case "cut a link":
                site.cut(move.node, seconds)
            case "silence a link":
                site.silence(move.node, seconds)
            case "fill a disk":
                names = sorted(site.disks)
                if names:
                    site.fill(names[int(move.number * len(names))], seconds)
            case _:
                raise AssertionError(move.what)

    def _invite(self, devices: float, **options: Any) -> None:
        """A job that sleeps for a moment, and ends as it is told to."""
        command = ["/bin/sleep", "2"]
        self.guests.append(self.site.client.submit(command, name="guest", devices=devices, grace=5, retries=100, **options))

    def _guests_left(self) -> list[Job]:
        """Guests that have not ended; those that are over are forgotten."""
        found = [self.site.site.client.get(job) for job in self.guests]
        self.guests = [job for job in found if not job.ended]
        return self.guests

    # ---- recovery ------------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Everything heals, and every job goes on."""
        self.site.heal_all()
        self.say("everything is healed")
        before = {kind: len(self.lines(kind, "step")) for kind in KINDS}
        self._wait(lambda: all(len(self.lines(kind, "step")) > before[kind] for kind in KINDS))
        self._wait(lambda: not self._guests_left())
        self.check_now()

    def end(self) -> None:
        """Everything heals, and every job ends as it should."""
        self.site.heal_all()
        self.say("everything is healed, and all is to end")
        (self._folder / "end").touch()
        client = self.site.site.client
        self._wait(lambda: not self._guests_left() and all(client.get(job).ended for job in self.jobs.values()))
        ended = [client.get(job) for job in self.jobs.values()]
        bad = [job for job in ended if job.state is not JobState.SUCCEEDED]
        assert not bad, [(job, client.story(job.id), self.site.site.output(job)[-3000:]) for job in bad]

    def _wait(self, look: Callable[[], bool]) -> None:
        """Suspended jobs are resumed meanwhile."""
        try:
            wait_for(lambda: self._resume_all() or look(), 3 * LIMIT)
        except AssertionError:
            self._tell_of_jobs()
            raise

    def _resume_all(self) -> None:
        self.site.heal()
        client = self.site.site.client
        for kind, job in self.jobs.items():
            now = client.get(job)
            waits = now.operation is not None and now.operation.phase is OperationPhase.WAITING
            if now.state is JobState.SUSPENDED and not waits:
                try:
                    client.resume(job)
                except EbbError as error:  # its state has changed since
                    self.say(f"resume {kind}: {error}")
        time.sleep(0.05)

    def _tell_of_jobs(self) -> None:
        client = self.site.site.client
        self.say(repr(client.nodes()))
        for job in self.guests:
            self.say(f"a guest: {client.get(job)!r}\n{client.runs(job)!r}")
        for kind, job in self.jobs.items():
            steps = [line["step"] for line in self.lines(kind, "step")]
            self.say(f"{kind}, whose last step is {steps[-1:]}:\n{client.get(job)!r}\n{client.runs(job)!r}")
            self.say(self.site.site.output(job)[-2000:])
            for event in client.story(job.id)[-12:]:
                self.say(repr(event))

    # ---- what must hold ------------------------------------------------------------------------------------------------

    def check_now(self) -> None:
        """No rank has two processes, and the database is whole, also while no scheduler is there."""
        self.site.site.database.check()
        for kind in KINDS:
            assert not self.lines(kind, "beside"), f"two processes of a rank of {kind}: {self.lines(kind, 'beside')}"

    def check_ended(self, references: Mapping[str, "Reference"]) -> None:
        database = self.site.site.database
        database.check()
        for table, held in (("run", "ended_us IS NULL"), ("earmark", "true"), ("operation", "true"), ("share_group", "true")):
            found = database.ask(f"SELECT * FROM {table} WHERE {held}")
            assert not found, f"{table}: {found}"
        assert [node.free.devices for node in self.site.site.client.nodes()] == [8] * len(NODES)
        wait_for(lambda: not job_processes(self.site.site.folder), LIMIT)
        for kind in KINDS:
            self._check_trained(kind, references["elastic" if kind == "elastic" else "alone"])

    def _check_trained(self, kind: str, reference: "Reference") -> None:
        lines = self.lines(kind)
        assert not [line for line in lines if line["event"] == "beside"], f"two processes of a rank of {kind}"
        runs = [line["run"] for line in lines]
        assert runs == sorted(runs), f"runs of {kind} overlapped"
        done: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        for line in lines:
            if line["event"] == "step":
                done[line["run"], line["step"]].append(line)
        steps = {step for _, step in done}
        assert steps == set(reference.losses), f"{kind} has left steps out, or has done too many"
        resized_at = min((step for (_, step), ranks in done.items() if ranks[0]["world"] > 1), default=len(steps) + 1)
        for (run, step), ranks in sorted(done.items()):
            about = f"{kind}, run {run}, step {step}"
            assert len({line["rank"] for line in ranks}) == len(ranks), f"{about}: a rank has done it twice"
            if len(ranks) == ranks[0]["world"]:  # else one was killed before it could say so
                samples = sorted(sample for line in ranks for sample in line["samples"])
                assert samples == reference.samples[step], f"{about}: other samples"
            for line in ranks:
                if kind == "elastic" and step >= resized_at:  # sums are added up in another order
                    assert line["loss"] == pytest.approx(reference.losses[step], rel=1e-3, abs=1e-5), about
                else:
                    assert line["loss"] == reference.losses[step], about
        ends = [line for line in lines if line["event"] == "end"]
        assert ends, f"{kind} says nothing of its end"
        assert {line["step"] for line in ends} == {max(reference.losses)}


class Reference(NamedTuple):
    """What training computes that nothing interrupts."""

    losses: dict[int, float]
    samples: dict[int, list[int]]


class Uninterrupted:
    """Trains beside the cluster. Use as a context."""

    def __init__(self, folder: Path, elastic: bool) -> None:
        folder.mkdir(parents=True)
        (folder / "end").touch()
        self._evidence = folder / "evidence"
        variables = {
            "EVIDENCE": str(self._evidence),
            "LOCKS": str(folder),
            "END": str(folder / "end"),
            "EBB_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "EVERY": "100000",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        if elastic:
            rendezvous = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
            variables |= {"ELASTIC": "1", "EBB_MIN_TASKS": "1", "EBB_MAX_TASKS": str(MOST_TASKS), **rendezvous}
        self._process = subprocess.Popen([sys.executable, RANK], env=os.environ | variables)

    def result(self) -> Reference:
        """Waits for the end."""
        assert self._process.wait(3 * LIMIT) == 0
        steps = [line for line in map(json.loads, self._evidence.read_text().splitlines()) if line["event"] == "step"]
        samples = {line["step"]: sorted(line["samples"]) for line in steps}
        return Reference({line["step"]: line["loss"] for line in steps}, samples)

    def __enter__(self) -> "Uninterrupted":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
