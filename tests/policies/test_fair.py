"""Fair share: whoever has used least of its share is served first."""

from math import log
from random import Random

import pytest

from scheduler_service.core.messages import Accepted, HoldRequested, Submitted
from scheduler_service.core.model import JobSpec, JobState, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.fair_share.rules import NAME, Member, member_of_subject, rules_of, spent_of
from scheduler_service.policies.fair_share.usage import DEVICE_SECOND
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.shares import Share
from scheduler_service.policies.stages import Stages
from tests.core.driver import Driver, spec

QUEUED, RUNNING, STARTING = JobState.QUEUED, JobState.RUNNING, JobState.STARTING
HALF_LIFE = 3600


def fair(backfill: bool = False, **own: float) -> Stages:
    return stages("fair", PreemptionSettings(), backfill, own=named(own))


def named(own: dict[str, float]) -> dict[str, float]:
    """user_ann stands for user.ann, which is no name of an argument."""
    prefixes = ("user_", "project_")
    return {name.replace("_", ".", 1) if name.startswith(prefixes) else name: value for name, value in own.items()}


class Site(Driver):
    """A node of 8 devices, a half-life of an hour and a period of a minute, unless others are given."""

    def __init__(self, backfill: bool = False, **own: float) -> None:
        self.own = {"half_life": HALF_LIFE, "period": 60, **own}
        self.stages = fair(backfill, **self.own)
        super().__init__(self.stages.policy, order=order_of(self.stages))
        self.settles = not backfill
        self.join()

    def ask(self, user: str, devices: int = 8, project: str = "", what: JobSpec | None = None) -> int:
        """Submits a job, which runs if it was placed."""
        answer = self.reply(Submitted(user, "", with_changes(what or spec(devices), project=project)))
        assert isinstance(answer, Accepted), answer
        self.come_up()
        return answer.job_id

    def come_up(self) -> None:
        self.start(*(job.id for job in self.state.jobs.rows.values() if job.state is STARTING and not job.spec.gang))

    def over(self, job: int) -> None:
        self.exit(job)
        self.come_up()

    def use(self, user: str, seconds: int, devices: int = 8, project: str = "") -> None:
        """A job of the user runs for so long, and ends."""
        job = self.ask(user, devices, project)
        assert self.states(job) == [RUNNING]
        self.step(after=seconds)
        self.exit(job)

    def used(self, user: str, project: str = "", vc: str = "") -> float:
        """Device-seconds, by the memo."""
        memo = self.state.memos.rows[NAME, f"{vc}/usage/{project}/{user}"]
        return rules_of(named(self.own)).usage_at(spent_of(memo), self.now) / DEVICE_SECOND

    def share(self, project: str = "", user: str = "") -> Share:
        assert self.stages.shares is not None
        found = self.stages.shares(self.state, "", self.now).shares
        return next(share for share in found if (share.project, share.user) == (project, user))

    def queue(self) -> list[int]:
        assert self.stages.shares is not None
        return list(self.stages.shares(self.state, "", self.now).next_jobs)


# ---- usage -------------------------------------------------------------------------------------------------------------


def test_usage_is_devices_times_time_and_halves_in_a_half_life() -> None:
    s = Site()
    s.use("ann", 1, devices=4)
    s.step(after=HALF_LIFE - 1)
    first = s.used("ann")
    assert first == pytest.approx(4 * 2 ** -((HALF_LIFE - 1) / HALF_LIFE), rel=1e-3), "it decayed while it accrued, too"
    s.step(after=HALF_LIFE)
    memo = spent_of(s.state.memos.rows[NAME, "/usage//ann"])
    assert memo.rate == 0
    assert s.used("ann") == pytest.approx(first / 2, rel=1e-9)


def test_what_accrues_decays_from_then_on() -> None:
    """8 devices for half an hour, with a half-life of an hour: 8 x H/ln 2 x (1 - 2**-0.5)."""
    s = Site()
    job = s.ask("ann")
    s.step(after=1800)
    by_hand = 8 * HALF_LIFE / log(2) * (1 - 2**-0.5)
    assert s.used("ann") == pytest.approx(by_hand, rel=1e-9)
    s.exit(job)
    s.step(after=2 * HALF_LIFE)
    assert s.used("ann") == pytest.approx(by_hand / 4, rel=1e-9)


def test_usage_does_not_depend_on_how_often_runs_begin_and_end() -> None:
    one, many = Site(), Site()
    one.ask("ann", 4)
    one.step(after=1000)
    for _ in range(10):
        jobs = [many.ask("ann", 1) for _ in range(4)]
        many.step(after=100)
        for job in jobs:
            many.exit(job)
    assert one.used("ann") == pytest.approx(many.used("ann"), abs=1e-6)


