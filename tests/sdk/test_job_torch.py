"""What `job` does with objects of PyTorch, in this process."""

import json
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk.training import ResumableLoader
from client_sdk.training._data.position import Pass
from client_sdk.training._storing import folders, formats
from client_sdk.training._storing.checksummed import ChecksummedFile, checksums, threads
from client_sdk.training._storing.host_copies import Copies
from client_sdk.training._storing.object_states import access
from tests.sdk.job_tools import full_disk


@pytest.fixture
def torch(training_packages: None) -> Iterator[Any]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


def written(path: Path, state: Any) -> tuple[str, Any]:
    """The format of a state, and what is read again."""
    name = formats.choose(state)
    with ChecksummedFile(path) as file, threads() as pool:
        extra = formats.FORMATS[name].write(file, state)
        file.flush()
        assert file.checksums == checksums(path, pool)
    return name, formats.FORMATS[name].read(path, json.loads(json.dumps(extra)))


def test_the_format_follows_from_the_state(torch: Any, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    name, back = written(tmp_path / "model", model.state_dict())
    assert (name, back._metadata) == ("safetensors", model.state_dict()._metadata)
    assert all(torch.equal(back[key], value) for key, value in model.state_dict().items())
    tied = OrderedDict(a=model[0].weight, b=model[0].weight)
    assert written(tmp_path / "tied", tied)[0] == "torch"
    optimizer = torch.optim.Adam(model.parameters())
    assert written(tmp_path / "optimizer", optimizer.state_dict()) == ("torch", optimizer.state_dict())
    assert written(tmp_path / "strided", {"a": torch.ones(2, 3).t()})[0] == "torch"
    assert written(tmp_path / "other", {"a": torch.ones(1), "b": {1}})[0] == "pickle"


@pytest.mark.parametrize("room", [0, 5_000, 70_000, 300_000])
def test_a_full_disk_is_what_the_system_calls_it(torch: Any, tmp_path: Path, room: int) -> None:
    states = ({"weight": torch.zeros(100_000), "step": 1}, {str(n): torch.zeros(100) for n in range(3000)} | {"step": 1})
    for state in states:
        assert formats.choose(state) == "torch"
        with full_disk(room), pytest.raises(OSError, match="too large"), ChecksummedFile(tmp_path / "part.pt") as file:
            formats.FORMATS["torch"].write(file, state)


def test_a_copy_does_not_change_with_the_state_and_keeps_tied_weights_tied(torch: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    state = OrderedDict(a=weight, b=weight, steps=[1, {"x": torch.zeros(2, 2).t()}])
    copies = Copies()
    first = copies.copy(state)
    with torch.no_grad():
        weight += 1
    state["steps"][0] = 5
    assert first["a"].tolist() == [1, 1, 1]
    assert first["a"] is first["b"]
    assert first["steps"][0] == 1
    memory = first["a"].data_ptr()
    second = copies.copy(state)
    assert (second["a"].tolist(), second["a"].data_ptr()) == ([2, 2, 2], memory)
    state["a"] = torch.ones(7)
    assert copies.copy(state)["a"].shape == (7,)


def test_tensors_are_restored_in_place(torch: Any) -> None:
    average, kept = {"w": torch.zeros(2), "n": 1}, torch.zeros(1)
    inner = average["w"]
    access("average", average).put({"w": torch.ones(2), "n": 4, "more": torch.ones(1)})
    assert (inner.tolist(), average["n"], list(average)) == ([1, 1], 4, ["w", "n", "more"])
    access("kept", kept).put(torch.full((1,), 3.0))
    assert kept.item() == 3
    with pytest.raises(ValueError, match=r"kept has the shape \(1,\), and the checkpoint has \(2,\)"):
        access("kept", kept).put(torch.ones(2))
    generator = torch.Generator().manual_seed(3)
    one = access("generator", generator)
    state = one.get()
    drawn = torch.rand(1, generator=generator)
    one.put(state)
    assert torch.equal(torch.rand(1, generator=generator), drawn)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_order_of_batches_is_that_of_the_plain_loader(torch: Any, workers: int) -> None:
    loader = torch.utils.data.DataLoader(range(20), batch_size=3, shuffle=True, num_workers=workers)

    def batches(items: Any) -> list[list[int]]:
        torch.manual_seed(1)
        return [batch.tolist() for _ in range(2) for batch in items()]

    assert batches(lambda: Pass(loader, 0)) == batches(lambda: loader)


def test_batches_in_no_fixed_order_are_refused(torch: Any) -> None:
    loader = torch.utils.data.DataLoader(range(20), num_workers=1, in_order=False)
    with pytest.raises(ValueError, match="in_order=False"):
        iter(Pass(loader, 0))


def test_a_resumable_loader_goes_on_behind_the_batch_that_it_gave_last(torch: Any) -> None:
    loader = torch.utils.data.DataLoader(range(12), batch_size=3, shuffle=True)
    torch.manual_seed(1)
    unbroken = [batch.tolist() for resumable in [ResumableLoader(loader)] for _ in range(3) for batch in resumable]
    torch.manual_seed(1)
    resumable = ResumableLoader(loader)
    seen = [batch.tolist() for batch in resumable]
    batches = iter(resumable)
    seen += [next(batches).tolist() for _ in range(3)]
    state = resumable.state_dict()
    torch.manual_seed(99)
    again = ResumableLoader(loader)
    again.load_state_dict(state)
    assert len(again) == 4
    assert [*seen, *(batch.tolist() for _ in range(2) for batch in again)] == unbroken


def test_a_folder_that_a_framework_wrote_is_sealed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-7"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "weights").write_bytes(b"1234")
    (folder / "state.json").write_text("{}")
    reference = folders.seal_existing(folder, {"step": 7})
    found, manifest = folders.check(tmp_path, reference)
    assert (found, manifest["about"], sorted(manifest["parts"])) == (folder, {"step": 7}, ["inner/weights", "state.json"])
    (folder / "inner" / "weights").write_bytes(b"1235")
    with pytest.raises(folders.CheckpointError, match=r"part 'inner/weights' of a checkpoint, is damaged"):
        folders.check(tmp_path, reference)


def test_the_files_of_tensors_are_those_of_safetensors(torch: Any, tmp_path: Path) -> None:
    """Byte for byte, also for large tensors, which a thread digests while they are written."""
    from safetensors.torch import save_file

    state = {
        "z": torch.arange(1_100_000, dtype=torch.float32),
        "a": torch.ones((2, 3), dtype=torch.bfloat16),
        "half": torch.ones((), dtype=torch.float16),
        "nothing": torch.zeros((0, 4)),
        "flags": torch.tensor([True, False]),
        "b": torch.arange(3),
        "d": torch.arange(5, dtype=torch.float64),
    }
    name, _ = written(tmp_path / "ours", state)
    save_file(state, tmp_path / "theirs", metadata={"format": "pt"})
    assert name == "safetensors"
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
