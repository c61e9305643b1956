"""Everything that must hold, checked against what happened: a list of claims, each with what speaks against it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from client_sdk import JobEvent, JobEventKind
from examples.demo.outside import Control
from examples.demo.scenario import Role
from examples.demo.scores import Score, disagreements, eligible, recompute
from examples.demo.stage import Displaced, Record
from examples.demo.steps import read_log, read_loss, saved_steps
from examples.demo.verify import Evidence, problems


@dataclass(frozen=True)
class Check:
    """A claim, and what speaks against it."""

    claim: str
    problems: Sequence[str]


@dataclass(frozen=True)
class Displacement:
    """A trial, who left for it, and whom others would have chosen: job ids."""

    trial: int
    victim: int
    lrtp: int
    rand: int
    scores: Sequence[Score]
    """As the demo computes them."""
    left: Mapping[int, int]
    """Steps that each job had still to do. Every step costs the same, so they stand for the time that remains."""
    saved: Sequence[int]
    """Steps in the victim's checkpoint."""


@dataclass(frozen=True)
class Outcome:
    """All that the report tells."""

    roles: Mapping[int, Role]
    stories: Mapping[int, Sequence[JobEvent]]
    displacements: Sequence[Displacement]
    checks: Sequence[Check]


def judge(record: Record) -> Outcome:
    """Compares, computes again, and verifies."""
    displacements, checks = [], []
    for displaced in record.displaced:
        trial = displaced.decision.trial_job_id
        scores = _scores(displaced, record)
        wrong = disagreements(displaced.decision, scores)
        checks.append(Check(f"who left for {record.roles[trial].name} follows from the paper's Eqns 1-4", wrong))
        displacements += _displacement(displaced, scores, record) if eligible(scores) else []
    if all(d.lrtp == d.victim for d in displacements):
        same = [f"in all {len(displacements)} decisions LRTP would have had the same job leave"]
    else:
        same = []
    checks.append(Check("FitGpp does not always choose whom LRTP would", same))
    for job in record.uninterrupted:
        claim = f"{record.roles[job].name} left once, resumed, and ends as if left alone, to the bit"
        checks.append(Check(claim, _resumed(job, record) + _not_overtaken(job, record)))
    return Outcome(record.roles, record.stories, displacements, checks + _of_control(record.control))


def _scores(displaced: Displaced, record: Record) -> list[Score]:
    trial, decision = displaced.decision.trial_job_id, displaced.decision
    moment = next(e.commit_no for e in record.stories[trial] if e.kind is JobEventKind.PREEMPTING)
    events = [event for story in record.stories.values() for event in story]
    return recompute(trial, moment, record.specs, record.capacities, events, decision.s, decision.cap)


def _displacement(displaced: Displaced, scores: Sequence[Score], record: Record) -> list[Displacement]:
    trial, left = displaced.decision.trial_job_id, displaced.left
    able = sorted(score.job for score in eligible(scores))
    return [
        Displacement(
            trial=trial,
            victim=candidate.job_id,
            lrtp=max(able, key=lambda job: left[job]),
            rand=random.Random(trial).choice(able),  # one draw, the same in every demo
            scores=scores,
            left=left,
            saved=saved_steps(record.checkpoints[candidate.job_id]),
        )
        for candidate in displaced.decision.candidates
        if candidate.chosen
    ]


def _resumed(job: int, record: Record) -> list[str]:
    work = record.work[job]
    alone = read_loss(record.uninterrupted[job])
    saved = saved_steps(record.checkpoints[job])
    return problems(Evidence(read_log(work), record.roles[job].steps, saved, read_loss(work), alone))


def _not_overtaken(victim: int, record: Record) -> list[str]:
    """It returned to the top of the queue: no job of its class that had not run yet may be placed before it."""
    story = record.stories[victim]
    requeued = [e.commit_no for e in story if e.kind is JobEventKind.REQUEUED]
    placed = [e.commit_no for e in story if e.kind is JobEventKind.PLACED and e.run == 2]
    if len(requeued) != 1 or len(placed) != 1:
        return [f"it was requeued {len(requeued)} times, and placed {len(placed)} times after that"]
    return [
        f"{role.name} was placed before it, in commit {event.commit_no} of {requeued[0]} to {placed[0]}"
        for job, role in record.roles.items()
        if role.job_class is record.roles[victim].job_class
        for event in record.stories[job]
        if event.kind is JobEventKind.PLACED and event.run == 1 and requeued[0] < event.commit_no < placed[0]
    ]


def _of_control(control: Control) -> list[Check]:
    noticed = any("begins at step 1," in problem for problem in control.without)
    unnoticed = [] if noticed else [f"of a job that began anew it only says: {control.without}"]
    if not control.same_loss:
        unnoticed.append("the loss after beginning anew is not that of an uninterrupted run, so this shows nothing")
    return [
        Check("the check accepts a job outside of Ebb that resumed from its checkpoint", control.with_checkpoint),
        Check("and rejects one whose checkpoint was deleted, though its loss is right", unnoticed),
    ]
