"""Jobs whose times nobody knows are sampled in each configuration, and then matched (AlloX, section 4.1)."""

from collections.abc import Mapping

import pytest

from scheduler_service.core.errors import AlreadyExists
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    DrainRequested,
    FenceRequested,
    MiniBatchMeasured,
    RunMeasured,
    Stopped,
    Submitted,
    SuspendRequested,
    UndrainRequested,
)
from scheduler_service.core.model import (
    Array,
    Configuration,
    EventKind,
    JobSpec,
    JobState,
    Reason,
    RunKey,
    StopReason,
    TaskGroup,
)
from scheduler_service.core.model.estimates import Source
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, UNSET, ZERO, Vector
from scheduler_service.core.operations.estimators import expected_us
from scheduler_service.policies.allox.configuration_times import Known
from scheduler_service.policies.allox.sampling import is_within_share
from tests.core.driver import Driver, spec
from tests.policies.test_allox import ON_CPU, ON_GPU, allox, driver, either, submit

QUEUED, STARTING, RUNNING, STOPPING = JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING


def unknown(on_gpu: float = 0, on_cpu: float = 0, **more: object) -> JobSpec:
    """A job that runs on a GPU or on CPUs; 0: nobody knows for how long."""
    return either(on_gpu, on_cpu, **more)


def read(d: Driver, job: int, steps: int, elapsed: float, total: int = 1000, first: float = 1.0, **more: int) -> None:
    """What a node reads of a run: so many steps after so many seconds."""
    run = d.run(job)
    at = d.state.nodes.rows[run.node].name, run.key, steps, round(first * SECOND), round(elapsed * SECOND), total
    d.step(RunMeasured(*at, **more))


def sample(d: Driver, job: int, each: float, start: float = 1.0, total: int = 1000) -> None:
    """The job's sample runs to its end: steps of so many seconds."""
    d.start(job)
    for steps in (2, 15, 30):
        if d.job(job).sampling is not None:
            read(d, job, steps, start + each * steps, total, start + each)
    d.exit(job, yielded=True, told=True)


def told(d: Driver, job: int, *events: object) -> list[str]:
    """The lines of the job's story about its samples that a step with these events adds."""
    return [line.text for line in d.step(*events).log if line.job_id == job and line.kind is EventKind.SAMPLED]  # type: ignore[arg-type]


def estimated(d: Driver, job: int) -> Mapping[int, float]:
    """Seconds, by configuration."""
    return {number: expected_us(d.job(job), number) / SECOND for number in (0, 1)}


# ---- from the first sample to the matching -------------------------------------------------------------------------------


def test_each_configuration_is_sampled_and_then_the_faster_one_runs() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    assert (d.job(job).configuration, d.job(job).sampling is not None) == (0, True)
    sample(d, job, each=0.5)
    assert (d.job(job).configuration, d.job(job).sampling is not None, d.job(job).run) == (1, True, 2)
    sample(d, job, each=0.1)
    assert estimated(d, job) == {0: 501, 1: 101}
    assert (d.job(job).state, d.job(job).configuration, d.job(job).sampling) == (STARTING, 1, None)
    assert d.ended == {}
    d.start(job)
    d.exit(job)
    assert d.job(job).state is JobState.SUCCEEDED


def test_the_measured_rate_of_a_run_takes_the_place_of_its_sample() -> None:
    d = driver(1, 1, measured=1)
    assert d.state.introspects, "nodes are asked for measurements"
    (job,) = submit(d, unknown())
    sample(d, job, each=0.5)
    sample(d, job, each=0.1)
    assert estimated(d, job) == {0: 501, 1: 101}
    d.start(job)
    before = d.job(job)
    for after in (60, 60):
        at = d.where(job).name, d.run(job).key
        d.step(MiniBatchMeasured(*at, 300_000, 20, 990_000), after=after)
    assert estimated(d, job) == {0: 501, 1: 300}, "1,000 steps of 0.3 s"
    assert Known(1).ways_of(before).times_us != Known(1).ways_of(d.job(job)).times_us, "and the matching goes by that"
    d.step(SuspendRequested(job))
    d.exit(job, yielded=True, told=True)
    assert estimated(d, job) == {0: 501, 1: 300}, "also when it queues again"


