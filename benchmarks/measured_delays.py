"""The delays of a cluster, from what became of its jobs: what was measured in one place is drawn from in another.

Only what the scheduler saw counts: when it placed a run, heard that it began, told it to leave, and heard that it was over. So
a delay has in it whatever lies between: the commit, the network, the agent, the process.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.site import Times
from scheduler_service.sim.workloads.distributions import Empirical


def times(lives: Iterable[Life]) -> Times:
    """Return the delays of ended jobs that lost no work and whose undisturbed run time is known.

    Delays that were never observed keep the simulator's default. No delay is below zero: if the scheduler was notified late of
    a start, an end may seem early.
    """
    starts: list[Micros] = []
    checkpoints: list[Micros] = []
    alone: list[Micros] = []
    """Times in excess of their work, for jobs that ran once."""
    parks: list[Micros] = []
    unparks: list[Micros] = []
    more: list[tuple[Micros, int]] = []
    """Times in excess of their work, for other jobs, and the number of times that they resumed from a checkpoint."""
    for life in lives:
        ran = resumed = 0
        for launch in life.launches:
            if launch.began_us is None:
                continue
            assert launch.ended_us is not None  # it has ended
            starts.append(launch.began_us - launch.placed_us)
            until = launch.ended_us if launch.signalled_us is None else launch.signalled_us
            if until > launch.began_us and launch.signalled_us is not None:
                checkpoints.append(launch.ended_us - until)
            resumed += ran > 0
            ran += max(until - launch.began_us - launch.parked_us(), 0)
            parks += launch.park_delays
            unparks += launch.unpark_delays
        if resumed:
            more.append((ran - life.job.work_us, resumed))
        else:
            alone.append(ran - life.job.work_us)
    end = fmean(alone) if alone else 0.0
    resumes = [(beyond - end) / count for beyond, count in more for _ in range(count)]
    return Times(
        start=_drawn(starts),
        resume=_drawn(resumes),
        checkpoint=_drawn(checkpoints),
        end=_drawn(alone),
        park=_drawn(parks),
        unpark=_drawn(unparks),
    )


def _drawn(values: Sequence[float]) -> Empirical | None:
    return Empirical.from_samples(max(value, 0) / SECOND for value in values) if values else None
