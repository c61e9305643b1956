"""The rules of the state machine for what nodes and their agents do."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import (
    Acknowledged,
    Event,
    FaultsSeen,
    GraceWanted,
    Joined,
    Launch,
    MiniBatchMeasured,
    NodeSilent,
    PlanReady,
    RunExited,
    RunMeasured,
    RunStarted,
    Step,
    SwitchingMeasured,
)
from scheduler_service.core.model import JobSpec, NodeState, RunKey, RunPhase
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from tests.core.agents import LIVE, Agent, Launches, Report
from tests.core.driver import Driver
from tests.core.specs import CAPACITIES, EXITS, LABELS
from tests.core.watch import Watch

MOVES = (RunPhase.PARKING, RunPhase.RESUMING)
NAMES = ("n1", "n2", "n3")


class Base(RuleBasedStateMachine):
    """The driver, what it is watched by, and the agents."""

    driver: Driver
    watch: Watch

    def __init__(self) -> None:
        super().__init__()
        self.agents: dict[str, Agent] = {}
        self.away: dict[str, Agent] = {}
        """Agents of nodes that were deleted, with all that they know."""
        self.launches = Launches()
        self.plans: list[PlanReady] = []
        """What policies have delegated, and what comes of it, which is on the way."""
        self.failed = False
        """A step was not what it must be: what follows would only hide it."""

    def take(self, *events: Event, alone: bool = False) -> Step:
        """Orders go to agents whose node is up; those to others are lost, as they are when a connection is. `alone`: nothing is
        shared in this step, which is to be the events' doing."""
        self.failed = True
        sharing, self.driver.sharing = self.driver.sharing, 0 if alone else self.driver.sharing
        step = self.driver.step(*events)
        self.driver.sharing = sharing
        self.watch.see(step)
        self.failed = False
        self.plans += (PlanReady(one.policy, one.subject, one.question()) for one in step.delegated)
        for order in step.orders:
            node = self.driver.state.nodes.rows[order.node]
            agent = self.agents[node.name]
            if node.boot_id == agent.boot_id:
                agent.inbox.append(order)
        return step

    def plans_come(self) -> None:
        if plans := self.plans:
            self.plans = []
            self.take(*plans)

    def any_agent(self, data: st.DataObject) -> Agent:
        return data.draw(st.sampled_from(list(self.agents.values())))

    def any_run(self, data: st.DataObject) -> RunKey:
        return data.draw(st.sampled_from(sorted(self.driver.runs)))


