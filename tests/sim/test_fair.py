"""Fair share in the simulator: what users receive over time who always have jobs in the queue."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.experiments.cases import Outcome, simulate
from scheduler_service.sim.experiments.config import Config
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.world import Site, World
from tests.sim.building import Listed, node

HALF_LIFE = 3600
DEVICES = 4
SPEC = JobSpec(("x",), Vector(0, 0, 1))
NEVER = 10**9


def backlog(user: str, seed: int, at: int = 0, project: str = "", jobs: int = 700) -> Iterator[SimJob]:
    """More jobs than ever run, of one device each, that last for half a minute to five minutes; all submitted at once."""
    random, spec = Random(seed), with_changes(SPEC, project=project)
    return (SimJob(spec, random.randint(30, 300) * SECOND, at * SECOND, user) for _ in range(jobs))


def simulated(jobs: Iterable[SimJob], until: int, **own: float) -> list[Life]:
    made = stages("fair", PreemptionSettings(), own={"half_life": HALF_LIFE, "period": 60, **own})
    world = World(Site((node(DEVICES),), made.policy, order=order_of(made)), Listed(jobs))
    while (at := world.next_us()) is not None and at <= until * SECOND:
        world.advance(at)
    return list(world.lives.values())


def received(lives: Iterable[Life], user: str, begin: int, end: int, project: str = "") -> float:
    """Device-seconds in this window of seconds."""
    total = 0
    for life in lives:
        if (life.job.user, life.job.spec.project) == (user, project):
            for launch in life.launches:
                over = NEVER * SECOND if launch.ended_us is None else launch.ended_us
                total += max(min(over, end * SECOND) - max(launch.placed_us, begin * SECOND), 0)
    return total / SECOND


def test_two_users_receive_by_their_shares() -> None:
    """Shares of 1 and 2, over ten half-lives: within 4 percent. Who is behind gets every device that comes free until usage is
    even again, so that the user with the smaller share swings more, and comes out a little above the share."""
    until = 10 * HALF_LIFE
    jobs = [*backlog("ann", 1), *backlog("bob", 2)]
    lives = simulated(jobs, until, **{"user.bob": 2})
    ann, bob = (received(lives, user, 0, until) for user in ("ann", "bob"))
    assert bob / ann == pytest.approx(2, rel=0.04)
    assert ann + bob == pytest.approx(DEVICES * until, rel=1e-3), "no device was idle"


def test_projects_receive_by_their_shares_whoever_is_in_them() -> None:
    """Two users of one project share the half of it; the third user has the other half alone."""
    until = 6 * HALF_LIFE
    jobs = [*backlog("ann", 1, project="p"), *backlog("bob", 2, project="p"), *backlog("cid", 3, project="q")]
    lives = simulated(jobs, until, **{"project.p": 1, "project.q": 1})
    ann, bob, cid = (received(lives, user, 0, until, project) for user, project in (("ann", "p"), ("bob", "p"), ("cid", "q")))
    assert cid / (ann + bob) == pytest.approx(1, rel=0.04)
    assert ann / bob == pytest.approx(1, rel=0.04)


def test_an_idle_share_is_used_by_others_and_is_there_when_its_owner_comes() -> None:
    late, until = 2 * HALF_LIFE, 8 * HALF_LIFE
    lives = simulated([*backlog("ann", 1), *backlog("bob", 2, at=late)], until, **{"user.bob": 3})
    assert received(lives, "ann", 0, late) == pytest.approx(DEVICES * late, rel=1e-3)
    ann, bob = (received(lives, user, late, late + HALF_LIFE // 2) for user in ("ann", "bob"))
    assert bob > 10 * ann, "first what was used before is made up for"
    ann, bob = (received(lives, user, late + 2 * HALF_LIFE, until) for user in ("ann", "bob"))
    assert bob / ann == pytest.approx(3, rel=0.1)


def test_a_configuration_of_ebb_sim_names_it(tmp_path: Path) -> None:
    """Ten jobs of each of two projects, of which one has nine times the shares; the others' jobs come first in the file."""
    lines = [
        "submit_s,work_s,gpus,user,project",
        *("0,100,8,ann,p" for _ in range(10)),
        *("1,100,8,bob,a/b" for _ in range(10)),
    ]
    (tmp_path / "jobs.csv").write_text("\n".join(lines))
    config = {
        "cluster": {"nodes": 1, "gpus": 8},
        "workload": {"kind": "csv", "file": "jobs.csv"},
        "policies": [{"name": "fair", "settings": {"period": 1, "project.p": 1, "project.a/b": 9}}, "fifo"],
    }
    fair, fifo = (simulate(case) for case in Config.model_validate(config).cases(tmp_path))

    def mean_wait(outcome: Outcome, user: str) -> float:
        waits, users = outcome.jobs["wait_us"].to_numpy(), outcome.jobs["user"].to_numpy(zero_copy_only=False)
        return float(waits[users == user].mean())

    assert mean_wait(fifo, "bob") > mean_wait(fifo, "ann")
    assert mean_wait(fair, "bob") < mean_wait(fair, "ann")


def test_it_decides_the_same_again() -> None:
    jobs = [*backlog("ann", 1, jobs=150), *backlog("bob", 2, jobs=150)]
    first, second = (simulated(jobs, NEVER) for _ in range(2))
    assert [life.launches for life in first] == [life.launches for life in second]