def test_jobs_without_devices_are_charged_by_cpus() -> None:
    s = Site(cpus_per_device=4, half_life=1e9)
    s.ask("ann", what=spec(0, cpu=6000))
    s.ask("bob", 1)
    s.step(after=100)
    assert s.used("ann") == pytest.approx(150, rel=1e-4)
    assert s.used("bob") == pytest.approx(100, rel=1e-4), "its CPU goes with its device"


def test_a_gang_is_charged_for_all_of_its_tasks_from_its_placement_on() -> None:
    s = Site(half_life=1e9)
    job = s.ask("ann", what=with_changes(spec(), gang=(TaskGroup(2, Vector(1000, 1024, 3)),), demand=Vector(2000, 2048, 6)))
    assert s.states(job) == [STARTING]
    s.step(after=10)
    assert s.used("ann") == pytest.approx(60, rel=1e-4)
    assert s.share("", "ann").devices == 6


def test_what_has_decayed_is_forgotten_and_nothing_is_looked_at_again() -> None:
    s = Site()
    s.use("bob", 6, devices=1)
    ann = s.ask("ann")
    s.step(HoldRequested(s.ask("cid")), HoldRequested(s.ask("bob")), after=60)
    s.exit(ann)
    steps = s.taken
    while s.state.deadlines:
        s.now = max(s.now, s.state.deadlines[0][0])
        s.step()
    assert set(s.state.memos.rows) == {(NAME, "/level//cid"), (NAME, "/level//bob")}, "of those who have jobs"
    assert s.taken == steps + 3, "the period after the runs, and when the usage of each had decayed"


# ---- the order ---------------------------------------------------------------------------------------------------------


def test_who_has_used_less_is_first() -> None:
    s = Site()
    s.use("ann", 600)
    s.use("bob", 300)
    running = s.ask("cid")
    s.step(after=60)
    ann, bob = s.ask("ann"), s.ask("bob")
    assert s.queue() == [bob, ann]
    s.over(running)
    assert s.states(ann, bob) == [QUEUED, RUNNING]


def test_shares_weigh_usage() -> None:
    """Ann has used twice as much as Bob, and has three times as many shares."""
    s = Site(user_ann=3)
    s.use("ann", 600)
    s.use("bob", 300)
    s.ask("cid")
    s.step(after=60)
    bob, ann = s.ask("bob"), s.ask("ann")
    assert s.queue() == [ann, bob]


def test_a_new_user_goes_first_and_ages_decide_among_the_new() -> None:
    s = Site()
    s.use("ann", 60)
    s.ask("ann")
    s.step(after=60)
    ann, new, newer, second_of_new = (s.ask(user) for user in ("ann", "new", "newer", "new"))
    assert s.queue() == [new, newer, second_of_new, ann]


def test_priority_comes_before_usage() -> None:
    s = Site()
    s.ask("ann")
    s.step(after=60)
    answer = s.reply(Submitted("ann", "", with_changes(spec(8), priority=1)))
    assert isinstance(answer, Accepted)
    new = s.ask("new")
    assert s.queue() == [answer.job_id, new]