class Acting(Base):
    """Nodes join, reboot and fall silent; agents prepare, begin and end runs, and report."""

    def __init__(self) -> None:
        super().__init__()
        self.last_report: Report | None = None
        """The newest that was acknowledged."""

    # ---- nodes ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.agents) < len(NAMES))
    @rule(index=st.integers(0, 2), capacity=st.integers(0, 2))
    def node_joins(self, index: int, capacity: int) -> None:
        """Also one that was deleted."""
        if (name := NAMES[index]) not in self.agents:
            self.agents[name] = self.away.pop(name, None) or Agent(name, CAPACITIES[capacity], self.launches)
            self.agents[name].labels = LABELS[index]
            self.connect(self.agents[name])

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), forgets=st.sampled_from(("none", "none", "some", "all")))
    def node_reconnects(self, data: st.DataObject, forgets: str) -> None:
        agent = self.any_agent(data)
        forgettable = sorted(key for key in agent.runs if key in agent.told)
        if forgets == "some" and forgettable:
            forgettable = data.draw(st.lists(st.sampled_from(forgettable), unique=True))
        for key in forgettable if forgets != "none" else ():
            agent.forget(key)
        agent.labels = data.draw(st.sampled_from((agent.labels, agent.labels, *LABELS)))
        self.connect(agent)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), capacity=st.none() | st.integers(0, 2))
    def node_reboots(self, data: st.DataObject, capacity: int | None) -> None:
        agent = self.any_agent(data)
        agent.reboot()
        if capacity is not None:
            agent.capacity = CAPACITIES[capacity]
        self.connect(agent)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), capacity=st.integers(0, 2))
    def node_reports_another_inventory(self, data: st.DataObject, capacity: int) -> None:
        agent = self.any_agent(data)
        busy = bool(self.driver.state.runs_on.get(self.driver.state.node_ids[agent.name]))
        keeps = self.driver.state.nodes.rows[self.driver.state.node_ids[agent.name]].capacity == CAPACITIES[capacity]
        reply = self.take(replace(agent.seen(), inventory=agent.inventory(CAPACITIES[capacity]))).replies[0]
        if isinstance(reply, FailedPrecondition):
            assert busy
            assert not keeps
            self.connect(agent)  # as it was, for what was on the way to it was dropped
        else:
            agent.capacity = CAPACITIES[capacity]
            self._joined(agent, reply)

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def node_falls_silent(self, data: st.DataObject) -> None:
        """Of runs that its agent never heard of it is known to the scheduler, or not."""
        agent = self.any_agent(data)
        agent.inbox.clear()
        state = self.driver.state
        untold = sorted(state.runs_on.get(state.node_ids[agent.name], set()) - agent.launched - agent.runs.keys())
        known = data.draw(st.lists(st.sampled_from(untold), unique=True)) if untold else []
        silent = state.nodes.rows[state.node_ids[agent.name]].state is NodeState.SILENT
        self.take(NodeSilent(agent.name, tuple(known)))
        assert silent or all(self.driver.runs[key].phase is RunPhase.ENDED for key in known)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), broken=st.lists(st.integers(0, 1), unique=True, max_size=2))
    def devices_break_and_heal(self, data: st.DataObject, broken: list[int]) -> None:
        agent = self.any_agent(data)
        agent.faults = {index: "it is lost" for index in sorted(broken) if index < agent.capacity.devices}
        self.take(FaultsSeen(agent.name, agent.boot_id, tuple(agent.faults.items())))

    @precondition(lambda self: any(agent.inbox for agent in self.agents.values()))
    @rule(data=st.data())
    def orders_are_lost(self, data: st.DataObject) -> None:
        """As a connection breaks; they are given again when the agent connects."""
        data.draw(st.sampled_from([agent for agent in self.agents.values() if agent.inbox])).inbox.clear()

    def connect(self, agent: Agent) -> None:
        self._joined(agent, self.take(agent.seen()).replies[0])

    def _joined(self, agent: Agent, reply: object) -> None:
        assert isinstance(reply, Joined), reply
        for order in reply.orders:
            if isinstance(order.desired, Launch):
                self.watch.see_launch(order.desired)
        agent.inbox[:0] = reply.orders  # the orders of the step itself come after
        agent.spool = [report for report in agent.spool if report.sequence > reply.acknowledged]

    # ---- agents --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(agent.inbox for agent in self.agents.values()))
    @rule(data=st.data(), all_of_them=st.booleans())
    def agent_obeys(self, data: st.DataObject, all_of_them: bool) -> None:
        agent = data.draw(st.sampled_from([agent for agent in self.agents.values() if agent.inbox]))
        agent.obey()
        while all_of_them and agent.inbox:
            agent.obey()

    @precondition(lambda self: any(agent.obeyed for agent in self.agents.values()))
    @rule(data=st.data())
    def orders_are_sent_again(self, data: st.DataObject) -> None:
        agent = data.draw(st.sampled_from([agent for agent in self.agents.values() if agent.obeyed]))
        agent.inbox.append(data.draw(st.sampled_from(agent.obeyed)))

    @precondition(lambda self: any(agent.to_prepare() for agent in self.agents.values()))
    @rule(data=st.data())
    def tasks_are_prepared(self, data: st.DataObject) -> None:
        for agent in self.agents.values():
            waiting = agent.to_prepare()
            for key in data.draw(st.lists(st.sampled_from(waiting), unique=True)) if waiting else ():
                agent.prepare(key)

    @precondition(lambda self: any(agent.to_begin() for agent in self.agents.values()))
    @rule(data=st.data())
    def runs_begin(self, data: st.DataObject) -> None:
        for agent in self.agents.values():
            starting = agent.to_begin()
            for key in data.draw(st.lists(st.sampled_from(starting), unique=True)) if starting else ():
                self.run_begins(agent, key)

    def run_begins(self, agent: Agent, key: RunKey) -> None:
        """Of a gang only when every task of the launch was ready."""
        tasks = self.driver.job(key.job_id).launch_spec.tasks()
        if self.driver.job(key.job_id).launch_spec.gang:
            missing = [task for task in range(len(tasks)) if key._replace(task=task) not in self.launches.ready]
            assert not missing, f"{key} begins before its gang is ready: {missing}"
        agent.begin(key)

    @rule()
    def all_runs_begin(self) -> None:
        """After a quiet while, in which the silent come back."""
        for agent in self.agents.values():
            if self.driver.node(agent.name).state is NodeState.SILENT:
                self.connect(agent)
        for _ in range(2):  # a gang is told to go when all of it was prepared
            for agent in self.agents.values():
                while agent.inbox:
                    agent.obey()
                for key in agent.to_prepare():
                    agent.prepare(key)
                for key in agent.to_begin():
                    self.run_begins(agent, key)
            self.all_reports_arrive()

    @precondition(lambda self: any(agent.in_phase(RunPhase.WARMING) for agent in self.agents.values()))
    @rule()
    def destinations_are_ready(self) -> None:
        for agent in self.agents.values():
            for key in agent.in_phase(RunPhase.WARMING):
                agent.warm(key)
        self.all_reports_arrive()

    @precondition(lambda self: any(agent.in_phase(*MOVES) for agent in self.agents.values()))
    @rule(
        data=st.data(), how=st.sampled_from(("well", "saves", "saves", "refused", "lost")), mib=st.sampled_from((0, 1, 10**9))
    )
    def parks_and_resumes_end(self, data: st.DataObject, how: str, mib: int) -> None:
        for agent in self.agents.values():
            moving = agent.in_phase(*MOVES)
            for key in data.draw(st.lists(st.sampled_from(moving), unique=True)) if moving else ():
                agent.move(key, how, mib)
        self.all_reports_arrive()

    @precondition(lambda self: any(agent.saving & {*agent.in_phase(RunPhase.STOPPING)} for agent in self.agents.values()))
    @rule()
    def parked_runs_do_not_save(self) -> None:
        for agent in self.agents.values():
            for key in sorted(agent.saving & {*agent.in_phase(RunPhase.STOPPING)}):
                agent.stay_parked(key)
        self.all_reports_arrive()

    @precondition(lambda self: any(agent.in_phase(RunPhase.STOPPING) for agent in self.agents.values()))
    @rule(outcome=EXITS)
    def all_stopping_runs_end(self, outcome: dict[str, object]) -> None:
        for agent in self.agents.values():
            for key in agent.in_phase(RunPhase.STOPPING):
                agent.end(key, outcome)
        self.all_reports_arrive()

    @precondition(lambda self: any(agent.in_phase(*LIVE) for agent in self.agents.values()))
    @rule(data=st.data(), outcome=EXITS)
    def run_ends(self, data: st.DataObject, outcome: dict[str, object]) -> None:
        agent = data.draw(st.sampled_from([agent for agent in self.agents.values() if agent.in_phase(*LIVE)]))
        agent.end(data.draw(st.sampled_from(agent.in_phase(*LIVE))), outcome)

    @precondition(lambda self: any(agent.in_phase(*LIVE) for agent in self.agents.values()))
    @rule(data=st.data(), steps=st.sampled_from((2, 5, 30, 1000)), total=st.sampled_from((0, 10, 1000)))
    def run_is_measured(self, data: st.DataObject, steps: int, total: int) -> None:
        """Whether or not it is a sample, and also one that nobody knows any more."""
        agent = data.draw(st.sampled_from([agent for agent in self.agents.values() if agent.in_phase(*LIVE)]))
        key = data.draw(st.sampled_from(agent.in_phase(*LIVE)))
        each = data.draw(st.sampled_from((1, SECOND)))
        self.take(RunMeasured(agent.name, key, steps, each, each * steps, total, 10_000, 64))

    @precondition(lambda self: any(agent.in_phase(*LIVE) for agent in self.agents.values()))
    @rule(data=st.data(), seconds=st.sampled_from((1, 40, 50, 299, 4000)))
    def run_asks_for_grace(self, data: st.DataObject, seconds: int) -> None:
        agent = data.draw(st.sampled_from([agent for agent in self.agents.values() if agent.in_phase(*LIVE)]))
        self.take(GraceWanted(agent.name, data.draw(st.sampled_from(agent.in_phase(*LIVE))), seconds * SECOND))

    @precondition(lambda self: any(agent.in_phase(*LIVE) for agent in self.agents.values()))
    @rule(
        each=st.sampled_from((SECOND // 1000, SECOND // 1000, SECOND // 2000)),
        memory=st.sampled_from((0, 64, 64, 64)),
        utilisation=st.sampled_from((-1, 100_000, 900_000)),
    )
    def mini_batches_are_measured(self, each: int, memory: int, utilisation: int) -> None:
        """Of all runs, as after a minute; also of such that nobody knows any more, and of those that have not begun."""
        keys = [(agent.name, key) for agent in self.agents.values() for key in agent.in_phase(*LIVE)]
        self.driver.now += 60 * SECOND
        self.take(*(MiniBatchMeasured(name, key, each, 20, 990_000, memory, utilisation) for name, key in keys))

    @precondition(lambda self: any(agent.in_phase(*LIVE) for agent in self.agents.values()))
    @rule(
        us=st.sampled_from((-1, 0, SECOND // 10, SECOND, 20 * SECOND)), outlasted=st.sampled_from((0, 0, SECOND, 15 * SECOND))
    )
    def switches_are_measured(self, us: int, outlasted: int) -> None:
        """Of all runs; also of such that take no turns, and of such that nobody knows any more."""
        keys = [(agent.name, key) for agent in self.agents.values() for key in agent.in_phase(*LIVE)]
        self.driver.now += 60 * SECOND
        self.take(*(SwitchingMeasured(name, key, Switching(us // 2, us, us // 3, outlasted)) for name, key in keys))

    @precondition(lambda self: any(agent.spool for agent in self.agents.values()))
    @rule(data=st.data())
    def reports_arrive(self, data: st.DataObject) -> None:
        """Of all agents, interleaved, in one batch; each agent's in order."""
        batch = [r for agent in self.agents.values() for r in agent.spool[: data.draw(st.integers(0, 3))]]
        order = data.draw(st.permutations(range(len(batch))))
        queues = {name: [r for r in batch if r.node == name] for name in self.agents}
        self._deliver([queues[batch[i].node].pop(0) for i in order])

    @rule()
    def all_reports_arrive(self) -> None:
        self._deliver([report for agent in self.agents.values() for report in agent.spool])

    def _deliver(self, batch: list[Report]) -> None:
        for report, reply in zip(batch, self.take(*batch).replies, strict=True):
            assert reply == Acknowledged(report.node, report.sequence), reply
            agent = self.agents[report.node]
            assert agent.spool.pop(0) is report
            agent.told.add(report.key)
            self.last_report = report

    @precondition(lambda self: self.last_report is not None)
    @rule()
    def a_report_is_repeated(self) -> None:
        report = self.last_report
        assert report is not None
        stale = report.node in self.away or self.driver.node(report.node).boot_id != report.boot_id
        step = self.take(report, alone=True)
        assert step.replies == (Acknowledged(report.node, report.sequence, stale),)
        assert untouched(step)

    @precondition(lambda self: self.agents and self.driver.runs)
    @rule(data=st.data(), distance=st.integers(1, 3))
    def a_report_of_another_boot_arrives(self, data: st.DataObject, distance: int) -> None:
        agent, key = self.any_agent(data), self.any_run(data)
        boot = int(self.driver.node(agent.name).boot_id.rpartition("-")[2]) - distance
        step = self.take(RunExited(agent.name, f"{agent.name}-{boot}", data.draw(st.integers(1, 9)), key), alone=True)
        assert untouched(step)

    @precondition(lambda self: self.agents and self.driver.runs)
    @rule(data=st.data(), gap=st.integers(2, 4))
    def a_report_skips_some(self, data: st.DataObject, gap: int) -> None:
        agent, key = self.any_agent(data), self.any_run(data)
        node = self.driver.node(agent.name)
        step = self.take(RunStarted(agent.name, node.boot_id, node.sequence + gap, key), alone=True)
        assert isinstance(step.replies[0], FailedPrecondition)
        assert untouched(step)


def suits(state: State, node: int, spec: JobSpec) -> bool:
    """Whether the node is one of those that the spec asks for, by the rows alone."""
    row, (names, labels, excluded) = state.nodes.rows[node], spec.nodes
    devices = [device for device in state.devices.rows.values() if device.node == node]
    models = {device.model for device in devices} or {""}
    return (
        (not spec.cells.model or models == {spec.cells.model})
        and (not spec.device_memory_mib or (bool(devices) and all(d.memory_mib >= spec.device_memory_mib for d in devices)))
        and (not spec.gpu_memory_mib or all(d.memory_mib * 92 // 100 >= spec.gpu_memory_mib for d in devices))
        and (not names or row.name in names)
        and row.name not in excluded
        and set(labels) <= set(row.labels)
    )


def fits_empty(state: State, spec: JobSpec) -> bool:
    """Whether some way of putting the tasks on empty nodes exists: tried one by one, with all that was tried before."""
    nodes = (node for node in state.node_ids.values() if suits(state, node, spec))
    rooms = {tuple(sorted(state.nodes.rows[node].capacity for node in nodes))}
    for task in spec.tasks():
        rooms = {
            tuple(sorted((*room[:i], Vector(*(r - n for r, n in zip(room[i], task, strict=True))), *room[i + 1 :])))
            for room in rooms
            for i in range(len(room))
            if all(n <= r for n, r in zip(task, room[i], strict=True))
        }
    return bool(rooms)


def untouched(step: Step) -> bool:
    return {change.table for change in step.changes} <= {"cluster"} and not step.log
