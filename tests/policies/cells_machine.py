"""A hypothesis state machine: tenants of a cluster of cells, in which anything may happen."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.guarantee import demote
from scheduler_service.core.allocation.share_groups import leave
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    DrainRequested,
    Event,
    FaultsSeen,
    FenceRequested,
    HoldRequested,
    KnownRun,
    MigrateRequested,
    NodeDeleteRequested,
    NodeSeen,
    NodeSilent,
    ReleaseRequested,
    RequeueRequested,
    ResumeRequested,
    RunParked,
    RunParkRefused,
    RunReady,
    RunResumed,
    Submitted,
    SuspendRequested,
    UndrainRequested,
    VcChanged,
    VcDeleteRequested,
    VcRequested,
)
from scheduler_service.core.model import JobState, Node, NodeState, Reason, RunPhase, ShareMode
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Pin, Quota, VcPolicy, Within
from scheduler_service.policies.hived.opportunistic import place_opportunistic
from scheduler_service.policies.placing.resume_placement import resuming_elsewhere
from tests.core.driver import unsaved
from tests.policies.cells_watch import Watched, begins, head, waiting
from tests.policies.plain_cells import Plain, feasible, healthy, short, unbound
from tests.policies.tenants import CPUS, TREES, elastic, inventory, other

T = TypeVar("T")
MODELS = ("FOUR", "SIX", "P100", "CT1", "CPU4", "CPU6")
VCS = ("A", "B", "C", "D")
ABOVE = ((), (), (("rack", 2),), (("rack", 3),), (("rack", 2), ("pod", 2)))
POLICIES = (
    *(VcPolicy(name) for name in ("fifo", "fifo", "fitgpp", "lrtp", "priority", "gandiva")),
    VcPolicy("las", settings=(("patience", 1.0), ("threshold", 60.0))),
    VcPolicy("fair", settings=(("half_life", 60.0), ("period", 10.0))),
    VcPolicy("allox", settings=(("alpha", 0.5), ("long", 2.0), ("period", 10.0))),
    VcPolicy("gandiva", settings=(("packing_gain", 0.0), ("rows", 3.0))),
)
GUARANTEES = (Guarantee.GUARANTEED, Guarantee.GUARANTEED, Guarantee.OVERFLOW, Guarantee.OPPORTUNISTIC)
PARTS = (
    None,
    (500_000, 0, ShareMode.PACKED),
    (250_000, 2_000, ShareMode.PACKED),
    (0, 5_000, ShareMode.PACKED),
    (500_000, 1_000, ShareMode.SLICED),
    (300_000, 4_000, ShareMode.SLICED),
    (500_000, 0, ShareMode.SLICED),
)
"""Fraction of a device, memory of it, and how it is shared."""
SIZES = st.lists(st.sampled_from((1, 1, 2, 2, 3, 4, 6, 8)), min_size=1, max_size=4)
ENDS: tuple[dict[str, object], ...] = ({}, {}, {"exit_code": 1}, {"yielded": True}, {"unknown": True})
USERS: dict[str, Callable[[int], Event]] = {
    "cancel": CancelRequested,
    "suspend": SuspendRequested,
    "park": partial(SuspendRequested, park=True),
    "resume": ResumeRequested,
    "requeue": RequeueRequested,
    "hold": HoldRequested,
    "release": ReleaseRequested,
}


def _some_of(what: Sequence[T]) -> st.SearchStrategy[list[T]]:
    return st.lists(st.sampled_from(what), unique=True, max_size=3) if what else st.just([])


class CellsMachine(RuleBasedStateMachine):
    tenants: Watched

    def __init__(self) -> None:
        super().__init__()
        self.plain: list[Plain] = []
        self.failed = False

    @initialize(data=st.data(), sharing=st.sampled_from((0, 0, 1, 3)), seed=st.integers(0, 2**32))
    def begin(self, data: st.DataObject, sharing: int, seed: int) -> None:
        """In each step, `sharing` attempts are made to have runs share devices, or to change how they do."""
        nodes: dict[str, str] = {}
        plans = []
        for name in ("p", "q")[: data.draw(st.integers(1, 2))]:
            model, above = data.draw(st.sampled_from(MODELS)), data.draw(st.sampled_from(ABOVE))
            fan = 1
            for _, many in above:
                fan *= many
            count = fan * data.draw(st.integers(1, max(1, 4 // fan))) if above else data.draw(st.integers(1, 4))
            names = tuple(f"{name}{slot}" for slot in range(count))
            nodes |= dict.fromkeys(names, model)
            plans.append(PoolPlan(name, names, above))
            levels, fans = TREES.get(model) or ((), (CPUS[model],))
            sizes = [1]
            for many in (*reversed(fans), *(many for _, many in above)):
                sizes.append(sizes[-1] * many)
            called = ("cpu" if model in CPUS else "device", *reversed(levels), "node", *(level for level, _ in above))
            self.plain.append(Plain(name, called, tuple(sizes), len(levels) + 1, names))
        self.models = nodes
        beside = data.draw(st.sampled_from((0, 0, 25)))
        self.each = 40 * (100 - beside)
        """How many thousandths of a CPU go with a device."""
        self.tenants = Watched(nodes, plans, bad_node_strikes=0, host_percent=beside)
        self.tenants.policy = resuming_elsewhere(self.tenants.policy, place_opportunistic)
        self.tenants.plain = self.plain
        for vc in VCS[: data.draw(st.integers(2, 3))]:
            self._vc(data, vc)
        self.tenants.sharing, self.tenants.seed = sharing, seed

    def take(self, *events: Event, after: int = 0) -> list[object]:
        self.failed = True
        taken = self.tenants.step(*events, after=after)
        self.failed = False
        return list(taken.replies)

    # ---- virtual clusters --------------------------------------------------------------------------------------------

    @rule(data=st.data(), name=st.sampled_from(VCS))
    def virtual_cluster(self, data: st.DataObject, name: str) -> None:
        self._vc(data, name)

    def _vc(self, data: st.DataObject, name: str) -> None:
        """Created or changed if, and only if, distinct cells can be found for everything that is owned."""
        state, quotas, pins = self.tenants.state, [], []
        for pool in self.plain:
            for level in range(len(pool.levels)):
                most = pool.leaves // pool.sizes[level]
                count = data.draw(st.integers(0, min(most, 3)))
                quotas.append(Quota(pool.name, pool.levels[level], count))
            if not data.draw(st.integers(0, 3)):
                level = data.draw(st.integers(0, pool.node))
                cell = data.draw(st.integers(0, pool.leaves // pool.sizes[level] - 1))
                pins.append(Pin(f"{name}-{pool.name}", pool.name, pool.levels[level], cell))
        create = name not in state.vc_ids
        could = all(self._feasible(pool, name, quotas, pins) for pool in self.plain)
        policy = data.draw(st.sampled_from(POLICIES))
        [reply] = self.take(VcRequested(name, create, tuple(quotas), tuple(pins), policy=policy))
        if isinstance(reply, FailedPrecondition):
            assert reply.reason in ("INFEASIBLE_QUOTAS", "CELL_IN_USE")
            assert reply.reason == "CELL_IN_USE" or not could
        else:
            assert isinstance(reply, VcChanged)
            assert could

    def _feasible(self, pool: Plain, name: str, quotas: list[Quota], pins: list[Pin]) -> bool:
        rows = [vc for vc in self.tenants.state.vcs.rows.values() if vc.name != name]
        total = dict.fromkeys(range(len(pool.levels)), 0)
        for quota in [*quotas, *(quota for vc in rows for quota in vc.quotas)]:
            if quota.pool == pool.name:
                total[pool.levels.index(quota.level)] += quota.cells
        pinned = [pin for pin in [*pins, *(pin for vc in rows for pin in vc.pins)] if pin.pool == pool.name]
        return feasible(pool, [pool.cell(pin.level, pin.cell) for pin in pinned], total)

    @rule(name=st.sampled_from(VCS))
    def delete(self, name: str) -> None:
        state = self.tenants.state
        if name in state.vc_ids:
            live = any(job.spec.vc == name for job in state.jobs.rows.values())
            [reply] = self.take(VcDeleteRequested(name))
            assert isinstance(reply, FailedPrecondition if live else VcChanged)

    # ---- jobs ----------------------------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        sizes=SIZES,
        guarantee=st.sampled_from(GUARANTEES),
        priority=st.sampled_from((0, 0, 0, 1)),
        trial=st.booleans(),
        up=st.booleans(),
    )
    def submit(self, data: st.DataObject, sizes: list[int], guarantee: Guarantee, priority: int, trial: bool, up: bool) -> None:
        vc = self._any_vc(data)
        if not vc:
            return
        wants = self._wants(data, vc, sizes, guarantee)
        shapes = data.draw(st.one_of(st.just([]), st.lists(SIZES, min_size=1, max_size=2)))
        ways = tuple(other(*shape, **self._wants(data, vc, shape, guarantee)) for shape in shapes)
        if sizes == [1] and not (ways or wants["cpus"]):
            wants["part"] = data.draw(st.sampled_from(PARTS))
        self._ask(vc, sizes, up, guarantee=guarantee, priority=priority, trial=trial, alternatives=ways, **wants)

    @rule(data=st.data(), guarantee=st.sampled_from(GUARANTEES), tasks=st.integers(1, 2), most=st.integers(2, 6))
    def elastic_work_grows(self, data: st.DataObject, guarantee: Guarantee, tasks: int, most: int) -> None:
        """An elastic job of a virtual cluster that introspects is told to grow, beyond its guarantee if it has one."""
        vc = self._any_vc(data)
        if not vc:
            return
        pool = data.draw(st.sampled_from(self.plain))
        own = (Quota(pool.name, pool.levels[0], tasks),) if data.draw(st.booleans()) else ()
        self.take(VcRequested(vc, False, own or None, policy=VcPolicy("gandiva")))
        [reply] = self.take(Submitted("ann", "", elastic(vc, tasks, most, guarantee=guarantee)))
        if isinstance(reply, FailedPrecondition):
            return
        assert isinstance(reply, Accepted), reply
        self._come_up(reply.job_id)
        self.tenants.growing = reply.job_id
        self.take()
        self.tenants.growing = 0
        self._leaves_and_comes_up(reply.job_id)

    @precondition(lambda self: any(job.beyond for job in self.tenants.state.jobs.rows.values()))
    @rule(data=st.data(), tasks=st.integers(1, 2))
    def others_want_their_cells(self, data: st.DataObject, tasks: int) -> None:
        """All other virtual clusters ask for a device of their own, while a job has some beyond its guarantee."""
        for name in sorted(self.tenants.state.vc_ids):
            pool = data.draw(st.sampled_from(self.plain))
            if not self._of_cpus(pool):
                self._ask(name, [1] * tasks, True, pool=pool.name)

    def _leaves_and_comes_up(self, job_id: int) -> None:
        self._report(*(self.tenants.exited(job_id, task, yielded=True) for task in self._in_phase(job_id, RunPhase.STOPPING)))
        self._come_up(job_id)

    @rule(data=st.data(), guarantee=st.sampled_from(GUARANTEES), count=st.integers(1, 4))
    def parts(self, data: st.DataObject, guarantee: Guarantee, count: int) -> None:
        """Jobs that ask for parts of devices."""
        if vc := self._any_vc(data):
            part, user = data.draw(st.sampled_from(PARTS)), data.draw(st.sampled_from(("ann", "ben")))
            for _ in range(count):
                self._ask(vc, [1], True, guarantee=guarantee, part=part, user=user)

    def _wants(self, data: st.DataObject, vc: str, sizes: list[int], guarantee: Guarantee) -> dict[str, Any]:
        """What one configuration asks of cells."""
        wants: dict[str, Any] = {"cpu": data.draw(st.sampled_from((1000, self.each * min(sizes))))}
        pool = data.draw(st.sampled_from([*self.plain, None, None]))
        wants["cpus"] = self._of_cpus(pool) if pool is not None else data.draw(st.booleans())
        wants["estimate"] = data.draw(st.sampled_from((0, 30, 300)))
        if pool is not None:
            wants["pool"] = pool.name
            if not data.draw(st.integers(0, 2)):
                wants["within"] = Within(data.draw(st.sampled_from(pool.levels[1:])), data.draw(st.booleans()))
        pins = self.tenants.state.vcs.rows[self.tenants.state.vc_ids[vc]].pins
        if pins and guarantee is Guarantee.GUARANTEED and data.draw(st.booleans()):
            wants |= {"pool": "", "within": (), "pin": data.draw(st.sampled_from(pins)).name}
        return wants

    @rule(data=st.data(), size=st.sampled_from((1, 2, 2, 4)), count=st.integers(1, 8), much=st.booleans())
    def opportunistic_work_comes(self, data: st.DataObject, size: int, count: int, much: bool) -> None:
        vc, cpu = self._any_vc(data), self.each * size if much else 1000
        guarantee = data.draw(st.sampled_from((Guarantee.OVERFLOW, Guarantee.OPPORTUNISTIC)))
        cpus = self._of_cpus(data.draw(st.sampled_from(self.plain)))
        for _ in range(count if vc else 0):
            self._ask(vc, [size], True, guarantee=guarantee, cpu=cpu, cpus=cpus)

    def _of_cpus(self, pool: Plain) -> bool:
        return pool.levels[0] == "cpu"

    @rule(data=st.data(), up=st.booleans())
    def legal(self, data: st.DataObject, up: bool) -> None:
        """A virtual cluster asks for a cell that it owns and has not bound. It is bound in the same decision, whatever the
        others do, wherever no cell is missing for what is faulty."""
        state = self.tenants.state
        legal = [
            (name, pool, level)
            for name, vc in sorted(state.vc_ids.items())
            if head(state, name) is None
            for pool in self.plain
            if state.node_ids.keys() >= set(pool.nodes) and not any(short(state, pool))
            for level, count in unbound(state, pool, vc).items()
            if count > 0
        ]
        if not legal:
            return
        name, pool, level = data.draw(st.sampled_from(legal))
        if level <= pool.node:
            cpu = data.draw(st.sampled_from((1000, self.each * pool.sizes[level])))
            level_named, cpus = (pool.levels[level],), self._of_cpus(pool)
            job = self._ask(name, [pool.sizes[level]], up, pool=pool.name, levels=level_named, cpu=cpu, cpus=cpus)
        else:
            tasks = [pool.devices] * (pool.sizes[level] // pool.devices)
            job = self._ask(name, tasks, up, pool=pool.name, within=pool.levels[level], cpus=self._of_cpus(pool))
        assert job is not None, "what it owns was refused"
        assert begins(state, self.tenants.job(job)), f"a legal request waits: {self.tenants.job(job)}"

    def _ask(self, vc: str, sizes: list[int], up: bool, **wants: object) -> int | None:
        self.failed = True
        reply = self.tenants.asked(vc, *sizes, **wants)
        self.failed = False
        if isinstance(reply, FailedPrecondition):
            assert reply.reason in ("NEVER_IN_QUOTA", "NO_POOL_FITS")
            return None
        assert isinstance(reply, Accepted), reply
        if up:
            self._come_up(reply.job_id)
        return reply.job_id

    def _any_vc(self, data: st.DataObject) -> str:
        names = sorted(self.tenants.state.vc_ids)
        return data.draw(st.sampled_from(names)) if names else ""

    @rule(data=st.data())
    def suppose(self, data: st.DataObject) -> None:
        """What is supposed of runs, of what is kept, and of cells leaves nothing behind."""
        state, now = self.tenants.state, self.tenants.now
        before, noted = state.snapshot(), unsaved(state)
        with state.supposing():
            for job_id in data.draw(_some_of(sorted(state.earmarks_of))):
                drop_earmarks(state, now, job_id, "supposed")
            for job_id in data.draw(_some_of(sorted(state.active))):
                if all(run.guaranteed for run in state.runs_of(job_id)) and data.draw(st.booleans()):
                    demote(state, job_id, now)
                else:
                    for key in [run.key for run in state.runs_of(job_id)]:
                        run = state.runs.rows[key]  # its share group may have dissolved with the task before it
                        state.put(state.runs, key, None)
                        if run.group:
                            leave(state, run)
            for key in data.draw(_some_of(sorted(state.bindings.rows))):
                state.put(state.bindings, key, None)
            assert state.snapshot() == state.rebuild().snapshot()
        assert unsaved(state) == noted
        assert state.snapshot() == before

    # ---- what runs do --------------------------------------------------------------------------------------------------

    @rule()
    def all_come_up(self) -> None:
        for job_id in sorted(self.tenants.state.active):
            self._come_up(job_id)

    def _come_up(self, job_id: int) -> None:
        tenants = self.tenants
        if tenants.job(job_id).launch_spec.gang:
            self._report(*(tenants.ready(job_id, task) for task in self._in_phase(job_id, RunPhase.STARTING)))
            if tenants.job(job_id).rendezvous:
                self._report(*(tenants.started(job_id, task) for task in self._in_phase(job_id, RunPhase.READY)))
        else:
            self._report(*(tenants.started(job_id, task) for task in self._in_phase(job_id, RunPhase.STARTING)))

    def _in_phase(self, job_id: int, *phases: RunPhase) -> list[int]:
        """Its tasks on nodes that can report."""
        nodes = self.tenants.state.nodes.rows
        runs = self.tenants.state.runs_of(job_id)
        return [run.task for run in runs if run.phase in phases and nodes[run.node].state is NodeState.UP]

    def _report(self, *events: Event) -> None:
        if events:
            self.take(*events)

    @precondition(lambda self: self.tenants.state.active)
    @rule(data=st.data(), outcome=st.sampled_from(ENDS), whole=st.booleans())
    def job_ends(self, data: st.DataObject, outcome: dict[str, object], whole: bool) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.tenants.state.active)))
        tasks = self._in_phase(job_id, *RunPhase)
        for task in tasks if whole else tasks[:1]:
            if any(run.task == task for run in self.tenants.state.runs_of(job_id)):
                self.take(self.tenants.exited(job_id, task, **outcome))  # type: ignore[arg-type]

    @precondition(lambda self: any(run.phase is RunPhase.STOPPING for run in self.tenants.state.runs.rows.values()))
    @rule(data=st.data(), outcome=st.sampled_from(ENDS), all_of_them=st.booleans())
    def who_was_told_leaves(self, data: st.DataObject, outcome: dict[str, object], all_of_them: bool) -> None:
        told = sorted(key.job_id for key, run in self.tenants.state.runs.rows.items() if run.phase is RunPhase.STOPPING)
        for job_id in dict.fromkeys(told if all_of_them else [data.draw(st.sampled_from(told))]):
            tasks = self._in_phase(job_id, RunPhase.STOPPING)
            self._report(*(self.tenants.exited(job_id, task, **outcome) for task in tasks))  # type: ignore[arg-type]

    @precondition(lambda self: self.tenants.state.operations.rows)
    @rule(data=st.data(), how=st.sampled_from(("well", "well", "well", "refused")), mib=st.sampled_from((0, 64, 2**20)))
    def parks_and_resumes_end(self, data: st.DataObject, how: str, mib: int) -> None:
        for job_id in data.draw(_some_of(sorted(self.tenants.state.operation_of))):
            for task in self._in_phase(job_id, RunPhase.PARKING, RunPhase.RESUMING):
                run = next((run for run in self.tenants.state.runs_of(job_id) if run.task == task), None)
                if run is None or run.phase not in (RunPhase.PARKING, RunPhase.RESUMING):
                    continue  # a task before it was refused
                node = self.tenants.where(job_id, task)
                report = node.name, node.boot_id, self.tenants._next(node), run.key
                if how == "refused":
                    self.take(RunParkRefused(*report, why="no", lost=run.phase is RunPhase.RESUMING))
                elif run.phase is RunPhase.PARKING:
                    self.take(RunParked(*report, rung="driver", moved_bytes=mib << 20, residue_bytes=1, saves=mib == 64))
                else:
                    self.take(RunResumed(*report, rung="driver"))

    @precondition(lambda self: any(run.phase is RunPhase.RUNNING for run in self.tenants.state.runs.rows.values()))
    @rule(data=st.data(), warm=st.booleans())
    def migrate(self, data: st.DataObject, warm: bool) -> None:
        state = self.tenants.state
        movable = RunPhase.RUNNING, RunPhase.PARKED
        run = data.draw(st.sampled_from([key for key, run in state.runs.rows.items() if run.phase in movable]))
        name = data.draw(st.sampled_from(sorted(state.node_ids)))
        before = state.operation_of.get(run.job_id)
        [reply] = self.take(MigrateRequested(run.job_id, (name,)))
        if isinstance(reply, FailedPrecondition):
            assert reply.reason in ("CANNOT_MIGRATE", "NO_ROOM_THERE", "WRONG_STATE", "DEVICES_NEEDED"), reply
        else:
            there = all(state.nodes.rows[run.node].name == name for run in state.runs_of(run.job_id))
            assert there or before or run.job_id in state.operation_of
        if warm:
            self.destinations_are_ready()

    @precondition(lambda self: any(run.awaits for run in self.tenants.state.runs.rows.values()))
    @rule()
    def destinations_are_ready(self) -> None:
        state = self.tenants.state
        for key in sorted(key for key, run in state.runs.rows.items() if run.awaits):
            node = state.nodes.rows[state.runs.rows[key].node]
            if node.state is NodeState.UP:
                self.take(RunReady(node.name, node.boot_id, self.tenants._next(node), key, node.name, 20_000 + key.task))

    @precondition(lambda self: self.tenants.state.jobs.rows)
    @rule(data=st.data(), what=st.sampled_from(sorted(USERS)), those_with_cells=st.booleans())
    def user_asks(self, data: st.DataObject, what: str, those_with_cells: bool) -> None:
        state = self.tenants.state
        some = sorted(state.earmarks_of) if those_with_cells else ()
        job_id = data.draw(st.sampled_from(some or sorted(state.jobs.rows)))
        [reply] = self.take(USERS[what](job_id))
        assert isinstance(reply, Accepted | FailedPrecondition)

    @rule(seconds=st.sampled_from((1, 1, 61, 301)))
    def time_passes(self, seconds: int) -> None:
        self.take(after=seconds)

    @precondition(lambda self: self.tenants.plans)
    @rule(data=st.data(), is_lost=st.booleans())
    def plan_comes(self, data: st.DataObject, is_lost: bool) -> None:
        """One that was made outside of the step; or the process that makes it dies."""
        at = data.draw(st.sampled_from(sorted(self.tenants.plans)))
        if is_lost:
            del self.tenants.plans[at]
        else:
            self.take(self.tenants.plan(*at))

    # ---- nodes ---------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def devices_break_and_heal(self, data: st.DataObject) -> None:
        pool, node = self._any_node(data)
        broken = data.draw(st.lists(st.integers(0, pool.devices - 1), unique=True, max_size=2))
        row = self._row(node)
        if row.state is NodeState.UP and not self._of_cpus(pool):
            self.take(FaultsSeen(node, row.boot_id, tuple((index, "XID 79") for index in sorted(broken))))

    @rule(data=st.data(), happens=st.sampled_from(("silent", "silent", "drain", "evict", "reboot", "fence", "delete")))
    def node_goes(self, data: st.DataObject, happens: str) -> None:
        pool, node = self._any_node(data)
        if happens == "silent":
            self.take(NodeSilent(node))
        elif happens == "reboot":
            self._back(node, reboot=True)
        elif happens == "fence":
            self.take(FenceRequested(node, "op"))
        elif happens == "delete":
            if sum(other in self.tenants.state.node_ids for other in pool.nodes) > 1:  # with its last node a pool is gone
                self.take(NodeDeleteRequested(node))
        else:
            self.take(DrainRequested(node, "repair", "op", happens == "evict"))

    @rule()
    def all_nodes_return(self) -> None:
        state = self.tenants.state
        for node in list(state.nodes.rows.values()):
            if node.drained_us is not None:
                self.take(UndrainRequested(node.name))
            if node.state is not NodeState.UP:
                self._back(node.name)

    def _back(self, name: str, reboot: bool = False) -> None:
        state, row = self.tenants.state, self._row(name)
        runs = [] if reboot else [state.runs.rows[key] for key in sorted(state.runs_on.get(row.id, ()))]
        known = tuple(KnownRun(run.key, run.phase) for run in runs)
        boot = row.boot_id + "'" * reboot
        self.take(NodeSeen(name, boot, inventory(self.models[name]), known))

    def _row(self, name: str) -> Node:
        """Also of a node that was deleted."""
        return next(node for node in self.tenants.state.nodes.rows.values() if node.name == name)

    def _any_node(self, data: st.DataObject) -> tuple[Plain, str]:
        pool = data.draw(st.sampled_from(self.plain))
        return pool, data.draw(st.sampled_from(pool.nodes))

    # ---- the end -------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Once all is well and everybody has ended, nothing is bound but what is pinned: the cells are as they were."""
        if self.failed or not hasattr(self, "tenants"):
            return
        state, self.tenants.sharing = self.tenants.state, 0
        self.all_nodes_return()
        for name in self.models:
            self.take(FaultsSeen(name, self.tenants.node(name).boot_id, ()))
        for pool in self.plain:
            assert len(healthy(state, pool)) == pool.leaves
        for _ in range(20 + 2 * len(state.jobs.rows)):
            if not self._everybody_works():
                break
        assert not state.runs.rows, f"these never end: {sorted(state.runs.rows)}"
        assert not state.earmarks.rows, "something is still kept"
        assert all(binding.pin for binding in state.bindings.rows.values()), "a cell was never given back"
        for job in state.jobs.rows.values():
            assert self._cannot(job.id), f"{job} starves"

    def _everybody_works(self) -> bool:
        """Whether anything went on."""
        tenants, state = self.tenants, self.tenants.state
        asked = []
        for job in sorted(state.jobs.rows.values(), key=lambda job: job.id):
            if job.held:
                asked.append(ReleaseRequested(job.id))
            if job.suspend_requested:
                asked.append(ResumeRequested(job.id))  # type: ignore[arg-type]
        self._report(*asked)
        planned = [self.take(tenants.plan(*at)) for at in sorted(tenants.plans)]
        self.all_come_up()
        busy = sorted(state.active)
        for job_id in busy:
            for task in self._in_phase(job_id, *RunPhase):
                if any(run.task == task for run in state.runs_of(job_id)):
                    told = tenants.run(job_id, task).phase is RunPhase.STOPPING
                    self.take(tenants.exited(job_id, task, yielded=told))
        if not state.active:
            self.take(after=301)  # whatever waits, waits for its time
        return bool(busy or asked or planned or state.active or tenants.plans)

    def _cannot(self, job_id: int) -> bool:
        """It waits for cells that its virtual cluster does not own any more, or stands behind one that does."""
        job = self.tenants.job(job_id)
        assert job.state is JobState.QUEUED, job
        if job.spec.guarantee is not Guarantee.GUARANTEED:
            return False
        first = waiting(self.tenants.state, job.spec.vc)[0]
        return Reason.NEVER_IN_QUOTA in (job.reason, first.reason)
