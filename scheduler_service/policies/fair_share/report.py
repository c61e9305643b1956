"""The report on shares, for people: who has which share, who has used how much of it, and who is served next."""

from collections import Counter
from heapq import merge
from itertools import groupby

from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.fair_share.rules import NAME, Member, Rules, held_by, memos_about, spent_of
from scheduler_service.policies.fair_share.usage import DEVICE, DEVICE_SECOND, Usage
from scheduler_service.policies.shares import Share, Shares

JOBS_SHOWN = 100


def shares(state: State, vc: str, now: Micros, rules: Rules) -> Shares:
    """Shares of all who have jobs, or usage that has not decayed, on the site (empty) or in a virtual cluster. Usage is that of
    now; the queue is sorted by that of the last period."""
    waiting, used = _waiting(state, vc), _usage(state, vc, now, rules)
    queued = Counter(rules.member_of(state.jobs.rows[job_id]) for job_id in waiting)

    def share(project: str, user: str, having: float, members: list[Member]) -> Share:
        seconds = sum(used[member] for member in members) / DEVICE_SECOND
        devices = sum(rules.rate(held_by(state, member)) for member in members) / DEVICE
        return Share(project, user, having, seconds, devices, sum(queued[member] for member in members))

    by_project = {project: list(of) for project, of in groupby(sorted(used), lambda member: member.project)}
    found: list[Share] = []
    for project in _parts([share(name, "", rules.project_shares(name), of) for name, of in by_project.items()]):
        of = by_project[project.project]
        found += (project, *_parts([share(*member[1:], rules.user_shares(member.user), [member]) for member in of]))
    return Shares(now, rules.half_life, tuple(found), len(waiting), tuple(waiting[:JOBS_SHOWN]))


def describe_share(state: State, job: Job, rules: Rules) -> str:
    """Why a queued job is where it is in its queue."""
    mine = rules.member_of(job)
    found = {(share.project, share.user): share for share in shares(state, job.spec.vc, state.cluster.clock_us, rules).shares}
    user, project = found[mine.project, mine.user], found[mine.project, ""]
    said = f"fair-share factor {user.factor:.3f}: user {job.user} has {_parts_of(user)}"
    if mine.project:
        said += f"; project {mine.project} has factor {project.factor:.3f}, with {_parts_of(project)}"
    return said


def _parts_of(share: Share) -> str:
    hours = f"{share.device_seconds / 3600:.2f} device-hours"
    return f"{share.part_of_shares:.1%} of the shares and {share.part_of_usage:.1%} of the usage, {hours}"


def _parts(siblings: list[Share]) -> list[Share]:
    """Add the part of each in all; those that are served first come first."""
    all_shares, all_usage = sum(s.shares for s in siblings), sum(s.device_seconds for s in siblings)
    found = []
    for share in siblings:
        part, used = share.shares / all_shares, share.device_seconds / all_usage if all_usage else 0.0
        found.append(share._replace(part_of_shares=part, part_of_usage=used, factor=2 ** -(used / part)))
    return sorted(found, key=lambda share: (-share.factor, share.project, share.user))


def _usage(state: State, vc: str, now: Micros, rules: Rules) -> dict[Member, Usage]:
    """The present usage of all who have jobs or have had any lately."""
    used: dict[Member, Usage] = {}
    for member, _ in memos_about(state, vc, "level"):
        if (NAME, member.level_subject) in state.subjects:
            used[member] = 0
    for member, memo in memos_about(state, vc, "usage"):
        used[member] = rules.usage_at(spent_of(memo), now)
    return used


def _waiting(state: State, vc: str) -> list[int]:
    """The jobs in the queue, in order. One that may overflow is in two lanes."""
    keys = merge(*(state.waiting(vc, lane) for lane in Lane))
    return list(dict.fromkeys(key[-1] for key in keys))
