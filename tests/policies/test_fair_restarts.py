"""Usage outlives a scheduler, follows its settings, and is forgotten with its policy or its virtual cluster."""

from scheduler_service.core.allocation.startup_repair import repair_at_startup
from scheduler_service.core.messages import VcRequested
from scheduler_service.core.model import JobState
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import order_of, stages, stages_within
from scheduler_service.policies.fair_share.rules import NAME
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages
from tests.policies.tenants import Tenants
from tests.policies.test_fair import HALF_LIFE, Site, fair

FOURS = "four-2x2"
FAIR = VcPolicy(NAME, settings=(("half_life", float(HALF_LIFE)), ("period", 60.0)))
QUEUED, RUNNING = JobState.QUEUED, JobState.RUNNING


def restarted(site: Site, made: Stages) -> None:
    """The state is loaded as a new leader loads it, and takes its first step. The policy is another, or has other settings."""
    rows = [(table.name, key, row) for table in site.state.tables() for key, row in table.rows.items()]
    state = State(site.state.cluster, site.state.settings, order_of(made))
    state.restore(row for row in rows if row[0] != "cluster")
    repair_at_startup(state)
    state.adopt()
    site.state, site.policy, site.stages = state, made.policy, made
    site.step()


def used() -> Site:
    """Ann has used ten times as much as Bob. Both have a job in the queue behind one of Cid's, Ann's is the older."""
    s = Site()
    s.use("ann", 600)
    s.use("bob", 60)
    s.ask("cid")
    s.step(after=60)
    s.ask("ann")
    s.ask("bob")
    return s


def test_usage_and_the_order_outlive_a_restart() -> None:
    s = used()
    before, queue = s.used("ann"), s.queue()
    restarted(s, fair(**s.own))
    assert (s.used("ann"), s.queue()) == (before, queue)
    last = s.used("cid")
    s.step(after=60)
    assert s.used("cid") > last, "what runs is charged on"


def test_other_shares_hold_from_the_restart_on() -> None:
    s = used()
    ann, bob = (next(job.id for job in s.state.jobs.rows.values() if job.user == user) for user in ("ann", "bob"))
    assert s.queue() == [bob, ann]
    s.own["user_ann"] = 100
    restarted(s, fair(**s.own))
    assert s.queue() == [ann, bob]


def test_usage_is_forgotten_where_the_site_has_another_policy() -> None:
    s = used()
    own = dict(s.own)
    restarted(s, stages("fifo", PreemptionSettings()))
    assert not s.state.memos.rows
    s.step(after=60)
    restarted(s, fair(**own))
    assert {at[1] for at in s.state.memos.rows if "/usage/" in at[1]} == {"/usage//cid"}, "of what runs"


# ---- in a virtual cluster ----------------------------------------------------------------------------------------------


def team() -> tuple[Tenants, int, int]:
    """In `A` Ann has run a job for ten minutes. Another of Ann's and one of Bob's wait for the cells, hers is the older."""
    t = Tenants({"n1": "FOUR"})
    t.vc("A", (FOURS, "node", 1), policy=FAIR)
    t.vc("B")
    first = t.ask("A", 4, user="ann")
    t.step(after=600)
    ann, bob = (t.ask("A", 4, user=user) for user in ("ann", "bob"))
    t.end(first)
    return t, ann, bob


def memos(t: Tenants, vc: str) -> set[str]:
    return {subject for policy, subject in t.state.memos.rows if policy == NAME and subject.startswith(f"{vc}/")}


def test_a_virtual_cluster_is_served_by_its_shares() -> None:
    t, ann, bob = team()
    assert t.states(ann, bob) == [QUEUED, RUNNING]
    assert {"A/usage//ann", "A/usage//bob"} <= memos(t, "A")
    assert stages_within(FAIR).shares is not None


def test_its_usage_is_forgotten_with_its_policy() -> None:
    t, ann, bob = team()
    t.step(VcRequested("A", False, policy=VcPolicy("fifo")))
    t.step(after=120)
    assert not memos(t, "A")
    t.step(VcRequested("A", False, policy=FAIR))
    assert "A/usage//bob" in memos(t, "A"), "what runs is charged"
    t.end(bob)
    assert t.states(ann) == [RUNNING]


def test_its_usage_is_forgotten_with_it() -> None:
    t, ann, bob = team()
    t.end(bob)
    t.end(ann)
    t.delete("A")
    t.step(after=120)
    assert "A" not in t.state.vc_ids
    assert not memos(t, "A")
    t.vc("A", (FOURS, "node", 1), policy=FAIR)
    t.ask("A", 4, user="ann")
    assert memos(t, "A") == {"A/usage//ann", "A/level//ann", "A/period"}
