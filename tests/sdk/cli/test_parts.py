"""Parts of devices: what users write, what is sent, and how a fake cluster shares devices."""

from pathlib import Path
from typing import Any

import pytest

from client_sdk import FailedPrecondition, InvalidArgument, JobSpec, Resources, ShareMode, TaskGroup, testing
from client_sdk._values.options import job_spec
from tests.sdk.cli.conftest import Run, refused, submitted

PACKED, SLICED = ShareMode.PACKED, ShareMode.SLICED


def asked(spec: JobSpec) -> tuple[int, int, int, ShareMode]:
    return spec.resources.devices, spec.gpu_fraction_ppm, spec.gpu_memory_mib, spec.share


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"devices": 0.5}, (1, 500_000, 0, SLICED)),
        ({"devices": 0.5, "share": "packed"}, (1, 500_000, 0, PACKED)),
        ({"devices": 0.5, "gpu_memory": "10GiB"}, (1, 500_000, 10_240, SLICED)),
        ({"gpu_memory": "10GiB"}, (1, 0, 10_240, PACKED)),
        ({"gpu_memory": 7, "devices": 1, "share": PACKED}, (1, 0, 7, PACKED)),
        ({"devices": 1.0}, (1, 0, 0, ShareMode.EXCLUSIVE)),
        ({"devices": 2, "share": "exclusive"}, (2, 0, 0, ShareMode.EXCLUSIVE)),
        ({"devices": 1e-9}, (1, 1, 0, SLICED)),
        ({}, (0, 0, 0, ShareMode.EXCLUSIVE)),
    ],
)
def test_what_options_mean(options: dict[str, Any], expected: tuple[int, int, int, ShareMode]) -> None:
    assert asked(job_spec(["a"], **options)) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"devices": 1.5}, "devices=1.5 is no number of devices; a job has whole devices, or a fraction of one, such as 0.5"),
        ({"devices": -0.5}, "devices=-0.5 is no number of devices"),
        ({"devices": float("nan")}, "devices=nan is no number of devices"),
        ({"devices": 0.5, "share": "exclusive"}, "a fraction of a device shares the device; leave out exclusive"),
        ({"gpu_memory": 5, "share": ShareMode.EXCLUSIVE}, "memory of a device (gpu_memory) shares the device"),
        ({"devices": 0.5, "share": "halves"}, "share='halves' is unknown; it is exclusive, packed, sliced"),
        ({"devices": 0.5, "tasks": 2}, "a gang has whole devices; leave out tasks, or the part of a device"),
        ({"tasks": [TaskGroup(1, devices=1), TaskGroup(2, devices=0.5)]}, "a gang has whole devices; leave out tasks"),  # type: ignore[arg-type]
        ({"alternatives": [{"devices": 0.5}]}, "alternative 1: it has whole devices"),
        ({"gpu_memory": "lots"}, "'lots' is not an amount of memory"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as wrong:
        job_spec(["a"], **options)
    assert said in str(wrong.value)


def test_on_the_command_line_and_in_a_job_file(run: Run, tmp_path: Path) -> None:
    assert asked(submitted(run, "--gpus", "0.5", "sleep")) == (1, 500_000, 0, SLICED)
    assert asked(submitted(run, "-g", "0.25", "--share", "packed", "sleep")) == (1, 250_000, 0, PACKED)
    assert asked(submitted(run, "-g", "1", "sleep")) == (1, 0, 0, ShareMode.EXCLUSIVE)
    file = tmp_path / "job.yaml"
    file.write_text("command: [sleep]\ngpus: 0.5\nshare: packed\n")
    assert asked(submitted(run, "-f", str(file))) == (1, 500_000, 0, PACKED)
    assert asked(submitted(run, "-f", str(file), "--share", "sliced", "--gpus", "0.75")) == (1, 750_000, 0, SLICED)
    file.write_text("command: [sleep]\ngpu_memory: 10GiB\nshare: all\n")
    assert "share: 'all' is unknown; it is exclusive, packed or sliced" in refused(run, "submit", "-f", str(file))
    assert "1.5 is not a whole number, nor a fraction of one device" in refused(run, "submit", "--gpus", "1.5", "sleep")
    assert "a gang has whole devices" in refused(run, "submit", "--gpus", "0.5", "--tasks", "2", "sleep")
    assert "a sliced job has a part of the time of a device" in refused(run, "submit", "-g", "1", "--share", "sliced", "sleep")
    assert "a job shares one device, and not 0" not in refused(run, "submit", "--gpu-memory", "99GiB", "sleep")


def test_show_and_list_say_which_part(run: Run) -> None:
    submitted(run, "--gpus", "0.5", "sleep")
    submitted(run, "--gpus", "2", "sleep")
    assert "1.5 cpus, 2642MiB, 0.5 of a device (sliced)" in run("show", "1").output
    assert "2 devices" in run("show", "2").output
    rows = [line.split() for line in run("list", "--no-header").output.splitlines()]
    assert {row[0]: row[-2] for row in rows} == {"1": "0.5", "2": "2"}
    assert '"share": "SLICED"' in run("show", "1", "-o", "json").output


def test_a_fake_cluster_shares_devices() -> None:
    with testing.cluster({"n": Resources(cpus=8, memory_mib=16_384, devices=2)}, by_hand=True) as fake, fake.client() as client:
        jobs = [client.submit(["a"], devices=0.5) for _ in range(3)]
        packed = client.submit(["a"], devices=0.5, share="packed")
        whole = client.submit(["a"], devices=1)
        for job in jobs:
            fake.start(job)
        assert [client.get(job.id).devices for job in jobs] == [(0,), (0,), (1,)]
        for job in (packed, whole):
            with pytest.raises(FailedPrecondition, match="fits on no node now"):
                fake.start(job)
        (node,) = client.nodes()
        assert node.free.devices == 0
        assert [device.job_ids for device in node.devices] == [(jobs[0].id, jobs[1].id), (jobs[2].id,)]
        fake.finish(jobs[2])
        fake.start(packed)
        assert client.get(packed.id).devices == (1,)
