"""Histories of an overloaded site at random: jobs come and go, are measured and packed, devices break, and every job ends.

After each step the driver checks all invariants, and that an undone step leaves nothing behind.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.model import EventKind, JobState
from scheduler_service.core.sharing.equations import time_share
from tests.core.driver import spec
from tests.policies.introspected import Introspected
from tests.policies.sharing_runs import gang_of
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)

Action = tuple[str, int, int]
ACTIONS: st.SearchStrategy[Action] = st.tuples(
    st.sampled_from(("submit", "submit", "submit", "gang", "end", "measure", "measure", "measure", "time", "break", "heal")),
    st.integers(0, 9),
    st.integers(0, 9),
)
SLOWDOWNS = (1.05, 1.6, 2.6, 3.5)
"""Of packed jobs, by their kind: two kinds gain by packing, and two lose."""


class Histories(Introspected):
    def __init__(self, **own: float) -> None:
        super().__init__("n1", "n2", packing_gain=0, probe_periods=4, grow_after=120, **own)
        self.probed: Counter[str] = Counter()

    def act(self, what: str, a: int, b: int) -> None:
        jobs = sorted(job.id for job in self.state.jobs.rows.values() if job.state is JobState.RUNNING)
        if what == "submit":
            self.submit(replace(spec((1, 1, 2, 4)[a % 4], trial=not b), name=f"kind-{'abcd'[b % 4]}"))
        elif what == "gang":
            self.submit(gang_of(a % 2 + 1, (1, 2, 4)[b % 3], min_tasks=1, max_tasks=4))
        elif what == "end" and jobs:
            job = jobs[a % len(jobs)]
            self.step(*(self.exited(job, run.task, done=True) for run in self.state.runs_of(job)))
        elif what == "measure":
            self.measure_all(jobs, b)
        elif what in ("break", "heal"):
            self.faulty({a % 4: "it is lost"} if what == "break" else {}, ("n1", "n2")[b % 2])
        self.step(after=(1, 30, 60)[b % 3])
        self.all_come_up()

    def measure_all(self, jobs: list[int], b: int) -> None:
        times = {}
        for job in jobs:
            rows = self.rows_of(job)
            packed = any(job in row and len(row) > 1 and self._beside(job, row) for row in rows)
            times[job] = round(100 * (SLOWDOWNS[job % 4] if packed else 1))
        for after in (1, 60):
            told = self.measure(times, utilisation=10 + 20 * (b % 4), after=after).log
            self.probed.update(line.text.partition(":")[0] for line in told if line.kind is EventKind.PROBED)

    def _beside(self, job: int, row: list[int]) -> bool:
        """Whether somebody of the row has a device of the job."""
        mine = {(run.node, index) for run in self.state.runs_of(job) for index in run.devices}
        others = (run for other in row if other != job for run in self.state.runs_of(other))
        return any((run.node, index) in mine for run in others for index in run.devices)

    def all_come_up(self) -> None:
        """What was placed begins, and what is to stop does."""
        for job_id in sorted(self.state.active):
            runs = self.state.runs_of(job_id)
            if any(run.phase.exits_soon for run in runs):
                self.step(*(self.exited(job_id, run.task, yielded=True) for run in runs))
            elif any(run.started_us is None for run in runs):
                if self.job(job_id).launch_spec.gang:
                    self.step(*(self.ready(job_id, run.task) for run in runs))
                self.step(*(self.started(job_id, run.task) for run in runs))

    def check_turns(self) -> None:
        """Nobody starves: of R rows of equal weight, each job executes in one at least."""
        for group in self.state.share_groups.rows.values():
            assert {row.weight for row in group.rows} == {1}
            assert min(time_share(group.rows, key) for key in group.members()) * len(group.rows) >= 1


@settings(max_examples=examples(12), deadline=None)
@given(st.lists(ACTIONS, min_size=10, max_size=30))
def test_every_job_of_an_overloaded_site_has_its_turn_and_ends(actions: list[Action]) -> None:
    d = Histories()
    for action in actions:
        d.act(*action)
        d.check_turns()
    d.act("heal", 0, 0)
    d.act("heal", 0, 1)
    for _ in range(200):
        if not d.state.jobs.rows:
            break
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
