"""The story of a job that finds nobody to preempt: it says which running jobs were spared, and why.

Whatever has happened on a small site, under every policy that preempts and inside virtual clusters: the story has one line when
the job begins to wait so. It names every running job that has what the job could use, up to the bound. Each reason is true by
the rows, which is found here without the table of claims.
"""

import re
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import DrainRequested, Event, Rng, Step, Submitted, UndrainRequested, Wait
from scheduler_service.core.model import (
    EventKind,
    Job,
    JobClass,
    JobSpec,
    NodeState,
    Reason,
    Run,
    RunPhase,
    ShareMode,
    TaskGroup,
)
from scheduler_service.core.model.configurations import ANY_NODE, NodeSelector
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import DEFAULTS, Settings
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VcPolicy
from scheduler_service.core.model.values import SECOND, Vector, add, fits
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import order_of, stages, stages_within
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import AS_PUBLISHED, PreemptionSettings
from scheduler_service.policies.queueing.nothing_to_preempt import SHOWN
from scheduler_service.policies.stages import Stages
from tests.core.driver import Driver, spec
from tests.core.specs import gang_of
from tests.policies.tenants import Tenants
from tests.thorough import FEW, examples

NODE = Vector(16_000, 16_384, 4)
BOUNDED = Settings(min_run_us=30 * SECOND)
ONCE = PreemptionSettings(cap=1)
SITES: dict[str, Stages] = {
    "fitgpp": stages("fitgpp", ONCE),
    "fitgpp, backfilled": stages("fitgpp", ONCE, True),
    "fitgpp, one trial at a time": stages("fitgpp", ONCE._replace(trials_in_flight=1)),
    "fitgpp, as published": stages("fitgpp", AS_PUBLISHED._replace(cap=1)),
    **{name: stages(name, ONCE) for name in ("thrifty", "lrtp", "rand")},
    "gandiva": stages("gandiva", ONCE, own={"packing": 0, "preempting": 1}),
}
INSIDE = ("fitgpp", "lrtp", "rand", "priority", "gandiva")
CAPPED = re.compile(r"was preempted for trials as often as it may be \((\d+); fitgpp_cap is 1\)")
PARKS = (RunPhase.PARKING, RunPhase.PARKED, RunPhase.RESUMING)


