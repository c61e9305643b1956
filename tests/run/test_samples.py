"""Samples over changes of leader: each event is taken by a leader of its own, which has nothing but the database."""

from random import Random

from scheduler_service.config import Config
from scheduler_service.core.engine import step
from scheduler_service.core.messages import Event, RunExited, RunMeasured, RunStarted, Step, Submitted
from scheduler_service.core.model import Configuration, EventKind, Job, JobSpec, JobState, RunKey
from scheduler_service.core.model.estimates import Source
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.engine_settings import HISTORY_ROWS, settings_of, stages_of
from scheduler_service.store import memory
from scheduler_service.store.memory import Memory
from tests.core.driver import EPOCH, Driver
from tests.run.live import load_state

CONFIG = Config(database="postgresql://nowhere", policy="allox", policy_settings={"alpha": 1})
SPEC = JobSpec(("train",), Vector(1000, 1, 1), grace_us=SECOND, alternatives=(Configuration(Vector(2000, 1, 0)),))
EACH = {0: 0.5, 1: 0.1}
"""Seconds of a step, by configuration."""


class Leaders:
    def __init__(self) -> None:
        self.database = Memory()
        self.now = EPOCH
        self.sequence = 0
        self.led = 0

    def take(self, *events: Event, after: float = 1) -> Step:
        self.now += round(after * SECOND)
        self.led += 1
        epoch = memory.take(self.database, f"leader-{self.led}", 60, force=True)
        assert epoch is not None
        state, _, writer = load_state(self.database, epoch, CONFIG)
        taken = step(state, events, self.now, Random(0), stages_of(CONFIG).policy)
        assert not [reply for reply in taken.replies if isinstance(reply, Exception)]
        assert not taken.refused
        writer.commit(taken.changes, taken.log)
        return taken

    def job(self) -> Job:
        return max(memory.load(self.database).jobs, key=lambda job: job.id)

    def key(self) -> RunKey:
        job = self.job()
        return RunKey(job.id, job.run)

    def report(self) -> tuple[str, str, int, RunKey]:
        self.sequence += 1
        return "n1", "a", self.sequence, self.key()

    def sample(self) -> None:
        """One that is complete, in three readings."""
        each = EACH[self.job().configuration]
        self.take(RunStarted(*self.report()))
        for steps in (2, 12, 30):
            at = round(SECOND * (1 + each)), round(SECOND * (1 + each * steps))
            self.take(RunMeasured("n1", self.key(), steps, *at, 1000))
        self.take(RunExited(*self.report(), yielded=True, told=True))


def node() -> Event:
    return Driver().seen("n1")


def test_every_phase_of_a_sample_is_in_the_database() -> None:
    leaders = Leaders()
    leaders.take(node())
    leaders.take(Submitted("ann", "", SPEC))
    for configuration in (0, 1):
        assert (leaders.job().configuration, leaders.job().sampling is not None) == (configuration, True)
        leaders.sample()
    assert [part.time_us / SECOND for part in leaders.job().estimates] == [501, 101]
    assert (leaders.job().state, leaders.job().configuration, leaders.job().sampling) == (JobState.STARTING, 1, None)
    leaders.take(RunStarted(*leaders.report()))
    leaders.take(RunExited(*leaders.report()), after=98)
    assert memory.load(leaders.database).jobs == ()
    leaders.take(Submitted("ann", "", SPEC))
    assert [(part.source, part.configuration) for part in leaders.job().estimates] == [(Source.HISTORY, 0), (Source.HISTORY, 1)]
    assert (leaders.job().configuration, leaders.job().sampling) == (1, None)


def test_the_deadline_of_a_sample_is_in_the_database() -> None:
    leaders = Leaders()
    leaders.take(node())
    leaders.take(Submitted("ann", "", SPEC))
    leaders.take(RunStarted(*leaders.report()))
    assert leaders.take(after=299).log == ()
    lines = leaders.take(after=1).log
    assert [line.kind for line in lines] == [EventKind.SAMPLED] * 2
    assert leaders.job().state is JobState.RUNNING, "nothing was counted, so it goes on"


def test_history_is_kept_for_policies_that_learn_from_it() -> None:
    assert settings_of(CONFIG).history_rows == HISTORY_ROWS
    assert settings_of(Config(database="postgresql://nowhere")).history_rows == 0
