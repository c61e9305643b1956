"""Histories of an overloaded site at random: jobs of all ranks come and go, are measured, packed, moved and parked (by users,
too), devices break, agents are slow, and every job ends.

After each step the driver checks all invariants, and that an undone step leaves nothing behind.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import (
    ResumeRequested,
    RunParked,
    RunParkRefused,
    RunReady,
    RunResumed,
    SuspendRequested,
    UndrainRequested,
)
from scheduler_service.core.model import EventKind, JobState, Run, RunPhase
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.sharing.equations import time_share
from scheduler_service.policies.gandiva.slicing.mates import outranks
from scheduler_service.policies.gandiva.slicing.probes import NAME, probe_subject
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.switching_cost import cost_of, longest_us, period_for
from tests.core.driver import spec
from tests.policies.introspected import Introspected
from tests.policies.sharing_runs import gang_of
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)

Action = tuple[str, int, int]
ACTIONS: st.SearchStrategy[Action] = st.tuples(
    st.sampled_from(
        (
            *["submit"] * 3,
            "gang",
            *["rank"] * 2,
            *["end"] * 2,
            *["measure"] * 4,
            *["switch"] * 2,
            "park",
            "resume",
            "time",
            "late",
            "break",
            "heal",
        )
    ),
    st.integers(0, 9),
    st.integers(0, 9),
)
SLOWDOWNS = (1.05, 1.6, 2.6, 3.5)
"""Of packed jobs, by their kind: two kinds gain by packing, and two lose."""


SWITCHES = ((0, 0.1, 0.1, 0), (1, 2, 1, 0), (0, 5, 5, 0), (20, 0, 0, 0), (0, 0, 0, 15), (0, 0, 0, 1000), (0, 0.5, 0.2, 0))
"""Seconds that parks and resumes take."""


class Histories(Introspected):
    def __init__(self, **own: float) -> None:
        super().__init__("n1", "n2", packing_gain=0, probe_periods=4, grow_after=120, pack_moves=1, **own)
        self.probed: Counter[str] = Counter()
        self.refuses = False
        """Runs that are to park or to resume cannot."""

    def act(self, what: str, a: int, b: int) -> None:
        jobs = self.in_state(JobState.RUNNING)
        if what == "submit":
            self.submit(replace(spec((1, 1, 2, 4)[a % 4], trial=not b), name=f"kind-{'abcd'[b % 4]}"))
        elif what == "gang":
            self.submit(gang_of(a % 2 + 1, (1, 2, 4)[b % 3], min_tasks=1, max_tasks=4))
        elif what == "rank":
            self.submit(replace(spec((1, 1, 2, 4)[a % 4], trial=b % 2 == 1), priority=b % 3 - 1))
        elif what == "end" and jobs:
            job = jobs[a % len(jobs)]
            self.step(*(self.exited(job, run.task, done=True) for run in self.state.runs_of(job)))
        elif what == "measure":
            self.measure_all(jobs, b)
        elif what == "switch" and jobs:
            times = dict(zip(("wait", "park", "resume", "outlasted"), SWITCHES[b % len(SWITCHES)], strict=True))
            self.switches(*jobs[a % len(jobs) :], **times)
        elif what == "park" and jobs:
            self.refuses = b % 4 == 3
            self.step(SuspendRequested(jobs[a % len(jobs)], park=True, park_only=b % 2 == 1))
        elif what == "resume" and (parked := self.in_state(JobState.SUSPENDED)):
            self.refuses = b % 4 == 3
            self.step(ResumeRequested(parked[a % len(parked)]))
        elif what == "break":
            self.faulty({a % 4: "it is lost"}, ("n1", "n2")[b % 2])
        elif what == "heal":
            self.step(UndrainRequested(("n1", "n2")[b % 2]))
            self.faulty({}, ("n1", "n2")[b % 2])
        if what != "late":  # else the tasks of a gang may not be ready in time, which nodes are drained for
            self.all_come_up()
        self.step(after=(1, 30, 60)[b % 3])
        self.all_come_up()
        self.refuses = False

    def in_state(self, state: JobState) -> list[int]:
        return sorted(job.id for job in self.state.jobs.rows.values() if job.state is state)

    def measure_all(self, jobs: list[int], b: int) -> None:
        times = {}
        for job in jobs:
            rows = self.rows_of(job)
            packed = any(job in row and len(row) > 1 and self._beside(job, row) for row in rows)
            times[job] = round(100 * (SLOWDOWNS[job % 4] if packed else 1))
        for after in (1, 60):
            told = self.measure(times, utilisation=10 + 20 * (b % 4), after=after).log
            self.probed.update(line.text.partition(":")[0] for line in told if line.kind is EventKind.PROBED)
            self.probed["moved to be packed"] += sum("is to be packed" in line.text for line in told)

    def _beside(self, job: int, row: list[int]) -> bool:
        """Whether somebody of the row has a device of the job."""
        mine = {(run.node, index) for run in self.state.runs_of(job) for index in run.devices}
        others = (run for other in row if other != job for run in self.state.runs_of(other))
        return any((run.node, index) in mine for run in others for index in run.devices)

    def all_come_up(self) -> None:
        """What was placed begins, what is to stop, park or resume does, and destinations of migrations make themselves ready;
        until nothing follows from that."""
        for _ in range(100):
            before = self.taken
            for job_id in sorted(self.state.active):
                self._goes_on(job_id)
            if self.taken == before:
                return
        raise AssertionError(f"this goes on for ever: {sorted(self.state.active)}")

    def _goes_on(self, job_id: int) -> None:
        runs = self.state.runs_of(job_id)
        warming = [run for run in self.state.runs.rows.values() if run.job_id == job_id and run.awaits]
        if any(run.phase.exits_soon for run in runs):
            self.step(*(self.exited(job_id, run.task, yielded=True) for run in runs))
        elif any(run.started_us is None for run in runs):
            if self.job(job_id).launch_spec.gang:
                self.step(*(self.ready(job_id, run.task) for run in runs))
            self.step(*(self.started(job_id, run.task) for run in runs))
        elif any(run.phase in (RunPhase.PARKING, RunPhase.RESUMING) for run in runs):
            self.step(*(self._parks(run) for run in runs if run.phase in (RunPhase.PARKING, RunPhase.RESUMING)))
        elif any(run.phase is RunPhase.WARMING for run in warming):
            self.step(*(self._is_warm(run) for run in warming if run.phase is RunPhase.WARMING))

    def _parks(self, run: Run) -> RunParked | RunResumed | RunParkRefused:
        node = self.state.nodes.rows[run.node]
        report = node.name, node.boot_id, self._next(node), run.key
        if self.refuses:
            return RunParkRefused(*report, why="it does not know how", lost=run.phase is RunPhase.RESUMING)
        if run.phase is RunPhase.PARKING:
            return RunParked(*report, rung="cooperative", moved_bytes=1 << 30, residue_bytes=300 << 20)
        return RunResumed(*report, rung="cooperative")

    def _is_warm(self, run: Run) -> RunReady:
        node = self.state.nodes.rows[run.node]
        return RunReady(node.name, node.boot_id, self._next(node), run.key, node.name, 20_000 + run.task)

    def check_turns(self) -> None:
        """Nobody starves: of R rows that have turns, each job executes in one at least, unless another one outranks it that has
        turns on its devices."""
        for group in self.state.share_groups.rows.values():
            assert 60 * SECOND <= group.period_us <= 600 * SECOND
            runs = [self.state.runs.rows[key] for key in group.members()]
            if any(run.phase.exits_soon for run in runs):
                continue  # once they have left, turns are given anew
            executing = {run.job_id for run in runs if time_share(group.rows, run.key)}
            for job_id in {run.job_id for run in runs} - executing:
                first = [other for other in executing if outranks(self.job(other), self.job(job_id))]
                mine = self._devices_of(job_id)
                assert any(mine & self._devices_of(other) for other in first), f"job {job_id} has no turns: {group}"

    def check_periods(self) -> None:
        """After a round, turns lose no more than 2 % to switching, unless they are as long as they may be, or packing is being
        measured."""
        settings = Settings()
        for group in self.state.share_groups.rows.values():
            if sum(row.weight for row in group.rows) < 2 or any(key in self.state.promised_by for key in group.members()):
                continue
            if (NAME, probe_subject("", group.id)) in self.state.memos.rows:
                continue
            runs = {key: self.state.runs.rows[key] for key in group.members()}
            cost = cost_of(group.rows, runs, self.state.switching.rows, longest_us(settings))
            assert period_for(cost, group.period_us, settings) == group.period_us
            assert cost.lost_us * 100 <= 2 * group.period_us or group.period_us == longest_us(settings)

    def _devices_of(self, job_id: int) -> set[tuple[int, int]]:
        return {(run.node, index) for run in self.state.runs_of(job_id) for index in run.devices}


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(ACTIONS, min_size=10, max_size=30), st.sampled_from((60, 600)))
def test_every_job_of_an_overloaded_site_has_its_turn_and_ends(actions: list[Action], move_pause: int) -> None:
    d = Histories(move_pause=move_pause)
    for action in actions:
        d.act(*action)
        d.check_turns()
        d.step(after=60)
        d.check_periods()
    d.act("heal", 0, 0)
    d.act("heal", 0, 1)
    for _ in range(200):
        if not d.state.jobs.rows:
            break
        d.act("resume", 0, 0)
        d.act("end", 0, 0)
    assert not d.state.jobs.rows, f"these starve: {sorted(d.state.jobs.rows)}"
    assert not d.state.share_groups.rows
    d.step(after=86_400)
    d.step(after=86_400)
    assert not [subject for policy, subject in d.state.memos.rows if "probe/" in subject]


def test_such_histories_have_packings_that_are_kept_and_such_that_are_undone() -> None:
    """A fixed one, so that it is known what the random ones are about."""
    d = Histories()
    for number in range(10):
        d.act("submit", 3, number % 4 + 4)
    for _ in range(24):
        d.act("measure", 0, 4)
    assert d.probed["packing is tried"] >= 4
    assert d.probed["packing is kept"] >= 2
    assert d.probed["packing is undone"] >= 2


def test_such_histories_have_moves_of_jobs_that_are_to_be_packed() -> None:
    d = Histories(move_pause=60)
    for number in range(11):
        d.act("submit", 0, number % 4 + 4)
    for _ in range(12):
        d.act("measure", 0, 4)
    assert d.probed["moved to be packed"] >= 2
