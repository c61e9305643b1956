"""Devices that break under the scheduler: nothing new is placed on them, and what fails on them is not the job's fault."""

import pytest

from scheduler_service.core.errors import FailedPrecondition, NotFound
from scheduler_service.core.messages import FaultsSeen, NodeChanged
from scheduler_service.core.model import EventKind, JobState, Reason
from scheduler_service.core.model.settings import DEFAULTS, Settings
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, inventory, kinds
from tests.policies.made import fitgpp

SMALL = Vector(4_000, 8_192, 2)
LOST = "XID 79: the GPU has fallen off the bus"


def cluster(nodes: int = 1, settings: Settings = DEFAULTS) -> Driver:
    d = Driver(fitgpp(PreemptionSettings()), settings)
    for number in range(nodes):
        d.join(f"n{number + 1}", SMALL)
    return d


def test_nothing_is_placed_on_a_faulty_device_until_it_is_healthy() -> None:
    d = cluster()
    assert d.faulty({0: LOST}).replies == (NodeChanged(1),)
    assert d.free().devices == 1
    assert d.state.devices.rows[1, 0].fault == LOST
    one, two = d.submit(), d.submit()
    assert d.run(one).devices == (1,)
    assert d.states(one, two) == [JobState.STARTING, JobState.QUEUED]
    d.faulty({})
    assert d.run(two).devices == (0,)
    assert d.free().devices == 0


def test_jobs_without_devices_do_not_mind() -> None:
    d = cluster()
    d.faulty({0: LOST, 1: LOST})
    assert d.job(d.submit(devices=0)).state is JobState.STARTING


def test_a_node_says_in_its_first_words_what_is_faulty() -> None:
    d = Driver()
    seen = d.seen("n1", SMALL)
    d.step(type(seen)("n1", "a", inventory(SMALL, faults={1: LOST})))
    assert d.free().devices == 1
    d.join("n1", SMALL)  # and in its next ones that nothing is any more
    assert d.free().devices == 2


def test_a_run_on_a_device_that_breaks_goes_on_and_its_story_tells() -> None:
    d = cluster()
    job = d.submit(devices=2)
    d.start(job)
    step = d.faulty({1: LOST})
    assert d.job(job).state is JobState.RUNNING
    (told,) = step.log
    assert (told.kind, told.job_id, told.text) == (EventKind.DEVICE_FAULT, job, f"device 1: {LOST}")
    assert d.faulty({1: LOST}).log == ()  # said once
    d.exit(job)
    assert d.job(job).state is JobState.SUCCEEDED
    assert d.free().devices == 1


def test_a_job_that_fails_on_a_faulty_device_starts_again_elsewhere_without_a_retry() -> None:
    d = cluster(2)
    job = d.submit(devices=2)
    d.start(job)
    d.faulty({1: LOST})
    step = d.exit(job, exit_code=1)
    requeued = next(event for event in step.log if event.kind is EventKind.REQUEUED)
    assert (requeued.reason, requeued.text) == (Reason.DEVICE_FAULT, f"left with exit code 1; device 1: {LOST}")
    assert (d.job(job).state, d.where(job).name, d.job(job).retries) == (JobState.STARTING, "n2", 0)


def test_want_of_memory_is_not_the_devices_fault() -> None:
    d = cluster()
    job = d.submit()
    d.start(job)
    d.faulty({0: LOST})
    d.exit(job, exit_signal=9, out_of_memory=True)
    assert (d.job(job).state, d.job(job).reason) == (JobState.FAILED, Reason.OUT_OF_MEMORY)


def test_a_job_under_which_devices_break_again_and_again_is_to_blame() -> None:
    d = cluster(2, DEFAULTS._replace(blame_nodes=2))
    job = d.submit()
    for name, state in (("n1", JobState.STARTING), ("n2", JobState.FAILED)):
        assert d.where(job).name == name
        d.start(job)
        d.faulty({0: LOST}, name)
        d.exit(job, exit_signal=11)
        assert d.job(job).state is state
    assert d.job(job).reason is Reason.FAILED_ON_SEVERAL_NODES


def test_a_run_on_a_faulty_device_is_no_victim() -> None:
    """What it leaves would be less than what the trial needs."""
    d = cluster()
    lame, whole = d.submit(cpu=1000), d.submit(cpu=1000)
    d.start(lame, whole)
    d.faulty({d.run(lame).devices[0]: LOST})
    trial = d.trial()
    assert d.states(lame, whole) == [JobState.RUNNING, JobState.STOPPING]
    d.exit(whole, yielded=True)
    assert d.job(trial).state is JobState.STARTING


def test_a_promise_is_given_up_when_the_device_breaks_before_the_victim_has_left() -> None:
    d = cluster(2)
    jobs = [d.submit(devices=2, cpu=1000), d.submit(devices=2, cpu=2000)]
    d.start(*jobs)
    trial = d.trial(devices=2)
    victim = next(job for job in jobs if d.job(job).state is JobState.STOPPING)
    other = next(job for job in jobs if job != victim)
    step = d.faulty({0: LOST}, d.where(victim).name)
    assert EventKind.EARMARK_DROPPED in kinds(step, trial)
    assert d.job(other).state is JobState.STOPPING  # another makes room for it
    d.exit(other, yielded=True)
    assert d.job(trial).state is JobState.STARTING


def test_what_is_kept_is_given_up_when_a_kept_device_breaks() -> None:
    d = cluster()
    keeping = d.submit(devices=1, cpu=4000)
    d.start(keeping)
    trial = d.trial(devices=2)  # one device is kept at once, the other when the victim has left
    assert d.job(keeping).state is JobState.STOPPING
    idle = next(index for index in range(2) if index not in d.run(keeping).devices)
    step = d.faulty({idle: LOST})
    assert EventKind.EARMARK_DROPPED in kinds(step, trial)
    assert d.free().devices == 0
    d.exit(keeping, yielded=True)
    assert (d.job(trial).state, d.job(trial).reason) == (JobState.QUEUED, Reason.NODES_CLOSED)
    assert d.job(keeping).state is JobState.STARTING, "a trial that fits on no node holds up nobody"
    d.faulty({})
    d.start(keeping)
    d.exit(keeping)
    assert d.job(trial).state is JobState.STARTING


def test_what_another_boot_saw_is_old_news() -> None:
    d = cluster()
    d.join("n1", SMALL, boot="b")
    assert d.reply(FaultsSeen("n1", "a", ((0, LOST),))) == NodeChanged(1)
    assert d.free().devices == 2


def test_faults_of_what_is_not_there_are_refused() -> None:
    d = cluster()
    refused = d.reply(FaultsSeen("n1", "a", ((0, LOST), (2, LOST))))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "NO_SUCH_DEVICE"
    assert d.free().devices == 2
    assert isinstance(d.reply(FaultsSeen("n9", "a", ())), NotFound)


@pytest.mark.parametrize("held", [True, False])
def test_a_device_that_is_gone_takes_its_fault_along(held: bool) -> None:
    """The node comes back with fewer devices, once nothing runs there."""
    d = cluster()
    job = d.submit(devices=2) if held else 0
    d.faulty({1: LOST})
    if held:
        d.start(job)
        d.exit(job)
    d.join("n1", SMALL._replace(devices=1), boot="b")
    assert d.free().devices == 1
    assert not d.state.faulty_devices
