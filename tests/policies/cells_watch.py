"""What must hold of tenants and is seen only over a step: who was told to leave and for whom, and who got what was freed."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import le
from random import Random
from typing import Any

from scheduler_service.core import messages
from scheduler_service.core.allocation.guarantee import guaranteed_in_part
from scheduler_service.core.cells.guaranteed_search import find
from scheduler_service.core.cells.request import requested_cells
from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import AddEarmark, Delegate, Event, PlanReady, Rng, Step
from scheduler_service.core.model import EventKind, Job, JobState, Run, RunPhase, StopReason
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.state.holdings import runs_together
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived.policy import serve_guaranteed
from scheduler_service.policies.hived.queue_membership import ways
from scheduler_service.policies.hived.vc_slots import holders
from tests.core.cells import free_cells
from tests.core.charged import check_charges
from tests.policies.plain_cells import Plain, bound, healthy, maximal, short
from tests.policies.tenants import Tenants

Place = tuple[int, int]
"""Node and device."""
OWN_DOING = {
    StopReason.CANCELLED,
    StopReason.SUSPENDED,
    StopReason.REQUEUED,
    StopReason.TIME_LIMIT,
    StopReason.GANG,
    StopReason.DRAINED,
    StopReason.MIGRATED,
    StopReason.RESIZED,
}
"""Why a guaranteed run may be told to leave."""


class Watched(Tenants):
    """Checks every step."""

    plain: Sequence[Plain] = ()

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.growing = 0
        """An elastic job that is told to grow in each step."""
        self.mixed: set[int] = set()
        """Jobs that were guaranteed in part."""
        self.given_back = 0
        """How many tasks have given back what they had beyond the guarantee of their job."""
        self.plans: dict[tuple[str, str], Delegate] = {}
        """Plans that policies wait for, by policy and subject: the last question about each."""
        super().__init__(*args, **settings)

    def plan(self, policy: str, subject: str) -> PlanReady:
        """The plan, which is made now. Nobody waits for it then."""
        return PlanReady(policy, subject, self.plans.pop((policy, subject)).question())

    def _watched(self, state: State, rng: Rng) -> Proposals:
        if self.growing:
            yield from grow_beyond(state, self.growing)
        yield from super()._watched(state, rng)

    def step(self, *events: Event, after: int = 0) -> Step:
        self.state.pending.policies |= self.growing > 0
        kept, before = self._kept(), self._missing()
        taken = super().step(*events, after=after)
        self.plans.update({(one.policy, one.subject): one for one in taken.delegated})
        check_charges(self.state)
        self.mixed |= {job_id for job_id in self.state.active if guaranteed_in_part(self.state.runs_of(job_id))}
        dropped = {line.job_id for line in taken.log if line.kind is EventKind.EARMARK_DROPPED}
        were = [change.old for change in taken.changes if change.table == "run" and change.old is not None]
        for change in taken.changes:
            if change.table == "run":
                if change.old is None:
                    self._placed(change.new, kept, dropped)
                self._told(change.old, change.new, dropped, were)
        if self._complete():
            missing = self._missing()
            for pool in self.plain:
                self._free_lists(pool)
                # What was bound while something was faulty may be in the way when it is well again; else nothing ever is.
                then = before.get(pool.name, missing.get(pool.name, []))
                assert all(map(le, missing.get(pool.name, then), then)), f"{pool.name}: {then} cells were missing: {missing}"
            for vc in self.state.vcs.rows:
                self._nobody_is_held_up(vc)
        return taken

    def _kept(self) -> dict[Place, int]:
        """What is kept for whom."""
        rows = self.state.earmarks.rows.values()
        return {(row.node, device): row.job_id for row in rows for devices in row.devices for device in devices}

    def _complete(self) -> bool:
        return bool(self.plain) and len(self.state.node_ids) == sum(len(pool.nodes) for pool in self.plain)

    def _missing(self) -> dict[str, list[int]]:
        """Of the pools that are wholly healthy: cells that are promised and could not be had (Eqn 2), by level."""
        if not self._complete():
            return {}
        well = [pool for pool in self.plain if len(healthy(self.state, pool)) == pool.leaves]
        return {pool.name: short(self.state, pool) for pool in well}

    def _placed(self, run: Run, kept: dict[Place, int], dropped: set[int]) -> None:
        """No stealing. Whoever has started on what was kept may take turns with others at once."""
        for device in run.devices:
            claimant = kept.get((run.node, device), run.job_id)
            started = any(
                task.group == run.group and device in task.devices for task in self.state.runs_of(claimant) if run.group
            )
            mine = claimant == run.job_id or claimant in dropped or started
            assert mine, f"run {run.key} takes what was freed for job {claimant}"

    def _told(self, old: Run | None, new: Run, dropped: set[int], were: Iterable[Run]) -> None:
        """`were`: the runs that the step changed, before it."""
        if new.stop_reason is None or (old is not None and old.stop_reason is new.stop_reason):
            return
        if new.awaits:
            assert new.stop_reason is StopReason.MIGRATED, f"run {new.key} was warm and is told to leave: {new.stop_reason}"
            return
        if new.stop_reason not in (StopReason.RECLAIMED, StopReason.PREEMPTED):
            assert new.stop_reason in OWN_DOING, f"run {new.key} was told to leave: {new.stop_reason}"
            if new.stop_reason is StopReason.RESIZED and new.stop_for:
                self._gives_back(new, dropped)
            return
        # An opportunistic job that was placed may be in the way of a guaranteed job in the same step: one behind a job that has
        # overflowed meanwhile. It is never told to start then.
        assert old is not None or not new.guaranteed, f"run {new.key} was placed and told to leave"
        self._may_be_told(new)
        tasks = self.state.runs_of(new.job_id)
        assert all(task.phase is RunPhase.STOPPING for task in tasks), f"job {new.job_id} was told to leave in part"
        if new.stop_for in dropped:
            return
        got = {place for place, job_id in self._kept().items() if job_id == new.stop_for}
        # A share group leaves as a whole, and a member that ends first, or gives way to it, is in it no more after the step.
        group = 0 if old is None else old.group
        leaving = [*runs_together(self.state, new.job_id), *(run for run in were if group and run.group == group)]
        held = {(task.node, device) for task in leaving for device in task.devices}
        assert got & held, f"job {new.job_id} leaves for job {new.stop_for}, which gets nothing of it"

    def _gives_back(self, new: Run, dropped: set[int]) -> None:
        """What a job has beyond its guarantee is reclaimed: the claimant gets some of that, and nothing else of the job."""
        tasks = self.state.runs_of(new.job_id)
        assert all(task.phase is RunPhase.STOPPING for task in tasks), f"job {new.job_id} was told to leave in part"
        self.given_back += not new.guaranteed
        if new.stop_for in dropped:
            return
        got = {place for place, job_id in self._kept().items() if job_id == new.stop_for}
        beyond = {(task.node, device) for task in tasks if not task.guaranteed for device in task.devices}
        own = {(task.node, device) for task in tasks if task.guaranteed for device in task.devices}
        assert own, f"job {new.job_id} is guaranteed nothing, and is resized for job {new.stop_for}"
        assert got & beyond, f"job {new.job_id} gives back what job {new.stop_for} does not get"
        assert not got & own, f"job {new.job_id} loses what is guaranteed to it to job {new.stop_for}"

    def _may_be_told(self, run: Run) -> None:
        """For whom: guaranteed runs go for jobs of their own virtual cluster alone, where that is its rule; opportunistic ones
        go so for opportunistic jobs, too."""
        job, claimant = self.state.jobs.rows[run.job_id], self.state.jobs.rows.get(run.stop_for)
        if claimant is None:
            return  # it has ended since
        rule = self.state.vcs.rows[self.state.vc_ids[run.vc]].policy.name
        own = run.vc == claimant.spec.vc and job.priority <= claimant.priority
        own = own and (rule == "priority") == (run.stop_reason is StopReason.RECLAIMED)
        opportunistic_job = claimant.spec.guarantee is Guarantee.OPPORTUNISTIC
        if run.stop_reason is StopReason.PREEMPTED or run.guaranteed or opportunistic_job:
            assert own, f"run {run.key} was told to leave for job {run.stop_for}"
            assert not (opportunistic_job and run.guaranteed), (
                f"guaranteed run {run.key} was told to leave for opportunistic_job {run.stop_for}"
            )

    def _free_lists(self, pool: Plain) -> None:
        """Algorithm 1 and Eqn 2, by sets."""
        pools = self.state.pools
        assert pools is not None
        index, free = pools.pools[pool.name], healthy(self.state, pool) - bound(self.state, pool)
        for level, cells in enumerate(maximal(pool, free)):
            assert sorted(i for _, i in free_cells(index, level)) == sorted(min(cell) // pool.sizes[level] for cell in cells)
        assert list(index.shortfall()) == short(self.state, pool)

    def _nobody_is_held_up(self, vc: int) -> None:
        """Whoever waits for cells of its own would wait without any opportunistic run, too. In a queue that is served in order,
        the first job waits for want of cells alone. A policy that chooses which jobs start may leave cells idle if a job is
        done sooner in others; but not if all of the virtual cluster's cells are idle."""
        row = self.state.vcs.rows[vc]
        queue, chooses = waiting(self.state, row.name), stages_within(row.policy).starts is not None
        if not chooses:
            self._fit_nowhere(row, queue[:1])
            return
        self._nobody_starts_without_opportunistic_runs(row)
        if not holders(self.state, row) and not any(at[1] == f"{row.name}/plan" for at in self.state.memos.rows):
            self._fit_nowhere(row, queue)

    def _fit_nowhere(self, row: VirtualCluster, jobs: Sequence[Job]) -> None:
        pools = self.state.pools
        assert pools is not None
        for job in jobs:
            for one, (name, owner) in ways(pools, row, job):
                empty = pools.pools[name].rebuild()
                for slot in range(100):
                    empty.set_opportunistic(slot, 0)
                wanted = requested_cells(one.spec, empty.shape, pools.share(name))
                assert isinstance(wanted, str) or find(empty, owner, wanted) is None, f"{job} is held up by opportunistic runs"

    def _nobody_starts_without_opportunistic_runs(self, row: VirtualCluster) -> None:
        state = self.state
        with state.supposing():
            for key in [key for keys in state.opportunistic_runs.values() for key in keys]:
                state.put(state.runs, key, None)
            proposals = serve_guaranteed(state, row, Random(0), promotes=False)
            answer: str | None = None
            with suppress(StopIteration):
                plan = next(proposals)
                while True:
                    assert not any(isinstance(action, messages.Place | AddEarmark) for action in plan), f"held up: {plan}"
                    answer = enact(state, plan, state.cluster.clock_us)
                    plan = proposals.send(answer)


