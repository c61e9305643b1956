"""The acts of the play, and how they wait for each other."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from client_sdk import Client, Decision, Job, JobEvent, JobSpec, JobState, NodeState, Resources
from examples.cluster import Cluster
from examples.demo.outside import Control, Outside, control
from examples.demo.scenario import FILLING, JOBS, NODES, ROLES, Cue, Role
from examples.demo.steps import last_step
from examples.demo.stopping import Stopping
from examples.demo.table import Board

TRAIN = [sys.executable, str(Path(__file__).parents[1] / "train.py")]
"""How train.py is called."""
PATIENCE = 240.0
"""Seconds after which waiting for something has failed."""


class Failed(Exception):
    """The demo cannot continue; the message says why, with numbers."""


@dataclass(frozen=True)
class Displaced:
    """A decision, and what was known when it was taken."""

    decision: Decision
    left: Mapping[int, int]
    """Steps that each job still had to do when the trial arrived."""


@dataclass(frozen=True)
class Record:
    """The data to be checked once all jobs have ended."""

    roles: Mapping[int, Role]
    specs: Mapping[int, JobSpec]
    """As they were submitted."""
    capacities: Mapping[str, Resources]
    stories: Mapping[int, Sequence[JobEvent]]
    displaced: Sequence[Displaced]
    work: Mapping[int, Path]
    """The folder of each job's step log and result; `checkpoints` and `uninterrupted` are also folders by job."""
    checkpoints: Mapping[int, Path]
    uninterrupted: Mapping[int, Path]
    """For each preempted job."""
    control: Control


def work_of(folder: Path, role: Role) -> Path:
    """The folder that a job works in."""
    return folder / "jobs" / role.name


def progress(folder: Path, job: Job) -> str:
    """ "210/500"."""
    role = ROLES[job.spec.name]
    return f"{last_step(work_of(folder, role))}/{role.steps}"


