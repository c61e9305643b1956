"""Finds processes of runs that no spool of this node knows any more: those of a spool that was lost, or given up.

No agent would report their end, and the scheduler counts them as gone. The launcher names those that it has; if that launcher
is gone as well, they are found by the files in the directories of runs, and by what `run_members` says.
"""

import contextlib
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from node_agent.processes import job_files
from node_agent.processes.cgroups import Groups
from node_agent.processes.launcher.spawn import PROCESS_FILE
from node_agent.processes.process_groups import boot_id, pids, processes_inside, start_ticks, stat_fields
from node_agent.processes.run_members import RunMembers
from node_agent.processes.run_paths import RUNS
from node_agent.run_state.model import Process

_NOTE_LIMIT = 1 << 16
"""Bytes of a process file."""
OVER = "over"
"""File in the folder of a spool: nothing of its runs is left, and nothing can come."""

_ADVICE = "start the agent with --state {}, which takes it over, or end it"


def find(state: Path, spool: str, live: Collection[Process] = ()) -> dict[Process, str]:
    """Return the live processes of runs of other spools than this one, with the names of their runs.

    A `live` process is that of a run of this spool. If CRIU has restored it, its environment names the run that was dumped.
    """
    boot, members = boot_id(), RunMembers()
    found = {}
    for folder in _other_folders(state, spool):
        for file in folder.glob(f"*/{PROCESS_FILE}"):
            process = _read_note(file, boot)
            if process is not None and start_ticks(process.pid) == process.start_ticks:
                found[process] = f"{folder.name}/{file.parent.name}"
    for pid in pids():
        name = run_of(pid, state)
        fields = stat_fields(pid) if name and not name.startswith(f"{spool}/") else []
        if len(fields) > 3 and fields[0] not in "ZX" and not any(members.is_led_by(pid, each) for each in live):
            directory = state / RUNS / name
            if not members.belongs_to(pid, str(directory), _read_note(directory / PROCESS_FILE, boot)):
                continue
            group = int(fields[2])
            found[Process(group, start_ticks(group))] = name
    return found


def find_in_groups(state: Path, spool: str, groups: Groups, live: set[str], found: set[str]) -> dict[Process, str]:
    """Return processes in control groups of runs of this directory that are not `live`; empty groups are removed.

    Skips runs that are already `found`. Other agents may have their groups in the same place.
    """
    more = {}
    for name in list(groups.find_runs()):
        of_spool = name.partition("/")[0]
        if name not in live and (of_spool == spool or (state / RUNS / of_spool).is_dir()):
            if not groups.is_alive(name):
                groups.remove(name)
            elif name not in found:
                for pid in processes_inside(groups.path(name))[:1]:
                    more[Process(pid, start_ticks(pid))] = name
    return more


def note_settled(state: Path, spool: str) -> None:
    """Note that nothing is left, so that the folders of other spools need not be read again."""
    for folder in _other_folders(state, spool):
        with contextlib.suppress(OSError):  # else they are read once more
            (folder / OVER).touch()


def find_elsewhere(state: Path, node: str, checkpoints: Path) -> dict[Path, set[str]]:
    """Return the runs of this node that live under other state directories, by directory.

    A node with the same name whose jobs save elsewhere belongs to another cluster. Other users' processes cannot be seen.
    """
    found: dict[Path, set[str]] = {}
    members = RunMembers()
    for pid in pids():
        variables = _variables(pid) if pid != os.getpid() else {}
        if variables.get("EBB_NODE") != node:
            continue
        run, saves = (Path(variables.get(name, "/")) for name in ("EBB_RUN_DIR", "EBB_CHECKPOINT_DIR"))
        if run.parent.parent.name != RUNS or len(saves.parts) < 3:
            continue
        other, root = run.parents[2], saves.parents[1]
        ours = (state / RUNS / run.parent.name).is_dir() or _is_same(pid, other, state)
        if ours or not (root == checkpoints or _is_same(pid, root, checkpoints)):
            continue
        if members.belongs_to(pid, str(run), _read_note(_inside(pid, run) / PROCESS_FILE, boot_id())):
            found.setdefault(other, set()).add(run.name)
    return found


def find_held_devices(state: Path, node_keys: Collection[str]) -> dict[str, str]:
    """Return the devices, by UUID, that runs of this node under other state directories hold, each with a text about its run.

    `node_keys`: the names of the node's locks, one of which is in the environment of each run of the node.
    """
    found: dict[str, str] = {}
    members = RunMembers()
    for pid in pids():
        variables = _variables(pid) if pid != os.getpid() else {}
        run = Path(variables.get("EBB_RUN_DIR", "/"))
        if run.parent.parent.name != RUNS or not set(variables.get("EBB_NODE_KEYS", "").split(",")) & set(node_keys):
            continue
        other, fields = run.parents[2], stat_fields(pid)
        if not fields or fields[0] in "ZX" or (state / RUNS / run.parent.name).is_dir() or _is_same(pid, other, state):
            continue
        if members.belongs_to(pid, str(run), _read_note(_inside(pid, run) / PROCESS_FILE, boot_id())):
            text = (
                f"run {run.name} of the state directory {other} is alive (process group {fields[2]}): {_ADVICE.format(other)}"
            )
            for uuid in filter(None, variables.get("EBB_DEVICE_UUIDS", "").split(",")):
                found.setdefault(uuid, text)
    return found


def process_of(run_directory: Path) -> Process | None:
    """Return the process that was launched for a run, if that was recorded in this boot."""
    return _read_note(run_directory / PROCESS_FILE, boot_id())


def _other_folders(state: Path, spool: str) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(state / RUNS):
            if entry.name != spool and entry.is_dir(follow_symlinks=False):
                folder = Path(entry.path)
                if not (folder / OVER).exists():
                    yield folder


def _read_note(file: Path, boot: str) -> Process | None:
    try:
        known = json.loads(job_files.read_file(str(file.parent), file.name, _NOTE_LIMIT).data or b"")
        return Process(int(known["pid"]), int(known["start"])) if known["boot"] == boot else None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _variables(pid: int) -> dict[str, str]:
    """Return the environment of a process of a run; empty if it is of none, or cannot be read."""
    try:
        text = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    if b"\0EBB_RUN_DIR=" not in text:
        return {}
    pairs = (os.fsdecode(each).partition("=") for each in text.split(b"\0"))
    return {name: value for name, _, value in pairs}


def _inside(pid: int, path: Path) -> Path:
    """Return the path of what a process, perhaps in a container, calls `path`."""
    return Path(f"/proc/{pid}/root{path}")


def _is_same(pid: int, path: Path, own: Path) -> bool:
    """Whether a path as seen by a process, perhaps in a container, is the same directory as one of ours."""
    try:
        return _inside(pid, path).samefile(own)
    except OSError:
        return False


def run_of(pid: int, state: Path) -> str:
    """Return the run that a process says it belongs to, as <spool>/<name>; empty if it is none of this directory."""
    needle = os.fsencode(f"\0EBB_RUN_DIR={state}/{RUNS}/")
    try:
        _, found, rest = (b"\0" + Path(f"/proc/{pid}/environ").read_bytes()).partition(needle)
        # In a container of its own, the same path is another directory.
        if found and _is_same(pid, state, state):
            return os.fsdecode(rest.partition(b"\0")[0])
    except OSError:
        pass
    return ""
