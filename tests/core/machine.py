"""A hypothesis state machine: the engine against agents that obey, crash, fall silent, come back and repeat themselves."""

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scheduler_service.core.engine import Policy
from scheduler_service.core.errors import AlreadyExists, FailedPrecondition, NotFound
from scheduler_service.core.job import Job, JobClass, JobSpec, JobState, NodeState, RunKey, RunPhase
from scheduler_service.core.messages import (
    Accepted,
    Acknowledged,
    CancelRequested,
    Event,
    Joined,
    KnownRun,
    NodeSeen,
    NodeSilent,
    Order,
    RunExited,
    RunStarted,
    Start,
    Step,
    Submitted,
)
from scheduler_service.core.state import Settings
from scheduler_service.core.values import SECOND, Vector
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.fitgpp import fitgpp
from scheduler_service.policies.victims import FitGppSettings
from tests.core.driver import Driver, inventory

Report = RunStarted | RunExited

NAMES = ("n1", "n2", "n3")
CAPACITIES = (Vector(4000, 4096, 4), Vector(8000, 2048, 2), Vector(4000, 4096, 0))
USUAL = st.builds(Vector, st.sampled_from((250, 500, 1000)), st.sampled_from((1, 256)), st.sampled_from((2, 1, 3, 4)))
ODD = st.builds(
    Vector, st.sampled_from((0, 1000, 4000, 9000)), st.sampled_from((0, 1, 1024, 4096)), st.sampled_from((0, 1, 2, 5))
)
DEMANDS = st.one_of(USUAL, USUAL, USUAL, ODD)
SPECS = st.builds(
    JobSpec,
    st.just(("true",)),
    DEMANDS,
    st.sampled_from(JobClass),
    st.sampled_from((0, SECOND, 10 * SECOND, 60 * SECOND)),
)
POLICIES: tuple[tuple[Policy, int | None], ...] = (
    (fitgpp(FitGppSettings(cap=2)), 2),
    (fitgpp(FitGppSettings(cap=1, trials_in_flight=1)), 1),
    (fitgpp(FitGppSettings(s=1.0, cap=2, trials_in_flight=2)), 2),
    (fitgpp(FitGppSettings(s=0.0, cap=1)), 1),
    (fitgpp(FitGppSettings(cap=0)), 0),
    (fifo, 0),
)
EXITS = st.sampled_from(
    (
        {},
        {},
        {"exit_code": 1},
        {"exit_signal": 9},
        {"yielded": True},
        {"yielded": True},
        {"unknown": True},
        {"launch_error": "no such file"},
    )
)


