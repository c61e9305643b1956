"""What is read of a machine, by the real pynvml in a real child process, from a library in the driver's place."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.devices.gpus import read_gpus
from node_agent.devices.reading import Gpu, MigInstance, Pair, Reading
from node_agent.errors import AgentError, DriverFailed, DriverSilent, NoDriver
from tests.agent.conftest import alive, until
from tests.nvml import shim as codes
from tests.nvml.conftest import PlugIn

MACHINES = sorted((Path(__file__).parent / "machines").glob("*.json"))
LIMIT = 30.0


def machine(gpus: int = 2, **of_each: object) -> Reading:
    """GPUs in pairs behind switches, two of which share a socket."""
    made = tuple(
        Gpu.model_validate(
            {
                "uuid": f"GPU-{place}",
                "name": "A GPU",
                "pci": f"0000:{place + 10:02x}:00.0",
                "memory_mib": 81920,
                "minor": gpus - 1 - place,
                "numa_node": place // 4,
                "cpus": (2 * place, 2 * place + 1),
                **of_each,
            }
        )
        for place in range(gpus)
    )
    pairs = tuple(
        Pair(a=a.uuid, b=b.uuid, level="single" if i // 2 == j // 2 else "node" if i // 4 == j // 4 else "system")
        for i, a in enumerate(made)
        for j, b in enumerate(made)
        if i < j
    )
    return Reading(driver="570.86.15", nvml="12.570.86.15", gpus=made, pairs=pairs)


def children() -> Iterator[int]:
    """Processes that ask the driver for this one, and still run."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            yield from filter(asks_the_driver, map(int, (thread / "children").read_text().split()))


def asks_the_driver(pid: int) -> bool:
    try:
        return alive(pid) and b"node_agent.devices.sidecar" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("file", MACHINES, ids=lambda file: file.stem)
async def test_what_a_machine_has_is_read_as_it_is(file: Path, plug_in: PlugIn) -> None:
    reading = Reading.model_validate(json.loads(file.read_text())["reading"])
    driver = plug_in(reading)
    read = await read_gpus(LIMIT, driver.sysfs)
    if any(gpu.fault for gpu in reading.gpus):  # each was described as it was seen at the time
        assert [gpu.uuid for gpu in read.gpus] == [gpu.uuid for gpu in reading.gpus]
    else:
        assert read.model_copy(update={"pairs": ()}) == reading.model_copy(update={"pairs": ()})
        assert {frozenset((pair.a, pair.b)): (pair.level, pair.links) for pair in read.pairs} == {
            frozenset((pair.a, pair.b)): (pair.level, pair.links) for pair in reading.pairs
        }


async def test_a_cluster_wide_fabric_and_a_large_domain(plug_in: PlugIn) -> None:
    cluster = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
    reading = machine(fabric=f"{cluster}/32766", switch_links=18)
    reading = reading.model_copy(
        update={"gpus": tuple(gpu.model_copy(update={"pci": gpu.pci.replace("0000:", "10fab:")}) for gpu in reading.gpus)}
    )
    assert await read_gpus(LIMIT, plug_in(reading).sysfs) == reading


async def test_what_an_old_driver_does_not_know_is_said_once_and_the_rest_is_read(old_library: Path, plug_in: PlugIn) -> None:
    reading = machine(4, switch_links=12, fabric="00000000-0000-0000-0000-000000000000/0")
    linked = reading.pairs[0].model_copy(update={"links": 2})
    reading = reading.model_copy(update={"pairs": (linked, *reading.pairs[1:])})
    read = await read_gpus(LIMIT, plug_in(reading, old_library).sysfs)
    assert [gpu.model_copy(update={"switch_links": 12, "fabric": reading.gpus[0].fabric}) for gpu in read.gpus] == list(
        reading.gpus
    )
    assert {(gpu.switch_links, gpu.fabric) for gpu in read.gpus} == {(0, "")}
    assert read.pairs == reading.pairs  # by the address at the other end
    assert set(read.problems) == {
        "this driver does not tell what NVLinks lead to: only those to GPUs of this machine are known",
        "this driver is too old to tell its nearest CPUs",
        "this driver is too old to tell its fabric",
    }
    assert len(read.problems) == 3


async def test_without_sysfs_only_the_numa_node_is_unknown(tmp_path: Path, plug_in: PlugIn) -> None:
    reading = machine()
    plug_in(reading)
    expected = tuple(gpu.model_copy(update={"numa_node": None}) for gpu in reading.gpus)
    assert (await read_gpus(LIMIT, tmp_path / "nothing")).gpus == expected


