"""Jobs whose users name neither CPUs nor memory have what goes with their devices, and fill their nodes."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from scheduler_service.core.errors import AlreadyExists
from scheduler_service.core.messages import Accepted, Submitted
from scheduler_service.core.model import Configuration, JobSpec, JobState, NodeSelector, ShareMode, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import UNSET, Vector, add
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec
from tests.core.parts import ask
from tests.policies.made import fitgpp
from tests.policies.tenants import Tenants, request
from tests.thorough import examples

GIB = 1024
LARGE, NARROW = Vector(64_000, 262_144, 8), Vector(6_000, 99_999, 4)
QUICKLY = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking takes minutes
CAPACITIES = st.builds(
    Vector, st.integers(0, 64_000).map(lambda cpu: cpu + 1000), st.integers(1024, 1 << 20), st.integers(1, 4)
)


def asks(devices: int = 1, cpu: int = UNSET, memory: int = UNSET, **more: object) -> JobSpec:
    return with_changes(spec(devices), demand=Vector(cpu, memory, devices), **more)


def share(amount: int, devices: int, left: int) -> int:
    """Of one device, less what jobs without devices may have."""
    each = amount // devices
    return each - left if each >= 2 * left else each


def site(*capacities: Vector, **choices: int) -> Driver:
    d = Driver(fitgpp(PreemptionSettings()), Settings(**choices))  # type: ignore[arg-type]
    for number, capacity in enumerate(capacities):
        d.join(f"n{number}", capacity=capacity)
    return d


def gets(d: Driver, what: JobSpec) -> Vector:
    return d.job(d.submit(what)).spec.demand


@settings(max_examples=examples(20), deadline=None, phases=QUICKLY)
@given(st.lists(CAPACITIES, min_size=1, max_size=3))
def test_a_site_full_of_such_jobs_uses_every_device(capacities: list[Vector]) -> None:
    d = site(*capacities)
    devices = sum(capacity.devices for capacity in capacities)
    jobs = [d.submit(asks()) for _ in range(devices + 1)]
    assert d.states(*jobs) == [JobState.STARTING] * devices + [JobState.QUEUED]


@settings(max_examples=examples(20), deadline=None, phases=QUICKLY)
@given(st.lists(st.builds(Vector, st.integers(8_000, 64_000), st.integers(8192, 1 << 20), st.integers(1, 4))))
def test_where_all_devices_are_in_use_a_job_without_devices_has_room(capacities: list[Vector]) -> None:
    d = site(*capacities)
    for capacity in capacities:
        d.submit(asks(capacity.devices))
    beside = [d.submit(spec(0, cpu=1000)) for _ in capacities]
    assert d.states(*beside) == [JobState.STARTING] * len(capacities)


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("capacity", [Vector(4_000, 400_000, 2), Vector(5_003, 999_999, 3)])
def test_a_node_full_of_jobs_that_share_devices_uses_every_part(capacity: Vector, parts: int) -> None:
    d = site(capacity)
    jobs = [
        ask(d, asks(gpu_fraction_ppm=1_000_000 // parts, share=ShareMode.SLICED)) for _ in range(capacity.devices * parts + 1)
    ]
    assert d.states(*jobs) == [JobState.RUNNING] * capacity.devices * parts + [JobState.QUEUED]


@settings(max_examples=examples(20), deadline=None, phases=QUICKLY)
@given(st.lists(CAPACITIES, min_size=1, max_size=4), st.data())
def test_what_is_named_stays_and_what_is_not_fits_wherever_the_job_could_run(
    capacities: list[Vector], data: st.DataObject
) -> None:
    d = site(*capacities)
    devices = data.draw(st.integers(1, max(capacity.devices for capacity in capacities)))
    named = data.draw(st.sampled_from((UNSET, 1000))), data.draw(st.sampled_from((UNSET, 1024)))
    found = gets(d, asks(devices, *named))
    for asked, amount in zip(named, found, strict=False):
        assert amount == asked or asked == UNSET
    could = [c for c in capacities if c.devices >= devices]
    least = [min(share(c[i], c.devices, left) for c in could) * devices for i, left in enumerate((1000, 1024))]
    expected = [least[i] if named[i] == UNSET else named[i] for i in range(2)]
    assert found == (*expected, devices)


def test_nodes_and_devices_that_the_job_names_decide() -> None:
    d = site(LARGE, NARROW)
    assert gets(d, asks(2)) == (2 * 1_500, 2 * (24_999 - GIB), 2), "of 1.5 CPUs none is left"
    assert gets(d, asks(8)) == (8 * 7_000, 8 * 31 * GIB, 8)
    assert gets(d, asks(2, nodes=NodeSelector(names=("n0",)))) == (14_000, 62 * GIB, 2)
    assert gets(d, asks(2, cells=CellRequest(model="A100"))) == gets(d, asks(2))


def test_a_job_without_devices_is_left_alone() -> None:
    assert gets(site(LARGE), spec(0, cpu=1000)) == (1000, 1024, 0)


def test_a_site_sets_the_amounts_and_jobs_that_take_turns_share_them() -> None:
    assert gets(site(LARGE, cpu_milli_per_device=2_500), asks(2)) == (5_000, 62 * GIB, 2)
    assert gets(site(LARGE, cpu_milli_per_device=2_500, memory_mib_per_device=10), asks(2)) == (5_000, 20, 2)
    half, packed = (asks(gpu_fraction_ppm=500_000, share=share) for share in (ShareMode.SLICED, ShareMode.PACKED))
    assert gets(site(LARGE), packed) == (3_500, 31 * GIB // 2, 1)
    assert gets(site(LARGE, cpu_milli_per_device=3_000), packed) == (1_500, 31 * GIB // 2, 1)
    assert gets(site(LARGE), half) == (3_500, GIB, 1), "the rest of its memory is for its parks"
    much, device = LARGE._replace(memory_mib=8 * 101 * GIB), 40 * GIB * 92 // 100
    assert gets(site(much), half) == (3_500, 50 * GIB - (device - 3 * 512), 1)
    assert gets(site(much, default_jobs_per_device=2), asks(2)) == (7_000, 2 * (50 * GIB - device), 2)


def test_the_story_says_what_a_job_gets() -> None:
    d = site(LARGE)
    taken = d.step(Submitted("ann", "", asks(2)))
    assert "14 CPUs and 63488 MiB with 2 devices by default" in [line.text for line in taken.log]


def test_before_the_first_node_comes_a_device_has_one_cpu() -> None:
    assert gets(site(), asks(4)) == (4_000, 4_096, 4)


def test_each_task_group_and_each_configuration_has_its_own() -> None:
    d = site(LARGE, LARGE)
    groups = (TaskGroup(2, Vector(UNSET, UNSET, 4)), TaskGroup(1, Vector(1000, 512, 0)))
    gang = with_changes(spec(8), gang=groups, demand=Vector(UNSET, UNSET, 8))
    other = Configuration(Vector(UNSET, 100, 1))
    job = d.job(d.submit(with_changes(gang, alternatives=(other,)))).spec
    assert [group.demand for group in job.gang] == [(28_000, 4 * 31 * GIB, 4), (1000, 512, 0)]
    assert job.demand == add(Vector(56_000, 8 * 31 * GIB, 8), Vector(1000, 512, 0))
    assert job.alternatives[0].demand == (7_000, 100, 1)


def test_the_same_request_is_the_same_job_whatever_nodes_have_come_meanwhile() -> None:
    d = site(LARGE)
    first = d.submit(asks(2), request_id="r")
    d.join("n9", capacity=NARROW)
    assert d.reply(Submitted("ann", "r", asks(2))) == Accepted(first)
    assert d.reply(Submitted("ann", "r", asks(2, cpu=14_000))) == Accepted(first)
    for other in (asks(1), asks(2, cpu=1_000), with_changes(asks(2), gang=(TaskGroup(1, Vector(UNSET, UNSET, 2)),))):
        assert isinstance(d.reply(Submitted("ann", "r", other)), AlreadyExists)


@pytest.mark.parametrize("percent", [0, 50])
def test_cells_bring_their_share(percent: int) -> None:
    t = Tenants({"a": "FOUR", "b": "SIX"}, host_percent=percent)
    for name, pool in (("one", "FOUR"), ("two", "SIX")):
        t.vc(name, (next(p for p in t.state.pools.in_order() if t.state.pools.models[p] == pool), "node", 1))
    jobs = [t.submit(with_changes(request("one", 1), demand=Vector(UNSET, UNSET, 1))) for _ in range(5)]
    assert t.job(jobs[0]).spec.demand == (4_000 * (100 - percent) // 100, 16_384 * (100 - percent) // 100, 1)
    assert [t.job(job).state for job in jobs] == [JobState.STARTING] * 4 + [JobState.QUEUED]
