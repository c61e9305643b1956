"""Gandiva as the policy of a virtual cluster: its jobs take turns in its own cells, and nobody else notices."""

from dataclasses import replace

from scheduler_service.core.messages import MiniBatchMeasured, NodeSeen, Step, Submitted, SwitchingMeasured, VcRequested
from scheduler_service.core.model import EventKind, JobState, Reason
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.tenants.virtual_clusters import Quota, VcPolicy
from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.explain.cells import explain_in_cells
from scheduler_service.policies.hived.policy import cells
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, inventory, request

GANDIVA = VcPolicy("gandiva")


class Sites(Tenants):
    """Two nodes of four devices, each of one of two virtual clusters: `a` introspects, and `b` does not. Nodes have memory for
    what is parked."""

    def __init__(self, memory_mib: int = 4 << 20) -> None:
        Driver.__init__(self, cells(), Tenants({}).state.settings, order=order_of(stages("cells", PreemptionSettings())))
        for name in ("n1", "n2"):
            seen = inventory("FOUR")
            self.step(NodeSeen(name, "a", replace(seen, capacity=seen.capacity._replace(memory_mib=memory_mib))))
        self.vc("a", ("four-2x2", "node", 1), policy=GANDIVA)
        self.vc("b", ("four-2x2", "node", 1))

    def rows_of(self, job: int) -> list[list[int]]:
        group = self.state.share_groups.rows.get(self.run(job).group)
        return [] if group is None else [sorted({key.job_id for key in row.runs}) for row in group.rows]

    def measure(self, times: dict[int, int]) -> Step:
        return self.step(
            *(
                MiniBatchMeasured(self.where(job).name, self.run(job).key, ms * 1000, 20, 990_000, 2000, 200_000)
                for job, ms in times.items()
            ),
            after=60,
        )


def test_jobs_take_turns_in_the_cells_of_their_virtual_cluster_alone() -> None:
    d = Sites()
    first = d.ask("a", 4)
    second = d.ask("a", 4)
    assert d.rows_of(second) == [[first], [second]]
    assert d.at(first) == d.at(second)
    (group,) = d.state.share_groups.rows.values()
    assert (group.vc, group.guaranteed) == ("a", True)
    other, waits = d.ask("b", 4), d.ask("b", 4)
    assert d.waits(waits) is Reason.BEYOND_QUOTA
    assert d.rows_of(other) == []
    assert d.where(other).name != d.where(first).name


def test_the_other_virtual_cluster_has_its_cells_at_once_whatever_the_first_does() -> None:
    d = Sites()
    for _ in range(4):
        d.ask("a", 2)
    over = [d.ask("a", 4) for _ in range(2)]
    borrowed = d.ask("a", 4, guarantee=OPPORTUNISTIC)
    assert d.where(borrowed).name != d.where(over[0]).name
    job = d.ask("b", 4)
    assert d.job(job).reason is Reason.WAITING_FOR_VICTIMS
    d.leave(borrowed)
    assert d.job(job).state is JobState.RUNNING
    assert d.guaranteed(job)
    assert all(d.guaranteed(each) for each in over)


def test_a_job_takes_turns_in_the_same_step_with_runs_that_have_become_guaranteed() -> None:
    d = Sites()
    owns = (Quota("four-2x2", "switch", 2),)
    d.step(VcRequested("a", False, owns, policy=VcPolicy("fifo")), VcRequested("b", False, owns))
    first, ours = d.ask("b", 2), d.ask("a", 2)
    theirs, also_ours = d.ask("b", 2), d.ask("a", 2)
    d.end(theirs)
    over = d.ask("a", 2, guarantee=OVERFLOW)
    waits = d.ask("a", 4, guarantee=OVERFLOW)
    assert d.where(over).name == d.where(also_ours).name != d.where(ours).name == d.where(first).name
    d.step(VcRequested("a", False, policy=GANDIVA))
    assert d.job(waits).state is JobState.QUEUED
    d.step(d.exited(ours))
    assert d.guaranteed(over)
    assert d.rows_of(waits) == [[waits], [also_ours, over]]


