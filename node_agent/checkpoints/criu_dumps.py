"""Decides when CRIU dumps a run instead of ending it, and restores it instead of executing its command.

    CHECKPOINTS/CLUSTER/job-N/.criu      the dump of the job's last run that was dumped: a checkpoint in another format

A dump is only for a program that saves nothing itself. A program that saves is left alone: it has registered as a saver, or
handles SIGTERM, or the job has a checkpoint signal or command, or the checkpoint folder has files of its own. Likewise, a
dump is older than anything else saved in that folder, and is then not used.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from node_agent.checkpoints import criu_images as images
from node_agent.checkpoints.criu_images import Image
from node_agent.checkpoints.folders import DUMP, saved_files
from node_agent.devices.base import Inventory
from node_agent.processes import job_files
from node_agent.processes.launcher.criu_dump import SAID_FILE
from node_agent.processes.launcher.events import Restore, SpawnRequest
from node_agent.processes.launcher.spawn import savers_of
from node_agent.processes.process_groups import handles, read, rest_of, stat_fields
from node_agent.processes.run_paths import RUNS, Paths
from node_agent.run_state.model import LaunchSpec, RunKey, RunRecord, StopReason, clean

DUMPS = frozenset(
    {
        StopReason.PREEMPTED,
        StopReason.SUSPENDED,
        StopReason.REQUEUED,
        StopReason.DRAINED,
        StopReason.RECLAIMED,
        StopReason.MIGRATED,
    }
)
"""Reasons to stop a run whose job resumes later with the same number of tasks."""
_HOME = "restored-home"
"""File in the folder of a restored run: the run directory that its program knows."""
_SAYS = ("done", "result")
"""Files that a program leaves for its agent in the run directory that it knows. A yield belongs to the run before."""
_TEXT_LIMIT = 1024
_PATH_LIMIT = 4096
_GPUS = "/dev/nvidia"


class Restoration(NamedTuple):
    """Whether and how a dump is used when a run begins."""

    image: Image
    why_not: str = ""
    """Why the dump cannot be used; empty: it can."""


class Dumps:
    """Dumps of the runs of one agent. `program`: CRIU's; empty if the agent does not use it, because of `why_not`."""

    def __init__(
        self,
        paths: Paths,
        node: str,
        cluster: Callable[[], str],
        inventory: Inventory,
        program: str = "",
        why_not: str = "criu is off",
        gpus: str = _GPUS,
    ) -> None:
        self._paths = paths
        self._node = node
        self._cluster = cluster
        self._uuids = {device.index: device.uuid for device in inventory.devices}
        self._program = program
        self._why_not = why_not
        self._gpus = gpus

    # Dumping.

    def keeps(self, launch: LaunchSpec | None) -> bool:
        """Whether a run may have to be dumped, so that its launch must be kept."""
        return bool(self._program) and launch is not None and launch.gang is None

    def why_not(self, record: RunRecord, group: str) -> str:
        """Return why a run that is being stopped is not dumped; empty: it is. `group`: the path of its control group."""
        launch = record.launch
        if not self._program:
            return self._why_not
        if launch is None or launch.gang is not None:
            return "it is a task of a gang"
        if record.stop_reason not in DUMPS:
            return f"it is stopped for good ({record.stop_reason.name.lower()})"
        return self._saves_itself(record, group)

    def would_dump(self, records: Iterable[RunRecord], group: Callable[[RunKey], str]) -> bool:
        """Whether one of these runs would be dumped if it had to move now."""
        live = (record for record in records if record.pid and self.keeps(record.launch))
        return any(not self._saves_itself(record, group(record.key)) for record in live)

    def has_files(self, job_id: int) -> bool:
        """Whether the program of a job has saved something in its checkpoint folder."""
        return next(self._own_files(job_id), None) is not None

    def _saves_itself(self, record: RunRecord, group: str) -> str:
        if savers_of(self._paths.folder(record.key)):
            return "it saves its work itself"
        if self.has_files(record.key.job_id):
            return "it has saved something itself"
        members = set(rest_of(record.pid, record.start_ticks, group))
        if any(handles(pid, signal.SIGTERM) and not _is_worker(pid) for pid in members):
            return "it handles SIGTERM"
        if any(_has_open(pid, self._gpus) for pid in members):
            return "it uses a GPU, and CRIU is used for programs on CPUs alone"
        return ""

    def request(self, record: RunRecord) -> SpawnRequest:
        """Return the request for the launcher to dump a run while that runs."""
        launch, key = record.launch, record.key
        assert launch is not None
        folder = self._paths.checkpointing(key)
        about = {
            "run": key.run,
            "log": record.log_path,
            "home": self._home(key),
            "node": self._node,
            "devices": self._devices(launch),
        }
        folder_of_dump = self._folder(key.job_id) / DUMP
        command = images.dump_command(self._program, record.pid, folder_of_dump, about, self._paths.yield_file(key), folder)
        return SpawnRequest(key, command, self._environment(folder), self._paths.folder(key), folder, None, beside=True)

    def dump_result(self, key: RunKey) -> str:
        """Return the result of dumping a run, in words; empty: none yet."""
        return clean(job_files.read_file(self._paths.checkpointing(key), SAID_FILE, _TEXT_LIMIT).text, _TEXT_LIMIT)

    # Restoring.

    def restoration(self, launch: LaunchSpec) -> Restoration | None:
        """Return what to do with the dump of a job whose run begins; None: it has no dump that is current."""
        key = launch.key
        if key.run == 1 or launch.gang is not None:
            return None
        image = images.read_image(self._folder(key.job_id) / DUMP)
        if image is None or self.has_files(key.job_id):
            return None
        if not self._program:
            return Restoration(image, self._why_not)
        if image.devices != tuple(self._devices(launch)):
            return Restoration(image, "it has other devices")
        return Restoration(image)

    def restore(self, image: Image, key: RunKey) -> Restore:
        """Return what the launcher executes instead of the run's command. Raises OSError."""
        folder = self._paths.folder(key)
        job_files.make_folder(folder)
        here = image.home.startswith(f"{self._paths.state}/{RUNS}/")
        if here and _is_home_of(image.home, key) and not os.path.exists(image.home):  # noqa: PTH110
            # The folder was on another node, or was removed. For the program, it is the folder of this run.
            os.makedirs(os.path.dirname(image.home), exist_ok=True)  # noqa: PTH103, PTH120
            job_files.remove_file(*os.path.split(image.home))  # a link to a folder that is gone
            os.symlink(folder, image.home)  # noqa: PTH211
        job_files.write_file(folder, _HOME, os.fsencode(image.home))
        command = images.restore_command(self._program, image, folder)
        return Restore(command, self._environment(folder), image.pid, images.restore_limit(image))

    def restore_result(self, launch: LaunchSpec | None, restored: bool | None) -> str:
        """Return what to report about the dump of a run that began. `restored`: what the launcher says."""
        if launch is None:
            return ""
        if restored is None:
            found = self.restoration(launch)
            return "" if found is None else _lost_work_text(found.image, found.why_not or "a process was warm in its place")
        if (image := images.read_image(self._folder(launch.key.job_id) / DUMP)) is None:
            return ""
        if restored:
            return f"CRIU restored run {image.run}, which was saved on {image.node}: {-(-image.bytes >> 20)} MiB"
        return _lost_work_text(image, f"CRIU cannot restore it ({images.why_not_restored(self._paths.folder(launch.key))})")

    def bring_home(self, key: RunKey) -> None:
        """Move what a restored program left for its agent out of the run directory that it knows. Harmless to repeat."""
        home, own = self._home(key), self._paths.folder(key)
        if os.path.islink(home):  # noqa: PTH114 (it lies next to the folders of runs, and so it is this agent's)
            home = os.readlink(home)  # noqa: PTH115
        if home == own or not _is_home_of(home, key):
            return
        for name in _SAYS:
            with suppress(OSError):
                job_files.move_file(home, name, own)

    def homes(self, records: Iterable[RunRecord]) -> Iterator[str]:
        """Run directories that restored programs still use although those of their runs differ, as SPOOL/NAME."""
        for record in records:
            home = self._home(record.key)
            if home != self._paths.folder(record.key):
                yield "/".join(Path(home).parts[-2:])

    def _home(self, key: RunKey) -> str:
        own = self._paths.folder(key)
        home = os.fsdecode(job_files.read_file(own, _HOME, _PATH_LIMIT).data or b"")
        return home if _is_home_of(home, key) else own

    def _folder(self, job_id: int) -> Path:
        return Path(self._paths.checkpoint(self._cluster(), job_id))

    def _own_files(self, job_id: int) -> Iterator[str]:
        """Paths of the files that the program has saved."""
        return (file.path for file in saved_files(self._folder(job_id)) if Path(file.path).parts[0] != DUMP)

    def _devices(self, launch: LaunchSpec) -> list[str]:
        return [self._uuids[index] for index in launch.devices if index in self._uuids]

    def _environment(self, folder: str) -> Mapping[str, str]:
        """Include EBB_RUN_DIR, by which a launcher finds a process that the one before it started and did not record."""
        return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "EBB_RUN_DIR": folder}


