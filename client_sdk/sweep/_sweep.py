"""A sweep: jobs that share slots and a budget, take turns, and are promoted or killed according to their reports."""

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Protocol, Self, Unpack

from client_sdk import units
from client_sdk._values.device_parts import part
from client_sdk._values.job_options import JobOptions, Time
from client_sdk.client import Client
from client_sdk.errors import FailedPrecondition, InvalidArgument, NotFound
from client_sdk.models import Job, JobState, ShareMode
from client_sdk.sweep._members import Member, Reader, Report
from client_sdk.training.sweep import VARIABLE

_LOOK = 0.5
"""Seconds between two looks at the jobs."""
_PROMOTED = 10
"""Increase of the priority of a promoted member."""


class Search(Protocol):
    """A search algorithm, which suggests configurations and judges them by their reports."""

    def suggest(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return a number that is unique in the sweep, and the parameters; None if there are no more configurations."""

    def reported(self, report: Report) -> bool:
        """Takes a report. Returns whether the member is to be killed."""

    def ended(self, member: Member) -> None:
        """Called when a member has ended, killed by the sweep (`killed`) or on its own (`job.state`)."""


class Sweep:
    """Jobs that try configurations of one program. Use it as a context manager; `run` a search in it, or call `suggest`.

    At most `slots` members execute at the same time. If more are live, they take turns: when the turn of one ends, it is
    suspended, and a new or waiting configuration takes its place, so that all of them give early feedback. The first turn of
    a member ends when it has reported something, and each further one when it has also run for `turn`.
    The `exclusive` best members by their last reports are promoted: their turn does not end, and their priority is higher. If
    members request a part of a device, a promoted one gets a whole device from its next run on.

    `live` is the maximum number of live members, by default the number of slots, so that no member takes turns. `budget` is
    the total run time of all members: when it is spent, all are killed. It is counted only while the sweep's loop runs.

    The options are those of `Client.submit`. The request IDs of members begin with `name`, which is required. A script that is
    restarted with the same name, and suggests the same configurations under the same numbers, continues with their jobs.
    """

    def __init__(
        self,
        client: Client,
        command: Sequence[str | os.PathLike[str]],
        *,
        slots: int,
        live: int | None = None,
        exclusive: int = 0,
        turn: Time = 60,
        budget: Time | None = None,
        direction: Literal["minimize", "maximize"] = "minimize",
        **options: Unpack[JobOptions],
    ) -> None:
        if not (name := options.get("name")):
            raise InvalidArgument("name= is missing: it names the sweep, and what is submitted under it")
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) is None:
            raise InvalidArgument(
                f"name={name!r}: the name of a sweep has letters, digits and any of ._- and is 64 long at most"
            )
        if slots < 1 or (live is not None and live < slots):
            raise InvalidArgument(f"slots={slots} and live={live}: take at least 1 slot, and as many live members at least")
        if not 0 <= exclusive <= slots:
            raise InvalidArgument(f"exclusive={exclusive} must be between 0 and slots={slots}")
        if exclusive == slots and live is not None and live > slots:
            raise InvalidArgument(f"exclusive={exclusive} leaves no slot for members that take turns; take {slots - 1} at most")
        if direction not in ("minimize", "maximize"):
            raise InvalidArgument(f'direction={direction!r} is unknown; it is "minimize" or "maximize"')
        self.members: dict[int, Member] = {}
        """Members by number."""
        self.seconds = 0.0
        """The total run time of the members."""
        self.most_seconds = None if budget is None else units.parse_duration(budget).total_seconds()
        self._client = client
        self._command = list(command)
        self._name = name
        self._slots = slots
        self._live = slots if live is None else live
        self._exclusive = exclusive
        self._turn = units.parse_duration(turn).total_seconds()
        self._sign = 1.0 if direction == "minimize" else -1.0
        self._options = options
        mode = part(options.get("devices"), options.get("gpu_memory", 0), options.get("share")).share
        self._shares = None if mode is ShareMode.EXCLUSIVE else mode
        """How members share devices; None: each has devices alone."""
        self._reader = Reader(client)
        self._looked = time.monotonic()
        self._promoted: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Kills live members if the block raised an exception. Otherwise live members continue."""
        if kind is not None:
            self.kill(*self._select_members(lambda member: member.live))

    # ---- what a script may do by itself --------------------------------------------------------------------------------

    def suggest(self, parameters: Mapping[str, Any], number: int | None = None) -> Member:
        """Submits a job that tries these parameters. Repeating a number with the same parameters changes nothing.

        Raises what `Client.submit` raises: AlreadyExists if a sweep of this name has other parameters under the number.
        """
        number = max(self.members, default=-1) + 1 if number is None else number
        if (known := self.members.get(number)) is not None and dict(known.parameters) == dict(parameters):
            return known
        options: dict[str, Any] = dict(self._options)
        options["env"] = {**(options.get("env") or {}), VARIABLE: json.dumps(dict(parameters), sort_keys=True)}
        options |= {"name": f"{self._name}-{number}", "request_id": f"sweep:{self._name}:{number}"}
        job = self._client.submit(self._command, **options)
        member = self.members[number] = Member(number, dict(parameters), job)
        if job.state is JobState.SUSPENDED or job.suspend_requested:
            member.has_turn = False
        self._reader.follow(member)
        return member

    def look(self, wait: float = _LOOK) -> list[Report]:
        """Return the members' reports since the last call. Waits up to `wait` seconds for a report, and checks the jobs."""
        found = self._new_reports(wait)
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        for member in self._select_members(lambda member: member.live):
            if member.runs:
                member.seconds += passed
                self.seconds += passed
            member.job = self._client.get(member.job)
        return found

    def promote(self, count: int) -> list[Member]:
        """Promotes the `count` best live members by their last reports, and no others. Returns them, the best first."""
        known = self._select_members(lambda member: member.live and not member.killed and not math.isnan(member.value))
        best = sorted(known, key=lambda member: (self._sign * member.value, member.number))[:count]
        chosen = {member.number for member in best}
        usual = self._options.get("priority", 0)
        for number in sorted(chosen ^ self._promoted):
            member = self.members[number]
            if member.live:
                self._try(member, partial(self._client.update, priority=usual + _PROMOTED * (number in chosen)))
            if member.live and self._shares:
                share = ShareMode.EXCLUSIVE if number in chosen else self._shares
                self._try(member, partial(self._client.update, share=share))
        self._promoted = chosen
        return best

    def kill(self, *members: Member) -> None:
        """Cancels these members. Those that have ended are left as they are."""
        for member in members:
            member.killed = member.killed or member.live
            self._try(member, self._client.cancel)

    def take_turns(self) -> None:
        """If more members are live than there are slots: suspends members at the end of their turns, unless
        they are promoted, and resumes as many of those that wait. The one that has run least is next."""
        waiting = self._select_members(lambda member: member.live and not member.killed and not member.has_turn)
        waiting.sort(key=lambda member: (member.number not in self._promoted, member.seconds))
        for member in self._executing()[self._slots :]:
            self._set_turn(member, has=False)
        while waiting and len(self._executing()) < self._slots:
            self._set_turn(waiting.pop(0), has=True)
        for member in self._members_past_turn():
            if waiting:
                self._set_turn(member, has=False)
                self._set_turn(waiting.pop(0), has=True)

    # ---- all of it -----------------------------------------------------------------------------------------------------

    def run(self, search: Search, until: Callable[[], bool] = lambda: False) -> list[Member]:
        """Tries what the search suggests until it has no more and all members have ended, the budget is spent, or `until` says
        so. Then kills what is live. Returns all members, the best first."""
        more = True
        while not until() and (self.most_seconds is None or self.seconds < self.most_seconds):
            while more and self._has_room():
                more = self._suggest_next(search)
            if not more and not self._select_members(lambda member: member.live):
                break
            self.take_turns()  # a configuration that was never tried comes before those that wait for a further turn
            self._pass_reports(search, self.look())
            self.promote(self._exclusive)
        self.kill(*self._select_members(lambda member: member.live))
        while self._select_members(lambda member: not member.told):
            self._pass_reports(search, self.look())
        return sorted(self.members.values(), key=self._rank)

    def _has_room(self) -> bool:
        """Whether another configuration may begin: in a slot that is free, or instead of a member that has had its turn."""
        if len(self._select_members(lambda member: member.live and not member.killed)) >= self._live:
            return False
        return len(self._executing()) < self._slots or bool(self._members_past_turn())

    def _suggest_next(self, search: Search) -> bool:
        """Returns whether there was another configuration."""
        if (suggestion := search.suggest()) is None:
            return False
        if len(self._executing()) >= self._slots:
            self._set_turn(self._members_past_turn()[0], has=False)
        number, parameters = suggestion
        self.suggest(parameters, number)
        return True

    def _executing(self) -> list[Member]:
        return self._select_members(lambda member: member.live and not member.killed and member.has_turn)

    def _members_past_turn(self) -> list[Member]:
        """Members at the end of their turns."""
        return [
            member
            for member in self._executing()
            if member.reported_in_turn
            and (member.turns == 0 or member.seconds_in_turn >= self._turn)
            and member.number not in self._promoted
        ]

    def _pass_reports(self, search: Search, reports: list[Report]) -> None:
        """Passes reports to the search to be judged, and tells it which members have ended with no report left."""
        over = self._select_members(
            lambda member: not member.told and not member.live and self._reader.is_through(member.number)
        )
        # Reports that they made before they ended may have arrived since.
        for report in [*reports, *self._new_reports(0)]:
            if search.reported(report):
                self.kill(self.members[report.number])
        for member in over:
            member.told = True
            search.ended(member)

    def _new_reports(self, wait: float) -> list[Report]:
        return [report for report in self._reader.new(wait) if self._is_new(report)]

    def _is_new(self, report: Report) -> bool:
        member = self.members[report.number]
        if member.reports and report.step <= member.reports[-1].step:
            return False  # a run that was interrupted repeats what came after its checkpoint
        member.reports.append(report)
        member.reported_in_turn = True
        return True

    def _set_turn(self, member: Member, has: bool) -> None:
        self._try(member, self._client.resume if has else self._client.suspend)
        member.has_turn, member.reported_in_turn = has, False
        member.turns += not has
        member.seconds_before = member.seconds

    def _try(self, member: Member, change: Callable[[Job], Job]) -> None:
        """Changes a job that may have ended meanwhile, or leave for another reason: the next look says what it is."""
        try:
            member.job = change(member.job)
        except (FailedPrecondition, NotFound):
            member.job = self._client.get(member.job)

    def _select_members(self, holds: Callable[[Member], bool]) -> list[Member]:
        return [member for _, member in sorted(self.members.items()) if holds(member)]

    def _rank(self, member: Member) -> tuple[bool, float, int]:
        return math.isnan(member.value), self._sign * member.value, member.number