def test_the_order_is_renewed_once_a_period_while_jobs_run() -> None:
    s = Site(period=100)
    s.step(after=100 - s.now // SECOND % 100)
    s.ask("ann", 4)
    s.ask("bob", 1)
    ann, bob = s.ask("ann"), s.ask("bob")
    assert s.queue() == [ann, bob], "nothing is used yet"
    s.step(after=99)
    assert s.queue() == [ann, bob]
    s.step(after=1)
    assert s.queue() == [bob, ann], "nothing happened but that time passed"


def test_idle_usage_changes_no_order_and_no_row() -> None:
    s = Site()
    s.use("ann", 600)
    s.use("bob", 300)
    s.step(after=60)
    before = dict(s.state.memos.rows)
    for _ in range(5):
        s.step(after=600)
    assert s.state.memos.rows == before


def test_the_project_counts_before_the_user() -> None:
    s = Site(project_vision=1, project_speech=1)
    s.use("ann", 600, project="vision")
    s.use("bob", 60, project="speech")
    s.ask("cid")
    s.step(after=60)
    bob = s.ask("bob", project="speech")
    new = s.ask("new", project="vision")
    ann = s.ask("ann", project="vision")
    ann_elsewhere = s.ask("ann", project="speech")
    assert s.queue() == [ann_elsewhere, bob, new, ann]


def test_projects_have_shares() -> None:
    s = Site(project_vision=4)
    s.use("ann", 600, project="vision")
    s.use("bob", 300, project="speech")
    s.use("cid", 100)
    s.ask("dan")
    s.step(after=60)
    speech, vision = s.ask("bob", project="speech"), s.ask("ann", project="vision")
    assert s.queue() == [vision, speech]


def test_a_project_that_has_no_shares_may_count_as_none() -> None:
    """Else whoever names a new project each time would come first each time."""
    s = Site(other_projects=0, project_vision=1)
    s.use("ann", 600)
    s.use("bob", 60, project="vision")
    s.ask("cid", project="vision")
    s.step(after=60)
    ann, bob = s.ask("ann", project="new"), s.ask("bob", project="vision")
    assert s.queue() == [bob, ann]
    assert s.share("", "ann").queued == 1
    open_to_all = Site()
    open_to_all.use("ann", 600)
    open_to_all.ask("cid", project="vision")
    open_to_all.step(after=60)
    ann, cid = open_to_all.ask("ann", project="new"), open_to_all.ask("cid", project="vision")
    assert open_to_all.queue() == [ann, cid]


def test_the_first_holds_up_the_others_unless_they_are_backfilled() -> None:
    """In the order of shares, as fifo and backfill do in theirs."""
    for backfilled in (False, True):
        s = Site(backfilled)
        s.use("ann", 600, devices=1)
        s.step(after=60)
        s.ask("cid", what=with_changes(spec(4), time_limit_us=3600 * SECOND))
        s.step(after=60)
        ann = s.ask("ann", what=with_changes(spec(2), time_limit_us=60 * SECOND))
        s.exit(ann)
        first = s.ask("new", 8)
        short = s.ask("ann", what=with_changes(spec(4), time_limit_us=60 * SECOND))
        assert s.states(first, short) == [QUEUED, RUNNING if backfilled else QUEUED]


def test_nobody_is_preempted() -> None:
    s = Site()
    s.use("ann", 600)
    s.step(after=60)
    ann, new = s.ask("ann"), s.ask("new")
    s.step(after=600)
    assert s.states(ann, new) == [RUNNING, QUEUED]


# ---- what people are told ----------------------------------------------------------------------------------------------


def test_the_factor_by_hand() -> None:
    """Shares 1 and 2, usage 3 to 1: 2**-(0.75 / (1/3)) and 2**-(0.25 / (2/3))."""
    s = Site(user_bob=2)
    s.ask("ann", 3)
    s.ask("bob", 1)
    s.step(after=600)
    ann, bob = s.share("", "ann"), s.share("", "bob")
    assert (ann.part_of_shares, bob.part_of_shares) == pytest.approx((1 / 3, 2 / 3))
    assert (ann.part_of_usage, bob.part_of_usage) == pytest.approx((0.75, 0.25))
    assert (ann.factor, bob.factor) == pytest.approx((2**-2.25, 2**-0.375))
    assert ann.device_seconds == pytest.approx(s.used("ann"))
    assert (ann.devices, ann.queued, bob.shares) == (3, 0, 2)
    site = s.share()
    assert (site.factor, site.devices) == (0.5, 4), "one project has used exactly its part"


def test_explain_tells_the_factor() -> None:
    s = Site(project_vision=2)
    s.use("ann", 600, project="vision")
    running = s.ask("bob", project="vision")
    s.step(after=60)
    ann = s.ask("ann", project="vision")
    told = explain(s.state, s.job(ann), s.now, Random(0), s.stages).blockers[0].detail
    share = s.share("vision", "ann")
    assert f"fair-share factor {share.factor:.3f}: user ann has 50.0% of the shares" in told
    assert f"project vision has factor {s.share('vision').factor:.3f}, with 100.0% of the shares" in told
    assert s.states(running) == [RUNNING]


@pytest.mark.parametrize(
    ("own", "wrong"),
    [
        ({"half_life": 0}, "half_life is 0; it must be between 1 and 1e9"),
        ({"period": -1}, "period is -1"),
        ({"cpus_per_device": 0}, "cpus_per_device is 0"),
        ({"user.ann": 0}, "user.ann is 0; shares must be between 0.001"),
        ({"project.vision": -1}, "project.vision is -1"),
        ({"other_projects": -1}, "other_projects is -1"),
        ({"user": 1}, "no setting 'user'; it has half_life, period, cpus_per_device, no_project, other_projects, user.NAME"),
        ({"user.": 1}, "no setting 'user.'"),
        ({"half_life.x": 1}, "no setting 'half_life.x'"),
        ({"share.ann": 1}, "no setting 'share.ann'"),
        ({"user.ann": float("nan")}, "user.ann is nan; it must be a finite number"),
    ],
)
def test_settings_that_cannot_be(own: dict[str, float], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        stages("fair", PreemptionSettings(), own=own)


def test_names_with_dots_and_slashes_have_usage_of_their_own() -> None:
    s = Site()
    s.use("a/b", 60, project="p.q")
    assert s.used("a/b", "p.q") > 0
    [at] = [at for at in s.state.memos.rows if "/usage/" in at[1]]
    assert member_of_subject(at[1])[1:] == ("p.q", "a/b")
    traced = Member("vc", "a/b%", "c/d")
    assert member_of_subject(traced.usage_subject) == traced