@dataclass(repr=False)
class Agent:
    """What an agent would know. It spools its reports, obeys each order once, and forgets everything at a reboot."""

    name: str
    capacity: Vector
    boot: int = 1
    sequence: int = 0
    spool: list[Report] = field(default_factory=list)
    """Reports not yet acknowledged, oldest first."""
    inbox: list[Order] = field(default_factory=list)
    obeyed: list[Order] = field(default_factory=list)
    runs: dict[RunKey, RunPhase] = field(default_factory=dict)
    told: set[RunKey] = field(default_factory=set)
    """Runs whose start the scheduler has acknowledged: these alone may be forgotten without being started again."""
    launched: set[RunKey] = field(default_factory=set)
    """Over all boots."""

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boot}"

    def __repr__(self) -> str:
        return f"{self.boot_id} with {self.runs}"

    def forget(self, key: RunKey) -> None:
        del self.runs[key]
        self.obeyed = [order for order in self.obeyed if key != (order.run.key if isinstance(order, Start) else order.key)]

    def reboot(self) -> None:
        self.boot += 1
        self.sequence = 0
        for memory in (self.spool, self.inbox, self.obeyed, self.runs, self.told):
            memory.clear()

    def seen(self) -> NodeSeen:
        """Connecting drops what was on the way to it."""
        self.inbox.clear()
        known = tuple(KnownRun(key, phase) for key, phase in sorted(self.runs.items()))
        return NodeSeen(self.name, self.boot_id, inventory(self.capacity), known)

    def obey(self) -> None:
        order = self.inbox.pop(0)
        self.obeyed.append(order)
        if isinstance(order, Start):
            key = order.run.key
            if key not in self.runs:
                assert key not in self.launched, f"run {key} was started twice"
                self.launched.add(key)
                self.runs[key] = RunPhase.STARTING
        elif order.key not in self.runs:
            self.runs[order.key] = RunPhase.ENDED
            self.report(RunExited, order.key, yielded=True)
        elif self.runs[order.key] is not RunPhase.ENDED:
            self.runs[order.key] = RunPhase.STOPPING

    def begin(self, key: RunKey) -> None:
        self.runs[key] = RunPhase.RUNNING
        self.report(RunStarted, key)

    def end(self, key: RunKey, outcome: dict[str, object]) -> None:
        self.runs[key] = RunPhase.ENDED
        self.report(RunExited, key, **outcome)

    def report(self, kind: type[RunStarted] | type[RunExited], key: RunKey, **facts: object) -> None:
        self.sequence += 1
        self.spool.append(kind(self.name, self.boot_id, self.sequence, key, **facts))  # type: ignore[arg-type]

    def in_phase(self, *phases: RunPhase) -> list[RunKey]:
        return sorted(key for key, phase in self.runs.items() if phase in phases)


