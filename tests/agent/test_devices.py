"""The device tree file, the picture and `ebb-agent devices`, on recorded machines and without a driver."""

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner, Result
from ebb.agent.v1 import agent_link_pb2 as pb

from node_agent import build_devices as opening
from node_agent.build_devices import CHANGED, GONE, add_lost_gpus, add_remembered_gpus, capacity, laid_out
from node_agent.commands.main import main
from node_agent.config import BadSettings, load_devices
from node_agent.devices.base import Device, Inventory
from node_agent.devices.graph import tree
from node_agent.devices.override import ABSENT
from node_agent.devices.reading import Gpu, MigInstance, Pair, Reading
from node_agent.devices.topology_text import as_json, picture
from node_agent.devices.tree import Tree, pci_address, sort_gpus
from node_agent.errors import DeviceTreeUnusable, NothingLeft
from node_agent.transport.convert import encode
from node_agent.transport.messages import Hello

ROOT = Path(__file__).parents[2]


def machine(name: str) -> Reading:
    recorded = json.loads((ROOT / "tests" / "nvml" / "machines" / f"{name}.json").read_text())
    return Reading.model_validate(recorded["reading"])


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        file = tmp_path / "tree.yaml"
        file.write_text(dedent(text))
        return file

    return write


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree is made without a child process, which tests/nvml has, and which loads networkx each time."""

    async def here(reading: Reading) -> Tree:
        return tree(reading)

    monkeypatch.setattr(opening, "_tree", here)


# The device tree file.


async def test_the_example_in_the_docs(written: Any) -> None:
    example = (ROOT / "docs" / "devices.md").read_text().split("```yaml\n")[1].split("```")[0]
    inventory, notes = await laid_out(machine("dgx-a100"), written(example))
    assert inventory.levels == ("socket", "switch")
    assert [device.path for device in inventory.devices] == [(i // 4, i // 2 % 2) for i in range(8)]
    assert [device.link_domain for device in inventory.devices] == [0] * 8  # the driver's, as the file has none
    assert [device.index for device in inventory.devices] == list(range(8))
    assert [device.numa_node for device in inventory.devices] == [3, 3, 1, 1, 7, 7, 5, 5]
    assert notes == ()


VM = [gpu.uuid for gpu in machine("vm-flat").gpus]
WHOLE = """
    levels: [socket]
    devices:
      00:05.0: {path: [0]}
      00000000:00:06.0: {path: [0]}
      "0000:00:07.0": {path: [1]}
      0000:00:08.0: {path: [1]}