def test_a_rate_of_other_devices_says_nothing() -> None:
    d = driver(1, 1, measured=1)
    (job,) = submit(d, unknown())
    sample(d, job, each=0.5)
    sample(d, job, each=0.1)
    d.start(job)
    for after in (60, 60):
        at = d.where(job).name, d.run(job).key
        d.step(MiniBatchMeasured(*at, 300_000, 20, 990_000), after=after)
    row, profile = d.job(job), d.job(job).profile
    assert profile is not None
    other = with_changes(row, profile=profile._replace(devices=profile.devices + 1))
    assert expected_us(other, 1) == 101 * SECOND
    assert expected_us(with_changes(row, configuration=0), 1) == 101 * SECOND, "nor one of another configuration"


def test_nobody_is_asked_for_rates_if_the_site_does_not_say_so() -> None:
    assert not driver(1, 1).state.introspects


def test_what_the_user_has_said_is_not_sampled() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown(on_gpu=100))
    assert (d.job(job).configuration, d.job(job).sampling is not None) == (1, True)
    sample(d, job, each=5)
    assert estimated(d, job) == {0: 100, 1: 5001}
    assert (d.job(job).configuration, d.job(job).sampling) == (0, None)


@pytest.mark.parametrize("spec", [unknown(10, 20), JobSpec(("true",), ON_GPU), unknown(array=Array(2))])
def test_no_samples_of_jobs_that_are_known_or_have_no_choice_and_of_arrays(spec: JobSpec) -> None:
    d = driver(2, 1)
    submit(d, spec)
    assert d.state.active
    assert all(d.state.jobs.rows[job].sampling is None for job in d.state.active)


def test_no_samples_if_the_site_wants_none() -> None:
    d = driver(1, 1, sample_percent=0)
    (job,) = submit(d, unknown())
    assert (d.job(job).state, d.job(job).sampling) == (STARTING, None)


def test_the_story_says_what_was_sampled_and_what_came_of_it() -> None:
    d = driver(1, 1)
    lines = d.step(Submitted("ann", "", unknown())).log
    assert [line.text for line in lines if line.kind is EventKind.PLACED] == ["sample of configuration 0"]
    (job,) = d.state.jobs.rows
    d.start(job)
    at = "gpu-0", d.run(job).key
    assert told(d, job, RunMeasured(*at, 30, SECOND, 15 * SECOND, 1000, 0, 300)) == [
        "configuration 0 would take 483.3 s, standard error 53 s, memory 300 MiB"
    ]
    assert (d.job(job).state, d.job(job).reason) == (STOPPING, Reason.SAMPLED)
    assert d.run(job).stop_reason is StopReason.SAMPLED
    orders = d.job(job)
    assert orders.estimates[0].source is Source.SAMPLE
    d.exit(job, yielded=True, told=True)
    assert d.job(job).configuration == 1


def test_a_sample_that_exits_with_0_after_its_stop_has_not_done_the_jobs_work() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    read(d, job, 30, 15)
    d.exit(job, told=True)
    assert (d.job(job).state, d.job(job).run) == (STARTING, 2)


def test_a_sample_that_does_all_of_the_work_ends_the_job() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    d.exit(job)
    assert (d.job(job).state, d.job(job).sampling) == (JobState.SUCCEEDED, None)


# ---- measurements --------------------------------------------------------------------------------------------------------


def test_the_line_goes_through_two_samples_of_which_one_is_twice_as_long_as_the_other() -> None:
    """A program that is slow at first: the first steps are not taken for what the others take."""
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    for steps, elapsed in ((2, 20.0), (15, 46.0), (30, 76.0)):
        read(d, job, steps, elapsed, first=10)
    assert estimated(d, job)[0] == 16 + 2 * 1000


def test_a_sample_is_as_long_as_its_part_of_the_steps() -> None:
    d = driver(1, 1, sample_percent=10)
    (job,) = submit(d, unknown())
    d.start(job)
    read(d, job, 99, 99)
    assert d.job(job).state is RUNNING
    read(d, job, 100, 100)
    assert d.job(job).state is STOPPING


