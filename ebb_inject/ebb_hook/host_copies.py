"""The host copies of a parked program's tensors, for whoever saves the program's state while it is parked."""

from __future__ import annotations

import ctypes
import pickle
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .refused import Refused
from .storages import storages_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .moving import Moved

_PLAIN = (str, int, float, bool, bytes, type(None))


class HostCopies:
    """Gives tensors in host memory in the place of tensors that have no contents on their device. Nothing is copied: the
    tensors that it gives use the memory in which the contents wait, and must not be changed."""

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
        torch, copies = self._torch, self
        from torch.utils import _pytree as trees
        from torch.utils._python_dispatch import TorchDispatchMode

        class Shown(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
                args, kwargs = trees.tree_map_only(torch.Tensor, copies.tensor, (args, kwargs or {}))
                return func(*args, **kwargs)

        with torch.no_grad(), Shown():
            yield

    def of(self, state: Any) -> Any:
        """The state with host copies in the place of parked tensors, in nested dicts, lists and tuples. Raises Refused if
        another object holds a parked tensor."""
        kind = type(state)
        if kind in (dict, OrderedDict):
            found: Any = kind((key, self.of(value)) for key, value in state.items())
            if hasattr(state, "_metadata"):  # what a torch module says about the versions of its parts
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
        """The tensor in host memory if its own memory is parked, otherwise the tensor itself. Raises Refused for a tensor
        whose memory is parked and that is not plain."""
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
        """A storage of its own for each parked storage, so that tensors that share memory still do, and no others."""
        if identity not in self._places:
            return None
        if identity not in self._host:
            place, size = self._places[identity]
            memory = (ctypes.c_char * size).from_address(place.chunk.data_ptr() + place.begin)
            self._host[identity] = self._torch.frombuffer(memory, dtype=self._torch.uint8).untyped_storage()
        return self._host[identity]

    def _check(self, thing: Any) -> None:
        """Raises Refused if pickling the object would read a parked tensor."""
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
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)