def grow_beyond(state: State, job_id: int) -> Proposals:
    """The job is to have as many tasks as it may: those that it has now within its guarantee, and the others beyond it."""
    job, runs = state.jobs.rows.get(job_id), state.runs_of(job_id)
    if job is not None and job.state is JobState.RUNNING and runs[0].guaranteed:
        most, own = job.spec.max_tasks, job.queued_tasks
        if most > len(job.spec.tasks()):
            yield (messages.Resize(job_id, most, "it grows", most - own),)


def waiting(state: State, vc: str) -> list[Job]:
    """The virtual cluster's jobs that wait for cells of its own and have none, in order."""
    preempting = stages_within(state.vcs.rows[state.vc_ids[vc]].policy).trials_first
    lanes = (Lane.TRIAL, Lane.BEST_EFFORT)
    keys = sorted((preempting and lane, key) for lane in lanes for key in state.waiting(vc, lane))
    return [state.jobs.rows[key[-1]] for _, key in keys if key[-1] not in state.earmarks_of]


def head(state: State, vc: str) -> Job | None:
    return next(iter(waiting(state, vc)), None)


def begins(state: State, job: Job) -> bool:
    """Whether it has its cells: it starts, or others were told to leave for it."""
    if job.state is JobState.QUEUED:
        return job.id in state.earmarks_of
    return all(run.guaranteed for run in state.runs_of(job.id))
