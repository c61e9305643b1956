"""One copy of a state in host memory, from which a thread writes while the training continues."""

import copy
import sys
from collections import OrderedDict
from typing import Any

from client_sdk.training._storing.object_states import is_array

_PLAIN = (str, int, float, bool, bytes, type(None))


class Copies:
    """Copies nested states. The memory of the arrays is kept for the next copy, as long as their shapes stay the same.

    A copy is therefore valid until the next one begins. Tensors of a device are copied to pinned host memory. Views of the same
    memory, such as tied weights, are copied once, and share memory in the copy, too.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], Any] = {}
        self._used: dict[tuple[str, ...], Any] = {}
        self._seen: dict[Any, Any] = {}

    def copy(self, state: Any) -> Any:
        """A copy of everything that the state refers to. Returns when the copy is complete."""
        self._used, self._seen = {}, {}
        copied = self._copy(state, ())
        self._kept, self._used, self._seen = self._used, {}, {}
        if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return copied

    def _copy(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if kind in (dict, OrderedDict):
            copied: Any = kind((key, self._copy(item, (*path, repr(key)))) for key, item in value.items())
            if hasattr(value, "_metadata"):  # what a torch module says about the versions of its parts
                copied._metadata = copy.deepcopy(value._metadata)
            return copied
        if kind in _PLAIN:
            return value
        if kind in (list, tuple):
            return kind(self._copy(item, (*path, str(number))) for number, item in enumerate(value))
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if not is_array(value, numpy, torch):
            return copy.deepcopy(value)
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(torch, value, path)
        if kind is not numpy.ndarray or value.dtype.hasobject:  # type: ignore[union-attr]  # is_array found NumPy
            return copy.deepcopy(value)
        kept = self._kept.get(path)
        if kept is None or kept.shape != value.shape or kept.dtype != value.dtype or kept.strides != value.strides:
            kept = numpy.empty_like(value)  # type: ignore[union-attr]
        numpy.copyto(kept, value)  # type: ignore[union-attr]
        self._used[path] = kept
        return kept

    def _tensor(self, torch: Any, value: Any, path: tuple[str, ...]) -> Any:
        value = value.detach()
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            return value.clone()
        view = (value.device, value.dtype, value.data_ptr(), value.shape, value.stride())
        if value.numel() and view in self._seen:
            return self._seen[view]
        kept: Any = self._kept.get(path)
        same = kept is not None and (kept.shape, kept.dtype, kept.stride()) == (value.shape, value.dtype, value.stride())
        if not same:
            kept = torch.empty_like(value, device="cpu", pin_memory=value.is_cuda)
        kept.copy_(value, non_blocking=value.is_cuda)
        self._used[path] = self._seen[view] = kept
        return kept