class Stage:
    """The demo while it runs."""

    def __init__(
        self, folder: Path, cluster: Cluster, client: Client, outside: Outside, board: Board, stopping: Stopping
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._client = client
        self._outside = outside
        self._board = board
        self._stopping = stopping
        self._roles: dict[int, Role] = {}
        self._displaced: list[Displaced] = []
        self._uninterrupted: dict[int, Path] = {}
        self._control = Control([], [], False)
        self._all_have_come = folder / "all-trials-have-come"

    # ---- acts ----------------------------------------------------------------------------------------------------------

    def raise_nodes(self) -> None:
        """One after the other: of nodes that are equally good, jobs go to the first."""
        for name, profile in NODES.items():
            self._cluster.start_agent(name, profile, "--log-level", "warning")
            self._until(partial(self._is_up, name), f"node {name}")

    def fill(self) -> None:
        """Six jobs take all 16 GPUs; the seventh waits."""
        first = [self._submit(role) for role in JOBS[:FILLING]]
        self._until(lambda: all(self._state(job) is JobState.RUNNING for job in first), f"{FILLING} jobs to run")
        for role in JOBS[FILLING:]:
            self._submit(role)
        self._board.say(f"{FILLING} best-effort jobs hold all 16 GPUs, and another one waits.")

    def enter_trial(self, cue: Cue) -> None:
        """Submit a trial at its cue, and wait until it runs. The preempted job is also run from scratch outside of Ebb."""
        trial, awaited = cue.trial, ROLES[cue.victim]
        enough = cue.share * awaited.steps
        self._until(lambda: self._done(awaited) >= enough, f"{awaited.name} to have done {enough:.0f} steps")
        left = {job: role.steps - self._done(role) for job, role in self._roles.items()}
        self._board.say(f"Trial {trial.name} arrives and needs {trial.gpus} GPUs; none is free.")
        job = self._submit(trial)
        decision = self._decision(job)
        self._displaced.append(Displaced(decision, left))
        for candidate in decision.candidates:
            if candidate.chosen:
                role = self._roles[candidate.job_id]
                self._board.say(f"FitGpp has {role.name} leave for it, with {role.grace:g} s to save its work.")
                self._uninterrupted[candidate.job_id] = self._folder / "uninterrupted" / role.name
                self._outside.start(role, self._uninterrupted[candidate.job_id])
        self._until(lambda: self._state(job) in (JobState.RUNNING, JobState.SUCCEEDED), f"{trial.name} to start")

    def let_all_end(self) -> None:
        """No more trials will arrive: the jobs need not pause for them."""
        self._all_have_come.touch()

    def check_the_check(self) -> None:
        self._board.say("Outside of Ebb: does the check notice a job that lost its checkpoint and began anew?")
        self._control = control(self._outside, self._folder / "control", self._stopping)
        self._board.say(f"It says: {'; '.join(self._control.without) or 'nothing'}.")

    def wait_for_the_end(self) -> None:
        jobs = self._board.jobs
        self._until(lambda: all(job in jobs and jobs[job].ended for job in self._roles), "all jobs to end")
        self._until(lambda: not self._outside.running(), "the uninterrupted runs to end")

    def record(self) -> Record:
        return Record(
            roles=self._roles,
            specs={job: self._spec(role) for job, role in self._roles.items()},
            capacities={node.name: node.capacity for node in self._client.nodes()},
            stories={job: self._client.story(job) for job in self._roles},
            displaced=self._displaced,
            work={job: work_of(self._folder, role) for job, role in self._roles.items()},
            checkpoints={job: self._checkpoints_of(job) for job in self._roles},
            uninterrupted=self._uninterrupted,
            control=self._control,
        )

    # ---- small things --------------------------------------------------------------------------------------------------

    def _is_up(self, name: str) -> bool:
        return any(node.name == name and node.state is NodeState.UP for node in self._client.nodes())

    def _spec(self, role: Role) -> JobSpec:
        return role.spec(TRAIN, str(work_of(self._folder, role)), self._all_have_come)

    def _submit(self, role: Role) -> int:
        work_of(self._folder, role).mkdir(parents=True)
        job = self._client.submit_spec(self._spec(role)).id
        self._roles[job] = role
        return job

    def _checkpoints_of(self, job: int) -> Path:
        """The agents keep the checkpoints of each cluster in a folder of its own; here there is one cluster."""
        return next(self._cluster.checkpoints.glob(f"*/job-{job}"), self._cluster.checkpoints / "none")

    def _done(self, role: Role) -> int:
        return last_step(work_of(self._folder, role))

    def _state(self, job: int) -> JobState | None:
        known = self._board.jobs.get(job)
        return known.state if known else None

    def _decision(self, trial: int) -> Decision:
        """Why somebody leaves for this trial: a line of its story, in the very commit in which it was submitted."""
        for event in self._client.story(trial):
            if event.decision is not None:
                return event.decision
        raise Failed(f"nobody had to leave for trial {trial}, as if GPUs were free")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits; gives up when it takes too long, when a process of the cluster ends, or when a job fails."""
        limit = time.monotonic() + PATIENCE
        while not condition():
            self._stopping.pause(0.02)
            if time.monotonic() > limit:
                raise Failed(f"waited {PATIENCE:.0f} s for {what}")
            if self._board.broken is not None:
                raise self._board.broken
            for name, process in self._cluster.processes.items():
                if process.poll() is not None:
                    raise Failed(f"{name} ended with status {process.returncode}:\n{self._cluster.tail(name)}")
            for job in list(self._board.jobs.values()):
                if job.state in (JobState.FAILED, JobState.CANCELLED):
                    raise Failed(why(job))


def why(job: Job) -> str:
    said = Path(job.log_path).read_text(errors="replace")[-1000:] if job.log_path else ""
    how = f"{job.reason.name}, exit code {job.exit_code}, signal {job.exit_signal}"
    return f"job {job.id} {job.spec.name} is {job.state.name} ({how}):\n{said}"
