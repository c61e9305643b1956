"""Strikes: failures for which a node is drained. Those of one user's jobs are one; the node's own faults all count."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.lifecycle.node_health import praise
from scheduler_service.core.messages import Accepted, Submitted, UndrainRequested
from scheduler_service.core.model import JobState, Node, Retry, Strike
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec
from tests.policies.made import fitgpp

SMALL = Vector(4_000, 8_192, 2)
OWN: tuple[dict[str, Any], ...] = (
    {"exit_code": 1},
    {"exit_code": 127},
    {"exit_signal": 11},
    {"exit_signal": 9, "out_of_memory": True},
    {"exit_signal": 9, "out_of_memory": True, "out_of_device_memory": "of device 0"},
    {"launch_error": "working directory /data: No such file or directory", "job_fault": True},
)
"""Failures by what the job does, or names."""
LOST = "XID 79: the GPU has fallen off the bus"


def cluster(strikes: int, nodes: int = 2, **settings: Any) -> Driver:
    d = Driver(fitgpp(PreemptionSettings()), Settings(bad_node_strikes=strikes, retry_pause_us=0)._replace(**settings))
    for number in range(nodes):
        d.join(f"n{number + 1}", SMALL)
    return d


def submit(d: Driver, user: str) -> int:
    answer = d.reply(Submitted(user, "", with_changes(spec(cpu=1_000, memory=1_024, devices=1), retry=Retry(20))))
    assert isinstance(answer, Accepted), answer
    return answer.job_id


def fail_here_only(d: Driver, user: str, outcome: dict[str, Any]) -> int:
    """A job that fails on n1 and then succeeds on n2."""
    job = submit(d, user)
    d.start(job)
    assert d.where(job).name == "n1"
    d.exit(job, **outcome)
    d.start(job)
    assert d.where(job).name == "n2"
    d.exit(job)
    assert d.job(job).state is JobState.SUCCEEDED
    return job


def has_consistent_strikes(node: Node) -> bool:
    users = [cause.user for cause in node.strike_causes if cause.user is not None]
    return len(set(users)) == len(users) and len(node.strike_causes) <= node.strikes


@given(
    limit=st.integers(2, 4),
    blame=st.sampled_from((0, 2, 3)),
    acts=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from((*OWN, *OWN, {}))), max_size=60),
)
def test_no_failures_of_fewer_users_than_the_limit_drain_a_node(
    limit: int, blame: int, acts: list[tuple[int, int, dict[str, Any]]]
) -> None:
    """In any order and number, of any of their jobs."""
    d = cluster(limit, nodes=3, blame_nodes=blame)
    live: list[int] = []
    users = limit - 1
    for who, at, outcome in acts:
        if len(live) < 4:
            live.append(submit(d, f"user{who % users}"))
        job = live[at % len(live)]
        d.start(job)
        d.exit(job, **outcome)
        live = [job for job in live if d.job(job).ended_us is None]
        for node in d.state.nodes.rows.values():
            assert has_consistent_strikes(node)
            assert node.strikes <= users
            assert node.drained_us is None


@pytest.mark.parametrize("outcome", OWN)
def test_failures_of_as_many_users_drain_a_node(outcome: dict[str, Any]) -> None:
    d = cluster(3)
    for user in ("ann", "ann", "bob", "ann", "bob"):
        fail_here_only(d, user, outcome)
    assert (d.node("n1").strikes, d.node("n1").drained_us) == (2, None)
    fail_here_only(d, "cora", outcome)
    assert d.node("n1").drained_us == d.now
    failed = "failed here and succeeded elsewhere"
    told = f"3 strikes: job 4 of ann {failed}; job 5 of bob {failed}; job 6 of cora {failed}"
    assert (d.node("n1").drain_reason, d.node("n1").drain_user) == (told, ""), "with the last job of each"
    d.step(UndrainRequested("n1"))
    assert (d.node("n1").strikes, d.node("n1").strike_causes) == (0, ())
    fail_here_only(d, "ann", outcome)
    assert d.node("n1").strikes == 1, "it counts again"


@pytest.mark.parametrize("outcome", [{"launch_error": "this node has no device 1"}, {"unknown": True}, {"exit_code": 1}])
def test_the_nodes_own_faults_drain_it_also_by_jobs_of_one_user(outcome: dict[str, Any]) -> None:
    d = cluster(6, fault_retries=3)
    fail_here_only(d, "ann", {"exit_code": 2})
    jobs = 0
    while d.node("n1").drained_us is None:
        job = submit(d, "ann")
        d.start(job)
        assert d.where(job).name == "n1"
        if outcome == {"exit_code": 1}:
            d.faulty({d.run(job).devices[0]: LOST})
        d.exit(job, **outcome)
        d.faulty({})
        d.start(job)
        d.exit(job)
        jobs += 1
    # A run that vanishes is a strike at once, and another one if its job succeeds elsewhere.
    assert jobs == (3 if "unknown" in outcome else 5)
    assert d.node("n1").strike_causes[0] == Strike(1, "ann", "failed here and succeeded elsewhere")
    if "unknown" in outcome:
        assert "job 2 vanished here; job 2 failed here and succeeded elsewhere" in d.node("n1").drain_reason


def test_a_job_that_failed_by_itself_and_by_the_node_counts_as_the_nodes_fault() -> None:
    d = cluster(9, nodes=2)
    job = submit(d, "ann")
    for outcome in ({"launch_error": "no device"}, {"exit_code": 1}, {"exit_code": 1}):
        d.start(job)
        d.exit(job, **outcome)
    d.start(job)
    assert (d.job(job).failed_on, d.job(job).node_faults_on, d.where(job).name) == ((1, 2), (1,), "n2")
    d.exit(job)
    assert d.node("n1").strike_causes == (Strike(job, None, "failed here and succeeded elsewhere"),)


def test_a_job_that_goes_well_forgives_the_oldest_strike() -> None:
    d = cluster(9)
    fail_here_only(d, "ann", {"exit_code": 1})
    fail_here_only(d, "bob", {"exit_code": 1})
    good = submit(d, "ann")
    d.start(good)
    d.exit(good)
    assert [cause.user for cause in d.node("n1").strike_causes] == ["bob"]
    assert d.node("n1").strikes == 1


def test_strikes_that_were_counted_without_causes_are_forgiven_first() -> None:
    """By a version that kept none."""
    d = cluster(4)
    fail_here_only(d, "ann", {"exit_code": 1})
    d.state.put(d.state.nodes, 1, with_changes(d.node("n1"), strikes=3))
    for left, users in ((2, ["ann"]), (1, ["ann"]), (0, []), (0, [])):
        praise(d.state, 1)
        assert (d.node("n1").strikes, [cause.user for cause in d.node("n1").strike_causes]) == (left, users)
    d.state.undo()
    assert d.node("n1").strikes == 1


def test_of_many_faults_of_a_node_the_last_are_kept() -> None:
    d = cluster(30)
    fail_here_only(d, "ann", {"exit_code": 1})
    for _ in range(29):
        fail_here_only(d, "bob", {"launch_error": "no device"})
    node = d.node("n1")
    assert (node.strikes, len(node.strike_causes), node.strike_causes[0].user) == (30, 17, "ann")
    assert node.drained_us is not None
    assert node.drain_reason.startswith("30 strikes, the last: job 23 failed here")
    assert node.drain_reason.count("job ") == 8
