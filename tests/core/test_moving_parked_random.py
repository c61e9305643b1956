"""Random histories of parks, resumes and moves: invariants hold after each step, and in the end every job ends."""

from random import Random
from typing import Any

import pytest

from scheduler_service.core.messages import (
    CancelRequested,
    DrainRequested,
    MigrateRequested,
    RequeueRequested,
    ResumeRequested,
    RunExited,
    RunParked,
    RunParkRefused,
    RunReady,
    RunResumed,
    RunStarted,
    SuspendRequested,
    UndrainRequested,
)
from scheduler_service.core.model import NodeState, Run, RunPhase, StopReason
from scheduler_service.core.model.configurations import TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.placing.first_fit import place
from scheduler_service.policies.placing.resume_placement import resuming_elsewhere
from tests.core.driver import Driver, spec
from tests.thorough import examples

CAPACITY = Vector(64_000, 4 << 20, 4)
NODES = ("n1", "n2", "n3")
GANG = with_changes(spec(2), gang=(TaskGroup(2, Vector(1000, 1024, 1)),), demand=Vector(2000, 2048, 2))


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.d = Driver(resuming_elsewhere(fifo, place))
        self.boots = dict.fromkeys(NODES, 0)
        for name in NODES:
            self.join(name)

    def join(self, name: str, **facts: Any) -> None:
        self.d.join(name, CAPACITY, boot=f"boot {self.boots[name]}", **facts)

    def often(self, part: float) -> bool:
        return self.random.random() < part

    def report(self, run: Run, kind: Any, **facts: Any) -> None:
        node = self.d.state.nodes.rows[run.node]
        after = self.random.choice((0, 0, 1, 5))
        self.d.step(kind(node.name, node.boot_id, self.d._next(node), run.key, **facts), after=after)

    def node_acts(self, run: Run, ends: float, fails: float) -> None:
        """The node of a run does what it was told to, or fails to; a run that executes ends with a chance."""
        job = self.d.job(run.job_id)
        match run.phase:
            case RunPhase.STARTING if job.launch_spec.gang and not job.rendezvous:
                self.report(run, RunReady, address="a", port=20_000 + run.run)
            case RunPhase.STARTING:
                self.report(run, RunStarted, log_path="")
            case RunPhase.READY if job.rendezvous:
                self.report(run, RunStarted, log_path="")
            case RunPhase.WARMING if self.often(fails):
                self.report(run, RunExited, exit_code=1)
            case RunPhase.WARMING:
                self.report(run, RunReady, address="a", port=20_000 + run.run)
            case RunPhase.PARKING if self.often(fails):
                self.report(run, RunParkRefused, why="a step takes too long")
            case RunPhase.PARKING:
                self.report(run, RunParked, rung="cooperative", moved_bytes=1 << 30, saves=not self.often(fails))
            case RunPhase.RESUMING if self.often(fails):
                self.report(run, RunParkRefused, why="it crashed", lost=True)
            case RunPhase.RESUMING:
                self.report(run, RunResumed, rung="cooperative")
            case RunPhase.STOPPING if run.is_parked and run.stop_grace_us and self.often(3 * fails):
                self.report(run, RunParkRefused, why="the disk is full")
            case RunPhase.STOPPING:
                self.report(run, RunExited, yielded=not self.often(fails), told=True)
            case RunPhase.RUNNING if self.often(ends):
                self.report(run, RunExited)
            case _:
                pass

    def something_happens(self) -> None:
        d, name = self.d, self.random.choice(NODES)
        jobs, at = sorted(d.state.jobs.rows), self.random.random()
        if at < 0.12 or not jobs:
            d.submit(GANG if self.often(0.25) else spec(self.random.choice((1, 2, 4))))
        elif at < 0.22:
            d.step(SuspendRequested(self.random.choice(jobs), park=True, park_only=self.often(0.7)))
        elif at < 0.32:
            d.step(ResumeRequested(self.random.choice(jobs)))
        elif at < 0.38:
            d.step(MigrateRequested(self.random.choice(jobs), (name,)))
        elif at < 0.40:
            d.step(self.random.choice((CancelRequested, RequeueRequested))(self.random.choice(jobs)))
        elif at < 0.42 and d.node(name).state is NodeState.UP:
            d.silence(name)
        elif at < 0.42:
            self.join(name)
        elif at < 0.43:
            self.boots[name] += 1
            self.join(name, known=())
        elif at < 0.45:
            d.step(after=301)
        elif at < 0.47:
            drained = d.node(name).drained_us is not None
            d.step(UndrainRequested(name) if drained else DrainRequested(name, "", "op", self.often(0.4)))
        elif runs := [run for run in d.state.runs.rows.values() if d.state.nodes.rows[run.node].state is NodeState.UP]:
            self.node_acts(self.random.choice(runs), 0.15, 0.1)

    def all_jobs_end(self) -> bool:
        """Once everybody behaves."""
        d = self.d
        for name in NODES:
            self.join(name)
            if d.node(name).drained_us is not None:
                d.step(UndrainRequested(name))
        for _ in range(600):
            if not d.state.jobs.rows:
                return True
            for job in [job for job in d.state.jobs.rows.values() if job.suspend_requested]:
                d.step(ResumeRequested(job.id))
            for key in list(d.state.runs.rows):
                if (run := d.state.runs.rows.get(key)) is not None:
                    self.node_acts(run, 1.0, 0.0)
            d.step(after=10)
        return False


@pytest.mark.parametrize("seed", range(examples(8)))
def test_every_job_ends_whatever_becomes_of_its_moves(seed: int) -> None:
    history = History(seed)
    for _ in range(120):
        history.something_happens()
    assert history.all_jobs_end(), history.d.state.jobs.rows
    for run in history.d.runs.values():
        if run.awaits:  # it never began, and its row says why
            assert (run.started_us, run.stop_reason, run.lost) == (None, StopReason.MIGRATED, False)
            assert run.phases[-1].text
