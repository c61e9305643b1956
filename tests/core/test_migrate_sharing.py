"""Migrations of jobs that share devices: away from a share group, and into one."""

from dataclasses import replace

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import (
    CancelRequested,
    Migrate,
    Plan,
    Rng,
    Running,
    Share,
    Spot,
    Stopped,
    SuspendRequested,
)
from scheduler_service.core.model import JobState, RunKey, RunPhase
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.gandiva.slicing.take_turns import would_do
from tests.core.driver import Driver, spec
from tests.core.test_migrate import warm
from tests.policies.sharing_runs import gang_of

NODE = Vector(64_000, 65_536, 2)


class Told(Driver):
    """Carries out the plans that tests give it, and says why one was refused."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.said: list[str | None] = []
        super().__init__(self._policy)
        self.join("n1", NODE)

    def _policy(self, state: State, rng: Rng) -> Proposals:
        yield from fifo(state, rng)
        if self.plan is not None:
            self.said.append((yield self.plan))

    def does(self, action: Migrate) -> str | None:
        """Why it was refused, the first time: a step is taken again, to see that it is done."""
        self.plan, self.said = (action,), []
        self.state.pending.policies = True
        self.step()
        self.plan = None
        return self.said[0]


def beside(d: Told, *jobs: int, more: RunKey | None = None) -> Share:
    """These jobs take turns, and the run that is to come with them."""
    keys = [d.run(job).key for job in jobs] + ([more] if more is not None else [])
    return Share(tuple(Row((key,)) for key in keys), tuple((key, 4096) for key in keys))


def three() -> tuple[Told, int, int, int]:
    """a and b take turns on device 0, and c has device 1 alone. b has come by a migration."""
    d = Told()
    a, c = d.submit(spec(1)), d.submit(spec(1))
    d.start(a)
    d.start(c)
    d.step(CancelRequested(c))
    d.exit(c, told=True)
    b = d.submit(spec(1))
    d.start(b)
    assert d.does(Migrate(b, (Spot(1, (0,)),), "a test", share=beside(d, a, more=RunKey(b, 2)))) is None
    arrive(d, b)
    c = d.submit(spec(1))
    d.start(c)
    assert [d.run(job).devices for job in (a, b, c)] == [(0,), (0,), (1,)]
    return d, a, b, c


def arrive(d: Told, job: int) -> None:
    """The migration of the job goes on to its end."""
    warm(d, job)
    d.exit(job, yielded=True, told=True)
    d.step(d.started(job))


def test_a_job_goes_into_a_share_group() -> None:
    d, a, b, _ = three()
    group = d.run(a).group
    assert group
    assert d.run(b).group == group
    assert d.run(b).run == 2
    assert d.job(b).state is JobState.RUNNING
    assert b not in d.state.operation_of


def test_a_member_that_is_still_elsewhere_has_its_turns_and_is_in_no_launch() -> None:
    d, a, b, c = three()
    assert d.does(Migrate(b, (Spot(1, (1,)),), "a test", share=beside(d, c, more=RunKey(b, 3)))) is None
    warm = d.state.runs.rows[RunKey(b, 3)]
    assert warm.phase is RunPhase.WARMING
    assert warm.group == d.run(c).group != d.run(a).group
    assert d.run(b).group == d.run(a).group
    assert [run.run for run in d.state.runs_of(b)] == [2]


def test_who_is_left_behind_has_the_device_alone() -> None:
    d, a, b, c = three()
    d.does(Migrate(b, (Spot(1, (1,)),), "a test", share=beside(d, c, more=RunKey(b, 3))))
    arrive(d, b)
    assert not d.run(a).group
    assert d.run(b).group == d.run(c).group != 0
    assert d.run(b).devices == (1,)


def test_a_member_goes_to_devices_that_are_idle() -> None:
    d, a, b, c = three()
    d.step(CancelRequested(c))
    d.exit(c, told=True)
    assert d.does(Migrate(b, (Spot(1, (1,)),), "a test")) is None
    arrive(d, b)
    assert not d.run(a).group
    assert not d.run(b).group
    assert d.run(b).devices == (1,)


def test_what_stops_the_job_before_takes_the_new_member_out_of_the_group() -> None:
    d, a, b, c = three()
    d.does(Migrate(b, (Spot(1, (1,)),), "a test", share=beside(d, c, more=RunKey(b, 3))))
    taken = d.step(SuspendRequested(b))
    assert {order.key for order in taken.orders if isinstance(order.desired, Stopped)} == {RunKey(b, 2), RunKey(b, 3)}
    assert RunKey(b, 3) not in d.state.runs.rows
    assert not d.run(c).group, "it has its device alone again"
    d.exit(b)
    assert not d.run(a).group


def test_the_destination_that_ends_before_it_begins_leaves_the_group() -> None:
    d, a, b, c = three()
    d.does(Migrate(b, (Spot(1, (1,)),), "a test", share=beside(d, c, more=RunKey(b, 3))))
    d.step(CancelRequested(c))
    d.exit(c, told=True)
    assert d.state.runs.rows[RunKey(b, 3)].group == 0, "it is alone there before it has come"
    assert d.run(a).group == d.run(b).group != 0


def test_devices_that_others_hold_cannot_be_taken_without_them() -> None:
    d, a, b, c = three()
    moves = Migrate(b, (Spot(1, (1,)),), "a test")
    with_others = replace(moves, share=beside(d, a, b, more=RunKey(b, 3)))
    assert not would_do(d.state, (moves,))
    assert not would_do(d.state, (with_others,)), "c holds the device, and is in none of the rows"
    assert would_do(d.state, (replace(moves, share=beside(d, c, more=RunKey(b, 3))),))


def test_the_node_hears_of_the_plan_when_the_run_begins() -> None:
    d, _, b, c = three()
    assert d.does(Migrate(b, (Spot(1, (1,)),), "a test", share=beside(d, c, more=RunKey(b, 3)))) is None
    assert [order.key for order in warm(d, b).orders] == [RunKey(b, 2)]
    taken = d.exit(b, yielded=True, told=True)
    (order,) = [order for order in taken.orders if order.key == RunKey(b, 3)]
    assert isinstance(order.desired, Running)
    assert order.desired.share is not None
    assert order.desired.share.group == d.run(c).group


def test_a_gang_that_arrives_at_others_has_until_its_turn_to_start() -> None:
    d = Told()
    gang = d.submit(gang_of(2, 1))
    d.step(*(d.ready(gang, task) for task in (0, 1)))
    assert d.job(gang).start_by_us == d.now + 60 * SECOND, "it takes no turns"
    d.step(*(d.started(gang, task) for task in (0, 1)))
    d.join("n2", NODE)
    c = d.submit(spec(2))
    d.start(c)
    comes = [RunKey(gang, 2, task) for task in (0, 1)]
    rows = (Row((d.run(c).key,)), Row(tuple(comes)))
    share = Share(rows, tuple((key, 4096) for key in (d.run(c).key, *comes)), 600 * SECOND)
    assert d.does(Migrate(gang, (Spot(2, (0,)), Spot(2, (1,))), "a test", share=share)) is None
    warm(d, gang)
    for task in (0, 1):
        d.step(d.exited(gang, task, yielded=True))
    assert d.job(gang).start_by_us == d.now + 660 * SECOND
    d.step(after=659)
    assert d.job(gang).state is JobState.STARTING
    d.step(*(d.started(gang, task) for task in (0, 1)))
    assert (d.job(gang).state, d.job(gang).start_by_us) == (JobState.RUNNING, None)