def test_two_steps_are_a_sample_of_a_job_of_few_steps() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    read(d, job, 2, 11, total=10)
    assert (d.job(job).state, estimated(d, job)[0]) == (STOPPING, 100)


@pytest.mark.parametrize("wrong", ["node", "run", "older"])
def test_what_is_said_of_another_run_or_was_known_changes_nothing(wrong: str) -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    read(d, job, 10, 10)
    before = d.job(job)
    node = "cpu-0" if wrong == "node" else "gpu-0"
    key = RunKey(job, 2) if wrong == "run" else d.run(job).key
    d.step(RunMeasured(node, key, 9 if wrong == "older" else 500, SECOND, 500 * SECOND, 1000))
    assert d.job(job) == before


def test_a_measurement_of_a_run_that_is_no_sample_changes_nothing() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown(10, 20))
    d.start(job)
    before = d.job(job)
    read(d, job, 500, 500)
    assert d.job(job) == before


# ---- samples that do not come to their end -------------------------------------------------------------------------------


def test_a_sample_that_takes_too_long_is_cut_off_with_what_is_known() -> None:
    d = driver(1, 1, sample_most=60)
    (job,) = submit(d, unknown())
    d.start(job)
    read(d, job, 3, 50, first=10)
    d.step(after=59)
    assert d.job(job).state is RUNNING
    d.step(after=1)
    assert (d.job(job).state, estimated(d, job)[0]) == (STOPPING, -10 + 20 * 1000 + 10)


def test_a_program_that_counts_no_steps_goes_on_where_it_is() -> None:
    d = driver(1, 1, sample_most=60, unknown=77)
    (job,) = submit(d, unknown())
    d.start(job)
    d.step(after=60)
    assert [part.time_us for part in d.job(job).estimates] == [0, 0]
    assert d.job(job).estimates[1].detail == "the program counted fewer than 2 steps in 60 s"
    assert (d.job(job).state, d.job(job).run, d.job(job).sampling) == (RUNNING, 1, None)
    d.step(after=3600)
    d.exit(job)
    assert (d.job(job).state, d.job(job).run) == (JobState.SUCCEEDED, 1)


def test_a_program_that_does_not_say_how_many_steps_there_are() -> None:
    d = driver(1, 1, sample_most=60)
    (job,) = submit(d, unknown())
    d.start(job)
    read(d, job, 500, 50, total=0)
    d.step(after=60)
    assert {part.detail for part in d.job(job).estimates} == {"the program does not say how many steps the job has"}
    assert d.job(job).state is RUNNING


@pytest.mark.parametrize("outcome", [{"exit_code": 1}, {"out_of_memory": True}, {"launch_error": "no such file"}])
def test_a_sample_that_fails_rules_its_configuration_out_and_not_the_job(outcome: dict[str, int]) -> None:
    d = driver(1, 2)
    (job,) = submit(d, unknown())
    d.start(job)
    log = d.exit(job, **outcome).log
    assert any(line.text.startswith("configuration 0 is impossible: its sample") for line in log)
    assert (d.job(job).configuration, d.job(job).retries, d.job(job).failed_on) == (1, 0, ())
    sample(d, job, each=50)
    assert (d.job(job).configuration, d.job(job).sampling) == (1, None)
    d.start(job)
    d.exit(job)
    assert (d.job(job).state, d.node("gpu-0").strikes) == (JobState.SUCCEEDED, 0)


def test_a_job_that_fails_in_every_configuration_has_failed() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    d.exit(job, exit_code=3)
    d.start(job)
    d.exit(job, exit_code=4)
    assert (d.job(job).state, d.job(job).exit_code) == (JobState.FAILED, 4)


def test_a_configuration_that_is_ruled_out_is_waited_for_by_nobody() -> None:
    """The job would be done sooner on the GPU, by the user's word, if it did not fail there: it waits for CPUs."""
    d = driver(1, 1)
    (job,) = submit(d, unknown(on_cpu=500))
    d.start(job)
    (busy,) = submit(d, JobSpec(("true",), ON_CPU, estimate_us=50 * SECOND))
    d.exit(job, exit_code=1)
    assert (d.job(job).state, d.state.active.keys()) == (QUEUED, {busy})
    d.start(busy)
    d.exit(busy)
    assert (d.job(job).state, d.job(job).configuration) == (STARTING, 1)