class EngineMachine(RuleBasedStateMachine):
    """Every rule is something that may happen to a scheduler; `Driver` checks what must hold after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.agents: dict[str, Agent] = {}
        self.requests: dict[str, tuple[int, JobSpec]] = {}
        self.last_report: Report | None = None
        """The newest that was acknowledged."""

    @initialize(
        chosen=st.sampled_from(POLICIES),
        ttl=st.sampled_from((SECOND, 60 * SECOND)),
        nodes=st.lists(st.sampled_from((0, 0, 0, 1, 2)), min_size=1, max_size=3),
        running=st.lists(st.builds(replace, SPECS, job_class=st.just(JobClass.BEST_EFFORT)), min_size=2, max_size=8),
    )
    def begin(self, chosen: tuple[Policy, int | None], ttl: int, nodes: list[int], running: list[JobSpec]) -> None:
        policy, cap = chosen
        self.driver = Driver(policy, Settings(earmark_ttl_us=ttl), cap=cap)
        for index, capacity in enumerate(nodes):
            self.node_joins(index, capacity)
        self._step(*(Submitted("ann", "", spec) for spec in running))
        self.all_runs_begin()

    # ---- users ---------------------------------------------------------------------------------------------------------

    @rule(spec=SPECS)
    def submit(self, spec: JobSpec) -> None:
        self._submit("", spec)

    @rule(demand=USUAL, filler=st.lists(st.builds(replace, SPECS, job_class=st.just(JobClass.BEST_EFFORT)), max_size=4))
    def submit_trial(self, demand: Vector, filler: list[JobSpec]) -> None:
        """To a cluster that was filled up first."""
        self._step(*(Submitted("ann", "", spec) for spec in filler))
        self._submit("", JobSpec(("true",), demand, JobClass.TRIAL))

    @rule(demand=DEMANDS, trial=st.booleans(), count=st.integers(2, 6))
    def submit_many(self, demand: Vector, trial: bool, count: int) -> None:
        job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
        self._step(*[Submitted("ann", "", JobSpec(("true",), demand, job_class, SECOND))] * count)

    @rule(request_id=st.sampled_from(("r1", "r2")), spec=SPECS, again=st.booleans())
    def submit_with_request_id(self, request_id: str, spec: JobSpec, again: bool) -> None:
        known = self.requests.get(request_id)
        self._submit(request_id, known[1] if known and again else spec)

    def _submit(self, request_id: str, spec: JobSpec) -> None:
        state = self.driver.state
        known = self.requests.get(request_id)
        live = known is not None and known[0] in state.jobs.rows
        next_job = state.cluster.next_job
        reply = self._step(Submitted("ann", request_id, spec)).replies[0]
        if live and known is not None:
            if spec == known[1]:
                assert reply == Accepted(known[0])
            else:
                assert isinstance(reply, AlreadyExists)
        elif isinstance(reply, FailedPrecondition):
            assert not any(_within(spec.demand, node.capacity) for node in state.nodes.rows.values())
        else:
            assert reply == Accepted(next_job)
            if request_id:
                self.requests[request_id] = (next_job, spec)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        live = sorted(self.driver.state.jobs.rows)
        job_id = data.draw(st.sampled_from([*live, *live, *live, 0, *self.driver.ended]))
        reply = self._step(CancelRequested(job_id)).replies[0]
        assert reply == Accepted(job_id) if job_id in live else isinstance(reply, NotFound)

    # ---- nodes ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.agents) < len(NAMES))
    @rule(index=st.integers(0, 2), capacity=st.integers(0, 2))
    def node_joins(self, index: int, capacity: int) -> None:
        if NAMES[index] not in self.agents:
            agent = Agent(NAMES[index], CAPACITIES[capacity])
            self.agents[agent.name] = agent
            self._connect(agent)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), forgets=st.sampled_from(("none", "none", "some", "all")))
    def node_reconnects(self, data: st.DataObject, forgets: str) -> None:
        agent = self._any_agent(data)
        forgettable = sorted(key for key in agent.runs if key in agent.told)
        if forgets == "some" and forgettable:
            forgettable = data.draw(st.lists(st.sampled_from(forgettable), unique=True))
        for key in forgettable if forgets != "none" else ():
            agent.forget(key)
        self._connect(agent)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), capacity=st.none() | st.integers(0, 2))
    def node_reboots(self, data: st.DataObject, capacity: int | None) -> None:
        agent = self._any_agent(data)
        agent.reboot()
        if capacity is not None:
            agent.capacity = CAPACITIES[capacity]
        self._connect(agent)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), capacity=st.integers(0, 2))
    def node_reports_another_inventory(self, data: st.DataObject, capacity: int) -> None:
        agent = self._any_agent(data)
        busy = bool(self.driver.state.runs_on.get(self.driver.state.node_ids[agent.name]))
        keeps = self.driver.state.nodes.rows[self.driver.state.node_ids[agent.name]].capacity == CAPACITIES[capacity]
        reply = self._step(replace(agent.seen(), inventory=inventory(CAPACITIES[capacity]))).replies[0]
        if isinstance(reply, FailedPrecondition):
            assert busy
            assert not keeps
            self._connect(agent)  # as it was, for what was on the way to it was dropped
        else:
            agent.capacity = CAPACITIES[capacity]
            self._joined(agent, reply)

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def node_falls_silent(self, data: st.DataObject) -> None:
        agent = self._any_agent(data)
        agent.inbox.clear()
        self._step(NodeSilent(agent.name))

    def _connect(self, agent: Agent) -> None:
        self._joined(agent, self._step(agent.seen()).replies[0])

    def _joined(self, agent: Agent, reply: object) -> None:
        assert isinstance(reply, Joined), reply
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

    @precondition(lambda self: any(agent.in_phase(RunPhase.STARTING) for agent in self.agents.values()))
    @rule(data=st.data())
    def runs_begin(self, data: st.DataObject) -> None:
        for agent in self.agents.values():
            starting = agent.in_phase(RunPhase.STARTING)
            for key in data.draw(st.lists(st.sampled_from(starting), unique=True)) if starting else ():
                agent.begin(key)

    @rule()
    def all_runs_begin(self) -> None:
        """After a quiet while, in which the silent come back."""
        for agent in self.agents.values():
            if self.driver.node(agent.name).state is NodeState.SILENT:
                self._connect(agent)
            while agent.inbox:
                agent.obey()
            for key in agent.in_phase(RunPhase.STARTING):
                agent.begin(key)
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
        for report, reply in zip(batch, self._step(*batch).replies, strict=True):
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
        stale = self.agents[report.node].boot_id != report.boot_id
        step = self._step(report)
        assert step.replies == (Acknowledged(report.node, report.sequence, stale),)
        assert _untouched(step)

    @precondition(lambda self: self.agents and self.driver.runs)
    @rule(data=st.data(), distance=st.integers(1, 3))
    def a_report_of_another_boot_arrives(self, data: st.DataObject, distance: int) -> None:
        agent, key = self._any_agent(data), self._any_run(data)
        step = self._step(RunExited(agent.name, f"{agent.name}-{agent.boot - distance}", data.draw(st.integers(1, 9)), key))
        assert _untouched(step)

    @precondition(lambda self: self.agents and self.driver.runs)
    @rule(data=st.data(), gap=st.integers(2, 4))
    def a_report_skips_some(self, data: st.DataObject, gap: int) -> None:
        agent, key = self._any_agent(data), self._any_run(data)
        sequence = self.driver.node(agent.name).sequence + gap
        step = self._step(RunStarted(agent.name, agent.boot_id, sequence, key))
        assert isinstance(step.replies[0], FailedPrecondition)
        assert _untouched(step)

    # ---- time ----------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((-5, 1, 2, 61, 3600)))
    def time_passes(self, seconds: int) -> None:
        self.driver.now += seconds * SECOND
        self._step()

    # ---- the end: once everybody behaves, everything that fits somewhere ends --------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for agent in self.agents.values():
            self._connect(agent)
        state = self.driver.state
        for _ in range(20 + 5 * len(state.jobs.rows)):
            if not state.runs.rows and not any(agent.inbox or agent.spool for agent in self.agents.values()):
                break
            self._everybody_works()
        assert not state.runs.rows, f"these never end: {sorted(state.runs.rows)}"
        assert not state.operations.rows, "an earmark is left behind"
        for job in state.jobs.rows.values():
            assert self._fits_nowhere(job), f"{job} starves"

    def _everybody_works(self) -> None:
        self.driver.now += SECOND
        for agent in self.agents.values():
            while agent.inbox:
                agent.obey()
            for key in agent.in_phase(RunPhase.STARTING):
                agent.begin(key)
            for key in agent.in_phase(RunPhase.RUNNING):
                agent.end(key, {})
            for key in agent.in_phase(RunPhase.STOPPING):
                agent.end(key, {"yielded": True})
        self._deliver([report for agent in self.agents.values() for report in agent.spool])

    def _fits_nowhere(self, job: Job) -> bool:
        assert job.state is JobState.QUEUED
        return not any(_within(job.spec.demand, node.capacity) for node in self.driver.state.nodes.rows.values())

    # ---- helpers -------------------------------------------------------------------------------------------------------

    def _step(self, *events: Event) -> Step:
        """Orders go to agents whose node is up; those to others are lost, as they are when a connection is."""
        step = self.driver.step(*events)
        for order in step.orders:
            node = self.driver.state.nodes.rows[order.node]
            agent = self.agents[node.name]
            if node.boot_id == agent.boot_id:
                agent.inbox.append(order)
        return step

    def _any_agent(self, data: st.DataObject) -> Agent:
        return data.draw(st.sampled_from(list(self.agents.values())))

    def _any_run(self, data: st.DataObject) -> RunKey:
        return data.draw(st.sampled_from(sorted(self.driver.runs)))


LIVE = (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.STOPPING)


def _within(need: Vector, room: Vector) -> bool:
    return all(n <= r for n, r in zip(need, room, strict=True))


def _untouched(step: Step) -> bool:
    return {change.table for change in step.changes} <= {"cluster"} and not step.log