class Told(Driver):
    """Checks what is told at the moment at which it is."""

    said: int = 0
    """How many lines were checked."""

    def _watched(self, state: State, rng: Rng) -> Proposals:
        proposals = super()._watched(state, rng)
        answer: str | None = None
        while True:
            try:
                plan = proposals.send(answer)
            except StopIteration:
                return
            for action in plan:
                if isinstance(action, Wait) and action.reason is Reason.NOTHING_TO_PREEMPT:
                    job = state.jobs.rows[action.job_id]
                    if job.reason is not action.reason:
                        self.said += 1
                        self.check_line(job, action.detail)
            answer = yield plan

    def step(self, *events: Event, after: int = 0) -> Step:
        before = {job_id: job.reason for job_id, job in self.state.jobs.rows.items()}
        taken = super().step(*events, after=after)
        lines = [line.job_id for line in taken.log if line.kind is EventKind.NOTHING_TO_PREEMPT]
        assert len(lines) == len(set(lines)), "one line in a step"
        for job_id, job in self.state.jobs.rows.items():
            if job.reason is Reason.NOTHING_TO_PREEMPT:
                began = before.get(job_id) is not Reason.NOTHING_TO_PREEMPT
                assert (job_id in lines) == began, f"job {job_id} waits so since this step: {began}; told: {lines}"
                vc = self.state.vc_ids.get(job.spec.vc)
                of_job = self.site if vc is None else stages_within(self.state.vcs.rows[vc].policy)
                found = explain(self.state, job, self.now, Random(1), of_job)
                if found.blockers and all(one.reason is not Reason.BEHIND for one in found.blockers):
                    assert Reason.NOTHING_TO_PREEMPT in [one.reason for one in found.blockers] or found.victims, found
        return taken

    site: Stages

    # What is true, by the rows.

    def check_line(self, job: Job, text: str) -> None:
        holders = list(self.holders(job))
        head, _, listed = text.partition("every run that may be preempted, together, would not make room")
        assert not job.spec.vc or head, "in a virtual cluster it says where there is no room"
        named = [each for each in listed.removeprefix(": ").split("; ") if each]
        more = int(named.pop().split()[1]) if named and named[-1].startswith("and ") else 0
        assert len(named) + more == len(holders), f"{text!r}, and there are {[each.id for each in holders]}"
        assert len(named) == min(len(holders), SHOWN)
        small = []
        for other, each in zip(holders, named, strict=False):
            assert each.startswith(f"job {other.id} "), f"{each}, and not job {other.id}"
            why = each.removeprefix(f"job {other.id} ")
            assert self.is_true(job, other, why), f"{each}: {self.runs_of(other)}"
            small += [other] if why.startswith("may be preempted") else []
        if not more:
            self.no_room_without(job, small)

    def runs_of(self, job: Job) -> list[Run]:
        return [run for run in self.state.runs.rows.values() if run.job_id == job.id and run.phase is not RunPhase.WARMING]

    def usable(self, job: Job, node: int) -> bool:
        row = self.state.nodes.rows[node]
        named = not job.spec.nodes.names or row.name in job.spec.nodes.names
        return named and row.state is NodeState.UP and row.drained_us is None

    def holders(self, job: Job) -> Iterator[Job]:
        """Running jobs that have something on nodes that the job could use; in a virtual cluster, in cells of the same kind."""
        for other in self.state.jobs.rows.values():
            runs = self.runs_of(other)
            if job.spec.vc:
                held = [run for run in runs if run.phase is not RunPhase.PARKED and run.devices and run.vc == job.spec.vc]
                content = job.spec.guarantee is Guarantee.OPPORTUNISTIC
                if not any(run.guaranteed or content for run in held):
                    continue
            if any(self.usable(job, run.node) for run in runs):
                yield other

    def is_true(self, job: Job, other: Job, why: str) -> bool:
        runs, unbounded = self.runs_of(other), self.is_by_priority(job)
        phases = {run.phase for run in runs}
        match why.split(":")[0]:
            case "is a trial, too":
                return other.spec.job_class is JobClass.TRIAL and not unbounded
            case said if said == f"has too high a priority to make room for job {job.id}":
                return other.priority >= job.priority + (not unbounded)
            case said if said == f"is guaranteed, and job {job.id} may have opportunistic runs stopped alone":
                return job.spec.guarantee is Guarantee.OPPORTUNISTIC and any(run.guaranteed for run in runs)
            case "is stopping already":
                return RunPhase.STOPPING in phases
            case "has not run for its guaranteed time yet (min_run)":
                return any(run.started_us is None or self.now - run.started_us < BOUNDED.min_run_us for run in runs)
            case "is parked, or is being parked or resumed":
                return any(phase in PARKS for phase in phases)
            case "holds a faulty device":
                return any(self.state.devices.rows[run.node, device].fault for run in runs for device in run.devices)
            case "is on a silent node":
                return any(self.state.nodes.rows[run.node].state is NodeState.SILENT for run in runs)
            case said if found := CAPPED.fullmatch(said):
                return int(found[1]) == other.preempted_for_trial >= 1
            case said if found := re.fullmatch(r"shares devices with job (\d+), which (.*)", said):
                mate = self.state.jobs.rows[int(found[1])]
                together = {run.group for run in runs} & {run.group for run in self.runs_of(mate)} - {0}
                return bool(together) and self.is_true(job, mate, found[2])
            case "may be preempted, and does not make room, alone or with others":
                lower = other.priority < job.priority + (not unbounded)
                able = unbounded or (other.spec.job_class is JobClass.BEST_EFFORT and other.preempted_for_trial < 1)
                return lower and able and RunPhase.STOPPING not in phases
        return False

    def is_by_priority(self, job: Job) -> bool:
        vc = self.state.vc_ids.get(job.spec.vc)
        return vc is not None and self.state.vcs.rows[vc].policy.name == "priority"

    def no_room_without(self, job: Job, others: list[Job]) -> None:
        """For one task on a site without cells: there is none on any node without these jobs."""
        if job.spec.vc or job.spec.gang:
            return
        for node in self.state.node_ids.values():
            room = self.state.free_resources.free(node)
            for other in others:
                for run in self.runs_of(other):
                    room = add(room, run.demand) if run.node == node and not run.group else room
            shared = any(run.node == node and run.group for other in others for run in self.runs_of(other))
            assert shared or not self.usable(job, node) or not fits(job.spec.demand, room), f"node {node} would have {room}"


class ToldTenants(Told, Tenants):
    pass


# ---- histories -----------------------------------------------------------------------------------------------------------

PINS = st.sampled_from((ANY_NODE, ANY_NODE, ANY_NODE, NodeSelector(("n1",)), NodeSelector(("n2",))))


@st.composite
def jobs(draw: st.DrawFn, vc: str = "") -> JobSpec:
    job = with_changes(
        spec(draw(st.sampled_from((1, 2, 2, 3, 4))), draw(st.booleans())),
        priority=draw(st.sampled_from((0, 0, 1))),
        vc=vc,
        nodes=ANY_NODE if vc else draw(PINS),
    )
    if vc and draw(st.integers(0, 2)) == 0:
        job = with_changes(job, guarantee=Guarantee.OPPORTUNISTIC)
    kind = draw(st.integers(0, 7))
    if kind == 0:
        groups, demand = gang_of([TaskGroup(draw(st.integers(2, 3)), Vector(1000, 1024, draw(st.integers(1, 2))))])
        return with_changes(job, gang=groups, demand=demand)
    if kind == 1:
        return with_changes(job, demand=Vector(1000, 1024, 1), gpu_fraction_ppm=500_000, share=ShareMode.SLICED)
    return job