def test_a_cancel_ends_a_sample_and_its_job() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    d.step(CancelRequested(job))
    d.step(after=1000)
    d.exit(job, exit_signal=15)
    assert (d.job(job).state, d.job(job).sampling) == (JobState.CANCELLED, None)


def test_a_job_that_is_suspended_is_sampled_anew() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    read(d, job, 10, 10)
    d.step(SuspendRequested(job))
    d.exit(job, yielded=True, told=True)
    assert (d.job(job).state, d.job(job).sampling, d.job(job).estimates) == (JobState.SUSPENDED, None, ())


def test_a_node_that_is_lost_costs_a_sample_and_rules_nothing_out() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    d.silence("gpu-0")
    d.step(FenceRequested("gpu-0", "operator"))
    assert (d.job(job).estimates, d.job(job).run) == ((), 2)
    assert d.job(job).sampling is not None


def test_a_new_leader_goes_on_where_samples_are() -> None:
    d = driver(1, 1, sample_most=60)
    (job,) = submit(d, unknown())
    d.start(job)
    read(d, job, 10, 10)
    d.state = d.state.rebuild()
    read(d, job, 20, 20)
    d.step(after=60)
    assert (d.job(job).state, estimated(d, job)[0]) == (STOPPING, 1000)


# ---- how many samples at once --------------------------------------------------------------------------------------------


def test_samples_run_before_other_jobs_and_within_their_part_of_the_cluster() -> None:
    d = driver(4, 1, sample_share=0.5)
    sampled = submit(d, *[unknown()] * 4, user="bob")
    assert d.states(*sampled) == [STARTING, STARTING, QUEUED, QUEUED]
    known = submit(d, *[either(10, 15)] * 4)
    assert d.states(*known) == [STARTING, STARTING, STARTING, QUEUED]
    assert all(d.job(job).reason is Reason.NO_ROOM for job in sampled[2:])
    d.start(sampled[0])
    d.step(CancelRequested(sampled[0]))
    d.exit(sampled[0], exit_signal=15)
    assert (d.states(sampled[2], known[3]), d.job(sampled[2]).sampling is not None) == ([STARTING, QUEUED], True)


def test_a_configuration_that_no_open_node_could_take_is_not_waited_for() -> None:
    """The CPU node is drained: the job goes on with the GPU, of which it knows how long it takes there."""
    d = driver(1, 1)
    d.step(DrainRequested("cpu-0", "new fans", "operator"))
    (job,) = submit(d, unknown(on_gpu=100))
    assert (d.job(job).state, d.job(job).configuration, d.job(job).sampling) == (STARTING, 0, None)
    (part,) = d.job(job).estimates
    assert (part.configuration, part.detail) == (1, "no node that is open could run a sample")


def test_a_job_that_no_open_node_could_take_waits_for_its_samples() -> None:
    d = driver(1, 1)
    for name in ("gpu-0", "cpu-0"):
        d.step(DrainRequested(name, "new fans", "operator"))
    (job,) = submit(d, unknown())
    assert (d.job(job).state, d.job(job).reason, d.job(job).estimates) == (QUEUED, Reason.NO_ROOM, ())
    d.step(UndrainRequested("cpu-0"))
    assert (d.job(job).configuration, d.job(job).sampling is not None) == (1, True)
    sample(d, job, each=1)
    assert (d.job(job).configuration, d.job(job).sampling) == (1, None)


def test_one_sample_may_always_run() -> None:
    d = driver(1, 1, sample_share=0)
    one, other = submit(d, unknown(), unknown())
    assert [d.job(job).state for job in (one, other)] == [STARTING, QUEUED]


def test_what_samples_may_hold() -> None:
    capacity = Vector(8, 8, 8)
    assert is_within_share(ZERO, Vector(8, 8, 8), capacity, 0.25)
    assert is_within_share(Vector(1, 1, 1), Vector(1, 1, 1), capacity, 0.25)
    assert not is_within_share(Vector(1, 1, 1), Vector(1, 1, 2), capacity, 0.25)
    assert is_within_share(Vector(0, 1, 0), Vector(8, 1, 8), capacity, 0.25)


