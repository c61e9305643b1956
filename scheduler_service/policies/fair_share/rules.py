"""Who is charged for which jobs, by which shares, and what is remembered of that.

Usage is counted by user and project, as in Slurm by association. Three kinds of memos remember it, none of which goes with a
job: the usage of each user in each project, the levels by which the queue is sorted, and when the levels are to be renewed.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

from scheduler_service.core.messages import Remember
from scheduler_service.core.model import Job
from scheduler_service.core.model.memo import Memo, shared_subject
from scheduler_service.core.model.values import SECOND, WHOLE, ZERO, Micros, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.fair_share.usage import DEVICE, NOTHING, Level, Usage, logarithm, usage_after
from scheduler_service.policies.options import own_settings

NAME = "fair"
LEAST_SHARE, MOST_SHARE = 0.001, 1e9
NO_SHARES: Mapping[str, float] = MappingProxyType({})


class Settings(NamedTuple):
    """Settings of this policy alone."""

    half_life: float = 7 * 86400
    """Seconds in which usage decays to a half."""
    period: float = 300
    """Seconds between two looks at the usage of those whose jobs run. In between the order of the queue does not change."""
    cpus_per_device: float = 8
    """The number of CPUs for which a job without devices is charged as for one device."""
    no_project: float = 1
    """Shares of all jobs without a project together."""
    other_projects: float = 1
    """Shares of each project that has none in `project`; 0: jobs of such a project count as jobs without a project."""
    user: Mapping[str, float] = NO_SHARES
    """Shares of users, relative to the other users of their project: user.ann. 1 for those that are not named."""
    project: Mapping[str, float] = NO_SHARES
    """Shares of projects: project.vision."""


def quote_project(project: str) -> str:
    """As a part of a subject. In a trace the name of a project may have a slash."""
    return quote(project, safe="")


class Member(NamedTuple):
    """A user in a project, on the site or in a virtual cluster."""

    vc: str
    project: str
    user: str

    @property
    def usage_subject(self) -> str:
        return shared_subject(self.vc, f"usage/{quote_project(self.project)}/{self.user}")

    @property
    def level_subject(self) -> str:
        return shared_subject(self.vc, f"level/{quote_project(self.project)}/{self.user}")


class Spent(NamedTuple):
    """The usage of a member at a time, and at which rate more accrues from then on."""

    at: Micros
    usage: Usage
    rate: int
    """Thousandths of a device."""


class Levels(NamedTuple):
    """The sort key of the queue: the usage per share of the project, then that of the user in it, as logarithms."""

    project: Level = NOTHING
    user: Level = NOTHING


UNUSED_LEVELS = Levels()


class Rules(NamedTuple):
    """The settings as the policy needs them."""

    half_life: Micros
    period: Micros
    cpu_milli_per_device: int
    no_project: float
    other_projects: float
    users: Mapping[str, float]
    projects: Mapping[str, float]
    fingerprint: int
    """Tells these settings from others."""

    def member_of(self, job: Job) -> Member:
        """Who is charged for the job."""
        project = job.spec.project
        if not self.other_projects and project not in self.projects:
            project = ""
        return Member(job.spec.vc, project, job.user)

    def project_shares(self, project: str) -> float:
        return self.projects.get(project, self.other_projects) if project else self.no_project

    def user_shares(self, user: str) -> float:
        return self.users.get(user, 1)

    def rate(self, held: Vector) -> int:
        """The rate at which resources are charged: devices are in millionths, and CPUs those of runs without devices."""
        return held.devices * DEVICE // WHOLE + held.cpu_milli * DEVICE // self.cpu_milli_per_device

    def usage_at(self, spent: Spent, at: Micros) -> Usage:
        return usage_after(spent.usage, spent.rate, at - spent.at, self.half_life)


def rules_of(own: Mapping[str, float]) -> Rules:
    """Make rules of settings. Raises ValueError for a setting that is unknown or out of range."""
    given = own_settings(Settings, own)
    for name, least in (("half_life", 1), ("period", 1), ("cpus_per_device", 0.001)):
        if not least <= getattr(given, name) <= 1e9:
            raise ValueError(f"the setting {name} is {getattr(given, name):g}; it must be between {least:g} and 1e9")
    named = {f"{kind}.{name}": value for kind in ("user", "project") for name, value in getattr(given, kind).items()}
    for name, value in {"no_project": given.no_project, "other_projects": given.other_projects or 1, **named}.items():
        if not LEAST_SHARE <= value <= MOST_SHARE:
            raise ValueError(f"the setting {name} is {value:g}; shares must be between {LEAST_SHARE:g} and {MOST_SHARE:g}")
    return Rules(
        round(given.half_life * SECOND),
        round(given.period * SECOND),
        round(given.cpus_per_device * 1000),
        given.no_project,
        given.other_projects,
        given.user,
        given.project,
        _fingerprint({name: value for name, value in given._asdict().items() if not isinstance(value, Mapping)} | named),
    )


def _fingerprint(settings: Mapping[str, float]) -> int:
    """The same for 2 and 2.0: a recording has the one where the configuration has the other."""
    return crc32(repr(sorted((name, float(value)) for name, value in settings.items())).encode())


@lru_cache(maxsize=4096)
def log_of_shares(shares: float) -> int:
    """The logarithm of the shares in millionths. The unit is the same for all, so it does not change an order."""
    return logarithm(round(shares * 1_000_000))


# ---- what is remembered ------------------------------------------------------------------------------------------------


def period_subject(vc: str) -> str:
    """The subject of the memo that is due when levels are to be renewed."""
    return shared_subject(vc, "period")


def spent_of(memo: Memo | None) -> Spent:
    if memo is None:
        return Spent(0, 0, 0)
    at, usage, rate = map(int, memo.value)
    return Spent(at, usage, rate)


def levels_of(memo: Memo | None) -> Levels:
    if memo is None:
        return UNUSED_LEVELS
    project, user = map(int, memo.value)
    return Levels(project, user)


def member_of_subject(subject: str) -> Member:
    """The member that a memo of usage or of levels is about. The name of a user may have a slash: it comes last."""
    vc, _, project, user = subject.split("/", 3)
    return Member(vc, unquote(project), user)


def memos_about(state: State, vc: str, kind: str) -> Iterator[tuple[Member, Memo]]:
    """The members of whom there is a memo of this kind (usage or level), in order. Looks at all memos."""
    prefix, rows = shared_subject(vc, f"{kind}/"), state.memos.rows
    for at in sorted(at for at in rows if at[0] == NAME and at[1].startswith(prefix)):
        yield member_of_subject(at[1]), rows[at]


def held_by(state: State, member: Member) -> Vector:
    return state.charged.get((NAME, member.usage_subject), ZERO)


def remember(subject: str, value: tuple[int, ...] | None, due_us: Micros | None = None) -> Remember:
    return Remember(NAME, subject, value, due_us=due_us)
