"""Virtual and conda environments, by reference."""

from pathlib import Path

import pytest

from client_sdk import InvalidArgument
from client_sdk._values.python_environments import activate_environment


def test_no_environment_changes_nothing() -> None:
    assert activate_environment(None, None, {"PATH": "/a"}, {"B": "c"}) == ({"PATH": "/a"}, {"B": "c"})


def test_its_programs_are_found_first_and_another_is_not_active_beside_it() -> None:
    inherited = {"PATH": "/a:/b", "VIRTUAL_ENV": "/old", "CONDA_PREFIX": "/conda", "CONDA_DEFAULT_ENV": "x", "LANG": "C"}
    took, own = activate_environment("/new", None, inherited, {"B": "c"})
    assert took == {"PATH": "/new/bin:/a:/b", "LANG": "C"}
    assert own == {"B": "c", "VIRTUAL_ENV": "/new"}


def test_a_path_that_the_job_sets_begins_with_it_too() -> None:
    took, own = activate_environment("/new", None, {"PATH": "/a"}, {"PATH": "/own"})
    assert (took, own) == ({"PATH": "/a"}, {"PATH": "/new/bin:/own", "VIRTUAL_ENV": "/new"})


def test_a_relative_path_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    assert activate_environment("venv", None, {}, {})[1] == {"VIRTUAL_ENV": f"{tmp_path}/venv"}
    assert activate_environment(Path("~/venv"), None, {}, {})[1] == {"VIRTUAL_ENV": "/home/ann/venv"}


def test_a_conda_environment_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CONDA_ENVS_PATH", "CONDA_ENVS_DIRS", "CONDA_EXE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidArgument, match="there is no conda environment 'torch' here; give its path on the nodes"):
        activate_environment(None, "torch", {}, {})
    listed = tmp_path / "home" / ".conda" / "environments.txt"
    listed.parent.mkdir(parents=True)
    listed.write_text("/opt/conda\n/data/envs/torch\n")
    assert activate_environment(None, "torch", {}, {})[1] == {"CONDA_PREFIX": "/data/envs/torch", "CONDA_DEFAULT_ENV": "torch"}
    (tmp_path / "conda" / "envs" / "torch").mkdir(parents=True)
    monkeypatch.setenv("CONDA_EXE", str(tmp_path / "conda" / "bin" / "conda"))
    assert activate_environment(None, "torch", {}, {})[1]["CONDA_PREFIX"] == str(tmp_path / "conda" / "envs" / "torch")
    (tmp_path / "mine" / "torch").mkdir(parents=True)
    monkeypatch.setenv("CONDA_ENVS_PATH", f"/nowhere:{tmp_path}/mine")
    assert activate_environment(None, "torch", {}, {})[1]["CONDA_PREFIX"] == str(tmp_path / "mine" / "torch")


@pytest.mark.parametrize(("venv", "conda"), [("/a", "/b"), (5, None), ("", None), (None, b"x"), (None, 5)])
def test_what_is_no_environment(venv: object, conda: object) -> None:
    with pytest.raises(InvalidArgument):
        activate_environment(venv, conda, {}, {})  # type: ignore[arg-type]
