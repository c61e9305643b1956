"""Quotas that are numbers of devices: what they give, and what they do not (HiveD, section 2)."""

from collections import Counter
from random import Random

import pytest

from scheduler_service.core.messages import FaultsSeen, FenceRequested, KnownRun, NodeSeen
from scheduler_service.core.model import JobState, NodeState, Reason, RunPhase
from scheduler_service.core.state.queue_keys import is_in_queue
from scheduler_service.sim.policies.by_count import by_count
from scheduler_service.sim.policies.quota import place
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, inventory


def two_nodes(counted: bool = True, overflows: bool = True) -> Tenants:
    """Two nodes of four devices, half of which each of two tenants may use."""
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    if counted:
        tenants.policy = by_count(overflows)
    half = ("four-2x2", "device", 4) if counted else ("four-2x2", "node", 1)
    tenants.vc("A", half)
    tenants.vc("B", half)
    return tenants


def test_a_tenant_within_its_quota_waits_for_anothers_fragments() -> None:
    """As figure 2 has it; and with cells the same jobs do not hinder each other."""
    for counted in (True, False):
        tenants = two_nodes(counted)
        tenants.ask("A", 3, guarantee=OVERFLOW)
        opportunistic_job = tenants.ask("B", 1, guarantee=OVERFLOW)
        tenants.ask("A", 1, guarantee=OVERFLOW)
        tenants.end(opportunistic_job)
        owner = tenants.ask("B", 4, guarantee=OVERFLOW)
        if counted:
            assert tenants.waits(owner) is Reason.NO_ROOM
        else:
            assert tenants.at(owner) == ["two[0..3]"]


def test_beyond_the_quota_jobs_are_opportunistic_jobs() -> None:
    tenants = two_nodes()
    mine = [tenants.ask("A", 4, guarantee=OVERFLOW), tenants.ask("A", 3, guarantee=OVERFLOW)]
    assert [tenants.guaranteed(job) for job in mine] == [True, False]
    owner = tenants.ask("B", 4, guarantee=OVERFLOW)
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    assert tenants.job(mine[1]).state is JobState.STOPPING
    tenants.leave(mine[1])
    assert tenants.at(owner) == ["two[0..3]"]
    assert tenants.waits(mine[1]) is Reason.RECLAIMED
    tenants.end(mine[0])
    assert tenants.guaranteed(mine[1])


def test_opportunistic_jobs_come_within_the_quota_as_it_has_room() -> None:
    tenants = two_nodes()
    first, second = tenants.ask("A", 4, guarantee=OVERFLOW), tenants.ask("A", 2, guarantee=OVERFLOW)
    tenants.end(first)
    assert tenants.guaranteed(second)
    assert Counter(tenants.owned().values()) == {"A": 2}


def test_the_devices_of_regular_runs_are_bound_to_their_tenant() -> None:
    tenants = two_nodes()
    regular, beyond = tenants.ask("A", 3, guarantee=OVERFLOW), tenants.ask("A", 2, guarantee=OVERFLOW)
    assert Counter(tenants.owned().values()) == {"A": 3}
    assert {level for _, level, _ in tenants.owned()} == {"device"}
    owner = tenants.ask("B", 4, guarantee=OVERFLOW)
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    assert Counter(tenants.owned().values()) == {"A": 3, "B": 4}, "an earmark counts, too"
    tenants.cancel(owner)
    assert Counter(tenants.owned().values()) == {"A": 3}
    tenants.end(regular)
    assert not tenants.owned()
    tenants.leave(beyond)
    assert Counter(tenants.owned().values()) == {"A": 2}, "it runs again, as a regular one"


def test_jobs_that_do_not_overflow_wait_for_their_quota() -> None:
    tenants = two_nodes(overflows=False)
    first, second = tenants.ask("A", 3, guarantee=OVERFLOW), tenants.ask("A", 2, guarantee=OVERFLOW)
    assert (tenants.waits(second), tenants.job(second).detail) == (Reason.BEYOND_QUOTA, "A uses 3 of its 4 devices")
    tenants.end(first)
    assert tenants.guaranteed(second)


def test_opportunistic_jobs_are_never_regular() -> None:
    tenants = two_nodes()
    assert not tenants.guaranteed(tenants.ask("A", 1, guarantee=OPPORTUNISTIC))


def test_a_quota_is_of_one_pool() -> None:
    """A job that could run in two pools is regular in the one where its tenant's quota has room."""
    tenants = Tenants({"four": "FOUR", "six": "SIX", "host": "CPU4"})
    tenants.policy = by_count()
    tenants.vc("A", ("four-2x2", "device", 2), ("six-3x2", "device", 3), ("cpu-4", "cpu", 3))
    jobs = [tenants.ask("A", 2, guarantee=OVERFLOW) for _ in range(4)]
    assert [tenants.at(job) for job in jobs] == [["four[0..1]"], ["six[0..1]"], ["four[2..3]"], ["six[2..3]"]]
    assert [tenants.guaranteed(job) for job in jobs] == [True, True, False, False]
    on_cpus = [tenants.ask("A", 2, cpus=True, guarantee=OVERFLOW) for _ in range(2)]
    assert [tenants.at(job) for job in on_cpus] == [["host[0..1]"], ["host[2..3]"]]
    assert [tenants.guaranteed(job) for job in on_cpus] == [True, False]
    tenants.end(jobs[0], on_cpus[0])
    assert [tenants.guaranteed(job) for job in (jobs[2], jobs[3], on_cpus[1])] == [True, False, True]


