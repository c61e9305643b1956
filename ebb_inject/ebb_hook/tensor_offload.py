"""Moves the contents of torch's storages to host memory and back. Tensors, views and Parameters keep their identity."""

from __future__ import annotations

import ctypes
import gc
import pickle
import sys
from collections import OrderedDict
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from .arena import Arena
from .control import Refused
from .storages import find, storages_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .arena import Place
    from .storages import Found

_PLAIN = (str, int, float, bool, bytes, type(None))
_ACCEPTED_RESIDUE = 0.01
"""Part of the bytes moved. If more stays behind, garbage is collected, which takes some 100 ms."""


class Moved(NamedTuple):
    storages: list[Any]
    places: list[Place]
    sizes: list[int]
    left: dict[str, int]
    residue: int
    """Bytes; -1: unknown."""
    seconds: dict[str, float]

    @property
    def size(self) -> int:
        return sum(self.sizes)


class Mover:
    """Moves this process's memory on devices of the given types, such as "cuda"."""

    def __init__(self, torch: Any, devices: tuple[str, ...]) -> None:
        self._torch = torch
        self._devices = devices
        self.arena = Arena(torch, pinned="cuda" in devices and torch.cuda.is_available())

    def prepare(self, most_bytes: int = 0) -> int:
        """Make room for the present contents, and return their size in bytes. Raises Refused."""
        with self._in_plain_mode():
            found = find(self._torch, self._devices, self.arena.addresses)
            _check_size(found.size, most_bytes)
            self.arena.places([storage.nbytes() for storage in found.storages])
            return found.size

    def move_out(self, most_bytes: int = 0) -> Moved:
        """Move everything to host memory. If it raises Refused, nothing was moved."""
        with self._in_plain_mode():
            begin = monotonic()
            self._synchronize()
            found = find(self._torch, self._devices, self.arena.addresses)
            _check_size(found.size, most_bytes)
            sizes = [storage.nbytes() for storage in found.storages]
            places = self.arena.places(sizes)
            looked = monotonic()
            try:
                for storage, place in zip(found.storages, places):  # noqa: B905 (`strict` is of Python 3.10)
                    place.bytes.copy_(self._contents(storage), non_blocking=True)
                self._synchronize()
            except Exception as error:
                raise Refused(f"the contents cannot be copied: {error}") from error
            copied = monotonic()
            try:
                for storage in found.storages:
                    storage.resize_(0)
                self._release()
                residue = self._residue(found, sum(sizes))
            except Exception as error:
                if self._refill(found.storages, places, sizes) is None:
                    raise Refused(f"memory cannot be released: {error}") from error
                residue = -1
            seconds = {"find": looked - begin, "copy": copied - looked, "release": monotonic() - copied}
            return Moved(found.storages, places, sizes, found.left, residue, seconds)

    def move_back(self, moved: Moved) -> dict[str, float]:
        """Move everything back. Return the durations. If memory is missing, it raises Refused, and everything stays out."""
        with self._in_plain_mode():
            begin = monotonic()
            if (error := self._refill(moved.storages, moved.places, moved.sizes)) is not None:
                raise Refused(f"the contents cannot be moved back: {error}") from error
            return {"fill": monotonic() - begin}

    def copies(self, moved: Moved) -> HostCopies:
        """Return host copies of what was moved, for a save."""
        return HostCopies(self._torch, moved)

    def _refill(self, storages: list[Any], places: list[Place], sizes: list[int]) -> Exception | None:
        """Give the storages that have no memory their contents back. After an error none of them has memory."""
        try:
            for storage, place, size in zip(storages, places, sizes):  # noqa: B905 (`strict` is of Python 3.10)
                if storage.nbytes() != size:
                    storage.resize_(size)
                    self._contents(storage).copy_(place.bytes, non_blocking=True)
            self._synchronize()
        except Exception as error:
            for storage in storages:
                with suppress(Exception):
                    storage.resize_(0)
            with suppress(Exception):
                self._release()
            return error
        return None

    def _contents(self, storage: Any) -> Any:
        """Return the bytes of a storage as a tensor."""
        return self._torch.empty(0, dtype=self._torch.uint8, device=storage.device).set_(storage)

    def _release(self) -> None:
        """Return free memory to the system."""
        torch = self._torch
        if "cpu" in self._devices:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)
        if torch.cuda.is_initialized():
            with suppress(AttributeError):
                torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()

    def _residue(self, found: Found, moved: int) -> int:
        """Return bytes of tensors still on the devices: all that CUDA's allocator knows; on CPUs, all that Python knows."""
        torch, residue = self._torch, 0
        if "cpu" in self._devices:
            on_host = [storage.nbytes() for storage in found.storages if storage.device.type == "cpu"]
            residue += sum(on_host) + sum(found.left.values())
        if "cuda" in self._devices and torch.cuda.is_initialized():
            if self._allocated_bytes() > _ACCEPTED_RESIDUE * moved and gc.collect():
                torch.cuda.empty_cache()
            residue += self._allocated_bytes()
        return residue

    def _allocated_bytes(self) -> int:
        cuda = self._torch.cuda
        return sum(cuda.memory_allocated(device) for device in range(cuda.device_count()))

    def _synchronize(self) -> None:
        """Wait for the devices that this process uses. A call for another one would create a context there."""
        cuda = self._torch.cuda
        if cuda.is_initialized():
            for device in range(cuda.device_count()):
                if cuda.memory_reserved(device):
                    cuda.synchronize(device)

    @contextmanager
    def _in_plain_mode(self) -> Iterator[None]:
        """Disable gradients, and what the program has wrapped around torch's functions."""
        torch, dispatch = self._torch, sys.modules["torch.utils._python_dispatch"]
        with torch._C.DisableTorchFunction(), dispatch._disable_current_modes(), torch.no_grad():
            yield


