"""HiveD's figure 6: how long jobs queue under three schedulers, in private clusters, in a shared one, and in virtual clusters.
A job queues while it has no run: until it starts, and again after it was preempted. One that takes turns with others does not
queue, but it is slower. So the total cost of a job's waits, turns and moves is shown as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reproduction.hived import figures as hived_figures
from reproduction.hived.measures import excess, moving_mean, queueing_times
from reproduction.hived.plan import Study
from reproduction.hived.published import CLAIMS
from reproduction.hived.queueing_delay_plan import NODES, SCHEDULERS, WAYS, Way, cases, workload
from reproduction.hived.simulated import DAY_US, POINTS, see
from reproduction.studies import Simulated, Table, number
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.figures import save
from scheduler_service.sim.experiments.history import Floats, Ints
from scheduler_service.sim.workloads.hived import sampled_quotas

FIGURE_6 = "figure-6"
TENANT = "prod-a"
MINUTE_US = 60_000_000
TOLERANCE_US = 60_000_000
"""Not counted as a delay, as in `shared`: the paper does not mean the grace period of a run that makes room."""
TITLES: Mapping[Way, str] = {"private": "private clusters", "shared": "shared", "cells": "HiveD"}

Planned = Mapping[tuple[str, Way], Sequence[tuple[Case, ...]]]
"""The cases of each sample, by scheduler and way."""


class Waits(NamedTuple):
    """The waits of the jobs of one sample, or of several combined; in microseconds."""

    tenant: NDArray[Any]
    """Names of tenants."""
    submit: Ints
    queued: Ints
    lost: Ints
    """Time from the submit to the end, less the work."""
    over: Floats
    """How much longer it queued than in its tenant's private cluster; 0 if by a minute at most."""

    def of_tenant(self, tenant: str) -> "Waits":
        return Waits(*(column[self.tenant == tenant] for column in self))

    def longer(self) -> int:
        """The number of jobs that queued longer than in the private cluster."""
        return int((self.over > 0).sum())

    def worst_window(self) -> float:
        """The maximum over 12-hour windows of the mean extra queueing time of their jobs, in minutes."""
        if not len(self.submit):
            return 0.0
        return max(float(moving_mean(self.submit, self.over, self.submit.astype(np.float64)).max()), 0.0) / MINUTE_US


Seen = Mapping[tuple[str, Way], Sequence[Waits]]


def plan_cases(study: Study, samples: int) -> Planned:
    seeds = range(study.seed, study.seed + samples)
    return {
        (key, way): [cases(scheduler, way, workload(study, seed), seed) for seed in seeds]
        for key, scheduler in SCHEDULERS.items()
        for way in WAYS
    }


def waits(of: Planned, found: Simulated) -> Seen:
    """Compute the waits. Only the tables of one simulation at a time are read."""
    seen: dict[tuple[str, Way], list[Waits]] = {at: [] for at in of}
    for key in SCHEDULERS:
        for sample in range(len(of[key, "private"])):
            alone = see(of[key, "private"][sample], found).history
            in_private = queueing_times(alone)
            for way in WAYS:
                history = alone if way == "private" else see(of[key, way][sample], found).history
                waited = queueing_times(history)
                over = excess(history, waited, alone, in_private)
                over[np.abs(over) <= TOLERANCE_US] = 0
                codes, names = history.vcs
                lost = history.end - history.submit - history.work
                seen[key, way].append(Waits(np.array(names)[codes], history.submit, waited, lost, over))
    return seen


def combine_samples(samples: Iterable[Waits]) -> Waits:
    """Combine the jobs of all samples into one."""
    return Waits(*(np.concatenate(columns) for columns in zip(*samples, strict=True)))


# ---- what comes of them ----------------------------------------------------------------------------------------------------


def tables(seen: Seen, study: Study) -> list[Table]:
    return [_schedulers(seen, study), _claims(seen), _excess_table(seen), _tenants(seen)]


def _title(key: str, way: Way) -> str:
    scheduler = SCHEDULERS[key]
    return f"{scheduler.title}, {TITLES[way]}{' by quota' if way == 'shared' and scheduler.by_quota else ''}"


