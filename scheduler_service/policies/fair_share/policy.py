"""fair: those with the least usage for their shares are served first (Slurm's fair-share factor, by the tree of Fair Tree).

Priorities come first. Jobs of one priority are sorted by project: the project that has used least for its shares is first. Jobs
of one project are sorted by user in the same way, and jobs of one user by age. Usage decays with a half-life. No job is
preempted: shares decide who is next, and any user may use what is left.

The queue is sorted by logarithms of the usage, which stay as they are while a usage only decays (see `usage`). So the memo of a
user is written when runs of theirs begin or end, and the queue is sorted again once a period, as in Slurm (PriorityCalcPeriod).
"""

from collections.abc import Collection, Iterator, Mapping

from scheduler_service.core.messages import Remember
from scheduler_service.core.model import Job, JobState
from scheduler_service.core.model.memo import Memo, vc_of
from scheduler_service.core.model.settings import Settings as EngineSettings
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.queue_order import QueueKey, QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.fair_share.report import describe_share, shares
from scheduler_service.policies.fair_share.rules import (
    NAME,
    UNUSED_LEVELS,
    Levels,
    Member,
    Rules,
    Spent,
    held_by,
    levels_of,
    log_of_shares,
    member_of_subject,
    memos_about,
    period_subject,
    quote_project,
    remember,
    rules_of,
    spent_of,
)
from scheduler_service.policies.fair_share.usage import DEVICE_SECOND, NOTHING, Level, level, time_until
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.memo_updates import Notes, memo_updates
from scheduler_service.policies.options import Options
from scheduler_service.policies.queueing.backfill import backfill
from scheduler_service.policies.stages import Stages

# ---- the order ---------------------------------------------------------------------------------------------------------


def key(job: Job, memo: Memo | None, _settings: EngineSettings) -> QueueKey:
    """The sort key: priority, then usage per share. Of a user's jobs those that have run come first, then those that were
    submitted first. A user whose memo is not written yet has used nothing."""
    project, user = UNUSED_LEVELS if memo is None else memo.value
    has_run = job.requeued or job.state is not JobState.QUEUED
    return -job.priority, int(project), int(user), not has_run, job.submitted_us, job.id


# ---- what is noted -----------------------------------------------------------------------------------------------------


def introduce(state: State, job: Job, rules: Rules) -> Iterator[Remember]:
    """Note the level of a project for a user who is new in it. If the settings have changed, all levels are renewed: every job
    is looked at then, as after a start of the scheduler."""
    member = rules.member_of(job)
    period = state.memos.rows.get((NAME, period_subject(member.vc)))
    if period is not None and period.value != (rules.fingerprint,):
        yield from _renew(state, member.vc, rules)
    if (NAME, member.level_subject) not in state.memos.rows:
        others = memos_about(state, member.vc, f"level/{quote_project(member.project)}")
        project = next((levels_of(memo).project for _, memo in others), NOTHING)
        yield remember(member.level_subject, Levels(project))


def account(state: State, subject: str, rules: Rules) -> Iterator[Remember]:
    """Charge a user whose runs began or ended, or renew the levels that are due."""
    vc = vc_of(subject)
    if subject != period_subject(vc):
        yield from _charge(state, member_of_subject(subject), rules)
    elif (NAME, subject) in state.due_memos:
        yield from _renew(state, vc, rules)


def _charge(state: State, member: Member, rules: Rules) -> Iterator[Remember]:
    """Charge the user at the present rate from now on. Levels are renewed at the next period at the latest."""
    now, at = state.cluster.clock_us, (NAME, member.usage_subject)
    spent, rate = spent_of(state.memos.rows.get(at)), rules.rate(held_by(state, member))
    if spent.rate == rate:
        return
    yield remember(member.usage_subject, Spent(now, rules.usage_at(spent, now), rate))
    period = state.memos.rows.get((NAME, period_subject(member.vc)))
    soon = _next_period(now, rules)
    if period is None or not (period.due or (period.due_us is not None and period.due_us <= soon)):
        yield remember(period_subject(member.vc), (rules.fingerprint,), soon)


