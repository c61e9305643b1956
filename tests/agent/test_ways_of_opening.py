"""Files in folders of jobs are opened through `processes/job_files` alone: this finds other ways in the code of the agent."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "node_agent"
FOLDERS = ("runs", "processes", "sharing", "checkpoints")
_METHODS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "replace", "rename", "symlink_to", "chmod"}
_SYSTEM = {"open", "rename", "replace", "link", "symlink", "truncate", "mkfifo", "chmod", "utime"}

ALLOWED = {
    "processes/job_files.py": "the module that opens them",
    "processes/process_groups.py": "reads /proc and control groups",
    "processes/memory_watch.py": "reads /proc",
    "processes/run_members.py": "replaces in a text, which looks like a rename",
    "processes/stray_processes.py": "reads /proc; marks the folder of a spool, which no job is given",
    "processes/cgroups.py": "reads /proc and control groups",
    "processes/logs.py": "opens logs as job_files does, in threads",
    "processes/launcher/launcher.py": "opens its own folder",
    "processes/launcher/spawn.py": "gives the process file its second name, without opening either",
    "processes/launcher/cgroup_spawn.py": "writes to control groups",
    "processes/launcher/client.py": "writes the log of the launcher, in the state directory",
    "processes/launcher/prepared_folders.py": "makes folders before a job is given them",
    "processes/launcher/criu_dump.py": "writes dumps next to the earlier ones",
    "runs/past_runs.py": "reads and writes the folder of a spool, which no job is given",
    "runs/rendezvous.py": "reads /proc",
    "checkpoints/criu_dumps.py": "links the folder of a run, next to the folders of runs",
    "checkpoints/fetched_files.py": "writes what is fetched into a folder of the agent, which becomes that of a job later",
    "checkpoints/folders.py": "names the storage and moves whole folders, in a folder that no job is given",
    "checkpoints/pieces.py": "writes what is fetched into a folder of the agent",
    "checkpoints/store.py": "reads through open_below, and writes to the store",
}
"""The modules that open files in another way, and why they may."""


def find_openings(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that open, make or rename a file in another way than through `job_files`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            yield node.lineno
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "os":
            if called.attr in _SYSTEM:
                yield node.lineno
        elif isinstance(called, ast.Attribute) and called.attr in _METHODS and not _is_of_text(node):
            yield node.lineno


def _is_of_text(call: ast.Call) -> bool:
    """Whether a call is that of `str.replace`, with two arguments, or of `dataclasses.replace`, with names."""
    called = call.func
    return isinstance(called, ast.Attribute) and called.attr == "replace" and (len(call.args) == 2 or bool(call.keywords))


def test_files_of_jobs_are_opened_in_one_module() -> None:
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if lines := list(find_openings(ast.parse(path.read_text(encoding="utf-8")))):
                found[path.relative_to(ROOT).as_posix()] = lines
    unexplained = {name: lines for name, lines in found.items() if name not in ALLOWED}
    assert not unexplained, "open these through processes/job_files, or give a reason here"
    assert not ALLOWED.keys() - found.keys(), "these open no files any more"


def test_each_way_of_opening_is_found() -> None:
    for code in (
        "open('f')",
        "os.open('f', 0)",
        "Path('f').read_text()",
        "path.touch()",
        "path.rename('g')",
        "os.replace('f', 'g')",
    ):
        assert list(find_openings(ast.parse(code))) == [1], code
    for code in ("'text'.replace('a', 'b')", "replace(record, pid=1)", "job_files.open_file(folder, name)"):
        assert list(find_openings(ast.parse(code))) == [], code