@pytest.mark.parametrize("seed", range(30))
def test_quotas_hold_and_no_first_job_waits_beside_room(seed: int) -> None:
    """The driver checks in each step that the core refuses nothing and that its invariants hold. This test counts the devices
    of regular runs, and looks for room for the first job of each queue."""
    rng = Random(seed)
    nodes = dict.fromkeys(("n1", "n2", "n3", "n4"), "FOUR")
    tenants = Tenants(nodes, bad_node_strikes=0)
    tenants.policy = by_count(overflows=seed % 3 > 0)
    quotas = {"A": 8, "B": 5, "C": rng.choice((0, 3))}
    for name, devices in quotas.items():
        tenants.vc(name, ("four-2x2", "device", devices))
    for _ in range(60):
        _something_happens(rng, tenants, nodes)
        _checked(tenants, quotas, overflows=seed % 3 > 0)
    for name in nodes:
        _returns(tenants, name)
    while tenants.state.jobs.rows:
        job = min(tenants.state.active, default=0) or min(tenants.state.jobs.rows)
        if tenants.job(job).state is JobState.QUEUED:
            tenants.cancel(job)
        else:
            tenants.end(job)
    assert not tenants.state.bindings.rows


def _something_happens(rng: Random, tenants: Tenants, nodes: dict[str, str]) -> None:
    state = tenants.state
    stopping = sorted({key.job_id for key, run in state.runs.rows.items() if run.phase is RunPhase.STOPPING})
    able = sorted(job for job in state.active if all(_up(tenants, run.node) for run in state.runs_of(job)))
    match rng.choice("aaaaaaeeellcsfrr"):
        case "a":
            sizes = rng.choice(((1,), (1,), (2,), (3,), (4,), (2, 2), (4, 1, 3)))
            tenants.ask(rng.choice("ABC"), *sizes, guarantee=rng.choice((OVERFLOW, OVERFLOW, OPPORTUNISTIC)))
        case "e" if able:
            tenants.end(rng.choice(able))
        case "l":
            tenants.leave(*(job for job in stopping if job in able))
        case "c" if state.jobs.rows:
            tenants.cancel(rng.choice(sorted(state.jobs.rows)))
        case "s":
            name = rng.choice(sorted(nodes))
            tenants.silence(name)
            if rng.random() < 0.5:
                tenants.step(FenceRequested(name, "op"))
        case "f":
            name = rng.choice(sorted(nodes))
            if tenants.node(name).state is NodeState.UP:
                faults = tuple((index, "XID 79") for index in sorted(rng.sample(range(4), rng.randint(0, 2))))
                tenants.step(FaultsSeen(name, tenants.node(name).boot_id, faults))
        case "r":
            _returns(tenants, rng.choice(sorted(nodes)))


def _up(tenants: Tenants, node: int) -> bool:
    return tenants.state.nodes.rows[node].state is NodeState.UP


def _returns(tenants: Tenants, name: str) -> None:
    row = tenants.node(name)
    if row.state is NodeState.UP:
        return
    runs = [tenants.state.runs.rows[key] for key in sorted(tenants.state.runs_on.get(row.id, ()))]
    known = tuple(KnownRun(run.key, run.phase) for run in runs)
    tenants.step(NodeSeen(name, row.boot_id, inventory("FOUR"), known))


def _checked(tenants: Tenants, quotas: dict[str, int], overflows: bool) -> None:
    state = tenants.state
    used: Counter[str] = Counter()
    for run in state.runs.rows.values():
        used[run.vc] += run.guaranteed * len(run.devices)
    for earmark in state.earmarks.rows.values():
        used[state.jobs.rows[earmark.job_id].spec.vc] += earmark.mask.bit_count()
    assert all(used[name] <= quota for name, quota in quotas.items())
    assert Counter(tenants.owned().values()) == +used
    free = [mask.bit_count() for node, mask in sorted(state.idle_devices.items()) if state.free_resources.is_open(node)]
    waiting = (job for job in state.jobs.rows.values() if is_in_queue(job) and job.id not in state.earmarks_of)
    first = {job.spec.vc: job for job in sorted(waiting, key=lambda job: state.queue_key(job) or (), reverse=True)}
    for job in first.values():
        room = place([demand.devices for demand in job.spec.tasks()], free) is not None
        within = job.spec.guarantee is OVERFLOW and used[job.spec.vc] + job.spec.demand.devices <= quotas[job.spec.vc]
        assert not (room and (within or overflows))
        if job.reason in (Reason.NO_ROOM, Reason.BEYOND_QUOTA):  # others say why it came back
            assert (job.reason is Reason.NO_ROOM) == within
