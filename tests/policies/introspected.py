"""A site that introspects, and nodes that measure what tests say."""

from collections.abc import Mapping
from random import Random

from scheduler_service.core.messages import MiniBatchMeasured, Step, SwitchingMeasured
from scheduler_service.core.model import Job, JobSpec, RunPhase
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.settings import DEFAULTS, Settings
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec

SERVER = Vector(64_000, 1_048_576, 4)
"""Four devices, as in Gandiva's clusters."""


class Introspected(Driver):
    """Runs begin as soon as they are placed."""

    def __init__(self, *nodes: str, settings: Settings = DEFAULTS, **own: float) -> None:
        self.own = own
        made = stages("gandiva", PreemptionSettings(), own=own)
        super().__init__(made.policy, settings, order=order_of(made))
        for name in nodes:
            self.join(name, SERVER)

    def begin(self, devices: int = 1, what: JobSpec | None = None, **wants: int) -> int:
        """A job that is submitted, and begins if it was placed."""
        job = self.submit(what or spec(devices, **wants))
        self.all_begin()
        return job

    def all_begin(self) -> None:
        for key, run in sorted(self.state.runs.rows.items()):
            if run.phase is RunPhase.STARTING and run.started_us is None:
                self.step(self.started(key.job_id, key.task))

    def leaves(self, job: int) -> Step:
        """It succeeds."""
        return self.step(self.exited(job, done=True))

    def nodes_of(self, *jobs: int) -> list[str]:
        return [self.where(job).name for job in jobs]

    def group_of(self, job: int) -> ShareGroup | None:
        return self.state.share_groups.rows.get(self.run(job).group)

    def rows_of(self, job: int) -> list[list[int]]:
        """The jobs of each row of the share group."""
        group = self.group_of(job)
        return [] if group is None else [sorted({key.job_id for key in row.runs}) for row in group.rows]

    def measure(
        self, times: Mapping[int, int], memory: int = 4000, utilisation: int = 20, count: int = 20, after: int = 60
    ) -> Step:
        """Jobs take these milliseconds for a mini-batch. `utilisation` in percent."""
        events = [
            MiniBatchMeasured(self.where(job).name, self.run(job).key, ms * 1000, count, 990_000, memory, utilisation * 10_000)
            for job, ms in times.items()
        ]
        return self.step(*events, after=after)

    def profile(self, times: Mapping[int, int], memory: int = 4000, utilisation: int = 20) -> None:
        """Jobs are measured twice, since nobody knows of the first time how many mini-batches the present plan had."""
        for after in (1, 60):
            self.measure(times, memory, utilisation, after=after)

    def switches(self, *jobs: int, after: int = 1, **seconds: float) -> Step:
        """Nodes say what the switches of these jobs take: wait, park, resume, outlasted."""
        takes = Switching(**{f"{part}_us": round(each * SECOND) for part, each in seconds.items()})
        runs = [run for job in jobs for run in self.state.runs_of(job)]
        return self.step(
            *(SwitchingMeasured(self.state.nodes.rows[run.node].name, run.key, takes) for run in runs), after=after
        )

    def period_of(self, job: int) -> float:
        """Seconds of a cycle of its turns."""
        group = self.group_of(job)
        assert group is not None
        return group.period_us / SECOND

    def told(self, job: int) -> Job:
        return self.job(job)


def shuffled(seed: int) -> Random:
    return Random(seed)
