"""The files in which the parts of a checkpoint are kept: formats that other programs read, where the state allows it.

| format | what it keeps | who reads it |
| safetensors | a dict of names and dense tensors, if the package is installed | `safetensors.torch.load_file` |
| torch | nested dicts, lists and tuples with tensors and plain values | `torch.load`, with `weights_only=True` |
| npy | a NumPy array | `numpy.load` |
| npz | nested dicts, lists and tuples with NumPy arrays and plain values | `numpy.load` |
| pickle | everything else | `pickle.load` |
"""

import json
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from client_sdk.training._storing import safetensors_writer
from client_sdk.training._storing.checksummed import ChecksummedFile

_PLAIN = (str, int, float, bool, type(None))


class Format(NamedTuple):
    suffix: str
    suits: Callable[[Any], bool]
    write: Callable[[ChecksummedFile, Any], Any]
    """Returns what the manifest has to keep for `read`; it is plain JSON."""
    read: Callable[[Path, Any], Any]


def choose(state: Any) -> str:
    """The name of the first format that keeps this state."""
    return next(name for name, format_ in FORMATS.items() if format_.suits(state))


def _is_safetensors(state: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or type(state) not in (dict, OrderedDict) or not state or find_spec("safetensors") is None:
        return False
    values = list(state.values())
    if not all(isinstance(name, str) for name in state) or not all(_is_dense(torch, tensor) for tensor in values):
        return False
    memory = {tensor.untyped_storage().data_ptr() for tensor in values if tensor.numel()}
    return len(memory) == sum(bool(tensor.numel()) for tensor in values)  # the format keeps no tied weights


def _is_dense(torch: Any, thing: Any) -> bool:
    kinds = (torch.Tensor, torch.nn.Parameter)
    return (
        type(thing) in kinds and thing.layout is torch.strided and thing.is_contiguous() and safetensors_writer.is_known(thing)
    )


def _write_safetensors(file: ChecksummedFile, state: Any) -> Any:
    safetensors_writer.write(file, state)
    versions = getattr(state, "_metadata", None)  # of a torch module's parts
    try:
        return json.loads(json.dumps(versions))
    except TypeError:
        return None


def _read_safetensors(path: Path, versions: Any) -> Any:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise ImportError(f"{path} needs the package safetensors: install it in the environment of this job") from None
    state = OrderedDict(load_file(path))
    if versions is not None:
        state._metadata = OrderedDict(versions)  # type: ignore[attr-defined]  # as torch does
    return state


def _is_torch(state: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and _is_weights_only(torch, state)


def _is_weights_only(torch: Any, state: Any) -> bool:
    """Whether `torch.load(..., weights_only=True)` reads it."""
    kind = type(state)
    if kind in (dict, OrderedDict):
        return all(type(key) in _PLAIN and _is_weights_only(torch, value) for key, value in state.items())
    if kind in (list, tuple):
        return all(_is_weights_only(torch, value) for value in state)
    return kind in (*_PLAIN, torch.Tensor, torch.nn.Parameter, torch.Size)


def _write_torch(file: ChecksummedFile, state: Any) -> None:
    import torch

    try:
        torch.save(state, file)
    except RuntimeError as error:  # torch says of a full disk that a position is unexpected
        raise _fault_of_file(error) or error from None


def _fault_of_file(error: BaseException) -> OSError | None:
    """Return the file's OSError during whose handling this error was raised, or None."""
    before = error.__context__
    return before if before is None or isinstance(before, OSError) else _fault_of_file(before)


def _read_torch(path: Path, _extra: Any) -> Any:
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def _is_array(state: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(state) is numpy.ndarray and not state.dtype.hasobject


def _write_npy(file: ChecksummedFile, state: Any) -> None:
    import numpy

    numpy.save(file, state, allow_pickle=False)


def _read_npy(path: Path, _extra: Any) -> Any:
    import numpy

    return numpy.load(path, allow_pickle=False)


def _is_npz(state: Any) -> bool:
    arrays: dict[str, Any] = {}
    return "numpy" in sys.modules and _tree(state, "", arrays) is not None and bool(arrays)


def _tree(state: Any, path: str, arrays: dict[str, Any]) -> Any:
    """The form of nested containers as plain JSON, and in `arrays` the arrays by their path; None: it cannot be kept so."""
    kind = type(state)
    if kind is dict:
        nodes = [_tree(value, f"{path}/{key}" if path else str(key), arrays) for key, value in state.items()]
        fits = all(type(key) is str and key for key in state) and None not in nodes
        return {"dict": dict(zip(state, nodes, strict=True))} if fits else None
    if kind in (list, tuple):
        nodes = [_tree(value, f"{path}/{number}" if path else str(number), arrays) for number, value in enumerate(state)]
        return None if None in nodes else {kind.__name__: nodes}
    if _is_array(state):
        if not path or path in arrays:  # two keys that give the same path
            return None
        arrays[path] = state
        return {"array": path}
    return {"value": state} if kind in _PLAIN else None


def _grow(tree: Any, arrays: Any) -> Any:
    ((kind, content),) = tree.items()
    match kind:
        case "dict":
            return {key: _grow(node, arrays) for key, node in content.items()}
        case "list":
            return [_grow(node, arrays) for node in content]
        case "tuple":
            return tuple(_grow(node, arrays) for node in content)
        case "array":
            return arrays[content]
        case _:
            return content


def _write_npz(file: ChecksummedFile, state: Any) -> Any:
    import zipfile

    import numpy

    arrays: dict[str, Any] = {}
    tree = _tree(state, "", arrays)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]  # it asks for `write`
        for name, array in arrays.items():  # numpy.savez takes no array that is named "file"
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                numpy.lib.format.write_array(entry, array, allow_pickle=False)
    return tree


def _read_npz(path: Path, tree: Any) -> Any:
    import numpy

    with numpy.load(path, allow_pickle=False) as arrays:
        return _grow(tree, arrays)


def _write_pickle(file: ChecksummedFile, state: Any) -> None:
    pickle.dump(state, file, protocol=5)


def _read_pickle(path: Path, _extra: Any) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)


FORMATS = {
    "safetensors": Format(".safetensors", _is_safetensors, _write_safetensors, _read_safetensors),
    "torch": Format(".pt", _is_torch, _write_torch, _read_torch),
    "npy": Format(".npy", _is_array, _write_npy, _read_npy),
    "npz": Format(".npz", _is_npz, _write_npz, _read_npz),
    "pickle": Format(".pickle", lambda _state: True, _write_pickle, _read_pickle),
}
