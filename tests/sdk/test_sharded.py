"""Sharded checkpoints: each rank writes its shards, and another number of ranks loads them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.training import RESIZED, Job
from tests.harness import ROOT
from tests.sdk.forked import Server
from tests.sdk.gang_stops import TorchGang

SCRIPT = ROOT / "tests" / "sdk" / "sharded_rank.py"


@pytest.fixture(scope="module")
def server(training_packages: None) -> Iterator[Server]:
    server = Server("torch", "torch.distributed.fsdp", "torch.distributed.checkpoint", "client_sdk.training._job")
    yield server
    server.close()


def test_torch_ranks_that_are_fully_sharded_resume_as_one_rank(server: Server, tmp_path: Path) -> None:
    gang = TorchGang(server, tmp_path / "gang", 2, script=SCRIPT, micro_batches=2)
    gang.launch()
    gang.until(lambda: gang.reached() >= 4)
    for number in range(2):
        gang.stop(number, "resized")
    assert gang.ended() == [RESIZED] * 2, gang.output()
    last = gang.told("step")[0][-1]
    folders = sorted((tmp_path / "gang" / "checkpoints").glob(f"checkpoint.all-step-{last['step']:08}-*"))
    assert folders, "the stop has saved"
    parts = json.loads((folders[-1] / "manifest.json").read_text())["parts"]
    assert {".metadata", "__0_0.distcp", "__1_0.distcp", "others.pickle"} <= parts.keys()

    gang.world = 1
    gang.launch()
    assert gang.ended() == [0], gang.output()
    (loaded,) = gang.told("loaded")[0]
    assert loaded["step"] == last["step"]
    assert loaded["weights"] == last["weights"], "bit for bit, of shards that two ranks had"
    assert loaded["seen"] == list(range(1, last["step"] + 1))
    assert loaded["moments"] == 4, "the optimizer goes on, too"
    assert [line["step"] for line in gang.told("step")[0]] == list(range(last["step"] + 1, 13))


def test_sharded_needs_a_process_group(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"call torch.distributed.init_process_group before job.checkpointable"):
        Job({}).checkpointable(directory=tmp_path, sharded=True, state=[])
    with pytest.raises(ValueError, match="leave out elastic=False and ranks"):
        Job({}).checkpointable(directory=tmp_path, sharded=True, elastic=False, state=[])