def test_a_job_to_be_sampled_is_in_no_matching() -> None:
    """Its times are unknown: it takes no slot from those whose times are known."""
    d = driver(1, 1, sample_share=0)
    first, waiting = submit(d, unknown(), unknown())
    (known,) = submit(d, unknown(10, 20))
    assert [d.job(job).state for job in (first, waiting, known)] == [STARTING, QUEUED, STARTING]
    assert d.job(known).sampling is None


def test_long_queues_are_sampled_as_well() -> None:
    d = driver(1, 1, long=0, sample_share=1)
    jobs = submit(d, *[unknown()] * 3)
    assert [d.job(job).state for job in jobs] == [STARTING, STARTING, QUEUED]
    assert all(d.job(job).sampling is not None for job in jobs[:2])


def test_the_slot_of_a_sample_is_expected_to_be_free_soon() -> None:
    """A job that waits for the GPU of a sample need not wait for as long as an unknown job takes."""
    d = driver(1, 1, sample_most=60)
    (sampled,) = submit(d, unknown())
    d.start(sampled)
    (job,) = submit(d, either(10, 100))
    assert d.job(job).state is QUEUED
    (longer,) = submit(d, either(90, 100))
    assert (d.job(longer).state, d.job(longer).configuration) == (STARTING, 1)


# ---- for people ----------------------------------------------------------------------------------------------------------


def test_what_is_known_of_the_times_in_words() -> None:
    made = allox()
    d = driver(1, 1)
    (job,) = submit(d, unknown(on_cpu=50))
    assert made.about(d.state, d.job(job)) == (
        "it would run for: configuration 0 3600 s, configuration 1 50 s; "
        "in all: configuration 0 unknown (to be sampled), configuration 1 50 s (user)"
    )
    sample(d, job, each=0.1)
    assert "in all: configuration 0 101 s (sample, standard error 11 s), configuration 1 50 s (user)" in made.about(
        d.state, d.job(job)
    )


def test_jobs_of_which_nothing_is_noted_are_told_of_as_before() -> None:
    d = driver(1, 1)
    (job,) = submit(d, either(10, 20))
    assert allox().about(d.state, d.job(job)) == "it would run for: configuration 0 10 s, configuration 1 20 s"


def test_a_failed_configuration_in_words() -> None:
    d = driver(1, 1)
    (job,) = submit(d, unknown())
    d.start(job)
    d.exit(job, exit_code=1)
    assert "configuration 0 never (its sample left with exit code 1)" in allox().about(d.state, d.job(job))


@pytest.mark.parametrize(("name", "value"), [("sample_percent", 51), ("sample_share", 2), ("sample_most", 0)])
def test_settings_that_cannot_be(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"the setting {name} is {value}; it must be from"):
        allox(**{name: value})


def test_alternatives_of_gangs_are_measured_by_their_first_task() -> None:
    d = driver(2, 1)
    gang = with_changes(unknown(), gang=(TaskGroup(2, ON_GPU),), demand=Vector(2000, 2, 2))
    (reply,) = d.step(Submitted("ann", "", gang)).replies
    assert isinstance(reply, Accepted)
    job = reply.job_id
    for task in (0, 1):
        d.step(d.ready(job, task))
    for task in (0, 1):
        d.step(d.started(job, task))
    assert d.job(job).sampling is not None
    taken = d.step(RunMeasured("gpu-0", RunKey(job, 1, 0), 30, SECOND, 30 * SECOND, 1000))
    assert [type(order.desired) for order in taken.orders] == [Stopped, Stopped]


def test_configurations_of_a_sampled_job() -> None:
    """Three of them, one after the other."""
    d = driver(1, 2)
    two = Configuration(Vector(2000, 1, 0))
    (job,) = submit(d, with_changes(unknown(), alternatives=(*unknown().alternatives, two)))
    for number, each in ((0, 3.0), (1, 2.0), (2, 1.0)):
        assert d.job(job).configuration == number
        sample(d, job, each)
    assert (d.job(job).configuration, d.job(job).sampling) == (2, None)


# ---- memory ----------------------------------------------------------------------------------------------------------------

