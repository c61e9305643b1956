"""Random histories in which everything meets: virtual clusters of all policies, elastic jobs that grow, what introspection
does, what users ask of operations (parks, resumes, moves, sizes, suspensions), nodes that drain, break and fall silent, and
leaders that take over. Invariants hold after each step, each leader loads what the one before it left, and every job ends."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler_service.core.messages import (
    CancelRequested,
    DrainRequested,
    FaultsSeen,
    KnownRun,
    MigrateRequested,
    MiniBatchMeasured,
    NodeSeen,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    RunExited,
    RunParked,
    RunParkRefused,
    RunReady,
    RunResumed,
    RunStarted,
    Submitted,
    SuspendRequested,
    UndrainRequested,
    UpdateRequested,
    VcRequested,
)
from scheduler_service.core.model import NodeState, Run, RunPhase, ShareMode
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Quota, VcPolicy
from scheduler_service.policies.hived.policy import cells
from tests.core.charged import check_charges
from tests.policies.restarts import Restarts
from tests.policies.tenants import elastic, inventory
from tests.thorough import LONG, examples

NODES = ("n0", "n1", "n2", "n3")
GANDIVA = VcPolicy("gandiva", settings=(("grow_after", 60.0), ("packing_gain", 0.0), ("probe_periods", 4.0)))
SERVER = inventory("FOUR")
SERVER = replace(SERVER, capacity=SERVER.capacity._replace(memory_mib=4 << 20))
"""It has memory for what is parked."""
POLICIES = (GANDIVA, GANDIVA, *(VcPolicy(name) for name in ("gandiva", "las", "fitgpp", "fifo", "priority", "fair", "lrtp")))


class History:
    """`a` owns two switches, `b` a node and `c` a switch. Three switches are nobody's."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.boots = dict.fromkeys(NODES, 0)
        self.d = Restarts(dict.fromkeys(NODES, "FOUR"), (PoolPlan("p", NODES, ()),), host_percent=50, bad_node_strikes=0)
        for vc, level, count in (("a", "switch", 2), ("b", "node", 1), ("c", "switch", 1)):
            self.d.vc(vc, ("p", level, count), policy=self.random.choice(POLICIES))
        for name in NODES:
            self.join(name)

    def join(self, name: str, forgets: bool = False) -> None:
        d = self.d
        runs = () if forgets else sorted(d.state.runs_on.get(d.state.node_ids[name], ()))
        known = tuple(KnownRun(key, d.state.runs.rows[key].phase, d.told.get(key, 0)) for key in runs)
        d.step(NodeSeen(name, f"boot {self.boots[name]}", SERVER, known))

    def often(self, part: float) -> bool:
        return self.random.random() < part

    # ---- what nodes do ---------------------------------------------------------------------------------------------------

    def report(self, run: Run, kind: Any, **facts: Any) -> None:
        node = self.d.state.nodes.rows[run.node]
        after = self.random.choice((0, 0, 0, 1))
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

    def runs(self) -> list[Run]:
        """Those of which a node can say something."""
        nodes = self.d.state.nodes.rows
        return [run for run in self.d.state.runs.rows.values() if nodes[run.node].state is NodeState.UP]

    def nodes_act(self) -> None:
        """A part of what there is to do."""
        for run in self.runs():
            now = self.d.state.runs.rows.get(run.key)
            if now is not None and self.d.state.nodes.rows[now.node].state is NodeState.UP and self.often(0.85):
                self.node_acts(now, 0.03, 0.07)

    def measured(self) -> None:
        nodes, kind = self.d.state.nodes.rows, self.random.choice((20, 50, 90))
        self.d.step(
            *(
                MiniBatchMeasured(
                    nodes[run.node].name,
                    run.key,
                    self.random.choice((100_000, 160_000, 350_000)),
                    20,
                    990_000,
                    4000,
                    kind * 10_000,
                )
                for run in self.runs()
                if run.phase is RunPhase.RUNNING
            ),
            after=60,
        )

    def node_happens(self) -> None:
        name, d = self.random.choice(NODES), self.d
        node = d.node(name)
        match self.random.randrange(6):
            case 0 if node.state is NodeState.UP:
                d.silence(name)
            case 1:
                self.boots[name] += 1
                self.join(name, forgets=True)
            case 2 if node.drained_us is None:
                d.step(DrainRequested(name, "", "op", self.often(0.5)))
            case 2 | 3:
                d.step(UndrainRequested(name))
            case 4 if node.state is NodeState.UP:
                broken = self.random.choice((0, 1))
                d.step(FaultsSeen(name, node.boot_id, ((self.random.randrange(4), "XID 79"),) if broken else ()))
            case _:
                self.join(name)

    # ---- what users do ---------------------------------------------------------------------------------------------------

    def submits(self) -> None:
        vc, guarantee = self.random.choice("aaabbc"), self.random.choice(list(Guarantee))
        trial, priority = self.often(0.25), self.random.choice((0, 0, 0, 1, -1))
        if self.often(0.4):
            tasks = self.random.choice((1, 2))
            what = elastic(vc, tasks, tasks + self.random.randrange(1, 4), guarantee=guarantee, priority=priority)
            self.d.step(Submitted("ann", "", what))
        elif self.often(0.15):
            mode = self.random.choice((ShareMode.PACKED, ShareMode.SLICED))
            part = (self.random.choice((250_000, 500_000)), 3000, mode)
            self.d.asked(vc, 1, guarantee=guarantee, trial=trial, priority=priority, part=part)
        else:
            sizes = self.random.choice(([1], [1], [2], [4], [1, 1], [2, 2], [1, 1, 1]))
            memory = self.random.choice((0, 3000))
            self.d.asked(vc, *sizes, guarantee=guarantee, trial=trial, priority=priority, memory=memory)

    def user_asks(self) -> None:
        jobs = sorted(self.d.state.jobs.rows)
        if not jobs:
            return
        job, draw = self.random.choice(jobs), self.random
        asked = draw.choices(
            (
                SuspendRequested(job, park=True, park_only=self.often(0.7)),
                SuspendRequested(job),
                ResumeRequested(job),
                MigrateRequested(job, (draw.choice(NODES),)),
                ResizeRequested(job, draw.randint(1, 5)),
                RequeueRequested(job),
                CancelRequested(job),
                UpdateRequested(job, priority=draw.choice((-1, 0, 1))),
                UpdateRequested(job, share=draw.choice(list(ShareMode))),
            ),
            (6, 2, 6, 8, 4, 1, 1, 2, 1),
        )
        self.d.step(*asked)

    def operator_asks(self) -> None:
        vc = self.random.choice("abc")
        if self.often(0.6):
            self.d.step(VcRequested(vc, False, policy=self.random.choice(POLICIES)))
        else:
            level, most = {"a": ("switch", 2), "b": ("node", 1), "c": ("switch", 1)}[vc]
            self.d.step(VcRequested(vc, False, (Quota("p", level, self.random.randint(0, most)),)))

    def leader_takes_over(self) -> None:
        self.d.restart(self.d.state.settings, cells())
        self.d.step()

    # ---- the history -----------------------------------------------------------------------------------------------------

    def something_happens(self) -> None:
        happens, often = zip(
            (self.submits, 20),
            (self.user_asks, 16),
            (self.nodes_act, 40),
            (self.measured, 8),
            (self.node_happens, 5),
            (self.operator_asks, 3),
            (self.leader_takes_over, 4),
            (lambda: self.d.step(after=self.random.choice((5, 61, 301))), 8),
            strict=True,
        )
        self.random.choices(happens, often)[0]()
        check_charges(self.d.state)

    def all_jobs_end(self) -> bool:
        """Once everybody behaves, and each virtual cluster owns what it did."""
        d = self.d
        for name in NODES:
            self.join(name)
            d.step(UndrainRequested(name))
            d.step(FaultsSeen(name, d.node(name).boot_id, ()))
        d.step(*(VcRequested(vc, False, (Quota("p", *own),)) for vc, own in (("a", ("switch", 2)), ("c", ("switch", 1)))))
        d.step(VcRequested("b", False, (Quota("p", "node", 1),)))
        for _ in range(400):
            if not d.state.jobs.rows:
                return True
            for job in [job for job in d.state.jobs.rows.values() if job.suspend_requested]:
                d.step(ResumeRequested(job.id))
            for key in list(d.state.runs.rows):
                if (run := d.state.runs.rows.get(key)) is not None:
                    self.node_acts(run, 1.0, 0.0)
            d.step(after=10)
        return False


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("seed", range(examples(8)))
def test_every_job_ends_whatever_meets(seed: int) -> None:
    history = History(seed)
    for _ in range(100):
        history.something_happens()
    assert history.all_jobs_end(), history.d.state.jobs.rows
    assert not history.d.state.share_groups.rows
    assert not history.d.state.earmarks.rows
    assert not history.d.state.bindings.rows, "a cell is bound for ever"
