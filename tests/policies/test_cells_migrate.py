"""Migrations between the cells of virtual clusters."""

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Proposals
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import (
    Accepted,
    GiveWay,
    Migrate,
    MigrateRequested,
    Rng,
    RunReady,
    Share,
    Spot,
    Submitted,
    VcRequested,
)
from scheduler_service.core.model import EventKind, JobState, OperationPhase, Reason, Run, RunKey, RunPhase, StopReason
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VcPolicy
from scheduler_service.core.operations.migrating import migration_of
from scheduler_service.core.state.state import State
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, request


def sites() -> Tenants:
    """Three nodes of four devices, each of one virtual cluster; what is of `c` is idle."""
    d = Tenants({"n1": "FOUR", "n2": "FOUR", "n3": "FOUR"})
    for name in "abc":
        d.vc(name, ("four-2x2", "node", 1))
    return d


def move(d: Tenants, job: int, node: str, *devices: int) -> object:
    return d.reply(MigrateRequested(job, (node,), (devices,) if devices else ()))


def target(d: Tenants, job: int) -> Run:
    return d.state.runs.rows[RunKey(job, d.job(job).next_run - 1)]


def warmed(d: Tenants, job: int) -> None:
    run = target(d, job)
    node = d.state.nodes.rows[run.node]
    d.step(RunReady(node.name, node.boot_id, d._next(node), run.key, "a", 7))


def test_a_guaranteed_job_stays_guaranteed_inside_of_its_cells_and_goes_nowhere_else() -> None:
    d = Tenants({"n1": "FOUR", "n2": "FOUR"})
    d.vc("a", ("four-2x2", "switch", 2))
    d.vc("b", ("four-2x2", "node", 1))
    job, other = d.ask("a", 2), d.ask("a", 1)
    assert d.at(job) == ["n1[0..1]"]
    assert d.at(other) == ["n1[2]"]
    d.end(other)
    elsewhere = move(d, job, "n2")
    assert isinstance(elsewhere, FailedPrecondition)
    assert "has 0 idle devices in cells that are bound to its virtual cluster (`ebb cells`)" in str(elsewhere)
    third = d.ask("a", 1)
    moved = move(d, third, "n1", 3)
    assert isinstance(moved, Accepted), moved
    assert target(d, third).guaranteed
    warmed(d, third)
    d.leave(third)
    assert d.guaranteed(third)
    assert d.at(third) == ["n1[3]"]
    assert d.job(third).state is JobState.RUNNING
    assert migration_of(d.state, third) is None


def test_an_opportunistic_job_moves_to_idle_cells_of_others_and_stays_opportunistic() -> None:
    d = sites()
    job = d.ask("a", 4, guarantee=OPPORTUNISTIC)
    (here,) = d.at(job)
    there = next(node for node in ("n1", "n2", "n3") if not here.startswith(node))
    assert isinstance(move(d, job, there), Accepted)
    warmed(d, job)
    d.leave(job)
    assert d.at(job) == [f"{there}[0..3]"]
    assert not d.guaranteed(job)


@pytest.mark.parametrize("saving", [False, True])
def test_a_migration_gives_way_at_once_to_who_has_a_right_to_its_destination(saving: bool) -> None:
    d = sites()
    job = d.ask("a", 4, guarantee=OPPORTUNISTIC)
    first = d.ask("b", 4)
    free = next(node for node in ("n1", "n2", "n3") if not {d.at(job)[0][:2], d.at(first)[0][:2]} & {node})
    assert isinstance(move(d, job, free), Accepted)
    if saving:
        warmed(d, job)
    migration = migration_of(d.state, job)
    assert migration is not None
    assert migration.phase is (OperationPhase.SAVING if saving else OperationPhase.WARMING)
    warm = target(d, job).key
    claimant = d.ask("c", 4)
    assert d.at(claimant) == [f"{free}[0..3]"], "nobody who works had to leave, and nothing is waited for"
    assert d.guaranteed(claimant)
    assert d.state.runs.rows.get(warm) is None or d.state.runs.rows[warm].phase is RunPhase.ENDED
    assert migration_of(d.state, job) is None
    if not saving:
        assert d.job(job).state is JobState.RUNNING
        return
    assert d.job(job).state is JobState.STOPPING
    d.leave(job)
    assert d.job(job).state is JobState.RUNNING, "its own devices are idle again"
    assert d.job(job).run > warm.run


def test_the_story_says_to_whom_a_migration_gave_way() -> None:
    d = sites()
    job = d.ask("a", 4, guarantee=OPPORTUNISTIC)
    first = d.ask("b", 4)
    free = next(node for node in ("n1", "n2", "n3") if not {d.at(job)[0][:2], d.at(first)[0][:2]} & {node})
    move(d, job, free)
    taken = d.step(Submitted("ann", "", request("c", 4)))
    (line,) = [line for line in taken.log if line.kind is EventKind.MIGRATION_FAILED]
    assert (line.job_id, line.reason) == (job, Reason.MIGRATED)
    assert line.text == f"job {first + 1} has a right to devices of the destination"