GIB, WITH_MEMORY = 1024, Vector(4000, 64 * 1024, 1)


def with_memory(**more: object) -> JobSpec:
    """A job for a GPU or for CPUs whose user has named no memory for the first."""
    return with_changes(unknown(), demand=Vector(1000, UNSET, 1), **more)


def two_ways() -> Driver:
    d = driver(0, 1)
    d.join("gpu-0", WITH_MEMORY)
    return d


def sampled_with(d: Driver, job: int, memory_mib: int) -> None:
    """Its sample runs to its end, and is seen to use so much."""
    d.start(job)
    for steps in (2, 30):
        read(d, job, steps, 1.0 + 0.5 * steps, first=1.5, memory_mib=memory_mib)
    d.exit(job, yielded=True, told=True)


def test_the_memory_of_a_sample_is_the_demand_of_a_configuration_whose_user_named_none() -> None:
    d = two_ways()
    (job,) = submit(d, with_memory())
    assert d.job(job).spec.demand.memory_mib == 63 * GIB
    d.start(job)
    read(d, job, 30, 16.0, first=1.5, memory_mib=4 * GIB)
    left = d.exit(job, yielded=True, told=True)
    assert d.job(job).spec.demand.memory_mib == 5 * GIB
    said = "configuration 0 asks for 5120 MiB from now on, in place of 64512 by default"
    assert any(said in line.text for line in left.log)
    sample(d, job, each=5)
    assert (d.run(job).demand.memory_mib, d.job(job).sampling) == (5 * GIB, None)
    beside = d.submit(with_changes(spec(0), demand=Vector(1000, 58 * GIB, 0)))
    assert d.job(beside).state is STARTING


@pytest.mark.parametrize(("used", "gets"), [(100, 356), (40 * GIB, 50 * GIB), (60 * GIB, 63 * GIB), (0, 63 * GIB)])
def test_it_has_a_quarter_more_and_never_more_than_by_default(used: int, gets: int) -> None:
    d = two_ways()
    (job,) = submit(d, with_memory())
    sampled_with(d, job, used)
    assert d.job(job).spec.demand.memory_mib == gets


def test_memory_that_a_user_has_named_stays() -> None:
    d = two_ways()
    (job,) = submit(d, with_changes(unknown(), demand=Vector(1000, 7 * GIB, 1)))
    sampled_with(d, job, 100)
    sampled_with(d, job, 50)
    assert d.job(job).spec.demand.memory_mib == 7 * GIB
    assert d.job(job).spec.alternatives[0].demand == ON_CPU


def test_a_job_that_needs_more_than_its_sample_has_its_default_again_and_has_not_failed() -> None:
    d = two_ways()
    (job,) = submit(d, with_memory())
    sampled_with(d, job, GIB)
    sample(d, job, each=5)
    d.start(job)
    assert d.run(job).demand.memory_mib == GIB + 256
    over = d.exit(job, out_of_memory=True, exit_signal=9)
    assert "it needs more memory than its sample was seen to use, and asks for 64512 MiB from now on, its default" in [
        line.text for line in over.log
    ]
    assert (d.job(job).state, d.job(job).retries, d.run(job).demand.memory_mib) == (STARTING, 0, 63 * GIB)
    assert (d.job(job).failed_on, d.job(job).avoid) == ((), ()), "its node is not to blame"
    d.start(job)
    d.exit(job, out_of_memory=True, exit_signal=9)
    assert (d.job(job).state, d.job(job).reason) == (JobState.FAILED, Reason.OUT_OF_MEMORY)


def test_the_request_of_a_job_that_was_sampled_is_still_the_same_request() -> None:
    d = two_ways()
    asked = Submitted("ann", "r", with_memory())
    (reply,) = d.step(asked).replies
    assert isinstance(reply, Accepted)
    sampled_with(d, reply.job_id, GIB)
    assert d.job(reply.job_id).spec.demand.memory_mib == GIB + 256
    assert d.step(asked).replies == (reply,)
    named = Submitted("ann", "r", with_changes(with_memory(), demand=Vector(1000, GIB + 256, 1)))
    assert isinstance(d.step(named).replies[0], AlreadyExists)
