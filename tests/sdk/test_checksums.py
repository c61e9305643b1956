"""The checksums of the parts of a checkpoint: taken while they are written, and again when they are read."""

import hashlib
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from client_sdk.training._storing import checksummed, folders

BLOCK = 8 << 20


@pytest.mark.parametrize("sizes", [[0], [1], [BLOCK], [BLOCK - 1, 2], [3 * BLOCK + 5], [5, 2 * BLOCK, 1 << 20, 7]])
def test_checksums_are_those_of_each_block_however_it_was_written(tmp_path: Path, sizes: list[int]) -> None:
    whole = np.random.default_rng(7).bytes(sum(sizes))
    path, at = tmp_path / "part", 0
    with checksummed.ChecksummedFile(path, durable=False) as file:
        for size in sizes:
            assert file.write(memoryview(whole)[at : at + size]) == size
            at += size
    expected = "".join(f"{zlib.crc32(whole[at : at + BLOCK]):08x}" for at in range(0, len(whole), BLOCK))
    assert (file.checksums, file.length, path.read_bytes()) == (expected, len(whole), whole)
    with checksummed.threads() as pool:
        assert checksummed.checksums(path, pool) == expected


@pytest.mark.parametrize("at", [200, BLOCK - 1, BLOCK, 2 * BLOCK + 100])
def test_one_bit_that_changed_is_found(tmp_path: Path, at: int) -> None:
    reference = folders.write(tmp_path, "checkpoint", {"weight": np.zeros(2 * BLOCK + 1000, np.uint8)}, dict)
    path = tmp_path / "checkpoint" / "weight.npy"
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(folders.CheckpointError, match=r"weight\.npy, part 'weight' of a checkpoint, is damaged"):
        folders.check(tmp_path, reference)


def test_a_file_that_lacks_its_last_blocks_is_damaged(tmp_path: Path) -> None:
    reference = folders.write(tmp_path, "checkpoint", {"weight": np.zeros(2 * BLOCK + 1000, np.uint8)}, dict)
    with (tmp_path / "checkpoint" / "weight.npy").open("r+b") as file:
        file.truncate(BLOCK)
    with pytest.raises(folders.CheckpointError, match="is damaged"):
        folders.check(tmp_path, reference)


def test_a_checkpoint_of_version_1_has_digests_and_is_read(tmp_path: Path) -> None:
    folders.write(tmp_path, "checkpoint", {"weight": np.arange(4)}, lambda: {"step": 3})
    path, folder = tmp_path / "checkpoint" / "weight.npy", tmp_path / "checkpoint"
    manifest = json.loads((folder / folders.MANIFEST).read_text())
    del manifest["parts"]["weight"]["crc32"]
    manifest["parts"]["weight"]["blake2b"] = hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()
    (folder / folders.MANIFEST).write_text(json.dumps(manifest | {"version": 1}))
    assert folders.read_folder(folder)["weight"].tolist() == [0, 1, 2, 3]
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(folders.CheckpointError, match="is damaged"):
        folders.read_folder(folder)
