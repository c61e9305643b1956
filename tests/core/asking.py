"""The rules of the state machine for what users and operators ask."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from scheduler_service.core.errors import AlreadyExists, FailedPrecondition, NotFound
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    DrainRequested,
    FenceRequested,
    HoldRequested,
    JobRequest,
    MigrateRequested,
    NodeChanged,
    NodeDeleteRequested,
    ReleaseRequested,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    SetAside,
    Submitted,
    SuspendRequested,
    UndrainRequested,
    UpdateRequested,
)
from scheduler_service.core.model import (
    Dependency,
    DependencyKind,
    Job,
    JobClass,
    JobSpec,
    JobState,
    NodeState,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from tests.core.acting import Base, fits_empty, untouched
from tests.core.specs import DEMANDS, SPECS, USUAL

RUNS = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING, JobState.UNREACHABLE)
ASKED: dict[str, tuple[Callable[[int], JobRequest], Callable[[Job], bool]]] = {
    "suspend": (SuspendRequested, lambda job: job.state in RUNS and job.elements is None),
    "park": (partial(SuspendRequested, park=True), lambda job: job.state is JobState.RUNNING and job.elements is None),
    "park_only": (partial(SuspendRequested, park_only=True), lambda job: job.state is JobState.RUNNING),
    "resume": (ResumeRequested, lambda job: job.suspend_requested),
    "hold": (HoldRequested, lambda job: job.state is JobState.QUEUED and not job.held),
    "release": (ReleaseRequested, lambda job: job.held),
    "requeue": (RequeueRequested, lambda job: job.state in RUNS or job.eligible_us is not None),
    "cancel": (CancelRequested, lambda job: job.elements is not None),
}
"""And of which jobs it is mostly asked."""
NO_ROOM_EVER = ("NO_NODE_LARGE_ENOUGH", "CLUSTER_TOO_SMALL", "NO_SUITABLE_NODE")


def _may_migrate(state: State) -> list[int]:
    parked = {row.job_id for row in state.operations.rows.values()}
    return sorted(job.id for job in state.jobs.rows.values() if job.state is JobState.RUNNING or job.id in parked)


class Asking(Base):
    """Jobs come in, and are changed; nodes are drained and declared dead."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, tuple[int, JobSpec]] = {}

    @precondition(lambda self: self.driver.state.jobs.rows)
    @rule(data=st.data())
    def set_aside(self, data: st.DataObject) -> None:
        """As the service does with a job for which something was refused."""
        job_id = data.draw(st.sampled_from(sorted(self.driver.state.jobs.rows)))
        self.take(SetAside(job_id, "it was refused"))
        assert self.driver.job(job_id).held

    # ---- submit --------------------------------------------------------------------------------------------------------

    @rule(spec=SPECS)
    def submit(self, spec: JobSpec) -> None:
        self._submit("", spec)

    @rule(data=st.data(), spec=SPECS)
    def submit_dependent(self, data: st.DataObject, spec: JobSpec) -> None:
        self._submit("", with_changes(spec, dependencies=self._dependencies(data)))

    @rule(demand=USUAL, filler=st.lists(SPECS.map(lambda spec: with_changes(spec, job_class=JobClass.BEST_EFFORT)), max_size=4))
    def submit_trial(self, demand: Vector, filler: list[JobSpec]) -> None:
        """To a cluster that was filled up first."""
        self.take(*(Submitted("ann", "", spec) for spec in filler))
        self._submit("", JobSpec(("true",), demand, JobClass.TRIAL))

    @rule(demand=DEMANDS, trial=st.booleans(), count=st.integers(2, 6))
    def submit_many(self, demand: Vector, trial: bool, count: int) -> None:
        job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
        self.take(*[Submitted("ann", "", JobSpec(("true",), demand, job_class, SECOND))] * count)

    @rule(request_id=st.sampled_from(("r1", "r2")), spec=SPECS, again=st.booleans())
    def submit_with_request_id(self, request_id: str, spec: JobSpec, again: bool) -> None:
        known = self.requests.get(request_id)
        self._submit(request_id, known[1] if known and again else spec)

    def _submit(self, request_id: str, spec: JobSpec) -> None:
        state = self.driver.state
        known = self.requests.get(request_id)
        live = known is not None and known[0] in state.jobs.rows
        if known is not None and not live:
            return  # the database knows the request, and the service answers by that
        next_job = state.cluster.next_job
        ends = self._ends(spec.dependencies)
        reply = self.take(Submitted("ann", request_id, spec, ends=ends)).replies[0]
        if live and known is not None:
            if spec == known[1]:
                assert reply == Accepted(known[0])
            else:
                assert isinstance(reply, AlreadyExists)
        elif isinstance(reply, FailedPrecondition) and reply.reason == "DEPENDENCY_NEVER":
            assert ends
        elif isinstance(reply, FailedPrecondition):
            assert not all(fits_empty(state, one) for one in spec.in_each_configuration())
        elif isinstance(reply, NotFound) and reply.reason in ("NO_SUCH_NODE", "NO_SUCH_MODEL"):
            ways = spec.in_each_configuration()
            unknown = any({*one.nodes.names, *one.nodes.excluded} - state.node_ids.keys() for one in ways)
            assert unknown or not all(fits_empty(state, one) for one in ways)
        elif isinstance(reply, NotFound):
            assert not all(d.job_id in state.jobs.rows or d.job_id in self.driver.ended for d in spec.dependencies)
        else:
            assert reply == Accepted(next_job)
            if request_id:
                self.requests[request_id] = (next_job, spec)

    def _dependencies(self, data: st.DataObject) -> tuple[Dependency, ...]:
        """On jobs that are live, over, or unknown."""
        live = sorted(self.driver.state.jobs.rows)
        of = st.sampled_from([*live, *live, *live, *self.driver.ended, 999])
        return data.draw(st.lists(st.builds(Dependency, of, st.sampled_from(DependencyKind)), max_size=3).map(tuple))

    def _ends(self, dependencies: tuple[Dependency, ...]) -> tuple[tuple[int, JobState], ...]:
        """What whoever sends the request has looked up."""
        over = self.driver.ended
        return tuple((d.job_id, over[d.job_id].state) for d in dependencies if d.job_id in over)

    # ---- jobs ----------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.agents and any(j.state is JobState.RUNNING for j in self.driver.state.jobs.rows.values()))
    @rule(data=st.data(), then=st.sampled_from(("stays", "resumes", "moves", "moves", "fails")))
    def park_well(self, data: st.DataObject, then: str) -> None:
        """The node obeys at once. The job may go on, or go elsewhere, as soon as others had the time to take its devices."""
        running = sorted(job.id for job in self.driver.state.jobs.rows.values() if job.state is JobState.RUNNING)
        job_id = data.draw(st.sampled_from(running))
        self.take(SuspendRequested(job_id, park_only=True))
        for agent in self.agents.values():
            while agent.inbox:
                agent.obey()
            for key in agent.in_phase(RunPhase.PARKING):
                agent.move(key, "saves")
        self.all_reports_arrive()
        if job_id not in self.driver.state.operation_of:
            return
        if then == "resumes":
            self.take(ResumeRequested(job_id))
        elif then != "stays":
            self._moves(data, job_id, then == "moves")

    @precondition(lambda self: self.driver.state.operations.rows)
    @rule(data=st.data(), saves=st.booleans())
    def move_parked(self, data: st.DataObject, saves: bool) -> None:
        """A job with an operation goes on at some node, which is ready at once. A parked run is told to save, and may fail."""
        jobs = sorted(row.job_id for row in self.driver.state.operations.rows.values())
        self._moves(data, data.draw(st.sampled_from(jobs)), saves)

    def _moves(self, data: st.DataObject, job_id: int, saves: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.driver.state.node_ids)))
        self.take(MigrateRequested(job_id, (name,)))
        for _ in range(2):
            for agent in self.agents.values():
                while agent.inbox:
                    agent.obey()
                for key in agent.in_phase(RunPhase.WARMING):
                    agent.warm(key)
                for key in sorted(agent.saving & {*agent.in_phase(RunPhase.STOPPING)}):
                    if saves:
                        agent.end(key, {"yielded": True, "told": True})
                    else:
                        agent.stay_parked(key)
            self.all_reports_arrive()

    @precondition(lambda self: self.agents and _may_migrate(self.driver.state))
    @rule(data=st.data())
    def migrate(self, data: st.DataObject) -> None:
        state = self.driver.state
        job = state.jobs.rows[data.draw(st.sampled_from(_may_migrate(state)))]
        name = data.draw(st.sampled_from(sorted(state.node_ids)))
        before = state.operation_of.get(job.id)
        reply = self.take(MigrateRequested(job.id, (name,))).replies[0]
        if isinstance(reply, FailedPrecondition):
            assert reply.reason in ("CANNOT_MIGRATE", "NO_ROOM_THERE", "WRONG_STATE", "DEVICES_NEEDED"), reply
        else:
            there = all(state.nodes.rows[run.node].name == name for run in state.runs_of(job.id))
            assert there or before or job.id in state.operation_of

    @precondition(lambda self: any(job.spec.elastic for job in self.driver.state.jobs.rows.values()))
    @rule(data=st.data(), tasks=st.integers(1, 5))
    def resize(self, data: st.DataObject, tasks: int) -> None:
        rows = self.driver.state.jobs.rows
        job = rows[data.draw(st.sampled_from(sorted(job.id for job in rows.values() if job.spec.elastic)))]
        reply = self.take(ResizeRequested(job.id, tasks)).replies[0]
        if isinstance(reply, FailedPrecondition):
            assert (
                tasks > 4
                or job.cancel_requested
                or job.elements
                or reply.reason in NO_ROOM_EVER
                or reply.reason == "WRONG_STATE"
            )
        elif isinstance(reply, NotFound):  # what its nodes or devices are called that it asks for is not there now
            assert reply.reason in ("NO_SUCH_NODE", "NO_SUCH_MODEL")
            assert rows[job.id].spec == job.spec
        elif (now := rows.get(job.id)) is not None and not self.driver.state.runs_of(job.id):
            assert len(now.spec.tasks()) == tasks

    @rule(data=st.data(), asked=st.lists(st.sampled_from(sorted(ASKED)), min_size=1, max_size=5))
    def users_ask(self, data: st.DataObject, asked: list[str]) -> None:
        for what in asked:
            self._ask(data, what)

    def _ask(self, data: st.DataObject, what: str) -> None:
        """A request does what it says, or is refused; when it is sent again at once it does nothing more."""
        live = self.driver.state.jobs.rows
        kind, meant = ASKED[what]
        those = sorted(job.id for job in live.values() if meant(job))
        job_id = data.draw(
            st.sampled_from(those if those and data.draw(st.integers(0, 3)) else [*sorted(live), 0, *self.driver.ended])
        )
        before = live.get(job_id)
        request = kind(job_id)
        reply = self.take(request).replies[0]
        if before is None:
            assert isinstance(reply, NotFound)
            return
        if isinstance(reply, FailedPrecondition):
            assert what != "cancel"
            assert what != "release"
            return
        assert reply == Accepted(job_id)
        after = self.driver.job(job_id)
        self._must_show(what, before, after)
        if after.ended_us is None and not (what in ("resume", "requeue") and after.state is JobState.STARTING):
            again = self.take(request, alone=True)
            assert again.replies == (Accepted(job_id),)
            assert untouched(again)

    def _must_show(self, what: str, before: Job, after: Job) -> None:
        if what == "cancel":
            assert after.cancel_requested
        elif what in ("suspend", "park", "park_only"):
            assert after.suspend_requested
        elif what == "resume":
            assert not after.suspend_requested
        elif what in ("hold", "release"):
            assert after.held == (what == "hold")
        elif before.state in (JobState.STARTING, JobState.RUNNING):
            assert after.state is JobState.STOPPING

    @precondition(lambda self: self.driver.state.jobs.rows)
    @rule(
        data=st.data(),
        priority=st.none() | st.integers(-2, 2),
        limit=st.none() | st.sampled_from((0, SECOND, 3600 * SECOND)),
        depends=st.booleans(),
        grace=st.sampled_from((None, "auto", 0, 20 * SECOND)),
    )
    def update(
        self, data: st.DataObject, priority: int | None, limit: int | None, depends: bool, grace: int | Literal["auto"] | None
    ) -> None:
        state = self.driver.state
        waiting = sorted(state.earmarks_of) if data.draw(st.booleans()) else ()
        job_id = data.draw(st.sampled_from(waiting or sorted(state.jobs.rows)))
        wanted = self._dependencies(data) if depends else None
        before = self.driver.job(job_id)
        # The job's own reason may be another: that its node is silent.
        timed_out = any(run.stop_reason is StopReason.TIME_LIMIT for run in state.runs_of(job_id))
        awaited = self.watch.awaited[job_id]
        if wanted is not None:
            self.watch.awaited[job_id] = wanted  # with fewer of them it may start in the same step
        period: dict[str, Any] = {"grace_follows": True} if grace == "auto" else {"grace_us": grace}
        asked = UpdateRequested(job_id, priority, limit, wanted, self._ends(wanted or ()), **period)
        reply = self.take(asked, alone=True).replies[0]
        after = self.driver.job(job_id)
        if isinstance(reply, Exception):
            self.watch.awaited[job_id] = awaited
            too_late = limit is not None and timed_out
            assert depends or too_late
            assert (after.priority, after.time_limit_us, after.waits_for) == (
                before.priority,
                before.time_limit_us,
                before.waits_for,
            )
            return
        assert reply == Accepted(job_id)
        assert grace in (None, "auto", after.spec.grace_us)
        assert after.grace_follows == (grace == "auto" if grace is not None else before.grace_follows)
        assert (priority, limit) in ((after.priority, after.time_limit_us), (priority, None), (None, limit), (None, None))
        if wanted is not None:
            assert before.run == 0
            assert before.started_us is None

    # ---- nodes ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), evict=st.booleans())
    def drain(self, data: st.DataObject, evict: bool) -> None:
        agent = self.any_agent(data)
        node = self.driver.state.node_ids[agent.name]
        assert self.take(DrainRequested(agent.name, "repair", "op", evict)).replies == (NodeChanged(node),)
        assert self.driver.node(agent.name).drained_us is not None
        if evict:
            runs = [self.driver.state.runs.rows[key] for key in self.driver.state.runs_on.get(node, ())]
            assert all(run.stop_us is not None for run in runs), "a run stays on a node from which all were evicted"

    @precondition(lambda self: any(node.drained_us is not None for node in self.driver.state.nodes.rows.values()))
    @rule(data=st.data())
    def undrain(self, data: st.DataObject) -> None:
        drained = [node.name for node in self.driver.state.nodes.rows.values() if node.drained_us is not None]
        name = data.draw(st.sampled_from(drained))
        self.take(UndrainRequested(name))
        assert (self.driver.node(name).drained_us, self.driver.node(name).strikes) == (None, 0)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), really_dead=st.booleans())
    def fence(self, data: st.DataObject, really_dead: bool) -> None:
        """Only a silent node; what its agent still knows is stopped as unclaimed when it is back."""
        agent = self.any_agent(data)
        silent = self.driver.node(agent.name).state is NodeState.SILENT
        reply = self.take(FenceRequested(agent.name, "op")).replies[0]
        assert isinstance(reply, NodeChanged if silent else FailedPrecondition)
        if silent:
            assert not self.driver.state.runs_on.get(self.driver.state.node_ids[agent.name])
            if really_dead:
                agent.reboot()

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Only a silent node that nothing holds; then it is not there, and is so again when its agent comes."""
        agent = self.any_agent(data)
        state = self.driver.state
        self.take()  # what the time that has passed makes of the queue is not the delete's doing
        node, before = self.driver.node(agent.name), state.free_resources.free(state.node_ids[agent.name])
        may = node.state is NodeState.SILENT and not state.runs_on.get(node.id)
        reply = self.take(NodeDeleteRequested(agent.name), alone=True).replies[0]
        assert isinstance(reply, NodeChanged if may else FailedPrecondition)
        if may:
            assert agent.name not in state.node_ids
            assert self.take(NodeDeleteRequested(agent.name)).replies == (reply,)
            agent.inbox.clear()
            self.away[agent.name] = self.agents.pop(agent.name)
        else:
            assert state.free_resources.free(node.id) == before