async def test_what_one_gpu_may_not_be_asked_costs_nothing_else(plug_in: PlugIn) -> None:
    reading = machine(3)
    driver = plug_in(reading)
    for function in ("nvmlDeviceGetMinorNumber", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetTopologyCommonAncestor"):
        driver.fail(function, codes.NO_PERMISSION, gpu=1)
    read = await read_gpus(LIMIT, driver.sysfs)
    assert read.gpus == (reading.gpus[0], reading.gpus[1].model_copy(update={"minor": None}), reading.gpus[2])
    assert [pair.level for pair in read.pairs] == ["single", "node", None]
    assert list(read.problems) == [
        "GPU 1: its NVLinks could not be read: Insufficient Permissions",
        "GPU 1: its minor number could not be read: Insufficient Permissions",
        "GPU 1 and GPU 2: what they have in common could not be read: Insufficient Permissions",
    ]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (codes.GPU_IS_LOST, "the GPU is lost: it no longer answers on its bus"),
        (codes.NO_PERMISSION, "the size of its memory could not be read: Insufficient Permissions"),
        (4711, "the size of its memory could not be read: error 4711"),
    ],
)
async def test_a_gpu_that_does_not_tell_its_memory_has_a_fault(code: int, fault: str, plug_in: PlugIn) -> None:
    driver = plug_in(machine())
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        driver.fail(function, code, gpu=1)
    read = await read_gpus(LIMIT, driver.sysfs)
    assert [(gpu.memory_mib, gpu.fault) for gpu in read.gpus] == [(81920, ""), (0, fault)]


async def test_a_gpu_that_cannot_be_named_is_left_out(plug_in: PlugIn) -> None:
    reading = machine(3)
    driver = plug_in(reading)
    driver.lose(1)
    read = await read_gpus(LIMIT, driver.sysfs)
    assert read.gpus == (reading.gpus[0], reading.gpus[2])
    assert [(pair.a, pair.b) for pair in read.pairs] == [("GPU-0", "GPU-2")]
    assert read.problems == ("GPU 1: left out, since it does not say which it is: GPU is lost",)


async def test_a_mig_instance_that_cannot_be_named_is_left_out(plug_in: PlugIn) -> None:
    instances = tuple(MigInstance(uuid=f"MIG-{place}", name="A GPU MIG 1g.10gb", memory_mib=9728) for place in range(2))
    reading = machine(1, mig=instances)
    driver = plug_in(reading)
    driver.fail("nvmlDeviceGetMigDeviceHandleByIndex", codes.UNKNOWN)
    read = await read_gpus(LIMIT, driver.sysfs)
    assert read.gpus[0].mig is None
    assert read.problems == ("GPU 0: whether it is in MIG mode could not be read: Unknown Error",)


async def test_a_gpu_in_mig_mode_without_instances_is_no_gpu_as_a_whole(plug_in: PlugIn) -> None:
    reading = machine(1, mig=())
    assert (await read_gpus(LIMIT, plug_in(reading).sysfs)).gpus[0].mig == ()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (codes.DRIVER_NOT_LOADED, ["Driver Not Loaded", "modprobe nvidia"]),
        (codes.VERSION_MISMATCH, ["version mismatch", "reboot"]),
        (codes.NO_PERMISSION, ["Insufficient Permissions", "/dev/nvidiactl"]),
        (codes.UNKNOWN, ["Unknown Error", "nvidia-smi"]),
    ],
)
async def test_a_driver_that_cannot_be_used_says_what_to_do(code: int, says: list[str], plug_in: PlugIn) -> None:
    driver = plug_in(machine())
    driver.fail("nvmlInitWithFlags", code)
    with pytest.raises(NoDriver) as error:
        await read_gpus(LIMIT, driver.sysfs)
    for words in says:
        assert words in str(error.value)


async def test_without_a_driver_it_is_said_that_one_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("")  # also where this machine has a real one
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(NoDriver, match=r"Install the NVIDIA driver; a container must be started with the GPUs of its host\.$"):
        await read_gpus(LIMIT)


async def test_a_driver_that_refuses_to_count_is_told(plug_in: PlugIn) -> None:
    driver = plug_in(machine())
    driver.fail("nvmlDeviceGetCount_v2", codes.UNKNOWN)
    with pytest.raises(NoDriver, match="Unknown Error"):
        await read_gpus(LIMIT, driver.sysfs)


async def test_a_driver_that_hangs_costs_no_more_than_the_limit(plug_in: PlugIn) -> None:
    driver = plug_in(machine())
    driver.hang("nvmlInitWithFlags")
    with pytest.raises(DriverSilent, match=r"did not answer within 1 s\. Does nvidia-smi"):
        await read_gpus(1.0, driver.sysfs)
    until(lambda: not list(children()))


@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetTopologyCommonAncestor"])
async def test_who_gives_up_on_a_driver_that_hangs_leaves_no_process(function: str, plug_in: PlugIn) -> None:
    driver = plug_in(machine())
    driver.hang(function)
    reading = asyncio.create_task(read_gpus(3600.0, driver.sysfs))
    await asyncio.to_thread(until, lambda: driver.calls(function))
    assert len(list(children())) == 1
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.to_thread(until, lambda: not list(children()))


async def test_a_driver_that_is_slow_is_waited_for(plug_in: PlugIn) -> None:
    reading = machine()
    driver = plug_in(reading)
    driver.delay("nvmlDeviceGetNvLinkState", 300)
    assert await read_gpus(LIMIT, driver.sysfs) == reading


async def test_a_library_that_crashes_takes_nobody_along(plug_in: PlugIn, capfd: pytest.CaptureFixture[str]) -> None:
    driver = plug_in(machine())
    driver.path.unlink()  # without it, the library aborts
    with pytest.raises(DriverFailed, match="has ended"):
        await read_gpus(LIMIT, driver.sysfs)
    assert "no state file" in capfd.readouterr().err


def test_every_error_is_one_of_the_agent() -> None:
    assert all(issubclass(kind, AgentError) for kind in (NoDriver, DriverSilent, DriverFailed))
