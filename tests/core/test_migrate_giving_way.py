"""A migration into a share group gives way if the group is preempted: its job runs on where it is, and has lost nothing."""

from dataclasses import replace

import pytest

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Action, Event, Migrate, Rng, Share, Spot, Step
from scheduler_service.core.model import EventKind, JobEvent, JobState, RunKey, StopReason
from scheduler_service.core.model.configurations import NodeSelector
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec
from tests.core.test_migrate import warm

HERE, COMES = 1, 3
"""The jobs: the first has devices 0 and 1 of n1, where the second comes to take turns. It runs on n2."""


class Site(Driver):
    """Two nodes. The policy is at work, and carries out what a test asks beside."""

    def __init__(self, policy: str) -> None:
        made = stages(policy, PreemptionSettings())
        self.made, self.asked, self.told_of = made.policy, None, list[JobEvent]()
        super().__init__(self._serve, order=order_of(made))
        for name in ("n1", "n2"):
            self.join(name)

    def _serve(self, state: State, rng: Rng) -> Proposals:
        yield from self.made(state, rng)
        if self.asked is not None:
            assert (yield (self.asked,)) is None

    def do(self, action: Action) -> None:
        self.asked, self.settles, self.state.pending.policies = action, False, True
        self.step()
        self.asked, self.settles = None, True

    def step(self, *events: Event, after: int = 0) -> Step:
        taken = super().step(*events, after=after)
        self.told_of += taken.log
        return taken

    def on(self, node: str, devices: int, trial: bool = False, priority: int = 0) -> int:
        """A job for this node alone (empty: for any), which starts if there is room."""
        job = self.submit(replace(spec(devices, trial=trial), priority=priority, nodes=NodeSelector((node,) if node else ())))
        if self.state.runs_of(job):
            self.start(job)
        return job


def coming(policy: str) -> Site:
    """All other devices are a trial's."""
    d = Site(policy)
    for node, devices, trial in (("n1", 2, False), ("n1", 6, True), ("", 2, False), ("n2", 6, True)):
        d.on(node, devices, trial)
    rows = tuple(Row((one,)) for one in (d.run(HERE).key, RunKey(COMES, 2)))
    share = Share(rows, tuple((one, 4096) for row in rows for one in row.runs))
    d.do(Migrate(COMES, (Spot(1, (0, 1)),), "a test", share=share))
    assert d.run(HERE).group == d.state.runs.rows[RunKey(COMES, 2)].group != 0
    return d


@pytest.mark.parametrize("policy", ["fitgpp", "lrtp", "rand", "thrifty", "las"])
@pytest.mark.parametrize("saving", [False, True])
def test_the_job_that_is_there_is_preempted_and_the_one_that_comes_is_not(policy: str, saving: bool) -> None:
    d = coming(policy)
    if saving:
        warm(d, COMES)
    claimant = d.on("n1", 2, trial=policy != "las", priority=1)
    assert d.run(HERE).stop_reason is StopReason.PREEMPTED
    assert d.earmark(claimant).victims == (d.run(HERE).key,)
    assert d.run(COMES).stop_reason is (StopReason.MIGRATED if saving else None)
    assert RunKey(COMES, 2) not in d.state.runs.rows
    assert not d.state.operations.rows
    (failed,) = [line for line in d.told_of if line.kind is EventKind.MIGRATION_FAILED]
    assert (failed.job_id, failed.text) == (COMES, f"job {claimant} needs devices of the destination")
    if saving:
        d.step(d.exited(COMES, yielded=True))
        assert d.job(COMES).state is JobState.STARTING
        assert d.run(COMES).node == 2
    d.step(d.exited(HERE, yielded=True))
    assert d.job(claimant).state is JobState.STARTING


def test_the_group_is_a_candidate_again_with_the_job_once_that_has_come() -> None:
    d = coming("fitgpp")
    warm(d, COMES)
    d.step(d.exited(COMES, yielded=True))
    d.step(d.started(COMES))
    d.on("n1", 2, trial=True)
    assert [d.run(job).stop_reason for job in (HERE, COMES)] == [StopReason.PREEMPTED] * 2


def test_the_job_that_comes_is_preempted_where_it_runs_and_the_other_is_not() -> None:
    d = coming("fitgpp")
    trial = d.on("n2", 2, trial=True)
    assert d.earmark(trial).victims == (RunKey(COMES, 1),)
    assert d.run(COMES).stop_reason is StopReason.PREEMPTED
    assert d.job(HERE).state is JobState.RUNNING
    assert not d.run(HERE).group, "it has its devices alone again"
