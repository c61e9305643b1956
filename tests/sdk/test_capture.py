"""Snapshots of directories: which files are in them, and which archives are refused."""

import contextlib
import gzip
import io
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk import InvalidArgument
from client_sdk.capture import snapshot
from ebb_common import archive
from ebb_common.archive import Archive, BadArchive, pack, unpack

GIT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *words], cwd=folder, env=os.environ | GIT, check=True, capture_output=True
    )


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def unpacked(made: Archive, into: Path) -> dict[str, str]:
    unpack(io.BytesIO(made.data), into)
    return {
        str(path.relative_to(into)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sorted(into.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


# Which files.


def test_of_a_repository_what_git_tracks_or_would_track(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    write(
        root,
        train_DOT_py="1",
        _DOT_gitignore="*.bin\ndata/\n",
        weights_DOT_bin="x",
        data__a="x",
        package__new_DOT_py="2",
        gone="3",
    )
    git(root, "init")
    git(root, "add", "train.py", ".gitignore", "gone")
    git(root, "commit", "-m", "first")
    (root / "gone").unlink()
    (root / "link").symlink_to("train.py")
    assert unpacked(snapshot(root), tmp_path / "out") == {
        ".gitignore": "*.bin\ndata/\n",
        "link": "train.py",
        "package/new.py": "2",
        "train.py": "1",
    }
    assert list(unpacked(snapshot(root / "package"), tmp_path / "part")) == ["new.py"]


def test_of_a_repository_inside_the_repository_its_files_too(tmp_path: Path) -> None:
    root = tmp_path / "outer"
    write(root, a="1", inner__b="2", inner__c_DOT_bin="3", inner___DOT_gitignore="*.bin")
    for folder in (root, root / "inner"):
        git(folder, "init")
    assert list(unpacked(snapshot(root), tmp_path / "out")) == ["a", "inner/.gitignore", "inner/b"]


def test_elsewhere_what_ebbignore_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    root = tmp_path / "plain"
    ignored = "# comment\n\n*.bin\ndata/\nout/*.log\n"
    write(root, a="1", a_DOT_bin="x", data__b="x", sub__data__c="x", out__d_DOT_log="x", out__e="2", sub__out__f_DOT_log="3")
    write(root, _DOT_ebbignore=ignored, __pycache____g="x", sub__data_DOT_py="4")
    (root / "sub" / "data").joinpath("c").unlink()
    (root / "sub" / "data").rmdir()
    assert unpacked(snapshot(root), tmp_path / "out") == {
        ".ebbignore": ignored,
        "a": "1",
        "out/e": "2",
        "sub/data.py": "4",
        "sub/out/f.log": "3",
    }


def test_the_same_files_are_the_same_archive(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        write(root, b="2", a="1", c__d="3")
    (one / "a").chmod(0o755)
    (other / "a").chmod(0o700)
    os.utime(other / "b", (1, 1))
    assert snapshot(one) == snapshot(other)
    write(other, b="other")
    assert snapshot(one).digest != snapshot(other).digest


def test_what_is_too_large_names_the_largest_files(tmp_path: Path) -> None:
    write(tmp_path, small="1", large="x" * 3000, largest="x" * 5000)
    with pytest.raises(
        InvalidArgument, match=r"would have 8001 bytes, and may have 4000 bytes.*: largest \(5000 bytes\), large"
    ):
        snapshot(tmp_path, largest=4000)


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "data").symlink_to(target)
    with pytest.raises(InvalidArgument, match=r"the link data leads out of the directory.*name it in \.ebbignore"):
        snapshot(tmp_path)
    (tmp_path / ".ebbignore").write_text("data\n")
    snapshot(tmp_path)


def test_a_directory_without_files_to_take_is_refused(tmp_path: Path) -> None:
    write(tmp_path, _DOT_gitignore="build/\n", build__run_DOT_py="1")
    git(tmp_path, "init")
    with pytest.raises(InvalidArgument, match=r"build has no files that a snapshot takes; see `git ls-files -co"):
        snapshot(tmp_path / "build")


def test_where_git_refuses_what_it_ignores_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, _DOT_gitignore=".env\n", _DOT_env="SECRET=1", sub__a="1")
    git(tmp_path, "init")
    (tmp_path / ".git" / "config").write_text("[broken\n")
    for folder in (tmp_path, tmp_path / "sub"):
        with pytest.raises(
            InvalidArgument, match=r"git cannot say which files .* has: fatal: bad config line 1.*; see `git status`"
        ):
            snapshot(folder)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InvalidArgument, match=r"git cannot say which files .* has: .*No such file.*; see `git status`"):
        snapshot(tmp_path)


def test_what_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no directory"):
        snapshot(tmp_path / "nothing")


# Archives that are not believed.

Make = Callable[[tarfile.TarFile], None]


def made(make: Make) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        make(tar)
    return io.BytesIO(buffer.getvalue())


def entry(name: str, **fields: object) -> Make:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(info, field, value)
        tar.addfile(info, io.BytesIO(b"x" * info.size))

    return add


def several(*entries: Make) -> Make:
    return lambda tar: [add(tar) for add in entries] and None


BAD = {
    "an absolute path": entry("/tmp/evil"),
    "a path that leads out": entry("../evil"),
    "a path that leads out further on": entry("a/../../evil"),
    "a path that is not plain": entry("./a"),
    "no name": entry(""),
    "an absolute link": entry("a", type=tarfile.SYMTYPE, linkname="/etc"),
    "a link that leads out": entry("a/b", type=tarfile.SYMTYPE, linkname="../../x"),
    "a file behind a link": several(entry("a", type=tarfile.SYMTYPE, linkname="b"), entry("a/c", size=1)),
    "a hard link": entry("a", type=tarfile.LNKTYPE, linkname="b"),
    "a device": entry("a", type=tarfile.CHRTYPE),
    "a pipe": entry("a", type=tarfile.FIFOTYPE),
    "the same twice": several(entry("a"), entry("a")),
    "a file that is a directory": several(entry("a"), entry("a/b")),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path: Path, make: Make) -> None:
    with pytest.raises(BadArchive):
        unpack(made(make), tmp_path / "inside")
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_an_archive_with_too_much_in_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_ENTRIES", 10)
    with pytest.raises(BadArchive, match="more than 10 entries"):
        unpack(made(several(*(entry(f"{number}") for number in range(11)))), tmp_path / "many")
    monkeypatch.setattr(archive, "MOST_UNPACKED", 1 << 20)
    with pytest.raises(BadArchive, match="its files have more than"):
        unpack(made(several(*(entry(f"{number}", size=1 << 19) for number in range(3)))), tmp_path / "large")


def test_a_header_without_end_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="a header of it has"):
        unpack(made(entry("a" * 200_000)), tmp_path / "out")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_chain_of_headers_is_refused(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, 512
    chain = (header.tobuf(tarfile.GNU_FORMAT) + b"12 path=abc\n".ljust(512, b"\0")) * 3000
    with pytest.raises(BadArchive, match="recursion"):
        unpack(io.BytesIO(gzip.compress(chain + tarfile.TarInfo("a").tobuf() + bytes(1024))), tmp_path / "out")


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="cannot be written here: File name too long"):
        unpack(made(entry("a" * 300)), tmp_path / "out")


def test_a_name_that_is_no_text_travels(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.txt")
    write(tmp_path / "in", **{name: "1"})
    assert unpacked(snapshot(tmp_path / "in"), tmp_path / "out") == {name: "1"}


@given(data=st.binary(max_size=2000))
def test_bytes_that_are_no_archive(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    for content in (data, gzip.compress(data)):
        folder = tmp_path_factory.mktemp("bytes")
        with contextlib.suppress(BadArchive):
            unpack(io.BytesIO(content), folder / "inside")
        assert [path.name for path in folder.iterdir()] == ["inside"]


@given(at=st.integers(0, 400), byte=st.integers(0, 255))
def test_an_archive_with_a_wrong_byte(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    folder = tmp_path_factory.mktemp("byte")
    (folder / "a").write_text("text" * 100)
    data = bytearray(pack(folder, ["a"], [("b", b"1"), ("c/d", b"2")]).data)
    data[at % len(data)] = byte
    with contextlib.suppress(BadArchive):
        unpack(io.BytesIO(bytes(data)), folder / "inside")
    assert {path.name for path in folder.iterdir()} == {"a", "inside"}
