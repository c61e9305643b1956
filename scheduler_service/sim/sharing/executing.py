"""The speed of each simulated launch at any time, and when it is done.

A launch works at a rate that follows from its placement, its neighbors, and whose turn it is. The rate changes only with an
event: a share plan, a mate that begins or exits, a turn. Then the work done so far is added up, and the end is moved.

Share plans that arrive in one step take effect together, by `settle`: half of a change is not a state of the world.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random

from scheduler_service.core.messages import MiniBatchMeasured, SharePlan, SwitchingMeasured
from scheduler_service.core.model import RunKey
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.values import Micros
from scheduler_service.core.sharing.changes import without_runs
from scheduler_service.sim.nodes import Party, Task
from scheduler_service.sim.sharing.measuring import measure_run
from scheduler_service.sim.sharing.model import BILLION
from scheduler_service.sim.sharing.pace import Pace
from scheduler_service.sim.sharing.present import (
    Present,
    entering_us,
    is_packed,
    present,
    rate_beside_neighbors,
    site,
    site_of,
    works,
)
from scheduler_service.sim.sharing.setup import PLAIN, Setup
from scheduler_service.sim.sharing.turns import Group, Turn, is_in, keys_of, leaving, users, with_turns
from scheduler_service.sim.sharing.usage import MINI_BATCHES, Usage


class Executing:
    """The execution of the launches on all nodes."""

    def __init__(
        self,
        setup: Setup | None,
        rng: Random,
        retime: Callable[[Party, Micros | None], None],
        turns: Callable[[Micros, Turn], None],
    ) -> None:
        """`retime` is called with the new time at which a launch is done, or None; `turns` with the time at which the turn of a
        group ends. With no setup a launch that holds its devices alone works at the rate 1, and is not tracked here."""
        self.usage = Usage()
        self.everywhere = setup is not None
        self.stale = False
        """Whether share plans have arrived that are not in effect yet."""
        self._setup = setup or PLAIN
        self._rng = rng
        self._retime = retime
        self._turns = turns
        self._groups: dict[int, Group] = {}
        self._members: dict[RunKey, Party] = {}
        self._told: dict[int, None] = {}
        self._separate: dict[int, Party] = {}
        self._near: dict[str, dict[int, Party]] = {}
        """The launches that work on each node; kept if they interfere."""

    # ---- share plans -------------------------------------------------------------------------------------------------------

    def apply_plan(self, task: Task, plan: SharePlan | None, now: Micros) -> None:
        """A node has received the share plan of a task; None: it has its devices alone."""
        party, before = task.party, task.party.group
        number = 0 if plan is None else plan.group
        if before and before != number:
            self._forget(before, [task.key])
        if plan is not None:
            group = self._groups.get(number)
            if group is None:
                self.usage.groups += 1
                self._groups[number] = Group(number, plan.generation, plan.rows, plan.period_us, now, counted_us=now)
            else:
                self._count(group, now)
                group.takes(plan, now)
            self._members[task.key] = party
            self._told[number] = None
        else:
            self._separate[id(party)] = party
        party.group = number
        self.stale = True

    def settle(self, now: Micros) -> None:
        """Put the share plans that have arrived into effect."""
        self.stale = False
        changed = list(self._separate.values())
        for number in self._told:
            if (group := self._groups.get(number)) is not None:
                changed += self._parties(group)
                if self._setup.exact:
                    self._begin_turn(group, now)
        self._told.clear()
        self._separate.clear()
        self._refresh(self._affected_parties(changed), now, planned=True)

    def end_turn(self, turn: Turn, at: Micros) -> None:
        """The turn of a row has ended."""
        group, due = turn
        if due == group.due and self._groups.get(group.number) is group:
            self._begin_turn(group, at)
            self._refresh(self._affected_parties(self._parties(group)), at, turn=True)

    def _begin_turn(self, group: Group, at: Micros) -> None:
        if len(with_turns(group.rows)) > 1:
            group.due += 1
            self._turns(group.active(at)[1], Turn(group, group.due))

    def _count(self, group: Group, at: Micros) -> None:
        """Count the changes of turns until now."""
        rows = len(with_turns(group.rows))
        if rows > 1:
            cycles = (at - group.counted_us) / group.period_us
            self.usage.switches += round(cycles * rows)
            self.usage.parks += round(cycles * leaving(group.rows))
        group.counted_us = at

    def _forget(self, number: int, keys: Iterable[RunKey]) -> None:
        """Remove these tasks from the group."""
        for key in keys:
            self._members.pop(key, None)
        group = self._groups[number]
        if not any(key in self._members for key in keys_of(group.rows)):
            del self._groups[number]

    def _parties(self, group: Group) -> list[Party]:
        """The parties of a group in the order of their runs, each once for each of its tasks."""
        return [party for key in sorted(keys_of(group.rows)) if (party := self._members.get(key)) is not None]

    # ---- launches ----------------------------------------------------------------------------------------------------------

    def covers(self, party: Party) -> bool:
        """Whether the rate of the launch may differ from 1."""
        return self.everywhere or party.group != 0

    def saves_us(self, party: Party) -> Micros | None:
        """How long the launch takes to save its work; None if that does not depend on its kind."""
        return self._setup.switching.saves(party.kind) if self.everywhere else None

    def goes_on_us(self, party: Party) -> Micros:
        """How long the launch takes to resume from the checkpoint of the one before."""
        if not self.everywhere:
            return 0
        *_, before, now = party.life.launches
        job = party.life.job
        kind = self._setup.rates.kind(job.kind, job.spec.demand.devices)
        return self._setup.switching.goes_on(kind, moved=before.nodes != now.nodes)

    def begins(self, party: Party, at: Micros) -> None:
        """All tasks of the launch have started, and it works from its `works_us` on."""
        job = party.life.job
        party.site, party.kind = site_of(party.tasks), self._setup.rates.kind(job.kind, job.spec.demand.devices)
        if self._setup.rates.interferes:
            for task in party.tasks:
                self._near.setdefault(task.node.name, {})[id(party)] = party
        self._refresh(self._affected_parties([party]), at)

    def goes_on(self, party: Party, at: Micros) -> None:
        """The launch was parked, and may work again."""
        self._refresh(self._affected_parties([party]), at)
        if works(party) and party.launch.pace is not None:
            self._retime(party, party.launch.pace.ends_us())

    def stops(self, party: Party, at: Micros) -> None:
        """The launch was signalled, was parked, or has lost a task: it stops working."""
        self._ceases(party, at)
        self._refresh(self._affected_parties([party]), at)

    def end_launch(self, party: Party, at: Micros) -> None:
        """The last task of the launch has exited."""
        self._ceases(party, at)
        affected = self._affected_parties([party])
        for task in party.tasks if self._near else ():
            self._near.get(task.node.name, {}).pop(id(party), None)
        if (group := self._groups.get(party.group)) is not None:
            self._count(group, at)
            keys = [task.key for task in party.tasks]
            group.rows = without_runs(group.rows, keys)
            self._forget(group.number, keys)
            if self._setup.exact:
                group.since_us = at
                self._begin_turn(group, at)
        self._refresh(affected, at)

    def measures(self, task: Task, at: Micros) -> MiniBatchMeasured | None:
        """The node's measurement of the task's run; None if there is nothing new."""
        party, pace = task.party, task.party.launch.pace
        if pace is None or not works(party):
            return None
        return measure_run(task, pace, self._used_beside(party), at, self._rng, self._setup.noise)

    def switches(self, task: Task) -> SwitchingMeasured | None:
        """The node's report of the task's parks and resumes; None if it takes no turns, or they take no time."""
        party = task.party
        group = self._groups.get(party.group)
        turns = [] if group is None else with_turns(group.rows)
        if not works(party) or all(is_in(row, party) for row in turns):
            return None
        takes = self._setup.switching.parks(party.kind), self._setup.switching.resumes(party.kind)
        return SwitchingMeasured(task.node.name, task.key, Switching(0, *takes)) if any(takes) else None

    def _used_beside(self, party: Party) -> int:
        """The share of its devices that the jobs packed with the party use while they execute; in millionths."""
        group, found = self._groups.get(party.group), dict[int, int]()
        for row in group.rows if group is not None else ():
            if is_in(row, party):
                for mate in users(row, self._members, party):
                    pace = mate.launch.pace
                    if mate.kind is not None and pace is not None and pace.share:
                        found[id(mate)] = max(mate.kind.utilisation, 0) * pace.rate // pace.share
        return sum(found.values())

    @property
    def measures_every_us(self) -> Micros | None:
        return self._setup.measures_every_us

    def _affected_parties(self, parties: Iterable[Party]) -> Iterable[Party]:
        """These launches, and those whose rates depend on them."""
        found = {id(party): party for party in parties}
        for party in list(found.values()):
            if (group := self._groups.get(party.group)) is not None:
                found.update((id(other), other) for other in self._parties(group))
        if self._setup.rates.interferes:
            for party in list(found.values()):
                for task in party.tasks:
                    found.update(self._near.get(task.node.name, {}))
        return found.values()

    # ---- rates -------------------------------------------------------------------------------------------------------------

    def _refresh(self, parties: Iterable[Party], at: Micros, planned: bool = False, turn: bool = False) -> None:
        """Give each its present rate. `planned`: because of a share plan; `turn`: only because of a new turn."""
        working = [party for party in parties if works(party)]
        setup, groups = self._setup, self._groups
        now = {id(party): present(party, groups.get(party.group), self._members, setup, at) for party in working}
        if not turn:
            for party in working:
                self.usage.notes_packed(party, at, is_packed(party, groups.get(party.group), self._members), planned)
        for party in working:
            self._change(party, at, now[id(party)], now, planned, turn)

    def _change(
        self, party: Party, at: Micros, now: Present, all_now: Mapping[int, Present], planned: bool, turn: bool
    ) -> None:
        setup, job, pace = self._setup, party.life.job, party.launch.pace
        rate = now.done * setup.rates.rate_alone(job.kind, job.spec.demand.devices, site(party)) // BILLION
        if setup.rates.interferes:
            rate = rate * rate_beside_neighbors(party, self._near, all_now, setup) // BILLION
        begun = None
        if setup.exact and pace is not None and now.share and not pace.share and pace.since_us <= at:
            begun = at + entering_us(party, self._groups.get(party.group), self._members, setup, at)
            self.usage.lost.add(at, BILLION * site(party).devices)
            self.usage.lost.add(begun, -BILLION * site(party).devices)
        known = pace is not None and (rate, now.share) == (pace.rate, pace.share)
        if pace is None:
            pace = party.launch.pace = new_pace(party)
        if not known:
            pace.change(at, rate, now.share, begun)
            self._retime(party, pace.ends_us())
        if planned or not (known or turn):
            party.seen = pace.done_us(at), pace.executed_us(at)
        self.usage.level(party, max(at, pace.since_us), rate, now.lost)

    def _ceases(self, party: Party, at: Micros) -> None:
        """Stop the progress of a launch."""
        pace = party.launch.pace
        if pace is not None:
            pace.change(at, 0, 0)
            if pace.marked_us is not None:
                self.usage.early_us.setdefault(party.life.id, pace.marked_us - party.life.submit_us)
        self.usage.level(party, at, 0, 0)
        self.usage.notes_packed(party, at, packed=False, planned=False)


def new_pace(party: Party) -> Pace:
    """The pace of a launch that works, or will, at the rate 1 until it is given another one."""
    life, launch = party.life, party.launch
    assert launch.works_us is not None  # it works
    takes = life.job.takes_us
    left = takes(launch.configuration, life.job.work_us - life.done_us)
    pace = Pace(left, launch.works_us, BILLION, BILLION)
    if party.kind is not None:
        early = min(MINI_BATCHES * party.kind.mini_batch_us, life.job.work_us) - life.done_us
        pace.mark_us = takes(launch.configuration, max(early, 0))
    return pace
