"""The memos of introspection: the next look at a part of the servers, which kinds of jobs go together, moves."""

import re
from functools import lru_cache
from typing import NamedTuple

from scheduler_service.core.messages import Remember
from scheduler_service.core.model import Job
from scheduler_service.core.model.memo import Memo, shared_subject
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.operations.history import script_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.slicing.probes import NAME

_LONGEST = 64
HOUR_US = 3600 * SECOND


def memo_of(state: State, subject: str) -> Memo | None:
    return state.memos.rows.get((NAME, subject))


def forget(subject: str) -> Remember:
    return Remember(NAME, subject, None)


# ---- rounds ------------------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """The looks at all servers, a part of them at a time."""

    part: int = 0
    """The next one."""
    hour_us: Micros = 0
    """When the hour began in which moves are counted."""
    moves: int = 0
    probes: tuple[int, ...] = ()
    """The share groups whose rows are a probe."""

    def with_hour_at(self, now: Micros) -> "Round":
        """The moves of an hour are counted from the first of them."""
        return self._replace(hour_us=now, moves=0) if now - self.hour_us >= HOUR_US else self


def round_subject(vc: str) -> str:
    return shared_subject(vc, "round")


def round_of(memo: Memo | None) -> Round:
    if memo is None:
        return Round()
    part, hour, moves, *probes = map(int, memo.value)
    return Round(part, hour, moves, tuple(probes))


def remember_round(vc: str, what: Round, due_us: Micros) -> Remember:
    return Remember(NAME, round_subject(vc), (what.part, what.hour_us, what.moves, *what.probes), due_us=due_us)


# ---- kinds of jobs -----------------------------------------------------------------------------------------------------


def kind_of(job: Job) -> str:
    """Jobs of one kind are expected to run alike: of a user, those whose names differ only in numbers, or that have no name and
    run the same script with other numbers."""
    return f"{job.user}:{_without_numbers(job.spec.name) or script_of(job.spec.in_configuration(0))[0]}"


@lru_cache(maxsize=4096)
def _without_numbers(name: str) -> str:
    """Asked for at every look at a pair."""
    return re.sub(r"[0-9]+", "#", name)[:_LONGEST]


def pair_subject(vc: str, one: str, other: str) -> str:
    """The subject of the memo that says whether packing two kinds of jobs has paid."""
    return shared_subject(vc, "pair/" + "|".join(sorted((one, other))))
