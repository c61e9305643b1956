"""Means over seeds, and their uncertainty: Student's 95 % interval.

Each seed is one sample; if a policy was tried several times on the same jobs, the mean of these is. Two policies are compared
seed by seed: they had the same jobs, and most of the difference between two seeds is the same for both.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, count
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scheduler_service.sim.experiments.kept_results import Summary


class Estimate(NamedTuple):
    """A mean, and half the width of its interval; None if there is only one sample."""

    mean: float
    half: float | None


class Group(NamedTuple):
    """All simulations of one policy, on one workload and cluster."""

    label: str
    numbers: Mapping[int, Mapping[str, float]]
    """Metrics by seed."""
    curves: Mapping[int, Mapping[str, Sequence[float]]]
    """Curves by seed, of the first repeat."""
    unlike: str
    """The same for groups with the same jobs on the same cluster."""

    def estimate(self, name: str) -> Estimate | None:
        """The estimate of a metric; None if it has no meaning for this policy, or not for each seed."""
        values = [numbers[name] for numbers in self.numbers.values() if name in numbers]
        return estimate(values) if len(values) == len(self.numbers) else None

    def change(self, name: str, base: "Group") -> Estimate | None:
        """The increase of a metric over the base, as a share of the base's mean."""
        seeds = [seed for seed in self.numbers if seed in base.numbers]
        pairs = [(self.numbers[seed].get(name), base.numbers[seed].get(name)) for seed in seeds]
        known = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
        whole = fmean(theirs for _, theirs in known) if known else 0
        if not known or len(known) < len(pairs) or not whole:
            return None
        return estimate([(mine - theirs) / whole for mine, theirs in known])


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one sample or more, with its interval."""
    if len(values) < 2:
        return Estimate(fmean(values), None)
    return Estimate(fmean(values), student(len(values) - 1) * stdev(values) / math.sqrt(len(values)))


@cache
def student(freedom: int) -> float:
    """The t within which 95 % of Student's distribution lie, by its finite series for whole degrees of freedom."""
    low, high = 0.0, 20.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _probability_within(middle, freedom) < 0.95 else (low, middle)
    return high


def _probability_within(t: float, freedom: int) -> float:
    angle = math.atan(t / math.sqrt(freedom))
    cosine2, odd = math.cos(angle) ** 2, freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine2 * k / (k + 1)
    within = total * math.sin(angle)
    return 2 / math.pi * (angle + within) if odd else within


def group_summaries(folders: Mapping[Path, Sequence["Summary"]]) -> list[Group]:
    """Group the summaries of some sweeps by simulated policy, in order; the folder's name distinguishes equal titles."""
    found: dict[tuple[Path, str], list[Summary]] = {}
    for folder, summaries in folders.items():
        for summary in summaries:
            like = summary.case.model_copy(update={"seed": 0, "repeat": 0})
            found.setdefault((folder, like.model_dump_json()), []).append(summary)
    titles = [same[0].case.policy.title for same in found.values()]
    groups: list[Group] = []
    for (folder, _), same in found.items():
        title = same[0].case.policy.title
        label = title if titles.count(title) == 1 else f"{folder.name}: {title}"
        taken = {group.label for group in groups}
        numbered = (f"{label} #{number}" for number in count(2))
        groups.append(_group(next(name for name in chain((label,), numbered) if name not in taken), same))
    return groups


def _group(label: str, summaries: Sequence["Summary"]) -> Group:
    by_seed: dict[int, list[Summary]] = {}
    for summary in summaries:
        by_seed.setdefault(summary.case.seed, []).append(summary)
    case = summaries[0].case
    unlike = f"{case.model_dump_json(exclude={'policy', 'seed', 'repeat', 'folder'})} {sorted(summaries[0].files.items())}"
    return Group(
        label,
        {seed: _mean([summary.numbers for summary in same]) for seed, same in by_seed.items()},
        {seed: same[0].curves for seed, same in by_seed.items()},
        unlike,
    )


def _mean(repeats: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in repeats[0] if all(name in numbers for numbers in repeats)]
    return {name: fmean(numbers[name] for numbers in repeats) for name in names}