"""


async def test_addresses_are_taken_as_people_write_them(written: Any) -> None:
    inventory, notes = await laid_out(machine("vm-flat"), written(WHOLE))
    assert [(device.uuid, device.path) for device in inventory.devices] == list(zip(VM, [(0,), (0,), (1,), (1,)], strict=True))
    assert notes == ()  # that every pair looks alike is what the file is there for


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{path: [0]}", "{path: [0, 0]}"), "devices.00:05.0.path: has 2 numbers, and levels has 1; write one for each"),
        (("{path: [0]}", "{path: [-1]}"), "devices.00:05.0.path.0: Input should be greater than or equal to 0; is '-1'"),
        (("{path: [0]}", "{paths: [0]}"), "devices.00:05.0.paths: there is no such field; take it out"),
        (("levels: [socket]", "levels: [socket, socket]"), "levels: socket stands there 2 times"),
        (("levels: [socket]", "levels: [node]"), "levels: node is a level of every node; choose another name"),
        (("levels: [socket]", "levels: ['']"), "levels.0: String should have at least 1 character"),
        (("levels: [socket]", "levels: [socket]\n    level: x"), "level: there is no such field"),
        (("00:05.0", "05.0"), "devices: 05.0: is neither a UUID (GPU-..., MIG-...) nor a PCI address"),
        (("00:05.0", "0000:00:06.0"), "devices: 0000:00:06.0 stands in the file 2 times"),
        (("00:05.0", "00:09.0"), "devices: 0000:00:09.0: this machine has no such device; correct the name, take it out, or"),
        (("00:05.0", "00:09.0"), f"devices: {VM[0]} (0000:00:05.0) is here, and is not named; give it a path, put it under"),
        (
            ("00:05.0: {path: [0]}", f"00:05.0: {{path: [0]}}\n      {VM[0]}: {{path: [0]}}"),
            f"named by {VM[0]} and by 0000:00:05",
        ),
        (("00:05.0: {path: [0]}", "00:05.0: {path: [1]}"), "levels: socket: the cell [0] has 1 of the devices, and [1] has 3"),
        (('"0000:00:07.0": {path: [1]}', "00:07.0: {path: [2]}"), "levels: socket: the cell [1] has 1 of the devices"),
        (("{path: [1]}", "{path: [7]}"), "the numbers of level socket below [] are [0, 1, 7]; they count 0, 1, ..."),
        ((WHOLE, "levels: [a]"), "devices: is missing; levels say nothing without a path for each device"),
        ((WHOLE, "leave_out: [00:09.0]"), "leave_out: 0000:00:09.0: this machine has no such device"),
        (("{path: [1]}", "[1]"), ": has to be fields with values, such as {path: [0, 0]}"),
        ((WHOLE, "- a"), "the file: has to be fields with values, such as levels: [socket]"),
        ((WHOLE, "a: ["), "while parsing a flow node expected the node content"),
    ],
)
async def test_a_file_that_does_not_fit_is_refused_with_what_to_do(change: tuple[str, str], message: str, written: Any) -> None:
    old, new = change
    assert old in WHOLE
    file = written(WHOLE.replace(old, new, 1))
    with pytest.raises(DeviceTreeUnusable) as error:
        await laid_out(machine("vm-flat"), file)
    assert message in str(error.value)
    assert str(error.value).startswith(f"The device tree file {file} cannot be used:\n  ")


async def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DeviceTreeUnusable, match=r"none\.yaml cannot be used:\n  No such file or directory"):
        await laid_out(machine("vm-flat"), tmp_path / "none.yaml")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(DeviceTreeUnusable, match="can't decode byte 0xff"):
        await laid_out(machine("vm-flat"), tmp_path / "bytes")


async def test_what_is_left_out_is_not_in_the_tree_either(written: Any) -> None:
    reading = machine("pcie-8")
    out = f"leave_out: ['D5:00.0', {reading.gpus[7].uuid}, 0000:ce:00.0, 0000:d1:00.0]"
    inventory, notes = await laid_out(reading, written(out))
    assert (inventory.levels, notes) == (("switch",), ())
    assert [(device.index, device.path) for device in inventory.devices] == [(0, (0,)), (1, (0,)), (2, (1,)), (3, (1,))]


async def test_a_device_that_is_away_keeps_its_place_and_one_that_is_not_named_stays_out(written: Any) -> None:
    less = written(WHOLE.replace("00:05.0", "00:03.0") + "    absent: faulty\n    unlisted: leave_out\n")
    inventory, notes = await laid_out(machine("vm-flat"), less)
    assert inventory.devices[0] == Device(0, "absent-0000:00:03.0", "", 0, (0,), None, None, ABSENT)
    assert [device.uuid for device in inventory.devices[1:]] == VM[1:]
    assert notes == (
        f"{VM[0]} is left out: the device tree file does not name it",
        f"0000:00:03.0: {ABSENT}; it keeps its place, as faulty",
    )
    away = written("leave_out: [00:03.0]\nabsent: faulty\n")
    assert len((await laid_out(machine("vm-flat"), away))[0].devices) == 4


async def test_instances_stand_where_their_gpu_is_and_link_domains_are_the_files_if_it_has_any(written: Any) -> None:
    reading = machine("mig-uneven")
    one, two = (reading.gpus[place].mig or () for place in (0, 1))
    text = f"""
        levels: [half, gpu]
        devices:
          "0000:01:00.0": {{path: [0, 0]}}
          {two[0].uuid}: {{path: [0, 1]}}
          {two[1].uuid}: {{path: [0, 1]}}
          81:00.0: {{path: [1, 0], link_domain: 3}}
          c1:00.0: {{path: [1, 0]}}
        leave_out: [{two[2].uuid}, {two[3].uuid}]
    """
    with pytest.raises(DeviceTreeUnusable, match=r"levels: half: the cell \[1\] has 2 of the devices, and \[0\] has 4"):
        await laid_out(reading, written(text))
    inventory, _ = await laid_out(
        reading, written(text.replace("[half, gpu]", "[gpu]").replace("[0, ", "[").replace("[1, 0]", "[2]"))
    )
    assert inventory.levels == ("gpu",)
    assert {device.path for device in inventory.devices if device.uuid in {each.uuid for each in one}} == {(0,)}
    assert [device.path for device in inventory.devices] == [(0,), (0,), (1,), (1,), (2,), (2,)]
    assert [device.link_domain for device in inventory.devices] == [None] * 4 + [3, None]


def test_pci_addresses() -> None:
    assert pci_address("00000000:0F:00.0") == pci_address("0000:0f:00.0") == pci_address("0f:00.0") == "0000:0f:00.0"
    assert pci_address("00010000:0F:00.0") == "10000:0f:00.0"
    assert [pci_address(text) for text in ("", "0f:00", "GPU-1", "0000:0f:00.9")] == [None] * 4


# What the driver no longer tells.


def test_a_gpu_that_falls_off_keeps_its_place_and_all_that_was_known_of_it() -> None:
    before = machine("dgx-1-v100")
    lost = before.gpus[3].uuid
    now = before.model_copy(
        update={
            "gpus": tuple(gpu for gpu in before.gpus if gpu.uuid != lost),
            "pairs": tuple(pair for pair in before.pairs if lost not in (pair.a, pair.b)),
        }
    )
    together = add_lost_gpus(now, before)
    assert tree(together) == tree(before)
    assert {gpu.uuid: gpu.fault for gpu in together.gpus if gpu.fault} == {lost: GONE}
    assert len(GONE) <= 256
    assert add_lost_gpus(together, before) == together  # a fault stays
    assert add_lost_gpus(before, together) == before  # until it is well
    bare = now.model_copy(update={"gpus": (*now.gpus, Gpu(uuid=lost, name="", pci="", memory_mib=0, fault="no answer"))})
    assert tree(add_lost_gpus(bare, before)) == tree(before)
    assert {(gpu.name, gpu.fault) for gpu in add_lost_gpus(bare, before).gpus if gpu.uuid == lost} == {
        ("Tesla V100-SXM2-32GB", "no answer")
    }


def test_a_reading_is_remembered_until_the_machine_starts_again(tmp_path: Path) -> None:
    whole, file = machine("workstation-4"), tmp_path / "gpus.json"
    less = whole.model_copy(
        update={"gpus": whole.gpus[1:], "pairs": tuple(p for p in whole.pairs if whole.gpus[0].uuid != p.a)}
    )
    assert add_remembered_gpus(whole, file) == whole
    text = file.read_text()
    assert [gpu.fault for gpu in sort_gpus(add_remembered_gpus(less, file).gpus)] == [GONE, "", "", ""]
    assert [gpu.fault for gpu in sort_gpus(add_remembered_gpus(less, file).gpus)] == [GONE, "", "", ""]
    assert add_remembered_gpus(whole, file) == whole
    for other in (re.sub('"boot": "[^"]*"', '"boot": "another"', text), '{"boot": 1}', "{", "[]", "", '{"reading": {}}'):
        file.write_text(other)
        assert add_remembered_gpus(less, file) == less


def test_under_runs_a_machine_is_as_it_was_but_for_its_faults(tmp_path: Path) -> None:
    whole, file = machine("workstation-4"), tmp_path / "gpus.json"
    apart = tuple(pair.model_copy(update={"level": None}) for pair in whole.pairs)
    ill = whole.gpus[1].model_copy(update={"memory_mib": 0, "name": "", "fault": "no memory"})
    less = whole.model_copy(update={"gpus": (ill, *whole.gpus[2:]), "pairs": apart})  # its first GPU came later
    assert add_remembered_gpus(less, file) == less
    shuffled = less.model_copy(update={"gpus": less.gpus[::-1], "pairs": less.pairs[::-1]})
    assert add_remembered_gpus(shuffled, file, held=True) == less
    then = add_remembered_gpus(whole, file, held=True)
    assert then == less.model_copy(update={"problems": (*whole.problems, CHANGED)})
    lost = whole.model_copy(update={"gpus": whole.gpus[:3]})
    assert [gpu.fault for gpu in add_remembered_gpus(lost, file, held=True).gpus] == ["no memory", "", GONE]
    assert add_remembered_gpus(whole, file) == whole


def test_a_reading_that_cannot_be_remembered_is_none_the_worse(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = machine("workstation-4")
    assert add_remembered_gpus(whole, tmp_path / "none" / "gpus.json") == whole
    assert "gpus.json cannot be written" in caplog.text


# The picture.


async def test_the_picture(written: Any) -> None:
    gpus = [
        Gpu(
            uuid=f"GPU-{i}",
            name="A",
            pci=f"0000:0{i}:00.0",
            memory_mib=1536,
            numa_node=i // 2,
            fault="XID 79" if i == 3 else "",
        )
        for i in range(4)
    ]
    near = [
        Pair(a=f"GPU-{i}", b=f"GPU-{j}", level="node" if i // 2 == j // 2 else "system") for i in range(4) for j in range(i)
    ]
    gpus[1] = gpus[1].model_copy(update={"mig": (MigInstance(uuid="MIG-1", name="A half", memory_mib=768),)})
    reading = Reading(driver="535.1", gpus=tuple(gpus), pairs=(*near, Pair(a="GPU-2", b="GPU-3", level="node", links=2)))
    inventory, notes = await laid_out(reading, None, 2500, 3072)
    assert picture(inventory, notes, reading) == (
        "4 devices, 2.5 CPUs, 3.0 GiB, driver 535.1\n"
        "├─ 0:  A       1.5 GiB  0000:00:00.0  NUMA 0            GPU-0\n"
        "├─ 1:  A half  0.8 GiB  0000:01:00.0  NUMA 0            MIG-1\n"
        "├─ 2:  A       1.5 GiB  0000:02:00.0  NUMA 1  NVLink 0  GPU-2\n"
        "└─ 3:  A       1.5 GiB  0000:03:00.0  NUMA 1  NVLink 0  GPU-3  FAULTY: XID 79\n"
        "\n"
        "Notes:\n"
        "- the level socket (node) is collapsed: its cells hold 2 devices each, but not of the same models, and cells of one"
        " level have to be alike"
    )
    shown = as_json(inventory, notes, reading)
    assert shown["notes"] == list(notes)
    assert shown["devices"][1] == {
        "index": 1,
        "uuid": "MIG-1",
        "model": "A half",
        "memory_mib": 768,
        "path": (),
        "numa_node": 0,
        "link_domain": None,
        "fault": "",
        "pci": "0000:01:00.0",
    }


def test_the_picture_of_nothing() -> None:
    assert picture(Inventory(1000, 512), ()) == "0 devices, 1 CPUs, 0.5 GiB"


# The command.


def devices(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(main, ["devices", *arguments], input=text)


def test_a_recorded_machine_is_shown() -> None:
    reading = machine("pcie-8")
    result = devices("--from", "-", text=reading.model_dump_json())
    assert result.exit_code == 0
    assert "8 devices, driver 535.161.08\n├─ socket 0\n│  ├─ switch 0\n│  │  ├─ 0:  NVIDIA A40  45.0 GiB" in result.output
    again = devices("--from", "-", "--reading", text=reading.model_dump_json())
    assert Reading.model_validate_json(again.output) == reading
    shown = json.loads(devices("--from", "-", "-o", "json", text=reading.model_dump_json()).output)
    assert (shown["levels"], shown["devices"][5]["path"], shown["devices"][5]["pci"]) == (
        ["socket", "switch"],
        [1, 0],
        "0000:d1:00.0",
    )


def test_a_recorded_machine_with_a_device_tree_file_whatever_the_settings_say(
    written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EBB_AGENT_DEVICES", "pcie-8")
    result = devices("--from", "-", "--device-tree", str(written(WHOLE)), text=machine("vm-flat").model_dump_json())
    assert (result.exit_code, "├─ socket 0" in result.output) == (0, True)
    result = devices("--from", "-", "--device-tree", str(written("levels: [a]")), text=machine("vm-flat").model_dump_json())
    assert (result.exit_code, "devices: is missing" in result.output) == (1, True)


def test_a_profile_and_the_settings_of_an_agent(tmp_path: Path) -> None:
    settings = tmp_path / "agent.yaml"
    settings.write_text("scheduler: 10.0.0.1:7737\ndevices: dgx-a100\nnode: n7\nstate: /nowhere\n")
    result = devices("--config", str(settings), "-o", "json")
    assert [device["path"] for device in json.loads(result.output)["devices"]] == [[i // 4, i // 2 % 2] for i in range(8)]
    assert devices("--config", str(settings), "--devices", "cpu-20c").output == "0 devices, 20 CPUs, 160.0 GiB\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--devices", "abacus"], 2, "there is no profile 'abacus'; known: dgx-a100, pcie-8, pcie-2, cpu-20c; or nvml"),
        (["--devices", "pcie-8", "--device-tree", "x"], 2, "device_tree goes with --devices nvml"),
        (["--devices", "pcie-8", "--reading"], 2, "pcie-8 is simulated"),
        (["--from", "-"], 2, "is not what `ebb-agent devices --reading` of this version writes (a: Extra inputs are not"),
        (["--reserve-cpus", "-1"], 2, "--reserve-cpus: Input should be greater than or equal to 0"),
        (["--reserve-memory", "nan"], 2, "--reserve-memory: Input should be a finite number"),
        (["--reserve-memory", "9000000"], 1, "--reserve-cpus and --reserve-memory leave nothing for jobs"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: int, message: str) -> None:
    result = devices(*arguments, text='{"a": 1}')
    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_what_is_kept_for_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"total": 16 << 30}))
    assert capacity(load_devices({})) == (8000, 14 * 1024)
    assert capacity(load_devices({"reserve_cpus": "1.5", "reserve_memory": "0.5"})) == (6500, 15872)
    with pytest.raises(NothingLeft, match=r"this machine has 8 CPUs and 16 GiB"):
        capacity(load_devices({"reserve_cpus": 8}))
    with pytest.raises(BadSettings, match="device_tree goes with --devices nvml"):
        load_devices({"devices": "cpu-20c", "device_tree": "x"})


# What the scheduler is told.


def test_hello_tells_what_is_known_of_a_device() -> None:
    known = Device(0, "GPU-0", "A", 1024, (0, 1), numa_node=0, link_domain=0, fault="x" * 300)
    unknown = Device(1, "GPU-1", "A", 1024, (1, 0))
    hello = Hello("n1", "b1", "", 0, Inventory(1000, 1024, ("socket", "switch"), (known, unknown)), (), "1")
    told = pb.ConnectRequest.FromString(encode(hello)).hello.devices
    assert (told[0].numa_node, told[0].link_domain, told[0].fault) == (0, 0, "x" * 256)
    assert (told[0].HasField("numa_node"), told[1].HasField("numa_node")) == (True, False)
    assert (told[0].HasField("link_domain"), told[1].HasField("link_domain"), told[1].fault) == (True, False, "")
