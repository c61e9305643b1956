"""FitGpp once more, in plain Python from the paper's formulas, to check the scheduler's decisions.

Of the scheduler this takes only what happened (which runs were placed and ended, in which order) and what nodes have; what
the jobs ask for is what the demo submitted. With J the running best-effort jobs, D a job's demand, GP its grace period and
N what is unallocated on its node:

    Eqn 1   Size(D)  = sqrt((CPU / CPU of the node)^2 + (memory / ...)^2 + (GPU / ...)^2)
    Eqn 2   D(trial) <= D(job) + N, in each resource
    Eqn 3   Score(j) = Size(j) / max over J of Size  +  s * GP(j) / max over J of GP
    Eqn 4   the victim has the least score of those that fulfil Eqn 2 and were preempted fewer than P times
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from client_sdk import Decision, JobClass, JobEvent, JobEventKind, JobSpec, Resources

TOLERANCE = 1e-9

_TAKEN_IN = (JobEventKind.VACATED, JobEventKind.ENDED)
"""A step of the scheduler takes in what happened before it decides, so in one commit these come before the decision."""


@dataclass(frozen=True)
class Score:
    """A running best-effort job as a trial found it."""

    job: int
    run: int
    node: str
    size: float
    grace: float
    score: float
    fits: bool
    """Eqn 2."""
    spared: bool
    """It was preempted P times already (Eqn 4)."""


def recompute(
    trial: int,
    moment: int,
    specs: Mapping[int, JobSpec],
    capacities: Mapping[str, Resources],
    stories: Iterable[JobEvent],
    s: float,
    cap: int,
) -> list[Score]:
    """The scores that the trial should have found at this commit, lowest first.

    Trials of the demo arrive one at a time, so no other one has resources kept for it.
    """
    live: dict[int, JobEvent] = {}
    preempted: dict[int, int] = {}
    told: set[int] = set()
    for event in sorted(stories, key=lambda e: e.commit_no):
        if event.commit_no > moment or (event.commit_no == moment and event.kind not in _TAKEN_IN):
            continue
        match event.kind:
            case JobEventKind.PLACED:
                live[event.job_id] = event
            case JobEventKind.PREEMPTED:
                preempted[event.job_id] = preempted.get(event.job_id, 0) + 1
                told.add(event.job_id)
            case JobEventKind.VACATED | JobEventKind.ENDED:
                live.pop(event.job_id, None)
                told.discard(event.job_id)
    free = dict(capacities)
    for job, placed in live.items():
        free[str(placed.node)] = _sum(free[str(placed.node)], specs[job].resources, -1)
    candidates = [e for job, e in live.items() if specs[job].job_class is JobClass.BEST_EFFORT and job not in told]
    sizes = {e.job_id: _size(specs[e.job_id].resources, capacities[str(e.node)]) for e in candidates}
    graces = {e.job_id: _grace(specs[e.job_id]) for e in candidates}
    largest, longest = max(sizes.values()), max(graces.values())
    return sorted(
        (
            Score(
                job=e.job_id,
                run=e.run,
                node=str(e.node),
                size=sizes[e.job_id],
                grace=graces[e.job_id],
                score=sizes[e.job_id] / largest + s * graces[e.job_id] / longest,
                fits=_fits(specs[trial].resources, _sum(specs[e.job_id].resources, free[str(e.node)], 1)),
                spared=preempted.get(e.job_id, 0) >= cap,
            )
            for e in candidates
        ),
        key=lambda score: score.score,
    )


def eligible(scores: Sequence[Score]) -> list[Score]:
    """Those that Eqn 4 chooses among."""
    return [score for score in scores if score.fits and not score.spared]


def disagreements(decision: Decision, scores: Sequence[Score]) -> list[str]:
    """Return the differences between the scheduler's decision and the formulas, with numbers."""
    found = []
    theirs = {(c.job_id, c.run): c for c in decision.candidates}
    ours = {(score.job, score.run): score for score in scores}
    if theirs.keys() != ours.keys():
        found.append(f"considered runs {sorted(theirs)}, and these ran: {sorted(ours)}")
    for key in theirs.keys() & ours.keys():
        if abs(theirs[key].score - ours[key].score) > TOLERANCE:
            found.append(f"job {key[0]} has score {theirs[key].score!r}, not {ours[key].score!r}")
        if theirs[key].sufficient != ours[key].fits:
            found.append(f"job {key[0]} makes room: {theirs[key].sufficient}, not {ours[key].fits}")
    chosen = {c.job_id for c in decision.candidates if c.chosen}
    best = min((score.score for score in eligible(scores)), default=None)
    if best is None:
        found.append(f"jobs {sorted(chosen)} were chosen, and none was eligible alone")
    elif len(chosen) != 1 or not chosen <= {score.job for score in eligible(scores) if score.score <= best + TOLERANCE}:
        found.append(f"jobs {sorted(chosen)} were chosen, and {eligible(scores)[0].job} has the least score")
    return found


def _size(demand: Resources, capacity: Resources) -> float:
    pairs = zip(_vector(demand), _vector(capacity), strict=True)
    return sqrt(sum((need / there) ** 2 for need, there in pairs if there))


def _fits(need: Resources, room: Resources) -> bool:
    return all(a <= b for a, b in zip(_vector(need), _vector(room), strict=True))


def _vector(value: Resources) -> tuple[float, float, float]:
    return value.cpus, value.memory_mib, value.devices


def _sum(a: Resources, b: Resources, sign: int) -> Resources:
    return Resources(
        cpus=a.cpus + sign * b.cpus, memory_mib=a.memory_mib + sign * b.memory_mib, devices=a.devices + sign * b.devices
    )


def _grace(spec: JobSpec) -> float:
    assert spec.grace_period is not None  # every job of the demo names its own
    return spec.grace_period.total_seconds()