Act = tuple[str, object]


def stories(vc: str = "") -> st.SearchStrategy[list[Act]]:
    """Jobs come to an idle site, and then what comes."""
    first = st.lists(st.tuples(st.just("submit"), jobs(vc)), min_size=2, max_size=5)
    return st.tuples(first, st.just([("start", 0), ("wait", 40)]), st.lists(acts(vc), min_size=3, max_size=15)).map(
        lambda parts: [*parts[0], *parts[1], *parts[2]]
    )


def acts(vc: str = "") -> st.SearchStrategy[Act]:
    numbers = st.integers(0, 30)
    return st.one_of(
        *[st.tuples(st.just("submit"), jobs(vc))] * 3,
        st.tuples(st.just("exit"), numbers),
        st.tuples(st.just("wait"), st.sampled_from((1, 40))),
        st.tuples(st.just("start"), numbers),
        st.tuples(st.just("drain"), numbers),
        st.tuples(st.just("silence"), numbers),
        st.tuples(st.just("fault"), numbers),
    )


def play(d: Told, story: list[Act], nodes: list[str]) -> None:
    for what, about in story:
        name = nodes[about % len(nodes)] if isinstance(about, int) else ""
        live = sorted(run.key for run in d.state.runs.rows.values() if d.state.nodes.rows[run.node].state is NodeState.UP)
        key = live[about % len(live)] if isinstance(about, int) and live else None
        node = d.state.nodes.rows[d.state.node_ids[name]] if name else None
        if what == "submit":
            d.step(Submitted("ann", "", about))  # type: ignore[arg-type]
        elif what == "wait":
            d.step(after=about)  # type: ignore[arg-type]
        elif what == "exit" and key is not None:
            d.step(d.exited(*key[::2], yielded=d.state.runs.rows[key].phase.exits_soon))
        elif what == "start":
            for run in [run for run in d.state.runs.rows.values() if run.phase is RunPhase.STARTING]:
                if d.state.nodes.rows[run.node].state is NodeState.UP and run.key in d.state.runs.rows:
                    gang = d.job(run.job_id).spec.gang
                    d.step(d.ready(run.job_id, run.task) if gang else d.started(run.job_id, run.task))
        elif what == "drain" and node is not None:
            d.step(DrainRequested(name, "", "op") if node.drained_us is None else UndrainRequested(name))
        elif what == "silence" and node is not None and node.state is NodeState.UP:
            d.silence(name)
        elif what == "fault" and node is not None and node.state is NodeState.UP and not isinstance(d, Tenants):
            d.faulty({about % 4: "XID 79"}, name)  # type: ignore[operator]


@pytest.mark.parametrize("site", SITES)
def test_the_line_names_all_that_are_spared_and_tells_no_lie(site: str) -> None:
    said = 0

    @settings(max_examples=examples(8))
    @given(stories())
    def holds(story: list[Act]) -> None:
        nonlocal said
        d = Told(SITES[site].policy, BOUNDED, cap=1, order=order_of(SITES[site]))
        d.site, d.settles = SITES[site], False
        for name in ("n1", "n2"):
            d.join(name, NODE)
        play(d, story, ["n1", "n2"])
        said += d.said

    holds()
    assert said or FEW, "the histories reach what this is about"


@pytest.mark.parametrize("policy", INSIDE)
def test_so_it_is_in_a_virtual_cluster(policy: str) -> None:
    said = 0

    @settings(max_examples=examples(8))
    @given(stories("A"))
    def holds(story: list[Act]) -> None:
        nonlocal said
        d = ToldTenants(dict.fromkeys(("n1", "n2"), "FOUR"), min_run_us=BOUNDED.min_run_us)
        d.site, d.settles = stages("cells", ONCE), False
        d.vc("A", ("four-2x2", "node", 1), policy=VcPolicy(policy, cap=1))
        d.vc("B", ("four-2x2", "node", 1))
        play(d, story, ["n1", "n2"])
        said += d.said

    holds()
    assert said or FEW, "the histories reach what this is about"


def test_a_trial_is_told_once_each_time_that_it_begins_to_wait() -> None:
    site = SITES["fitgpp"]
    d = Driver(site.policy, DEFAULTS, cap=1, order=order_of(site))
    d.join("n1", NODE)
    running = d.trial(4)
    d.start(running)
    lines: list[str] = []

    def step(*events: Event) -> None:
        lines.extend(line.text for line in d.step(*events, after=5).log if line.kind is EventKind.NOTHING_TO_PREEMPT)

    step(Submitted("ann", "", spec(4, trial=True)))
    for _ in range(2):
        step()
    said = f"every run that may be preempted, together, would not make room: job {running} is a trial, too"
    assert lines == [said]
    step(DrainRequested("n1", "", "op"))
    step(UndrainRequested("n1"))
    assert lines == [said, said]
