"""Sets of nodes, as integers in which bit i is node i, and as arrays by node."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def bits_of(mask: NDArray[np.bool_]) -> int:
    """Return the set of these nodes as an integer: bit i is node i."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(bits: int, nodes: int) -> NDArray[np.bool_]:
    """Return the set as an array of `nodes` elements."""
    width = (nodes + 7) // 8
    data = np.frombuffer((bits & (1 << nodes) - 1).to_bytes(width, "little"), dtype=np.uint8)
    return np.unpackbits(data, count=nodes, bitorder="little").view(np.bool_)


def nodes_of(bits: int) -> Iterator[int]:
    """Yield the nodes of a set, in order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
