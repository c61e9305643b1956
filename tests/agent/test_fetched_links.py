"""No checkpoint that is fetched is written through a link, and no link of one leads out of its folder."""

from pathlib import Path

from node_agent.checkpoints.fetched_files import make_links, prepare
from node_agent.checkpoints.folders import CheckpointFolders, SavedFile, choose_safe
from node_agent.processes.run_paths import Paths


def test_what_lies_behind_a_link_is_not_fetched() -> None:
    up = SavedFile("a/b/up", 0, 0, 0, "../..")
    inside, behind = SavedFile("a/b/file", 1, 1), SavedFile("a/b/up/../victim", 1, 1)
    assert choose_safe((up, inside, behind, SavedFile("a/b/up/file", 1, 1))) == (up, inside)


def test_no_link_leads_out_through_another_one() -> None:
    outside = ("up/..", "../../..", "/etc", "../up/../..", "a/../../..")
    assert choose_safe(SavedFile("a/b/link", 0, 0, 0, target) for target in outside) == ()
    inside = tuple(SavedFile("a/b/link", 0, 0, 0, target) for target in ("file", "../..", "../c/file", "../../c"))
    assert choose_safe(inside) == inside


def test_links_are_made_last_and_replace_what_is_in_the_way(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    folder, new = tmp_path / "job", tmp_path / "new"
    (new / "a").mkdir(parents=True)
    (new / "a" / "b").symlink_to(victim)
    wanted = (SavedFile("latest", 0, 0, 0, "a/b/file"), SavedFile("a/b/file", 1, 1))
    assert prepare(folder, new, wanted) == [wanted[1]]
    assert (new / "a" / "b").is_dir()
    assert not (new / "a" / "b").is_symlink()
    assert not (new / "latest").is_symlink()
    (new / "a" / "b" / "file").write_text("saved")
    make_links(new, wanted)
    assert (new / "latest").read_text() == "saved"
    assert list(victim.iterdir()) == []


def test_marks_in_the_folder_of_a_job_follow_no_link(tmp_path: Path) -> None:
    folders = CheckpointFolders(Paths(tmp_path / "state", tmp_path / "checkpoints", "spool"), "n1")
    folder = folders.folder("cluster", 1)
    folder.mkdir(parents=True)
    (folder / ".run-1").symlink_to(tmp_path / "victim")
    folders.note_run("cluster", 1, 1)
    assert not (tmp_path / "victim").exists()
    assert folders.last_run("cluster", 1) == 1