def _check_size(size: int, most_bytes: int) -> None:
    if most_bytes and size > most_bytes:
        raise Refused(f"{size >> 20} MiB would be moved to host memory, and the limit is {most_bytes >> 20} MiB")


class HostCopies:
    """Provides tensors in host memory instead of tensors that have no contents on their device. Nothing is copied: the
    tensors that it provides use the memory in which the contents wait, and must not be changed."""

    def __init__(self, torch: Any, moved: Moved) -> None:
        self._torch = torch
        self._places = {
            storage._cdata: (place, size)
            for storage, place, size in zip(moved.storages, moved.places, moved.sizes)  # noqa: B905 (Python 3.10)
        }
        self._host: dict[int, Any] = {}

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Inside this context, operations of torch read the host copies of parked tensors. An operation that would read
        the memory that is gone would end the process."""
        torch = self._torch
        trees, modes = sys.modules["torch.utils._pytree"], sys.modules["torch.utils._python_dispatch"]

        def dispatch_to_copies(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args, kwargs = trees.tree_map_only(torch.Tensor, self.tensor, (args, kwargs or {}))
            return func(*args, **kwargs)

        shown = type("Shown", (modes.TorchDispatchMode,), {"__torch_dispatch__": dispatch_to_copies})
        with torch.no_grad(), shown():
            yield

    def of(self, state: Any) -> Any:
        """Return the state with host copies instead of parked tensors, in nested dicts, lists and tuples. Raises Refused if
        another object holds a parked tensor."""
        kind = type(state)
        if kind in (dict, OrderedDict):
            found: Any = kind((key, self.of(value)) for key, value in state.items())
            if hasattr(state, "_metadata"):  # a torch module's versions of its parts
                found._metadata = state._metadata
            return found
        if kind in (list, tuple):
            return kind(self.of(value) for value in state)
        if kind in _PLAIN:
            return state
        if isinstance(state, self._torch.Tensor):
            return self.tensor(state)
        self._check(state)
        return state

    def tensor(self, tensor: Any) -> Any:
        """Return the tensor in host memory if its own memory is parked, otherwise the tensor itself. Raises Refused for a
        tensor whose memory is parked and that is not plain."""
        if tensor.layout is self._torch.strided and not hasattr(type(tensor), "__tensor_flatten__"):
            host = self._storage(tensor.untyped_storage()._cdata)
            if host is None:
                return tensor
            if not (tensor.is_conj() or tensor.is_neg()):
                empty = self._torch.empty(0, dtype=tensor.dtype, device="cpu")
                return empty.set_(host, tensor.storage_offset(), tensor.size(), tensor.stride())
        elif not any(storage._cdata in self._places for storage in storages_of(self._torch, tensor, ("cpu", "cuda"))):
            return tensor
        raise Refused(f"a {type(tensor).__name__} with the layout {tensor.layout} cannot be saved while it is parked")

    def _storage(self, identity: int) -> Any:
        """Return one host storage per parked storage, so that tensors that share memory still do, and no others."""
        if identity not in self._places:
            return None
        if identity not in self._host:
            place, size = self._places[identity]
            memory = (ctypes.c_char * size).from_address(place.chunk.data_ptr() + place.begin)
            self._host[identity] = self._torch.frombuffer(memory, dtype=self._torch.uint8).untyped_storage()
        return self._host[identity]

    def _check(self, thing: Any) -> None:
        """Raise Refused if pickling the object would read a parked tensor."""
        copies = self

        class Checker(pickle.Pickler):
            def persistent_id(self, part: Any) -> Any:
                if not isinstance(part, copies._torch.Tensor):
                    return None
                if copies.tensor(part) is not part:
                    raise Refused(f"a {type(thing).__name__} holds tensors that cannot be saved while they are parked")
                return "tensor"

        try:
            Checker(_Nowhere(), protocol=5).dump(thing)
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"a {type(thing).__name__} cannot be saved: {error}") from error


class _Nowhere:
    """A file that discards everything."""

    def write(self, data: bytes) -> int:
        return len(data)
