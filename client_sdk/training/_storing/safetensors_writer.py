"""Writes named tensors in the format of safetensors, without a second copy of them in memory.

The file is eight bytes with the length of a header, the header in JSON, and the tensors one after the other: those of the
largest elements first, and then by name, so that each is aligned.
"""

import ctypes
import json
import struct
from collections.abc import Mapping
from typing import Any

from client_sdk.training._storing.checksummed import ChecksummedFile

_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""Element types: PyTorch's names, and those of the format."""


def is_known(tensor: Any) -> bool:
    """Whether the format has a name for the elements of a tensor."""
    return _name(tensor) in _NAMES


def write(file: ChecksummedFile, tensors: Mapping[str, Any]) -> None:
    """Each tensor is dense and contiguous, and `is_known`. Those of a device come to host memory one at a time."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[_name(tensor)], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for _, tensor in ordered:
        here = tensor.detach().cpu()
        if size := here.numel() * here.element_size():
            file.write((ctypes.c_char * size).from_address(here.data_ptr()))


def _name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