def test_a_job_takes_turns_in_the_same_step_with_one_that_starts_though_it_came_before_it() -> None:
    d = Sites()
    owns = (Quota("four-2x2", "switch", 2),)
    d.step(VcRequested("a", False, owns), VcRequested("b", False, owns))
    theirs = [d.ask("b", 2) for _ in range(2)]
    ours, borrowed = d.ask("a", 2), d.ask("b", 2, guarantee=OPPORTUNISTIC)
    assert d.where(ours).name == d.where(borrowed).name != d.where(theirs[0]).name == d.where(theirs[1]).name
    waits = d.ask("a", 4, guarantee=OVERFLOW)
    d.leave(borrowed)
    assert d.job(waits).state is JobState.QUEUED
    behind = d.ask("a", 2)
    assert d.rows_of(waits) == [[waits], [ours, behind]]


def test_explain_says_what_a_job_lacks_for_a_turn_in_the_cells_of_its_virtual_cluster() -> None:
    d = Sites(memory_mib=64 << 10)
    first = d.ask("a", 4)
    waits = d.ask("a", 4)
    assert d.waits(waits) is Reason.BEYOND_QUOTA
    (blocker,) = explain_in_cells(d.state, d.job(waits)).blockers
    refused, has = blocker.detail.split("; ", 1)
    assert refused.startswith("it cannot take turns: those who would share device 0 of node n1 need ")
    assert has.endswith("; the cells of virtual cluster a are in use"), "by whom is told right after that"
    assert blocker.holder_jobs == (first,)
    assert d.rows_of(first) == [], "nothing came of asking"


def test_jobs_that_ask_for_cells_of_a_level_wait_for_them() -> None:
    d = Sites()
    d.ask("a", 4)
    assert d.waits(d.ask("a", 2, levels=("switch",))) is Reason.BEYOND_QUOTA


def test_jobs_of_a_virtual_cluster_are_packed_by_what_is_measured() -> None:
    d = Sites()
    jobs = [
        d.reply(Submitted("ann", "", replace(request("a", 4), name=name))).job_id  # type: ignore[union-attr]
        for name in ("vae", "gan")
    ]
    d.begin(*jobs)
    story = []
    for times in (100, 100, 100, 110, 110, 110, 110):
        story += d.measure(dict.fromkeys(jobs, times)).log
    told = [line.text for line in story if line.kind is EventKind.PROBED and line.job_id == jobs[0]]
    assert told[0].startswith("packing is tried")
    assert told[1].startswith("packing is kept: the devices do 1.82 times the work")
    assert d.rows_of(jobs[0]) == [jobs]
    memos = [subject for policy, subject in d.state.memos.rows if policy == "gandiva"]
    assert sorted(subject.partition("/")[0] for subject in memos) == ["a", "a"], "a round and a pair, of this virtual cluster"


def test_another_policy_forgets_what_gandiva_has_remembered_and_leaves_the_turns() -> None:
    d = Sites()
    first, second = d.ask("a", 4), d.ask("a", 4)
    d.step(VcRequested("a", False, policy=VcPolicy("fifo")))
    d.step(after=120)
    assert not [subject for policy, subject in d.state.memos.rows if policy == "gandiva"]
    assert d.rows_of(first) == [[first], [second]]
    d.end(first)
    assert d.rows_of(second) == []


def test_turns_in_a_virtual_cluster_get_longer_if_switching_costs_much() -> None:
    """As on a site."""
    d = Sites()
    jobs = [d.ask("a", 4) for _ in range(2)]
    (group,) = d.state.share_groups.rows
    switching = Switching(park_us=2 * SECOND)
    d.step(*(SwitchingMeasured(d.where(job).name, d.run(job).key, switching) for job in jobs), after=1)
    told = [line for _ in range(2) for line in d.step(after=60).log if line.kind is EventKind.RETIMED]
    assert d.state.share_groups.rows[group].period_us == 210 * SECOND
    assert [line.job_id for line in told] == jobs
