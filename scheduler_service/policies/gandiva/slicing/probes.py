"""Probes: changes of the rows of a share group that are being measured (Gandiva, section 4.2.2), as memos say."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from scheduler_service.core.messages import Action, EndProbe, Remember
from scheduler_service.core.model import RunKey
from scheduler_service.core.model.memo import Memo, shared_subject
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State

NAME = "gandiva"


def probe_subject(vc: str, group: int) -> str:
    """The subject of the memo about the probe that changed the rows of a share group."""
    return shared_subject(vc, f"probe/{group}")


class Probe(NamedTuple):
    """A change of rows that is being measured."""

    parts: tuple[tuple[int, ...], ...]
    """The jobs that were packed: those that took turns with each other, and in each part those that were packed before."""
    rates: tuple[tuple[int, int], ...]
    """For jobs that were packed before, the rate of each while it executes, in millionths of its rate alone."""
    deadline_us: Micros
    before: tuple[Row, ...]
    limits: tuple[tuple[RunKey, int], ...]
    """The memory that members were allowed to use of each device before."""
    period_us: Micros
    during: tuple[Row, ...]

    @property
    def jobs(self) -> tuple[int, ...]:
        return tuple(sorted(job_id for part in self.parts for job_id in part))


def remember_probe(vc: str, group: int, probe: Probe) -> Remember:
    text = json.dumps(probe, separators=(",", ":"))
    return Remember(NAME, probe_subject(vc, group), (text,))


def probe_of(memo: Memo) -> Probe:
    """The probe that the memo is about."""
    parts, rates, deadline, before, limits, period, during = json.loads(str(memo.value[0]))
    return Probe(
        tuple(map(tuple, parts)),
        tuple((job_id, rate) for job_id, rate in rates),
        deadline,
        _rows(before),
        tuple((RunKey(*key), limit) for key, limit in limits),
        period,
        _rows(during),
    )


def _rows(found: Iterable[tuple[list[list[int]], int]]) -> tuple[Row, ...]:
    return tuple(Row(tuple(RunKey(*key) for key in keys), weight) for keys, weight in found)


def probe_in(state: State, group: ShareGroup) -> Probe | None:
    """The probe that is under way in the share group; None: nothing is being measured there."""
    memo = state.memos.rows.get((NAME, probe_subject(group.vc, group.id)))
    return None if memo is None else probe_of(memo)


def end_undecided(group: ShareGroup, probe: Probe, why: str) -> tuple[Action, ...]:
    """Ends a probe whose jobs get other rows in the same plan."""
    return EndProbe(probe.jobs, None, why), Remember(NAME, probe_subject(group.vc, group.id), None)