def test_what_does_not_migrate_or_has_a_right_to_its_place_gives_no_way() -> None:
    d = sites()
    job = d.ask("a", 1)
    assert enact(d.state, (GiveWay(job, 9),), 0) == f"nothing is made ready for job {job}"
    move(d, job, d.at(job)[0][:2], 3)
    assert enact(d.state, (GiveWay(job, 9),), 0) == f"job {job} has a right to its destination"


def test_a_job_with_devices_does_not_go_to_a_node_that_has_cpus_in_their_place() -> None:
    d = Tenants({"n1": "FOUR", "c1": "CPU4"})
    d.vc("a", ("four-2x2", "node", 1))
    job = d.ask("a", 2, guarantee=OPPORTUNISTIC)
    refusal = move(d, job, "c1")
    assert isinstance(refusal, FailedPrecondition)
    assert str(refusal) == f"job {job} needs 2 devices, and node c1 has 0 idle devices that it can use"


def joins(d: Tenants, job: int, other: int) -> None:
    """The job is to take turns with the other one, on the device of that."""
    rows = (Row((d.run(other).key,)), Row((RunKey(job, 2),)))
    share = Share(rows, tuple((key, 4096) for row in rows for key in row.runs))
    spot, guaranteed, policy = Spot(d.run(other).node, d.run(other).devices), d.run(job).guaranteed, d.policy

    def proposing(state: State, rng: Rng) -> Proposals:
        yield from policy(state, rng)
        assert (yield (Migrate(job, (spot,), "a test", guaranteed, share),)) is None

    d.policy, d.settles, d.state.pending.policies = proposing, False, True
    d.step()
    d.policy, d.settles = policy, True
    assert target(d, job).group == d.run(other).group != 0


@pytest.mark.parametrize(("guarantee", "before", "after"), [(OVERFLOW, 1, 2), (Guarantee.GUARANTEED, 3, 1)])
def test_a_migration_gives_way_if_the_guarantee_of_those_changes_whom_it_was_to_join(
    guarantee: Guarantee, before: int, after: int
) -> None:
    d = Tenants({"n1": "FOUR"})
    d.vc("a", ("four-2x2", "device", before))
    filler = d.ask("a", 1)
    first, second = d.ask("a", 1, guarantee=guarantee), d.ask("a", 1, guarantee=guarantee)
    joins(d, second, first)
    told = d.change("a", ("four-2x2", "device", after)).log
    assert d.guaranteed(filler)
    assert d.guaranteed(first) is (after > before)
    assert migration_of(d.state, second) is None
    assert not d.state.share_groups.rows
    assert d.states(first, second) == [JobState.RUNNING] * 2
    assert [line.job_id for line in told if line.kind is EventKind.MIGRATION_FAILED] == [second]


def test_a_migration_gives_way_to_a_job_of_higher_priority_that_needs_the_devices_of_those_whom_it_was_to_join() -> None:
    d = Tenants({"n1": "FOUR"})
    d.vc("a", ("four-2x2", "device", 2), policy=VcPolicy("priority"))
    first, second = d.ask("a", 1), d.ask("a", 1, priority=2)
    joins(d, second, first)
    high = d.ask("a", 1, priority=1)
    assert d.run(first).stop_reason is StopReason.RECLAIMED
    assert d.job(second).state is JobState.RUNNING
    assert migration_of(d.state, second) is None
    d.leave(first)
    assert d.guaranteed(high)


def test_a_migration_gives_way_if_the_virtual_cluster_owns_its_destination_no_more() -> None:
    d = Tenants({"n1": "FOUR"})
    d.vc("a", ("four-2x2", "switch", 2))
    first, filler, other = (d.ask("a", 1) for _ in range(3))
    assert [*d.at(first), *d.at(filler), *d.at(other)] == ["n1[0]", "n1[1]", "n1[2]"]
    d.end(filler)
    assert isinstance(move(d, first, "n1", 3), Accepted)
    assert target(d, first).guaranteed
    d.change("a", ("four-2x2", "switch", 1))
    assert migration_of(d.state, first) is None
    assert d.states(first, other) == [JobState.RUNNING] * 2
    assert d.guaranteed(first)
    assert not d.guaranteed(other)


def test_a_destination_is_charged_to_nobody_once_the_policy_charges_nobody() -> None:
    d = Tenants({"n1": "FOUR"})
    d.vc("a", ("four-2x2", "switch", 1), policy=VcPolicy("fair"))
    job = d.ask("a", 1)
    assert isinstance(move(d, job, "n1", 1), Accepted)
    subject = "fair", "a/usage//ann"
    assert d.state.charged[subject].devices == 2_000_000
    d.step(VcRequested("a", False, policy=VcPolicy("fifo")))
    assert subject not in d.state.charged
    d.step(VcRequested("a", False, policy=VcPolicy("fair")))
    assert d.state.charged[subject].devices == 2_000_000
