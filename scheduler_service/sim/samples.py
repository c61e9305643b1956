"""The measurements that simulated agents report of samples, whose steps all take equally long."""

from scheduler_service.core.messages import RunMeasured
from scheduler_service.core.model import RunKey
from scheduler_service.core.model.estimates import Sampling
from scheduler_service.core.model.values import Micros
from scheduler_service.core.operations.samples import is_enough
from scheduler_service.sim.experiments.job_outcomes import Launch, Life

STEPS = 1000
"""The number of steps of each job that counts its steps."""


def _steps(sampling: Sampling) -> int:
    """The number of steps until a sample is complete."""
    return next(steps for steps in range(1, STEPS + 1) if is_enough(sampling, steps, STEPS))


def measured_at(life: Life, launch: Launch, sampling: Sampling | None) -> Micros | None:
    """When the launch has done the steps of its sample, if it works until then; None if it is no sample, or counts no steps."""
    if sampling is None or launch.works_us is None or not life.job.samples_us:
        return None
    return launch.works_us + life.job.takes_us(launch.configuration, life.job.work_us) * _steps(sampling) // STEPS


def is_under_way(launch: Launch) -> bool:
    """Whether the launch works, as far as its node knows."""
    return launch.signalled_us is None and launch.lost_us is None and launch.ended_us is None


def measurement(node: str, key: RunKey, whole_us: Micros, sampling: Sampling) -> RunMeasured:
    """The measurement of a complete sample; `whole_us`: how long all steps take, as the sample measures them."""
    steps = _steps(sampling)
    return RunMeasured(node, key, steps, whole_us // STEPS, whole_us * steps // STEPS, STEPS)
