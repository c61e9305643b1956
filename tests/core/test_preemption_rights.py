"""The table of who may have whose runs preempted, row by row as in the design."""

from dataclasses import replace

import pytest

from scheduler_service.core.model import Cluster, Job, JobClass, Run
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.state.preemption_rights import RULES, Spared, claim_of, spared_reason, why_not
from scheduler_service.core.state.queue_order import QueueOrder
from scheduler_service.core.state.state import State
from tests.core.driver import Driver, spec

GUARANTEED, OPPORTUNISTIC = True, False


def pair(
    *, own: bool = True, trial: bool = False, priority: int = 0, guaranteed: bool = OPPORTUNISTIC
) -> tuple[Job, Job, tuple[Run, ...]]:
    """A claimant of priority 1, and a job that runs: of the same virtual cluster, best-effort, of lower priority, and so behind
    the claimant by the usual order."""
    d = Driver()
    d.join()
    d.submit(spec(1, trial))
    job = replace(d.job(1), spec=replace(d.job(1).spec, vc="a" if own else "b"), priority=priority)
    claimant = replace(job, id=2, spec=replace(job.spec, vc="a", job_class=JobClass.TRIAL), priority=1)
    return claimant, job, (replace(d.run(1), guaranteed=guaranteed),)


REACHED = {
    Claim.GUARANTEED: [{}, {"own": False}, {"trial": True}, {"priority": 9}],
    Claim.TRIAL: [{}, {"guaranteed": GUARANTEED}, {"priority": 1}],
    Claim.OPPORTUNISTIC_TRIAL: [{}, {"priority": 1}],
    Claim.PRIORITY: [{}, {"guaranteed": GUARANTEED}, {"trial": True}],
    Claim.REORDER: [{}, {"guaranteed": GUARANTEED}],
}
SPARED = {
    Claim.GUARANTEED: [{"guaranteed": GUARANTEED}],
    Claim.TRIAL: [{"own": False}, {"trial": True}, {"priority": 2}],
    Claim.OPPORTUNISTIC_TRIAL: [{"own": False}, {"trial": True}, {"priority": 2}, {"guaranteed": GUARANTEED}],
    Claim.PRIORITY: [{"own": False}, {"priority": 1}],
    Claim.REORDER: [{"own": False}, {"trial": True}, {"priority": 1}, {"priority": 2}],
}
STATE = State(Cluster("c", 1))


@pytest.mark.parametrize(("claim", "facts"), [(claim, facts) for claim in Claim for facts in REACHED[claim]])
def test_a_claim_reaches_these(claim: Claim, facts: dict[str, object]) -> None:
    claimant, job, runs = pair(**facts)  # type: ignore[arg-type]
    assert why_not(STATE, claim, claimant, job, runs) is None


@pytest.mark.parametrize(("claim", "facts"), [(claim, facts) for claim in Claim for facts in SPARED[claim]])
def test_a_claim_does_not_reach_these_and_says_why(claim: Claim, facts: dict[str, object]) -> None:
    claimant, job, runs = pair(**facts)  # type: ignore[arg-type]
    assert (why_not(STATE, claim, claimant, job, runs) or "").startswith(f"job {job.id} ")


def test_every_claim_has_a_rule_and_trials_are_the_ones_that_are_bounded() -> None:
    assert set(RULES) == set(Claim)
    assert {claim for claim, rule in RULES.items() if rule.capped} == {Claim.TRIAL, Claim.OPPORTUNISTIC_TRIAL}
    assert {claim for claim, rule in RULES.items() if rule.bounded} == {Claim.TRIAL, Claim.OPPORTUNISTIC_TRIAL, Claim.REORDER}


def test_a_trial_claims_by_what_it_is_content_with() -> None:
    claimant, _, _ = pair()
    for guarantee in Guarantee:
        expected = Claim.OPPORTUNISTIC_TRIAL if guarantee is Guarantee.OPPORTUNISTIC else Claim.TRIAL
        trial = replace(claimant, spec=replace(claimant.spec, guarantee=guarantee))
        assert claim_of(STATE, trial) is expected
        best_effort = replace(trial, spec=replace(trial.spec, job_class=JobClass.BEST_EFFORT))
        assert claim_of(STATE, best_effort) is None


def test_any_job_claims_by_what_its_policy_allows() -> None:
    claimant, job, runs = pair(guaranteed=GUARANTEED)
    for claim in (Claim.PRIORITY, Claim.REORDER):
        state = State(Cluster("c", 1), order_of=lambda _, claim=claim: QueueOrder(claim=claim))  # type: ignore[misc]
        assert claim_of(state, claimant) is claim
        opportunistic = replace(claimant, spec=replace(claimant.spec, guarantee=Guarantee.OPPORTUNISTIC))
        assert why_not(state, claim, claimant, job, runs) is None
        assert "is guaranteed" in (why_not(state, claim, opportunistic, job, runs) or "")


def test_whoever_wants_its_place_a_run_is_spared_for_what_it_is_now() -> None:
    d = Driver()
    d.join()
    d.submit(spec(1))
    d.submit(spec(1, True))
    d.start(1)
    run, job = d.run(1), d.job(1)
    assert spared_reason(d.state, run, job) is None
    assert spared_reason(d.state, d.run(2), d.job(2)) is Spared.NOT_BEST_EFFORT
    assert spared_reason(d.state, replace(run, guarded_us=d.now + 1), job) is Spared.GUARDED
    assert spared_reason(d.state, run, replace(job, spec=replace(job.spec, vc="a"))) is Spared.NOT_SERVED
    d.cancel(1)
    assert spared_reason(d.state, d.run(1), d.job(1)) is Spared.EXITS_SOON


def test_a_run_with_a_faulty_device_is_spared_since_it_would_leave_less_than_it_holds() -> None:
    d = Driver()
    d.join()
    d.submit(spec(1))
    d.start(1)
    d.faulty({0: "XID 79"})
    assert spared_reason(d.state, d.run(1), d.job(1)) is Spared.FAULTY