def _is_home_of(home: str, key: RunKey) -> bool:
    """Whether a path, which the job may have written, is that of the folder of one of its runs, on this node or another one."""
    parts = Path(home).parts
    with suppress(ValueError, TypeError):
        return len(parts) > 3 and ".." not in parts and parts[-3] == RUNS and RunKey.parse(parts[-1]).job_id == key.job_id
    return False


def _is_worker(pid: int) -> bool:
    """Whether a process executes the same program as its parent, which does not handle SIGTERM. Workers of PyTorch's
    DataLoader handle SIGTERM, and save nothing."""
    parent = int(fields[1]) if len(fields := stat_fields(pid)) > 1 else 0
    same = read(f"/proc/{pid}/cmdline") == read(f"/proc/{parent}/cmdline")
    return same and not handles(parent, signal.SIGTERM)


def _has_open(pid: int, prefix: str) -> bool:
    """Whether a process has a file open whose name begins with `prefix`."""
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                if os.readlink(entry.path).startswith(prefix):  # noqa: PTH115
                    return True
    return False


def _lost_work_text(image: Image, why: str) -> str:
    said = f"the work of run {image.run}, which CRIU saved on {image.node}, is lost, and the command starts again: {why}"
    return clean(said, _TEXT_LIMIT)


def is_waited_for(image: Image) -> bool:
    """Whether the pids of a dump will soon be free: their processes have exited and only need to be reaped."""
    states = [fields[0] for pid in image.pids if (fields := stat_fields(pid))]
    return bool(states) and all(state in "ZX" for state in states)