def _next_period(now: Micros, rules: Rules) -> Micros:
    """Periods begin at the same times for all, so that all levels are renewed in one step."""
    return (now // rules.period + 1) * rules.period


def _renew(state: State, vc: str, rules: Rules) -> Iterator[Remember]:
    """Compute all levels again, and write those that changed. What has decayed to nothing is forgotten."""
    now = state.cluster.clock_us
    kept: dict[Member, Spent] = {}
    for member, memo in memos_about(state, vc, "usage"):
        spent, rate = spent_of(memo), rules.rate(held_by(state, member))
        if spent.rate != rate:  # with other settings, another user may be charged for a job
            spent = Spent(now, rules.usage_at(spent, now), rate)
            yield remember(member.usage_subject, spent)
        if spent.rate or time_until(spent.usage, DEVICE_SECOND, rules.half_life) > now - spent.at:
            kept[member] = spent
        else:
            yield remember(member.usage_subject, None)
    projects = _levels_of_projects(kept, now, rules)
    for member, memo in memos_about(state, vc, "level"):
        spent_by = kept.get(member)
        if spent_by is None and (NAME, member.level_subject) not in state.subjects:
            yield remember(member.level_subject, None)
            continue
        user = NOTHING if spent_by is None else _for_shares(_level(spent_by, now, rules), rules.user_shares(member.user))
        if (new := Levels(projects.get(member.project, NOTHING), user)) != levels_of(memo):
            yield remember(member.level_subject, new)
    due = _next_renewal(kept.values(), now, rules) if kept else None
    yield remember(period_subject(vc), None if due is None else (rules.fingerprint,), due)


def _level(spent: Spent, now: Micros, rules: Rules) -> Level:
    """The level of a usage. While nothing accrues, it is that of the end of accrual, so that rounding does not change it."""
    at = now if spent.rate else spent.at
    return level(rules.usage_at(spent, at), at, rules.half_life)


def _levels_of_projects(members: Mapping[Member, Spent], now: Micros, rules: Rules) -> dict[str, Level]:
    by_project: dict[str, list[Spent]] = {}
    for member, spent in members.items():
        by_project.setdefault(member.project, []).append(spent)
    levels = {}
    for project, each in by_project.items():
        at = now if any(spent.rate for spent in each) else max(spent.at for spent in each)
        used = level(sum(rules.usage_at(spent, at) for spent in each), at, rules.half_life)
        levels[project] = _for_shares(used, rules.project_shares(project))
    return levels


def _for_shares(used: Level, having: float) -> Level:
    """The logarithm of usage per share."""
    return used if used == NOTHING else used - log_of_shares(having)


def _next_renewal(kept: Collection[Spent], now: Micros, rules: Rules) -> Micros:
    """The next period if something accrues; else when the first usage has decayed to nothing."""
    if any(spent.rate for spent in kept):
        return _next_period(now, rules)
    forgotten = min(spent.at + time_until(spent.usage, DEVICE_SECOND, rules.half_life) for spent in kept)
    return _next_period(max(forgotten, now), rules)


# ---- the policy --------------------------------------------------------------------------------------------------------


def stages(options: Options) -> Stages:
    """The stages of the policy. Raises ValueError for a setting that is out of range."""
    rules = rules_of(options.own)
    notes = Notes(
        lambda state, job: introduce(state, job, rules),
        lambda state, subject: account(state, subject, rules),
    )

    return Stages(
        memo_updates(backfill if options.backfill else fifo, notes),
        QueueOrder(
            key,
            policy=NAME,
            subject=lambda job: rules.member_of(job).level_subject,
            charged_to=lambda job: rules.member_of(job).usage_subject,
        ),
        remember=notes.remember,
        account=notes.account,
        about=lambda state, job: describe_share(state, job, rules),
        shares=lambda state, vc, now: shares(state, vc, now, rules),
    )
