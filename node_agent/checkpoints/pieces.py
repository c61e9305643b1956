"""A file of a checkpoint in pieces, each with its checksum, and compressed if that pays. No network."""

import asyncio
import hashlib
import os
import zlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import zstandard

PIECE = 4 << 20
"""Bytes of a file in one message."""
_SAMPLE = 1 << 16
_WORTH_IT = 0.7
"""A file is compressed if a sample of it shrinks to less than this; otherwise it is faster to send it as it is."""


class Damaged(Exception):
    """The data that arrived differs from what was sent, or the data kept differs from the file now."""


class Changed(Exception):
    """The file is not the one that was described."""


class Piece(NamedTuple):
    data: bytes = b""
    crc32: int = 0
    """Checksum of the bytes as they are in the file."""
    compressed: bool = False
    sha256: bytes = b""
    """Digest of the whole file; in the last piece, which has no data."""


async def pieces(descriptor: int, size: int, offset: int) -> AsyncIterator[Piece]:
    """Read an open file from `offset` on. While a piece is being sent, the next one is read.

    Raises OSError, and Changed if the file ends before `size`.
    """
    digest = hashlib.sha256()
    await asyncio.to_thread(_digest_up_to, descriptor, offset, digest)
    compress = await asyncio.to_thread(_is_compressible, descriptor, size)
    reading = asyncio.ensure_future(asyncio.to_thread(_read, descriptor, offset, size, digest, compress))
    try:
        while offset < size:
            piece, count = await reading
            offset += count
            reading = asyncio.ensure_future(asyncio.to_thread(_read, descriptor, offset, size, digest, compress))
            yield piece
        await reading
        yield Piece(sha256=digest.digest())
    finally:
        await asyncio.gather(reading, return_exceptions=True)  # it uses the descriptor, which the caller closes


def _read(descriptor: int, offset: int, size: int, digest: "hashlib._Hash", compress: bool) -> tuple[Piece, int]:
    want = min(PIECE, size - offset)
    if want <= 0:
        return Piece(), 0
    data = os.pread(descriptor, want, offset)
    if len(data) < want:
        raise Changed(f"the file ends at byte {offset + len(data)}, and not at {size}")
    digest.update(data)
    checksum = zlib.crc32(data)
    return Piece(zstandard.compress(data, 1) if compress else data, checksum, compress), want


def _digest_up_to(descriptor: int, end: int, digest: "hashlib._Hash") -> None:
    at = 0
    while at < end:
        data = os.pread(descriptor, min(PIECE, end - at), at)
        if not data:
            raise Changed(f"the file ends at byte {at}, and not at {end} or later")
        digest.update(data)
        at += len(data)


def _is_compressible(descriptor: int, size: int) -> bool:
    """Decide by samples from three places, because the head of a file of weights is often text."""
    if size < _SAMPLE:
        return False
    places = {0, size // 2, max(size - _SAMPLE, 0)}
    sample = [os.pread(descriptor, _SAMPLE, at) for at in sorted(places)]
    worst = max(len(zstandard.compress(part, 1)) / max(len(part), 1) for part in sample)
    return worst < _WORTH_IT


class Writer:
    """Writes a file that arrives in pieces. Existing bytes are kept, and count if the digest fits in the end."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._digest = hashlib.sha256()
        self.offset = os.fstat(self._descriptor).st_size
        _digest_up_to(self._descriptor, self.offset, self._digest)

    def write(self, piece: Piece) -> None:
        """Append a piece. Raises Damaged, and OSError."""
        try:
            data = zstandard.decompress(piece.data, max_output_size=PIECE) if piece.compressed else piece.data
        except zstandard.ZstdError as error:
            raise Damaged(f"a piece cannot be decompressed: {error}") from None
        if zlib.crc32(data) != piece.crc32:
            raise Damaged(f"the piece at byte {self.offset} has another checksum than it was sent with")
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, self.offset)
            self.offset += written
            self._digest.update(view[:written])
            view = view[written:]

    def check(self, sha256: bytes, size: int) -> None:
        """Compare the size and the digest of the file. Raises Damaged."""
        if self.offset != size or self._digest.digest() != sha256:
            raise Damaged("the file that was fetched has another digest than that of its source")

    def close(self) -> None:
        os.close(self._descriptor)
