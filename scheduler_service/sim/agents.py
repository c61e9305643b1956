"""Simulated agents: they carry out orders immediately, and their processes only let time pass.

Events on the nodes happen in the order of their times. The scheduler learns of them by reports, which wait until they are
requested. Only the start of a gang does not wait, because it is not a decision.
"""

from collections.abc import Callable
from random import Random
from typing import assert_never

from scheduler_service.core.messages import (
    Event,
    NodeSeen,
    Order,
    Parked,
    Prepared,
    Running,
    SharePlan,
    Stopped,
    Warming,
)
from scheduler_service.core.model import Job, Run, RunKey, RunPhase
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.values import Micros
from scheduler_service.sim import migrations, parks
from scheduler_service.sim.event_queue import Agenda
from scheduler_service.sim.experiments.job_outcomes import Launch, Life
from scheduler_service.sim.failures import NO_OUTAGES, Failure, Outages
from scheduler_service.sim.node_delays import Delays
from scheduler_service.sim.node_failures import NodeFailures, Torn, torn_from_gang
from scheduler_service.sim.nodes import (
    BEGUN,
    FINISHED,
    GATHERING,
    LEFT,
    MET,
    OBSERVED,
    PARKED,
    READY,
    RESUMED,
    SWITCHED,
    Measurement,
    Node,
    Party,
    Task,
    What,
    is_under_way,
    measured_at,
    report,
)
from scheduler_service.sim.sharing.executing import Executing
from scheduler_service.sim.sharing.setup import Setup
from scheduler_service.sim.sharing.turns import Turn, with_turns

NEVER_US = 1 << 62


