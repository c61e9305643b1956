"""What is moved to host memory and back, what keeps its place, and what is refused before anything is moved."""

import copy
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ebb_inject.ebb_hook import arena, storages
from ebb_inject.ebb_hook.control import Refused
from ebb_inject.ebb_hook.tensor_offload import Moved, Mover
from tests.in_job.programs import ROOT

SITE = f"import sys; sys.path += {[*sys.path]!r}; "


@pytest.fixture(scope="module")
def torch(training_packages: None) -> Any:
    import torch

    torch.set_num_threads(1)
    return torch


@pytest.fixture
def mover(torch: Any) -> Iterator[Mover]:
    gc.collect()
    yield Mover(torch, ("cpu",))
    gc.collect()


def sizes(*tensors: Any) -> list[int]:
    return [tensor.untyped_storage().nbytes() for tensor in tensors]


def there_and_back(mover: Mover, *tensors: Any) -> Moved:
    """Parks and resumes; these tensors have no memory in between."""
    moved = mover.move_out()
    assert set(sizes(*tensors)) <= {0}
    mover.move_back(moved)
    return moved


def test_a_model_its_optimizer_and_everything_beside_them(torch: Any, mover: Mover) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20), torch.nn.Linear(20, 30))
    model[2].weight = torch.nn.Parameter(model[0].weight.t())  # another Parameter of the same storage
    mean = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 30)).sum().backward()
    optimizer.step()
    view, part, empty = model[0].weight[3:5].detach(), model[0].bias.data[::2], torch.empty(0)
    half, scalar = torch.ones(5, dtype=torch.float16), torch.tensor(2.5)
    with torch.inference_mode():
        inferred = torch.arange(6.0)
    state = [value for parameter in model.parameters() for value in optimizer.state[parameter].values()]
    tensors = [*model.parameters(), *model.buffers(), *mean.parameters(), *state, *(p.grad for p in model.parameters())]
    tensors += [view, part, half, scalar, inferred]
    expected = [tensor.clone() for tensor in tensors]
    versions = [tensor._version for tensor in tensors if not tensor.is_inference()]
    moved = there_and_back(mover, *tensors)
    assert moved.size >= sum(
        {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}.values()
    )
    assert len({storage._cdata for storage in moved.storages}) == len(moved.storages), "each storage moves once"
    assert all(map(torch.equal, tensors, expected))
    assert versions == [tensor._version for tensor in tensors if not tensor.is_inference()], "autograd notices nothing"
    view.fill_(7)
    assert model[0].weight[3, 0] == model[2].weight[0, 3] == 7
    assert empty.numel() == 0
    assert moved.residue == 0


def test_a_graph_that_is_kept_computes_the_same_gradients(torch: Any, mover: Mover) -> None:
    weight, x = torch.ones(4, 4, requires_grad=True), torch.arange(4.0)
    loss = (weight @ x).square().sum()
    expected = torch.autograd.grad(loss, weight, retain_graph=True)[0]
    there_and_back(mover, weight, x)
    assert torch.equal(torch.autograd.grad(loss, weight)[0], expected)


def test_gradients_that_python_has_never_seen(torch: Any, mover: Mover) -> None:
    weight = torch.ones(1000, requires_grad=True)
    weight.sum().backward()
    moved = mover.move_out()
    assert moved.size >= 8000
    mover.move_back(moved)
    assert weight.grad.sum() == 1000


@pytest.mark.filterwarnings("ignore")
def test_layouts_and_kinds(torch: Any, mover: Mover) -> None:
    sparse = torch.eye(5).to_sparse()
    rows, columns = torch.eye(5).to_sparse_csr(), torch.eye(5).to_sparse_csc()
    quantized = torch.quantize_per_tensor(torch.ones(30), 0.1, 0, torch.qint8)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    lazy = torch.nn.LazyLinear(4)

    class Named(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: Any, **__: Any) -> Any:
            raise AssertionError("nobody asks the class of a tensor")

    own = torch.ones(8).as_subclass(Named)
    with torch._C.DisableTorchFunction():
        moved = mover.move_out()
        assert sizes(sparse._values(), rows.values(), columns.row_indices(), quantized, nested.values(), own) == [0] * 6
        mover.move_back(moved)
        assert own.sum() == 8
    assert torch.equal(sparse.to_dense(), torch.eye(5))
    assert torch.equal(rows.to_dense(), torch.eye(5))
    assert torch.equal(columns.to_dense(), torch.eye(5))
    assert quantized.dequantize().sum() == pytest.approx(30)
    assert nested.values().sum() == 5
    assert lazy(torch.ones(2, 3)).shape == (2, 4)


def test_what_does_not_belong_to_torch_keeps_its_place(torch: Any, mover: Mover) -> None:
    import numpy as np

    array = np.ones(1000)
    lent = torch.from_numpy(array)
    shared = torch.ones(500).share_memory_()
    exported = torch.ones(200)
    imported = torch.from_dlpack(exported)
    moved = mover.move_out()
    assert sizes(lent, shared, exported, imported) == [8000, 2000, 800, 800]
    assert moved.left["memory shared with other processes"] == 2000
    assert moved.left["memory that does not belong to torch"] >= 8800 - 800
    assert "memory that another library uses as well" in moved.left
    assert moved.residue >= sum(moved.left.values())
    mover.move_back(moved)
    assert array.sum() == lent.sum() == 1000
    assert imported.sum() == 200


def test_frozen_objects_are_found(torch: Any, mover: Mover) -> None:
    weight = torch.ones(100)
    gc.freeze()
    try:
        there_and_back(mover, weight)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    assert weight.sum() == 100


