"""Drives `step` as the service does, and checks after every step what must always hold.

A step is first taken and undone, to see that undo leaves nothing behind and that the same step gives the same result again,
and the state after it is compared with one that is built from its rows: each step of a short test, each fourth of a long
history (with EBB_EXAMPLES=1: each). Tests of the core and of the policies are written against this one class.
"""

from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType

from scheduler_service.core.allocation.transitions import shown_state
from scheduler_service.core.engine import Policy, Proposals, step
from scheduler_service.core.errors import Refused
from scheduler_service.core.invariants import check, sample
from scheduler_service.core.messages import (
    WHOLE,
    Accepted,
    CancelRequested,
    Event,
    FaultsSeen,
    Joined,
    KnownRun,
    Launch,
    NodeSeen,
    NodeSilent,
    Order,
    Parked,
    Part,
    Reply,
    Rng,
    RunExited,
    Running,
    RunReady,
    RunStarted,
    Step,
    Stopped,
    Submitted,
    Warming,
)
from scheduler_service.core.model import (
    ENDED,
    Cluster,
    Earmark,
    EventKind,
    Job,
    JobClass,
    JobSpec,
    JobState,
    Node,
    NodeState,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.run_phase import NEXT
from scheduler_service.core.model.settings import DEFAULTS, Settings
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.load_check import contradictions
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.queue_order import OrderOf
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import order_of
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.queueing.in_order import head_of
from scheduler_service.policies.stages import Stages
from tests.core.sharing import PlansTold, check_sharing, sharing_plans
from tests.thorough import LONG

ORDER = order_of(Stages(fifo))
"""Of a site that serves as usual; each virtual cluster has that of its policy."""
EPOCH = 1_700_000_000 * SECOND
NODE = Vector(32_000, 65_536, 8)
SHORT_HISTORY = 8
"""So many steps."""
ASIDE = "is set aside until somebody releases it"
"""Policies do not know of that, and hear of it when they propose a plan for such a job."""


def inventory(
    capacity: Vector = NODE,
    model: str = "A100",
    faults: Mapping[int, str] = MappingProxyType({}),
    memory_mib: int = 40_960,
) -> Inventory:
    """A node of one level whose devices are alike, but for those that are faulty."""
    devices = (Device(i, f"GPU-{i}", model, memory_mib, (i // 4,), fault=faults.get(i, "")) for i in range(capacity.devices))
    return Inventory(capacity, ("socket",), tuple(devices))


def spec(devices: int = 1, trial: bool = False, grace: int = 10, cpu: int = 1000, memory: int = 1024) -> JobSpec:
    """`grace` in seconds."""
    job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
    return JobSpec(("true",), Vector(cpu, memory, devices), job_class, grace * SECOND)


class Driver:
    """A state, a policy and a clock."""

    thorough = LONG
    """Whether every step is taken twice, and the state built again after it, however many steps there are."""

    def __init__(
        self,
        policy: Policy = fifo,
        settings: Settings = DEFAULTS,
        cap: int | None = None,
        seed: int = 0,
        order: OrderOf = ORDER,
    ) -> None:
        self.state = State(Cluster("test", seed), settings, order)
        self.policy = policy
        self.cap = cap
        """No job may have been preempted for trials more often than this."""
        self.now = EPOCH
        self.part = WHOLE
        """What its steps do beside their events."""
        self.settles = True
        """Whether the policy is one that has nothing to add to what it just did."""
        self.taken = 0
        self.ended: dict[int, Job] = {}
        self.runs: dict[RunKey, Run] = {}
        """Every run there ever was, as it was last."""
        self.sent: dict[tuple[str, str], int] = {}
        """(node, boot) -> its last report."""
        self.told: dict[RunKey, int] = {}
        """The generation of the last order about a run."""
        self.sharing = 0
        """How many attempts are made in each step, before the policy's own plans, to change what runs share."""
        self.seed = 0
        """Of these attempts."""
        self.plans_told = PlansTold()

    # ---- steps ---------------------------------------------------------------------------------------------------------

    def step_part(self, part: Part, *events: Event) -> Step:
        """As `step`, doing a part of what is to be done beside the events."""
        settles, self.settles, self.part = self.settles, False, part
        taken = self.step(*events)
        self.settles, self.part = settles, WHOLE
        return taken

    def step(self, *events: Event, after: int = 0) -> Step:
        """Takes one step, `after` seconds later, and adopts it. What a step checks by taking it twice and by building the
        state again costs more than the step: of a long history each fourth step does."""
        self.now += after * SECOND
        self.taken += 1
        self.state.pending.policies |= self.sharing > 0
        clock = self.state.cluster.clock_us
        thorough = self.thorough or self.taken <= SHORT_HISTORY or self.taken % 4 == 0
        taken = self._take_twice(events) if thorough else self._take(events)
        assert self.state.cluster.clock_us == max(clock, self.now), "the clock went back"
        check(self.state)
        sample(self.state, Random(self.taken))
        if thorough:
            self._check_rebuilt()
        self._check_step(taken, len(events))
        self.state.adopt()
        if self.settles:
            self._check_settled()
        return taken

    def _take_twice(self, events: tuple[Event, ...]) -> Step:
        """First the step is taken and undone: as the state is, where the board is left alone if nothing changed on it. Then
        once more, where all is looked at: the same must come of it."""
        before, unsettled = self.state.snapshot(), self.state.pending.policies
        tried = self._take(events)
        self.state.undo()
        self.state.pending.policies = unsettled
        assert not (changed := _differ(self.state.snapshot(), before)), f"step + undo left something behind: {changed}"
        taken = self._take(events)
        assert not (other := _differ(_comparable(taken), _comparable(tried))), f"the same step gave another result: {other}"
        return taken

    def _check_rebuilt(self) -> None:
        """A state that is built from the rows alone is this one, and a leader would begin with it."""
        rebuilt = self.state.rebuild()
        wrong = _differ(self.state.snapshot(), rebuilt.snapshot())
        assert not wrong, f"an index does not follow from the rows: {wrong}"
        if self.state.pools is None and (first := head_of(self.state, dict.fromkeys(OWN_LANES, 0))) is not None:
            kept, found = (state.idle_beside.any(first.spec) for state in (self.state, rebuilt))
            assert kept is found, "whether a device is idle beside what the first job could use is not what it was"
        rows = ((table.name, key, row) for table in self.state.tables() for key, row in table.rows.items())
        assert not (wrong := list(contradictions(rows))), f"a leader would not begin with this: {wrong}"

    def _take(self, events: tuple[Event, ...]) -> Step:
        return step(self.state, events, self.now, Random(self.taken), self._watched, self.part)

    def _watched(self, state: State, rng: Rng) -> Proposals:
        """The policy. What it supposes on the way to its next plan, or to its end, leaves nothing behind."""
        yield from sharing_plans(state, Random(self.seed + self.taken).choice, self.sharing)
        proposals, before = self.policy(state, rng), unsaved(state)
        try:
            plan = next(proposals)
            while True:
                assert unsaved(state) == before, f"the policy left something behind on the way to {plan}"
                answer = yield plan
                before = unsaved(state)
                plan = proposals.send(answer)
        except StopIteration:
            assert unsaved(state) == before, "the policy left something behind when it ended"

    def reply(self, event: Event, after: int = 0) -> Reply | Exception:
        """Takes a step of one event, and returns what was answered."""
        return self.step(event, after=after).replies[0]

    # ---- what must hold ------------------------------------------------------------------------------------------------

    def _check_step(self, taken: Step, events: int) -> None:
        assert len(taken.replies) == events
        for reply in taken.replies:
            if isinstance(reply, Exception) and not isinstance(reply, Refused):
                raise reply
        refused = [why for why in taken.refused if not why.endswith(ASIDE)]
        assert not refused, f"the policy proposed what cannot be: {refused}"
        for table, key, old, new in taken.entries:
            if table.name == "run":
                first = RunPhase.WARMING if new.awaits else RunPhase.STARTING
                before = first if old is None else old.phase
                assert new.phase is before or new.phase in NEXT[before], f"run {key} went from {before!r} to {new.phase!r}"
        wanted: list[tuple[str, RunKey]] = []
        shares: list[tuple[str, RunKey]] = []
        for change in taken.changes:
            if change.table == "job":
                self._check_job(change.new)
                if change.new.rendezvous and change.old is not None and change.old.rendezvous != change.new.rendezvous:
                    wanted += [("go", run.key) for run in self.state.runs_of(change.key) if run.phase is RunPhase.READY]
            elif change.table == "run":
                self._check_run(change.old, change.new)
                told_before = change.old is not None and change.old.stop_us is not None
                told_before = told_before and change.old.stop_grace_us == change.new.stop_grace_us
                behind = change.old is not None and change.old.generation < change.new.generation  # its node knew of more
                told_before = told_before and not (behind and change.new.overdue_us is not None)  # it is told again
                if change.new.phase.awaits_source:
                    wanted += [("warm", change.key)] if change.old is None or behind else []
                    continue
                if change.new.awaits:
                    wanted.append(("stop", change.key))  # it was warm, and is not needed
                    continue
                if change.old is not None and change.old.awaits and change.new.phase.over:
                    continue  # its node was lost with the run before it, on the same node
                if change.old is not None and change.old.awaits:
                    meets = self.state.jobs.rows[change.new.job_id].rendezvous  # counted with the job, if it is a new one
                    if change.new.phase.over or change.new.phase.exits_soon:
                        pass  # its node has rebooted, where the run before it was, too; or others got its place at once
                    elif meets:
                        shares.append(("go", change.key))
                    else:
                        wanted.append(("start", change.key))
                elif change.old is None or (behind and change.new.phase.to_launch):
                    wanted.append(("start", change.key))
                elif behind and change.new.phase in (RunPhase.PARKING, RunPhase.PARKED):
                    wanted.append(("park", change.key))
                elif behind and _is_told_plans(change.new) and not (change.new.phase.exits_soon or change.new.phase.over):
                    shares.append(("go" if self.state.jobs.rows[change.new.job_id].rendezvous else "start", change.key))
                if change.new.stop_us is not None and not told_before and change.new.phase is not RunPhase.ENDED:
                    wanted.append(("stop", change.key))
        told = {key for what, key in wanted if what == "stop"}  # who comes and goes in one step is never told to start
        wanted = [(what, key) for what, key in wanted if what != "start" or key not in told]
        wanted += [one for one in shares if one not in wanted]
        given = [_named(order) for order in taken.orders]
        assert sorted(given) == sorted(wanted), "orders do not go with the changes"
        for reply in taken.replies:
            if isinstance(reply, Joined):
                self._check_repeated(reply.orders)
                self.plans_told.hear(reply.orders)
        self.plans_told.hear(taken.orders)
        self.plans_told.check(self.state)
        check_sharing(self.state)
        for order in taken.orders:
            assert order.node == self.runs[order.key].node
            assert order.generation > self.told.get(order.key, 0), f"what is desired of {order.key} changed, and it is no newer"
            self.told[order.key] = order.generation
        ends = [event.job_id for event in taken.log if event.kind is EventKind.ENDED]
        assert sorted(ends) == sorted(c.key for c in taken.changes if c.table == "job" and c.new.state in ENDED)
        for job in self.state.jobs.rows.values():
            if job.reason is Reason.TOO_LARGE:
                assert not self.state.could_ever_take(job), f"job {job.id} stands beside its queue, and need not"
            if job.id in self.state.active:
                assert job.state is self._shown(job)

    def _check_repeated(self, orders: tuple[Order, ...]) -> None:
        """What an agent is told that comes back is never older than what it was told before. A run that nobody claims has no
        row that counts, and follows what the agent says of it."""
        assert len({order.key for order in orders}) == len(orders)
        for order in orders:
            claimed = order.key not in self.runs or self.runs[order.key].phase is not RunPhase.ENDED
            assert not claimed or order.generation >= self.told.get(order.key, 0), f"{order.key}: an old order"

    def _shown(self, job: Job) -> JobState:
        """What `shown_state` makes of counts, of the tasks themselves."""
        tasks = self.state.runs_of(job.id)
        phases = {task.phase for task in tasks}
        if any(self.state.nodes.rows[task.node].state is NodeState.SILENT for task in tasks):
            shown = JobState.UNREACHABLE
        elif RunPhase.STOPPING in phases:
            assert phases == {RunPhase.STOPPING}, f"only some tasks of job {job.id} were told to leave"
            shown = JobState.STOPPING
        elif phases & {RunPhase.PARKING, RunPhase.PARKED}:
            assert len(phases) == 1, f"only some tasks of job {job.id} are parked"
            shown = JobState.STOPPING if RunPhase.PARKING in phases else JobState.SUSPENDED
        else:
            shown = JobState.RUNNING if phases == {RunPhase.RUNNING} else JobState.STARTING
        assert shown_state(self.state, job) is shown
        return shown

    def _check_job(self, new: Job) -> None:
        assert new.id not in self.ended, f"job {new.id} has ended and was changed"
        assert self.cap is None or new.preempted_for_trial <= self.cap, f"job {new.id} was preempted too often"
        if new.state in ENDED:
            self.ended[new.id] = new

    def _check_run(self, old: Run | None, new: Run) -> None:
        known = self.runs.get(new.key)
        assert known == old, f"run {new.key} was started before" if old is None else f"run {new.key} is not as it was left"
        assert known is None or known.phase is not RunPhase.ENDED, f"run {new.key} has ended and was changed"
        self.runs[new.key] = new

    def _check_settled(self) -> None:
        self.state.pending.policies = self.state.pending.market = True
        again = step(self.state, (), self.now, Random(0), self.policy)
        more = [change for change in again.changes if change.table != "cluster"]
        assert not more, f"the policy stopped before it was done: {more}"
        self.state.undo()
        self.state.pending.policies = self.state.pending.market = False

    # ---- events in one line --------------------------------------------------------------------------------------------

    def join(self, name: str = "n1", capacity: Vector = NODE, boot: str = "a", known: tuple[RunKey, ...] | None = None) -> Step:
        """A node joins or comes back; it knows the runs that the state has on it, unless they are given."""
        return self.step(self.seen(name, capacity, boot, known))

    def seen(self, name: str, capacity: Vector = NODE, boot: str = "a", known: tuple[RunKey, ...] | None = None) -> NodeSeen:
        runs = self.state.runs_on.get(self.state.node_ids.get(name, 0), ()) if known is None else known
        phases = {key: self.runs[key].phase if key in self.runs else RunPhase.RUNNING for key in runs}
        known_runs = tuple(KnownRun(key, phases[key], self.told.get(key, 0)) for key in sorted(runs))
        return NodeSeen(name, boot, inventory(capacity), known_runs)

    def faulty(self, faults: dict[int, str], name: str = "n1") -> Step:
        """The node's agent says which of its devices are faulty."""
        return self.step(FaultsSeen(name, self.node(name).boot_id, tuple(sorted(faults.items()))))

    def silence(self, name: str = "n1") -> Step:
        return self.step(NodeSilent(name))

    def submit(self, what: JobSpec | None = None, request_id: str = "", **wants: int | bool) -> int:
        """Returns the job's id; takes what `spec` takes."""
        answer = self.reply(Submitted("ann", request_id, what or spec(**wants)))  # type: ignore[arg-type]
        assert isinstance(answer, Accepted), answer
        return answer.job_id

    def trial(self, devices: int = 1, **wants: int) -> int:
        return self.submit(devices=devices, trial=True, **wants)

    def cancel(self, job_id: int) -> Step:
        return self.step(CancelRequested(job_id))

    def started(self, job_id: int, task: int = 0) -> RunStarted:
        """The next report of the task's node: it began."""
        node, key = self.where(job_id, task), self.run(job_id, task).key
        return RunStarted(node.name, node.boot_id, self._next(node), key, f"/logs/{key}")

    def ready(self, job_id: int, task: int = 0) -> RunReady:
        """The next report of the node of a gang's task: it is prepared."""
        node = self.where(job_id, task)
        return RunReady(node.name, node.boot_id, self._next(node), self.run(job_id, task).key, node.name, 20_000 + task)

    def exited(self, job_id: int, task: int = 0, **outcome: int | bool | str) -> RunExited:
        """The next report of the task's node: it is over."""
        node, key = self.where(job_id, task), self.run(job_id, task).key
        return RunExited(node.name, node.boot_id, self._next(node), key, **outcome)  # type: ignore[arg-type]

    def start(self, *job_ids: int) -> None:
        for job_id in job_ids:
            self.step(self.started(job_id))

    def exit(self, job_id: int, **outcome: int | bool | str) -> Step:
        return self.step(self.exited(job_id, **outcome))

    def _next(self, node: Node) -> int:
        at = (node.name, node.boot_id)
        self.sent[at] = max(self.sent.get(at, 0), node.sequence) + 1
        return self.sent[at]

    # ---- what is ---------------------------------------------------------------------------------------------------------

    def job(self, job_id: int) -> Job:
        return self.state.jobs.rows.get(job_id) or self.ended[job_id]

    def states(self, *job_ids: int) -> list[JobState]:
        return [self.job(job_id).state for job_id in job_ids]

    def run(self, job_id: int, task: int = 0) -> Run:
        """A task of the job that has not ended."""
        return next(run for run in self.state.runs_of(job_id) if run.task == task)

    def where(self, job_id: int, task: int = 0) -> Node:
        return self.state.nodes.rows[self.run(job_id, task).node]

    def node(self, name: str = "n1") -> Node:
        return self.state.nodes.rows[self.state.node_ids[name]]

    def earmark(self, job_id: int) -> Earmark | None:
        """The one of a job of one task."""
        earmarks = self.state.earmarks_of.get(job_id, set())
        return self.state.earmarks.rows[min(earmarks)] if earmarks else None

    def free(self, name: str = "n1") -> Vector:
        return self.state.free_resources.free(self.state.node_ids[name])


def unsaved(state: State) -> dict[str, object]:
    """What a step has done so far, and at what policies are to look. It follows from no row, and so is in no snapshot."""
    return {
        "journal": list(state.journal.entries),
        "log": list(state.log),
        "changed_runs": list(state.changed_runs.items()),
        "pending": state.pending.copy(),
    }


def _differ(one: dict[str, object], other: dict[str, object]) -> dict[str, tuple[object, object]]:
    """What is not the same in the two."""
    if one == other:  # nearly always, and a hundred times as fast
        return {}
    differ: dict[str, tuple[object, object]] = {}
    for name in {**one, **other}:
        a, b = one.get(name), other.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            differ |= {f"{name}.{inner}": pair for inner, pair in _differ(a, b).items()}
        elif a != b:
            differ[name] = (a, b)
    return differ


def _named(order: Order) -> tuple[str, RunKey]:
    match order.desired:
        case Parked(_, run):
            assert order.key == run.key
            return "park", order.key
        case Stopped():
            return "stop", order.key
        case Warming(run=run):
            assert order.key == run.key
            return "warm", run.key
        case Launch(job, run, gang):
            assert (order.key, gang is None) == (run.key, not job.launch_spec.gang)
            assert isinstance(order.desired, Running) == (gang is None or bool(job.rendezvous))
            return "go" if job.rendezvous else "start", run.key


def _is_told_plans(run: Run) -> bool:
    """Whether its node is told of it also while it runs."""
    return run.shared or run.parking is not None


def orders_to_stop(taken: Step) -> list[RunKey]:
    return [order.key for order in taken.orders if isinstance(order.desired, Stopped)]


def orders_to_start(taken: Step) -> list[RunKey]:
    return [order.key for order in taken.orders if isinstance(order.desired, Launch)]


def stopped(orders: Sequence[Order]) -> list[tuple[RunKey, StopReason]]:
    """Which runs are to be stopped by them, and why."""
    return [(order.key, order.desired.reason) for order in orders if isinstance(order.desired, Stopped)]


def kinds(taken: Step, job_id: int) -> list[EventKind]:
    """The job's story in this step."""
    return [event.kind for event in taken.log if event.job_id == job_id]


def _comparable(taken: Step) -> dict[str, object]:
    replies = [(type(r), *r.args) if isinstance(r, Exception) else r for r in taken.replies]
    changes, orders, log = (dict(enumerate(part)) for part in (taken.changes, taken.orders, taken.log))
    return {"changes": changes, "replies": replies, "orders": orders, "log": log, "refused": taken.refused}