class Agents:
    """The agents of all nodes, and the heap of events to come on them."""

    def __init__(
        self,
        delays: Delays,
        rng: Random,
        finished: Callable[[Life], None],
        outages: Outages = NO_OUTAGES,
        sharing: Setup | None = None,
        asked: Callable[[], Micros | None] = lambda: None,
    ) -> None:
        """`finished` is called with each job that has done its work. `asked` returns the minimum time between measurements of a
        run, or None if none is wanted."""
        self._asked = asked
        self._delays = delays
        self._rng = rng
        self._finished = finished
        self.torn: list[Torn] = []
        self._agenda = Agenda()
        self._until: Micros = 0
        self._nodes: list[Node] = []
        self._tasks: dict[RunKey, Task] = {}
        self._warm = migrations.WarmTasks()
        self._gangs: dict[int, Party] = {}
        """Launches that have not ended, by job."""
        self._heard: list[tuple[What, Task | Node | Measurement]] = []
        """Events that have happened and were not reported yet."""
        self.executing = Executing(sharing, rng, self._retime, lambda at, turn: self._agenda.push(at, What.TURN, turn))
        self._failures = NodeFailures(outages, self._nodes, self._agenda, self._lose_node)

    def join(self, name: str, inventory: Inventory) -> NodeSeen:
        """Add a node. Nodes are numbered from 1 as they join."""
        self._nodes.append(Node(name, inventory))
        return NodeSeen(name, "1", inventory)

    # ---- orders ----------------------------------------------------------------------------------------------------------

    def obey(self, order: Order, life: Life, now: Micros) -> None:
        """Carry out an order. Each order comes once and in time, so generations are not needed here."""
        match order.desired:
            case Prepared(job, run, share=plan):
                self.come(job, run, life, now, plan)
            case Warming(run=run):
                if (node := self._nodes[run.node - 1]).up and not self._warm.has(run.key):
                    self._agenda.set_next(self._warm.make(run.key, node, life), now + self._delays.warm(self._rng), What.WARM)
            case Running(job, run, share=plan) if self._warm.take(run.key):
                self.come(job, run, life, now, plan, migrated=True)
            case Running(run=run, share=plan) if run.phase in (RunPhase.RUNNING, RunPhase.RESUMING):
                if (task := self._tasks.get(run.key)) is not None:  # else its node has died
                    if run.shared:
                        self._apply_plan(task, plan, now)
                    parks.goes_on(task, now, lambda: self._delays.unpark(self._rng), self._agenda.set_next)
            case Running(job, run, gang, plan):
                if gang is None:
                    self.come(job, run, life, now, plan)
                elif (prepared := self._tasks.get(run.key)) is not None:  # else its node has died
                    self._apply_plan(prepared, plan, now)
                    self._agenda.gathers(prepared, now, MET)
            case Parked(run=run):
                if (task := self._tasks.get(run.key)) is not None:
                    parks.is_told(task, now, lambda: self._delays.park(self._rng), self._agenda.set_next)
            case Stopped() as stopped:
                self._warm.take(order.key)
                self._stop(order.key, stopped, now)
            case _:
                assert_never(order.desired)

    def come(self, job: Job, run: Run, life: Life, now: Micros, plan: SharePlan | None = None, migrated: bool = False) -> None:
        """Start a task: it begins on its own or, in a gang, is prepared first. A migrated task is ready already, and begins
        when its checkpoint has arrived."""
        alone = not job.launch_spec.gang
        if alone:
            party = self._party(life, (run.node,), now, run.guaranteed, job)
        else:
            party = self._gangs.get(job.id) or self._gangs.setdefault(
                job.id, self._party(life, job.task_nodes, now, run.guaranteed, job)
            )
        task = Task(run.key, self._nodes[run.node - 1], party, devices=run.given)
        party.tasks.append(task)
        self._tasks[task.key] = task
        if plan is not None:
            self._apply_plan(task, plan, now)
        if not task.node.up:
            self._vanishes(task, now)
        elif migrated:
            self._agenda.set_next(task, now + self._delays.transfer(self._rng), BEGUN if alone else MET)
        elif alone:
            self._agenda.set_next(task, now + self._delays.start(self._rng), BEGUN)
        else:
            self._agenda.gathers(task, now + self._delays.start(self._rng), READY)

    def _apply_plan(self, task: Task, plan: SharePlan | None, now: Micros) -> None:
        """Apply a share plan. After one cycle the node reports the switching time, if it measures and the policy asks."""
        self.executing.apply_plan(task, plan, now)
        if plan is None or task.switches or self.executing.measures_every_us is None or self._asked() is None:
            return
        if len(with_turns(plan.rows)) > 1:
            task.switches = True
            self._agenda.push(now + plan.period_us, SWITCHED, task)

    def _party(self, life: Life, nodes: tuple[int, ...], now: Micros, guaranteed: bool, job: Job) -> Party:
        launch = Launch(nodes, now, guaranteed_us=now if guaranteed else None, configuration=job.configuration)
        life.launches.append(launch)
        return Party(life, launch, len(nodes), len(nodes), sampling=job.sampling)

    def knows(self, key: RunKey) -> bool:
        """Whether the agent was ordered to start the run and it has not ended."""
        return key in self._tasks

    def _stop(self, key: RunKey, stopped: Stopped, now: Micros) -> None:
        """Stop a run at the end of its grace period, or when it has saved its work; without a grace period it is killed. A task
        whose gang has lost another hangs until it is killed. A repeated stop can shorten the grace period."""
        task = self._tasks.get(key)
        if task is None:  # its node has died
            return
        party, launch = task.party, task.party.launch
        if launch.signalled_us is None:
            launch.signalled_us, launch.why = now, stopped.reason
            parks.is_over(party, now)
        if launch.pace is not None:
            self.executing.stops(party, now)
        if launch.began_us is None:  # there is nothing to save
            self._agenda.set_next(task, now, LEFT)
            return
        checkpoint, saves_us = self._delays.checkpoint, self.executing.saves_us(party)
        if task.leaves_us is None:
            end = now + stopped.grace_us
            saves_us = saves_us if checkpoint is None else checkpoint(self._rng)
            leaves = end if saves_us is None else now + saves_us
        else:
            end = max(now, launch.signalled_us + stopped.grace_us)
            leaves = task.leaves_us if checkpoint is not None or saves_us is not None else min(task.leaves_us, end)
        in_time = stopped.grace_us and leaves <= end and party.saved
        task.leaves_us = leaves if in_time else end
        self._agenda.set_next(task, task.leaves_us, LEFT if in_time else What.KILLED)

    # ---- what happens ----------------------------------------------------------------------------------------------------

    def next_us(self) -> Micros | None:
        """The time of the next event; now, if one has happened that was not reported."""
        if self._heard:
            return self._until
        return self._agenda.next_us()

    def gathering_us(self) -> Micros | None:
        """When the next task of a gang is ready or begins. That is not a decision, and does not wait for one."""
        return self._agenda.gathering_us()

    def advance_to(self, now: Micros, gathering: bool = False) -> list[Event]:
        """Let everything happen up to now, in order, and report it. With `gathering`, report only that of gangs, and the rest
        later."""
        self._until = now
        heard = self._heard
        if not heard and not self._agenda.is_due(now):
            return []
        self._heard = []
        for at, number, what, subject in self._agenda.pop_due(now):
            if isinstance(subject, Task):
                if subject.due == number:
                    self._goes_on(subject, what, at)
                elif what is OBSERVED:
                    heard += self._observe_run(subject, at)
                    continue
                elif what is SWITCHED:
                    heard += self._measure_switches(subject)
                    continue
                elif what is not What.MEASURED or not is_under_way(subject.party.launch):
                    continue
                heard.append((what, subject))
            elif isinstance(subject, Turn):
                self.executing.end_turn(subject, at)
            elif isinstance(subject, Failure):
                self._failures.kill_node(subject, at)
            else:
                subject.up = subject.up or what is What.BACK
                heard.append((what, subject))
        if gathering:
            self._heard = [this for this in heard if this[0] not in GATHERING]
            heard = [this for this in heard if this[0] in GATHERING]
        return [report(what, subject) for what, subject in heard]

    def _goes_on(self, task: Task, what: What, at: Micros) -> None:
        party = task.party
        if what is PARKED:
            parks.is_parked(task, at)
            if party.launch.pace is not None:
                self.executing.stops(party, at)
        elif what is RESUMED:
            parks.is_resumed(task, at, self._agenda.set_next)
            if party.launch.pace is not None:
                self.executing.goes_on(party, at)
        elif what is BEGUN or what is MET:
            party.missing -= 1
            if not party.missing and party.saved:
                self._works(party, at)
        elif what is not READY and what is not What.WARM:
            party.saved = party.saved and what is not What.KILLED
            self._remove_task(task, at)
            if what is FINISHED:  # all of them finish at the same time
                if not party.there:
                    self._finished(party.life)
            elif party.there:
                self.torn.append(torn_from_gang(task, at))

    def _works(self, party: Party, at: Micros) -> None:
        """All tasks are there: they work until nothing is left to do, and finish together."""
        life, launch = party.life, party.launch
        launch.began_us = launch.works_us = at
        if life.done_us:
            launch.works_us += self._delays.resume(self._rng) + self.executing.goes_on_us(party)
        party.end_us = self._delays.end(self._rng)
        if self.executing.covers(party):
            self.executing.begins(party, at)
            if (every := self.executing.measures_every_us) is not None and self._asked() is not None:
                self._agenda.push(launch.works_us + every, OBSERVED, party.tasks[0])
        else:
            left = life.job.takes_us(launch.configuration, life.job.work_us - life.done_us)
            party.done_us = launch.works_us + left + party.end_us
            for task in party.tasks:
                self._agenda.set_next(task, party.done_us, FINISHED)
        if (measured := measured_at(life, launch, party.sampling)) is not None:
            self._agenda.push(measured, What.MEASURED, party.tasks[0])

    def _retime(self, party: Party, done: Micros | None) -> None:
        """Set when the launch is done; None: never at its present rate. A task that is to be parked is parked first."""
        party.done_us = NEVER_US if done is None else done + party.end_us
        for task in party.tasks:
            if task.key not in self._tasks or task.next is PARKED:
                continue
            if done is None:
                task.due, task.next = 0, FINISHED
            else:
                self._agenda.set_next(task, party.done_us, FINISHED)

    def _observe_run(self, task: Task, at: Micros) -> list[tuple[What, Task | Node | Measurement]]:
        """The node's new measurements of a run, if it is still working."""
        every = self.executing.measures_every_us
        if every is None or not is_under_way(task.party.launch):
            return []
        self._agenda.push(at + max(every, self._asked() or 0), OBSERVED, task)
        measured = self.executing.measures(task, at)
        return [] if measured is None else [(OBSERVED, measured)]

    def _measure_switches(self, task: Task) -> list[tuple[What, Task | Node | Measurement]]:
        """The time that the switches of a task take, if it still takes turns. It is constant as long as the task runs."""
        if not is_under_way(task.party.launch):
            return []
        measured = self.executing.switches(task)
        task.switches = measured is not None
        return [] if measured is None else [(SWITCHED, measured)]

    def _remove_task(self, task: Task, at: Micros) -> None:
        """Remove a task. With the last task the launch ends."""
        del self._tasks[task.key]
        party = task.party
        party.there -= 1
        if not party.there:
            party.launch.ended_us = at
            if party.launch.pace is not None or party.group:
                self.executing.end_launch(party, at)
            party.tasks.clear()  # a reference cycle, which only the garbage collector would find
            party.life.account_for(party.launch, party.saved, self._delays.checkpoint_every_us)
            self._gangs.pop(party.life.id, None)

    # ---- failures --------------------------------------------------------------------------------------------------------

    def _lose_node(self, node: Node, at: Micros) -> None:
        """The tasks of a node that died disappear without a report. Tasks of their gangs elsewhere wait for them in vain."""
        self._warm.lose(node)
        for task in [task for task in self._tasks.values() if task.node is node]:
            self._vanishes(task, at)

    def _vanishes(self, task: Task, at: Micros) -> None:
        party = task.party
        party.saved = False
        if party.launch.lost_us is None:
            party.launch.lost_us = at
            parks.is_over(party, at)
            if party.launch.pace is not None:
                self.executing.stops(party, at)
        task.due = 0
        for mate in party.tasks:
            if mate.next is FINISHED:
                mate.due = 0
        self._remove_task(task, at)
        if party.there:
            self.torn.append(torn_from_gang(task, at))
