"""What the command line says of virtual clusters and cells: asked without a service, as far as that goes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ebb.v1 import job_pb2

from client_sdk import Client, Guarantee, InvalidArgument, Within, testing
from client_sdk._values.options import job_spec
from client_sdk.cli import ebb
from client_sdk.cli.cells import draw_pool
from client_sdk.cli.output.virtual_clusters import _more_columns, show_virtual_cluster
from client_sdk.models import (
    BoundCell,
    CellLevel,
    DeviceCell,
    DeviceUse,
    Misfit,
    NodeCells,
    PinFault,
    PinnedCell,
    PinState,
    PinUse,
    Pool,
    VirtualCluster,
    VirtualClusterPolicy,
)
from tests.sdk.fake import Fake

Run = Callable[..., Result]


@pytest.fixture
def run(address: str) -> Run:
    return lambda *arguments: CliRunner().invoke(ebb, arguments, env={"EBB_ADDRESS": address}, prog_name="ebb")


def sent(fake: Fake, run: Run, *arguments: str) -> job_pb2.JobSpec:
    done = run("submit", *arguments)
    assert done.exit_code == 0, done.output
    return fake.submits[-1].spec


def test_what_a_job_asks_of_cells_is_sent(fake: Fake, run: Run) -> None:
    where = "--pool a100 --model A100 --cell socket --within rack --within pod --lazy"
    words = f"--vc vision --overflow {where} --gpus 4 true".split()
    spec = sent(fake, run, *words)
    assert (spec.virtual_cluster, spec.guarantee) == ("vision", job_pb2.GUARANTEE_OVERFLOW)
    within = [job_pb2.Within(level="rack"), job_pb2.Within(level="pod")]
    assert spec.cells == job_pb2.CellRequest(pool="a100", model="A100", level="socket", within=within, lazy=True)
    pinned = sent(fake, run, "--vc", "vision", "--pin", "big", "true")
    assert (pinned.guarantee, pinned.cells.pin) == (job_pb2.GUARANTEE_GUARANTEED, "big")


def test_a_level_may_be_no_more_than_preferred(fake: Fake, run: Run) -> None:
    spec = sent(fake, run, *["--vc", "vision", "--within", "pod", "--within", "rack:preferred", "--gpus", "4", "true"])
    assert list(spec.cells.within) == [job_pb2.Within(level="pod"), job_pb2.Within(level="rack", preferred=True)]
    for wrong in ("rack:required", "rack:"):
        assert f"'{wrong}' is not a level, nor like rack:preferred" in run("submit", "--within", wrong, "true").output


def test_jobs_of_one_virtual_cluster_are_listed(fake: Fake, run: Run, address: str) -> None:
    for vc in ("vision", "speech", "vision"):
        sent(fake, run, "--vc", vc, "true")
    assert run("list", "-q", "--vc", "vision").output.split() == ["3", "1"]
    with Client(address) as client:
        assert [job.id for job in client.list(vc="speech")] == [2]


def test_a_job_file_says_the_same_and_more(fake: Fake, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "command: [train]\nvc: vision\nguarantee: opportunistic\n"
        "tasks: [{count: 2, gpus: 2, level: switch}, {count: 1, gpus: 1}]\n"
        "within: [rack, {level: node, preferred: true, task_group: 0}]\n"
    )
    spec = sent(fake, run, "-f", str(file))
    assert (spec.virtual_cluster, spec.guarantee) == ("vision", job_pb2.GUARANTEE_OPPORTUNISTIC)
    assert [group.level for group in spec.task_groups] == ["switch", ""]
    assert list(spec.cells.within) == [
        job_pb2.Within(level="rack"),
        job_pb2.Within(level="node", preferred=True, task_group=0),
    ]
    assert sent(fake, run, "-f", str(file), "--overflow").guarantee == job_pb2.GUARANTEE_OVERFLOW, "options win over it"
    file.write_text("command: [train]\nvc: vision\nwithin: {rack: true}\n")
    assert "within: {'rack': True} is not a level" in run("submit", "-f", str(file)).output


@pytest.mark.parametrize(("one", "other"), [("--overflow", "--opportunistic"), ("--trial", "--best-effort")])
def test_two_flags_of_which_a_job_is_only_one_are_refused(fake: Fake, run: Run, one: str, other: str) -> None:
    for flags in ((one, other), (other, one)):
        refused = run("submit", "--vc", "vision", *flags, "true")
        assert refused.exit_code == 2
        assert refused.output.splitlines()[-1] == f"Error: {one} and {other} say different things; leave one out"
    assert not fake.submits
    assert run("submit", "--vc", "vision", one, one, "true").exit_code == 0, "one of them, said twice, is said"


def test_the_environment_says_whose_jobs_are(fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not sent(fake, run, "true").HasField("cells")
    assert sent(fake, run, "true").guarantee == job_pb2.GUARANTEE_UNSPECIFIED, "as to a site without virtual clusters"
    refused = run("submit", "--opportunistic", "true")
    assert (refused.exit_code, "say which, by vc (--vc) or EBB_VC" in refused.output) == (1, True)
    monkeypatch.setenv("EBB_VC", "vision")
    assert sent(fake, run, "true").virtual_cluster == "vision"
    assert sent(fake, run, "--vc", "speech", "true").virtual_cluster == "speech"
    assert job_spec(["true"], vc="").virtual_cluster == "", "none of them, whatever the environment says"


def test_in_python() -> None:
    spec = job_spec(["true"], vc="a", guarantee="opportunistic", within=["rack", Within("node", preferred=True)])
    assert (spec.guarantee, spec.cells.within) == (Guarantee.OPPORTUNISTIC, (Within("rack"), Within("node", preferred=True)))
    with pytest.raises(InvalidArgument, match="'sure' is no guarantee"):
        job_spec(["true"], vc="a", guarantee="sure")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("create x --quota a100=2", "'a100=2' is not POOL/LEVEL=N, such as a100/node=2"),
        ("create x --quota a100/node=0", "is not POOL/LEVEL=N"),
        ("create x --pin a100/node/7", "is not NAME=POOL/LEVEL/INDEX, such as big=a100/node/7"),
        ("update x", "say what is to change"),
        ("update x --no-quotas --quota a/b=1", "--no-quotas and --quota say different things"),
        ("update x --weight 0", "Invalid value for '--weight'"),
    ],
)
def test_what_cannot_be_meant_is_said(run: Run, words: str, said: str) -> None:
    done = run("vc", *words.split())
    assert done.exit_code != 0
    assert said in done.output


def test_the_fake_cluster_is_a_site_without_them() -> None:
    with testing.cluster() as fake, Client(fake.address) as client:
        done = CliRunner().invoke(ebb, ["--address", fake.address, "vc", "list"])
        assert (done.exit_code, "runs without virtual clusters" in done.output) == (1, True)
        with pytest.raises(Exception, match="runs without virtual clusters"):
            client.submit(["true"], vc="a")


def test_pins_are_shown_with_how_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    uses = (
        PinUse(name="left", state=PinState.IN_USE, devices=2, held=1),
        PinUse(
            name="big",
            state=PinState.FAULTY,
            devices=8,
            faults=(PinFault("n2", (0, 3), "XID 79"), PinFault("n3", (), "silent")),
        ),
    )
    pins = (PinnedCell("left", "p", "switch", 2), PinnedCell("big", "p", "node", 1))
    found = VirtualCluster(name="a", pins=pins, pin_uses=uses, policy=VirtualClusterPolicy(name="fifo"))
    assert _more_columns(found)[-1] == "left=p/switch/2 (in use), big=p/node/1 (faulty)"
    show_virtual_cluster(found)
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "PIN   CELL        STATE   HELD    FAULTS",
        "left  p/switch/2  in use  1 of 2  -",
        "big   p/node/1    faulty  0 of 8  n2 0,3 (XID 79), n3 (silent)",
    ]


# ---- the drawing -------------------------------------------------------------------------------------------------------


def devices(marks: str) -> tuple[DeviceCell, ...]:
    uses = {
        ".": DeviceUse.IDLE,
        "G": DeviceUse.GUARANTEED,
        "o": DeviceUse.OPPORTUNISTIC,
        "k": DeviceUse.KEPT,
        "x": DeviceUse.FAULTY,
    }
    return tuple(DeviceCell(index=i, use=uses[mark]) for i, mark in enumerate(marks))


POOL = Pool(
    name="p100",
    model="P100",
    levels=(
        CellLevel(name="device", fan=1, cells=16),
        CellLevel(name="switch", fan=2, cells=8, owned=2),
        CellLevel(name="node", fan=2, cells=4, owned=1, free=0, missing=1),
        CellLevel(name="rack", fan=2, cells=2, owned=1, free=0),
    ),
    node_level=2,
    cells=(
        BoundCell(level="rack", index=0, virtual_cluster="a"),
        BoundCell(level="switch", index=4, virtual_cluster="b", pin="left"),
        BoundCell(level="switch", index=7, virtual_cluster="c"),
    ),
    nodes=(
        NodeCells(node="n1", index=0, devices=devices("GG..")),
        NodeCells(node="n10", index=1, devices=devices("....")),
        NodeCells(node="n3", index=2, devices=devices("..ok")),
        NodeCells(node="n4", index=3, devices=devices(".xG."), closed="drained"),
    ),
    misfits=(Misfit("n5", "its devices are others"),),
)


def text(pool: Pool) -> list[str]:
    return ["".join(part for part, _ in line) for line in draw_pool(pool)]


def test_a_tree_is_drawn_with_owners_and_states() -> None:
    assert text(POOL) == [
        "p100: P100, rack > node > switch > device",
        "  rack: 2, owned 1, free 0",
        "  node: 4, owned 1, free 0, 1 missing",
        "  switch: 8, owned 2, free 0",
        "├─ rack 0  a: rack 0",
        "│  ├─ 0 n1   [[GG][..]]",
        "│  └─ 1 n10  [[..][..]]",
        "└─ rack 1",
        "   ├─ 2 n3  [[..][ok]]  b: switch 4 (left)",
        "   └─ 3 n4  [[.x][G.]]  c: switch 7 (drained)",
        "n5: left out, its devices are others",
    ]


def test_a_pool_without_devices_is_its_nodes() -> None:
    levels = (CellLevel(name="node", fan=1, cells=1, owned=1),)
    node = NodeCells(node="c1", index=4)
    found = Pool(name="cpu", levels=levels, nodes=(node,), cells=(BoundCell(level="node", index=4, virtual_cluster="a"),))
    assert text(found) == ["cpu: node", "  node: 1, owned 1, free 0", "└─ 4 c1  a: node 4"]
    assert text(replace(found, cells=()))[-1] == "└─ 4 c1"


def test_a_device_that_is_faulty_and_in_use_is_drawn_as_both() -> None:
    held = DeviceCell(index=0, use=DeviceUse.GUARANTEED, job_ids=(7,), fault="XID 79")
    idle = DeviceCell(index=1, use=DeviceUse.FAULTY, fault="XID 79")
    nodes = (replace(POOL.nodes[0], devices=(held, idle, *devices(".."))), *POOL.nodes[1:])
    assert "│  ├─ 0 n1   [[Xx][..]]" in text(replace(POOL, nodes=nodes))
