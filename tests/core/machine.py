"""A hypothesis state machine: the engine against agents that obey, crash, fall silent, come back and repeat themselves.

Three files: what users and operators ask (`asking`), what nodes and agents do (`acting`), and here how it all begins and ends:
once everybody behaves, every job that can ends.
"""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from scheduler_service.core.messages import ReleaseRequested, ResumeRequested, Submitted, UndrainRequested, UpdateRequested
from scheduler_service.core.model import Job, JobClass, JobSpec, JobState, RunPhase
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.policies.chosen_stages import order_of
from scheduler_service.policies.stages import Stages
from tests.core.acting import MOVES, Acting
from tests.core.asking import Asking
from tests.core.driver import Driver
from tests.core.specs import POLICIES, SETTINGS, SPECS
from tests.core.watch import Watch


class EngineMachine(Asking, Acting):
    """Every rule is something that may happen to a scheduler; `Driver` and `Watch` check what must hold after each step."""

    @initialize(
        chosen=POLICIES,
        settings=SETTINGS,
        nodes=st.lists(st.sampled_from((0, 0, 0, 1, 2)), min_size=1, max_size=3),
        running=st.lists(st.builds(replace, SPECS, job_class=st.just(JobClass.BEST_EFFORT)), min_size=2, max_size=8),
        sharing=st.sampled_from((0, 0, 1, 3)),
        seed=st.integers(0, 2**32),
    )
    def begin(
        self,
        chosen: tuple[Stages, int, bool],
        settings: Settings,
        nodes: list[int],
        running: list[JobSpec],
        sharing: int,
        seed: int,
    ) -> None:
        """In each step, `sharing` attempts are made to have runs share devices, or to change how they do."""
        made, cap, backfilled = chosen
        self.driver = Driver(made.policy, settings, cap=cap, order=order_of(made))
        self.driver.settles = not backfilled  # as time goes on there may be more to backfill, with no event to say so
        self.watch = Watch(self.driver)
        for index, capacity in enumerate(nodes):
            self.node_joins(index, capacity)
        self.take(*(Submitted("ann", "", spec) for spec in running))
        self.all_runs_begin()
        self.driver.sharing, self.driver.seed = sharing, seed

    @rule(seconds=st.sampled_from((-5, 1, 2, 4, 61, 301, 3600)))
    def time_passes(self, seconds: int) -> None:
        self.driver.now += seconds * SECOND
        self.take()

    @rule(rounds=st.integers(1, 3))
    def work_goes_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self._everybody_works()

    @precondition(lambda self: self.plans)
    @rule(lost=st.booleans())
    def a_plan_is_made(self, lost: bool) -> None:
        if lost:
            self.plans.pop()
        self.plans_come()

    # ---- the end -------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if self.failed or not hasattr(self, "driver"):
            return
        self.driver.sharing = 0
        self.agents |= self.away
        for agent in self.agents.values():
            agent.faults.clear()
            self.connect(agent)
        state = self.driver.state
        for _ in range(40 + 10 * len(state.jobs.rows)):
            self._everybody_lets_it_run()
            if not state.runs.rows and not state.deadlines and not any(a.inbox or a.spool for a in self.agents.values()):
                break
            self._everybody_works()
        assert not state.runs.rows, f"these never end: {sorted(state.runs.rows)}"
        assert not state.earmarks.rows, "an earmark is left behind"
        for job in state.jobs.rows.values():
            assert self._can_never_start(job), f"{job} starves"

    def _everybody_lets_it_run(self) -> None:
        state = self.driver.state
        jobs, nodes = sorted(state.jobs.rows.values(), key=lambda job: job.id), state.nodes.rows.values()
        self.take(
            *(ReleaseRequested(job.id) for job in jobs if job.held),
            *(UpdateRequested(job.id, time_limit_us=0) for job in jobs if job.suspend_requested),  # else it may be over
            *(ResumeRequested(job.id) for job in jobs if job.suspend_requested),
            *(UndrainRequested(node.name) for node in nodes if node.drained_us is not None),
        )

    def _everybody_works(self) -> None:
        self.driver.now += SECOND
        for agent in self.agents.values():
            while agent.inbox:
                agent.obey()
            for key in agent.to_prepare():
                agent.prepare(key)
            for key in agent.in_phase(RunPhase.WARMING):
                agent.warm(key)
            for key in agent.to_begin():
                self.run_begins(agent, key)
            for key in agent.in_phase(RunPhase.RUNNING):
                agent.end(key, {})
            for key in agent.in_phase(*MOVES):
                agent.move(key, "well")
            for key in agent.in_phase(RunPhase.STOPPING):
                agent.end(key, {"yielded": True})
        self.all_reports_arrive()
        self.plans_come()
        if not any(agent.inbox for agent in self.agents.values()):
            self.driver.now += 60 * SECOND  # whatever waits, waits for its time
            self.take()

    def _can_never_start(self, job: Job) -> bool:
        """No node is large enough, or it waits for one for which none is."""
        rows = self.driver.state.jobs.rows
        if job.elements is not None and job.elements.live:
            elements = [rows[i] for i in self.driver.state.elements_of[job.id]]
            return all(self._can_never_start(element) for element in elements)
        assert job.state is JobState.QUEUED, job
        waits = [rows[d.job_id] for d in job.waits_for]
        if waits:
            return any(self._can_never_start(other) for other in waits)
        state = self.driver.state
        return not any(
            pack(one.spec.tasks(), state.free_resources.offered_resources(state.suitable_for(one.spec)).copy())
            for one in job.in_each_configuration()
        )