def _schedulers(seen: Seen, study: Study) -> Table:
    rows = []
    for (key, way), samples in seen.items():
        every, own = combine_samples(samples), combine_samples(samples).of_tenant(TENANT)
        told = [number(_minutes(own.queued)), number(_minutes(own.lost)), number(_minutes(every.queued))]
        told += [number(_minutes(every.lost))]
        compared = ["-"] * 5
        if way != "private":
            compared = [
                number(_typical(samples)),
                number(max(sample.of_tenant(TENANT).worst_window() for sample in samples)),
                f"{own.longer():,} of {len(own.submit):,}",
                f"{every.longer():,} of {len(every.submit):,}",
                number(max(float(every.over.max()), 0.0) / MINUTE_US),
            ]
        rows.append((_title(key, way), (*told, *compared)))
    jobs = workload(study, study.seed)
    how = "alike" if jobs.durations == "alike" else "by size"
    note = (
        f"{len(seen['yarn', 'private'])} samples of {jobs.span_days:.3g} days on {NODES} nodes, from seed {study.seed} on; "
        f"durations {how}. Means over jobs, in minutes. Queued: without a run. Lost: from submit to end, less the work. Above "
        "private: how much longer the jobs of 12 hours queued than in their tenant's private cluster, at most; the mean over "
        "samples, and the worst one. Longer: jobs that queued for more than a minute longer than there."
    )
    return Table("hived-schedulers", "Three schedulers in three ways", COLUMNS, tuple(rows), note)


COLUMNS = (
    "prod-a: queued",
    "lost",
    "all: queued",
    "lost",
    "prod-a above private: mean",
    "worst",
    "prod-a: longer",
    "all: longer",
    "by, at most",
)


def _typical(samples: Sequence[Waits], tenant: str = TENANT) -> float:
    return float(np.mean([sample.of_tenant(tenant).worst_window() for sample in samples]))


def _minutes(times_us: Ints) -> float | None:
    return float(times_us.mean()) / MINUTE_US if len(times_us) else None


def _tenants(seen: Seen) -> Table:
    quotas = sampled_quotas(NODES)
    rows = tuple(
        (_title(key, way), tuple(number(_minutes(combine_samples(samples).of_tenant(name).queued)) for name in quotas))
        for (key, way), samples in seen.items()
    )
    columns = tuple(f"{name} ({nodes})" for name, nodes in quotas.items())
    return Table(
        "hived-schedulers-tenants", "How long each tenant's jobs queue, in minutes (nodes that it owns)", columns, rows, ""
    )


def _excess_table(seen: Seen) -> Table:
    quotas = sampled_quotas(NODES)
    rows = tuple(
        (_title(key, way), tuple(number(_typical(samples, name)) for name in quotas))
        for (key, way), samples in seen.items()
        if way != "private"
    )
    title = "By how much the jobs of 12 hours queue longer than in their tenant's private cluster, at most, in minutes"
    return Table("hived-schedulers-above", title, tuple(quotas), rows, "The mean over samples.")


def _claims(seen: Seen) -> Table:
    """The paper's sentences. Both ways in which Gandiva is simulated are compared with its one number."""
    rows = []
    for name, keys in (
        ("yarn-excess", ["yarn"]),
        ("gandiva-excess", ["gandiva", "no-turns"]),
        ("tiresias-excess", ["tiresias"]),
    ):
        claim = CLAIMS[name]
        for key in keys:
            here = [number(_typical(seen[key, way])) + f" {claim.unit}" for way in WAYS if way != "private"]
            label = f"figure {claim.figure}, {SCHEDULERS[key].title}: {claim.said}"
            rows.append((label, (f"{number(claim.number)} {claim.unit}", here[0], f"0.00 {claim.unit}", here[1])))
    columns = ("paper, shared", "here", "paper, HiveD", "here")
    return Table(
        "hived-schedulers-claims", "What the paper says of figure 6, and what comes out here", columns, tuple(rows), ""
    )


def figures(seen: Seen, folder: Path) -> dict[str, str]:
    """Draw the figure; return its title by its name."""
    name = f"hived-{FIGURE_6}"
    last = max(float(combine_samples(samples).submit.max()) for samples in seen.values())
    at = np.linspace(0.0, last, POINTS + 1)[1:]
    curves = {
        scheduler.title: {TITLES[way]: _curve(combine_samples(seen[key, way]).of_tenant(TENANT), at) for way in WAYS}
        for key, scheduler in SCHEDULERS.items()
    }
    save(hived_figures.queueing((at / DAY_US).tolist(), curves), folder, name)
    return {name: f"Queueing delay of {TENANT} under three schedulers, in three ways"}


def _curve(of: Waits, at: Floats) -> list[float]:
    """The moving mean of queueing times, in minutes."""
    found: list[float] = (moving_mean(of.submit, of.queued, at) / MINUTE_US).tolist()
    return found
