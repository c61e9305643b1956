"""Finds the storages of torch that hold a program's device memory, and the reasons that forbid moving them."""

from __future__ import annotations

import gc
import os
import sys
import threading
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from .control import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

_REGISTERING = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"

_FEW = 50_000
"""Number of frozen objects. A program that freezes its objects once torch is imported freezes more than 100,000."""


class Found(NamedTuple):
    storages: list[Any]
    """`torch.UntypedStorage`s, each once, that can be moved."""
    left: dict[str, int]
    """Bytes that cannot be moved and keep their place, by reason."""

    @property
    def size(self) -> int:
        return sum(storage.nbytes() for storage in self.storages)


def find(torch: Any, devices: tuple[str, ...], own: frozenset[int] = frozenset()) -> Found:
    """Find the storages of all tensors that the interpreter knows on devices of these types: parameters, buffers, optimizer
    state, gradients, copies, and batches in progress. `own` are addresses of storages that do not belong to the program.

    Raises Refused if moving the storages would break the program.
    """
    tensors = _tensors(torch)
    movable: dict[int, Any] = {}
    fixed: list[tuple[Any, str]] = []
    seen: set[int] = set()
    for tensor in tensors:
        for storage in storages_of(torch, tensor, devices):
            if storage._cdata in seen:
                continue
            seen.add(storage._cdata)
            if storage.device.type not in devices or not storage.nbytes() or storage.data_ptr() in own:
                continue
            if fault := _fault(storage):
                fixed.append((storage, fault))
            else:
                movable[storage._cdata] = storage
    _set_aside_aliases(movable, fixed)
    _refuse_if_others_use(torch, movable)
    left: dict[str, int] = {}
    for storage, fault in fixed:
        left[fault] = left.get(fault, 0) + storage.nbytes()
    return Found(list(movable.values()), left)


def _tensors(torch: Any) -> list[Any]:
    """Return all tensors that Python's garbage collector knows. Raises Refused if an object keeps addresses of tensors."""
    kinds = set(_kinds(torch.Tensor))
    forbidden = dict.fromkeys(_kinds(torch.cuda.CUDAGraph), "CUDA graphs hold the addresses of tensors")
    if hasattr(torch.cuda, "MemPool"):
        forbidden |= dict.fromkeys(_kinds(torch.cuda.MemPool), "a memory pool (torch.cuda.MemPool) may be registered with NCCL")
    _refuse_registered_memory(torch)
    wanted = kinds | set(forbidden)
    frozen = gc.get_freeze_count()
    if frozen:  # frozen objects are not listed
        gc.unfreeze()
    # Python 3.12 itself freezes some 400 objects at its start. They stay unfrozen: freezing again takes a whole collection,
    # and would freeze all objects of the program.
    objects = gc.get_objects()  # some 300,000 once torch is imported, so they are filtered without a loop in Python
    found = list(compress(objects, map(wanted.__contains__, map(type, objects))))
    del objects
    if frozen > _FEW:
        gc.collect()
        gc.freeze()
    for thing in found:
        if (reason := forbidden.get(type(thing))) is not None:
            raise Refused(reason)
    return found


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield the class and all classes derived from it. `isinstance` would ask each object, and some objects answer falsely."""
    yield kind
    derived: type[Any]
    for derived in type.__subclasses__(kind):
        yield from _kinds(derived)


def _refuse_registered_memory(torch: Any) -> None:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return
    if "nccl" in distributed.get_backend() and os.environ.get(_REGISTERING, "").lower() in ("1", "true", "yes", "on", "y", "t"):
        raise Refused(f"NCCL holds the addresses of tensors ({_REGISTERING} is set)")


def storages_of(torch: Any, tensor: Any, devices: tuple[str, ...]) -> Iterator[Any]:
    """Yield the storages of a tensor and of its gradient that have memory. Raises Refused if there may be others."""
    if tensor.is_leaf and tensor.grad is not None and tensor.grad is not tensor:
        yield from storages_of(torch, tensor.grad, devices)
    if hasattr(type(tensor), "__tensor_flatten__"):  # a wrapper without memory of its own; its parts are found themselves
        return
    layout = tensor.layout
    if layout is torch.strided:
        parts: tuple[Any, ...] = (tensor,)
    elif layout is torch.sparse_coo:
        parts = (tensor._indices(), tensor._values())
    elif layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    elif tensor.device.type in devices:
        raise Refused(f"a tensor has the layout {layout}, and its memory cannot be reached")
    else:
        return
    for part in parts:
        storage = part.untyped_storage()
        try:
            address = storage.data_ptr()
        except RuntimeError as error:  # such as a tensor that is only a placeholder for another one
            if storage.device.type in devices:
                raise Refused(f"the memory of a {type(tensor).__name__} cannot be reached: {error}") from error
            continue
        if address:
            yield storage


def _fault(storage: Any) -> str:
    """Return why the storage cannot be moved, or ""."""
    if storage.device.type == "cpu" and storage.is_shared():
        return "memory shared with other processes"
    if not storage.resizable():
        return "memory that does not belong to torch"
    return ""


def _set_aside_aliases(movable: dict[int, Any], fixed: list[tuple[Any, str]]) -> None:
    """Also leave storages in place that share memory with one that cannot be moved."""
    while fixed:
        ranges = [(fixed_.device, fixed_.data_ptr(), fixed_.data_ptr() + fixed_.nbytes()) for fixed_, _ in fixed]
        aliases = [
            storage
            for storage in movable.values()
            if any(
                device == storage.device and begin < storage.data_ptr() + storage.nbytes() and storage.data_ptr() < end
                for device, begin, end in ranges
            )
        ]
        if not aliases:
            return
        for storage in aliases:
            del movable[storage._cdata]
            fixed.append((storage, "memory that another library uses as well"))


def _refuse_if_others_use(torch: Any, movable: dict[int, Any]) -> None:
    """Raise Refused if another thread works on one of these storages."""
    kinds = tuple(_kinds(torch.Tensor))
    mine = threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, innermost in sys._current_frames().items():
        if number == mine:
            continue
        frame: FrameType | None = innermost
        while frame is not None:
            for tensor in _find_tensors(frame.f_locals.values(), kinds):
                if hasattr(type(tensor), "__tensor_flatten__") or tensor.layout is not torch.strided:
                    continue
                if tensor.untyped_storage()._cdata in movable:
                    raise Refused(f"the thread {names.get(number, number)} uses a tensor, in {frame.f_code.co_name}")
            frame = frame.f_back


def _find_tensors(values: Iterable[Any], kinds: tuple[type, ...]) -> Iterator[Any]:
    """Yield the tensors among the values, and in lists, tuples and dicts among them."""
    for value in list(values):
        if type(value) in kinds:
            yield value
        elif type(value) in (list, tuple):
            yield from (item for item in list(value) if type(item) in kinds)
        elif type(value) is dict:
            yield from (item for item in list(value.values()) if type(item) in kinds)