def test_what_python_froze_at_its_start_costs_no_collection(torch: Any) -> None:
    """Python 3.12 does so. To freeze again what there is would freeze the whole program, at each park."""
    code = "import gc, sys; gc.freeze(); few = gc.get_freeze_count(); import torch; from ebb_inject.ebb_hook import storages; "
    code += "kept = torch.ones(100); gc.callbacks.append(lambda *_: sys.exit('a collection')); gc.disable(); "
    code += "found = storages.find(torch, ('cpu',)); print(few, gc.get_freeze_count(), found.size)"
    done = subprocess.run([sys.executable, "-S", "-c", SITE + code], cwd=ROOT, capture_output=True, text=True, check=True)
    few, frozen, size = map(int, done.stdout.split())
    assert 0 < few < 50_000
    assert frozen == 0
    assert size >= 400


def test_the_modes_of_the_program_see_nothing(torch: Any, mover: Mover) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("a function was seen")

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("an operator was seen")

    weight = torch.ones(100)
    with Dispatches(), Functions():
        mover.move_back(mover.move_out())
    with torch.device("meta"), torch.inference_mode():
        mover.move_back(mover.move_out())
    assert weight.sum() == 100


# ---- refused, with everything as it was --------------------------------------------------------------------------------------


def refusal(mover: Mover, weight: Any, **more: int) -> str:
    before = weight.clone()
    with pytest.raises(Refused) as why:
        mover.move_out(**more)
    assert weight.sum() == before.sum()
    return str(why.value)


@pytest.mark.parametrize(("kind", "reason"), [("CUDAGraph", "CUDA graphs hold"), ("MemPool", "registered with NCCL")])
def test_what_holds_addresses(kind: str, reason: str, torch: Any, mover: Mover) -> None:
    weight = torch.ones(10)
    made = object.__new__(type("Derived", (getattr(torch.cuda, kind),), {"__del__": lambda _: None}))
    made.itself = made  # as a real one, an object that the garbage collector knows
    assert reason in refusal(mover, weight)
    del made.itself, made
    gc.collect()
    there_and_back(mover, weight)


def test_memory_that_is_registered_with_nccl(torch: Any, mover: Mover, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "1")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "nccl")
    assert "NCCL holds" in refusal(mover, torch.ones(10))


def test_memory_that_cannot_be_reached(torch: Any, mover: Mover) -> None:
    hidden = torch.ones(4, 4).to_mkldnn()
    assert "has the layout torch._mkldnn" in refusal(mover, torch.ones(10))
    del hidden


def test_a_tensor_that_another_thread_uses(torch: Any, mover: Mover) -> None:
    entered, done = threading.Event(), threading.Event()

    def prefetch() -> None:
        batches = [torch.ones(10)]
        entered.set()
        done.wait(60)
        del batches

    thread = threading.Thread(target=prefetch, name="prefetcher")
    thread.start()
    entered.wait(60)
    weight = torch.ones(10)
    try:
        assert refusal(mover, weight) == "the thread prefetcher uses a tensor, in prefetch"
    finally:
        done.set()
        thread.join()
    there_and_back(mover, weight)


def test_not_enough_host_memory(torch: Any, mover: Mover, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.ones(1 << 20)
    monkeypatch.setattr(arena, "_available", lambda: 300 << 20)
    there_and_back(mover, weight)
    more = torch.ones(100 << 20, dtype=torch.uint8)
    assert "MiB more are needed, and 300 MiB are available" in refusal(mover, weight)
    assert "and the limit is 1 MiB" in refusal(mover, weight, most_bytes=1 << 20)
    del more


def failing(storage_contents: Callable[[Any], Any], at: int) -> Callable[[Any], Any]:
    calls = iter(range(1000))

    def contents(storage: Any) -> Any:
        if next(calls) == at:
            raise RuntimeError("an error of the device")
        return storage_contents(storage)

    return contents


def test_a_park_that_fails_halfway_changes_nothing(torch: Any, mover: Mover, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [torch.full((10,), float(at)) for at in range(10)]
    monkeypatch.setattr(mover, "_contents", failing(mover._contents, 5))
    assert "cannot be copied: an error of the device" in refusal(mover, weights[0])
    assert [weight.sum().item() for weight in weights] == [10.0 * at for at in range(10)]
    there_and_back(mover, *weights)


def test_a_release_that_fails_halfway_is_undone(torch: Any, mover: Mover) -> None:
    """One of the storages cannot be resized: the others get their contents back."""
    weights = [torch.full((10,), float(at)) for at in range(10)]

    class Stubborn:
        def __init__(self, storage: Any) -> None:
            self._storage = storage

        def resize_(self, _: int) -> None:
            raise RuntimeError("not now")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._storage, name)

    found = storages.find(torch, ("cpu",))
    kept = found.storages[-1]
    found.storages[-1] = Stubborn(kept)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ebb_inject.ebb_hook.tensor_offload.find", lambda *_: found)
        contents = mover._contents
        patched.setattr(mover, "_contents", lambda storage: contents(kept if isinstance(storage, Stubborn) else storage))
        assert "cannot be released: not now" in refusal(mover, weights[0])
    assert [weight.sum().item() for weight in weights] == [10.0 * at for at in range(10)]


def test_a_resume_that_lacks_memory_stays_parked(torch: Any, mover: Mover, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [torch.full((10,), float(at)) for at in range(10)]
    moved = mover.move_out()
    with monkeypatch.context() as patched:
        patched.setattr(mover, "_contents", failing(mover._contents, 5))
        with pytest.raises(Refused, match="cannot be moved back: an error of the device"):
            mover.move_back(moved)
        assert set(sizes(*weights)) == {0}
    mover.move_back(moved)
    assert [weight.sum().item() for weight in weights] == [10.0 * at for at in range(10)]
