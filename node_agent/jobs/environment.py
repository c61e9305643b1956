"""Where a run's files are, and what its process finds in its environment. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from node_agent.devices.base import Inventory
from node_agent.jobs.launcher.spawn import LOG_FILE, SAVERS_FILE, STOP_FILE, YIELD_FILE
from node_agent.jobs.model import Gang, LaunchSpec, RunKey, short

RUNS = "runs"

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR")
_DEFAULTS = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/",
    "LANG": "C.UTF-8",
}


@dataclass(frozen=True, slots=True)
class Paths:
    """The agent's files. `checkpoints` may be on storage that nodes share.

    Numbers of jobs and runs say nothing by themselves: another spool, or another cluster, has the same. So the runs of
    each spool are apart, and so are the checkpoints of each cluster, and nothing old is ever met.
    """

    state: Path
    checkpoints: Path
    spool: str
    hook: str = ""
    """The folder of the hook (`ebb_inject`); "": jobs run without the hook."""

    def of_spool(self, spool: str) -> "Paths":
        """Those of another spool of this state directory."""
        return Paths(self.state, self.checkpoints, spool, self.hook)

    def folder(self, key: RunKey) -> str:
        """Of a run, for what every launch passes: there, making a Path costs more than what is done with it."""
        return f"{self.state}/{RUNS}/{self.spool}/{key.name}"

    def run(self, key: RunKey) -> Path:
        return Path(self.folder(key))

    def log(self, key: RunKey) -> Path:
        return Path(f"{self.folder(key)}/{LOG_FILE}")

    def yielded(self, key: RunKey) -> str:
        """A run creates this file to say: I saved my work and leave because I was told to."""
        return f"{self.folder(key)}/{YIELD_FILE}"

    def done(self, key: RunKey) -> str:
        """A run creates this file, with its pid, to say: my work is complete, and I am only leaving now."""
        return f"{self.folder(key)}/done"

    def savers(self, key: RunKey) -> str:
        """A process of a run adds its pid to this file, a line, to say: I save, and what I have started is mine to end."""
        return f"{self.folder(key)}/{SAVERS_FILE}"

    def code(self, key: RunKey) -> str:
        """Where the snapshots of a run are unpacked."""
        return f"{self.folder(key)}/code"

    def result(self, key: RunKey) -> str:
        """A run leaves its result in this file."""
        return f"{self.folder(key)}/result"

    def checkpointing(self, key: RunKey) -> str:
        """What the launcher keeps of a run's checkpoint command."""
        return f"{self.folder(key)}/checkpoint-command"

    def steps(self, key: RunKey) -> str:
        """The step file of a run (`ebb_inject.ebb_hook.step_file`). A run that does not count its steps has none."""
        return f"{self.folder(key)}/steps"

    def modules(self, key: RunKey) -> str:
        """Which modules a run has imported, a line each (`ebb_inject.ebb_hook.modules`)."""
        return f"{self.folder(key)}/modules"

    def checkpoint_names(self, key: RunKey) -> str:
        """A run says in this file which checkpoint it has loaded, and which one it has saved last."""
        return f"{self.folder(key)}/checkpoint.json"

    def grace(self, key: RunKey) -> str:
        """A run asks in this file for a grace period, in seconds."""
        return f"{self.folder(key)}/grace"

    def park(self, key: RunKey) -> str:
        """The folder of the control files of a run (`ebb_inject.ebb_hook.control`). A run that cannot park has none."""
        return f"{self.folder(key)}/park"

    def stop(self, key: RunKey) -> Path:
        """Tells a run why it is being terminated; there before the signal."""
        return Path(f"{self.folder(key)}/{STOP_FILE}")

    def prepared_checkpoint(self, node: str) -> str:
        """A folder that is going to be that of a job. Others may have theirs in the same place."""
        return f"{self.checkpoints}/.spare-{node}"

    def checkpoint(self, cluster_id: str, job_id: int) -> str:
        """The same for every run and every task of a job, on every node: what one run saves, the next one finds."""
        return f"{self.checkpoints}/{short(cluster_id)}/job-{job_id}"


def environment(
    base: Mapping[str, str],
    launch: LaunchSpec,
    node: str,
    paths: Paths,
    checkpoint: str,
    inventory: Inventory,
    devices: Mapping[str, str],
    packed: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The agent's own variables where they make sense, then those that the job took over from its submitter, then those that
    its user set, then those that nobody may change. `packed`: what a run needs that shares its devices."""
    held = [device for device in inventory.devices if device.index in launch.devices]
    uuids = {device.index: device.uuid for device in held}
    here = _DEFAULTS | {name: base[name] for name in _INHERITED if name in base}
    inherited = dict(launch.inherited)
    if "PATH" in inherited:
        inherited["PATH"] = _path(inherited["PATH"], here["PATH"])
    own = {
        "EBB_JOB_ID": str(launch.key.job_id),
        "EBB_RUN": str(launch.key.run),
        "EBB_JOB_NAME": launch.name,
        "EBB_NODE": node,
        "EBB_DEVICES": ",".join(map(str, launch.devices)),
        "EBB_DEVICE_UUIDS": ",".join(uuids[index] for index in launch.devices),
        "EBB_DEVICE_MODEL": ",".join(sorted({device.model for device in held})),
        "EBB_DEVICE_MEMORY_MIB": str(_device_memory(launch, [device.memory_mib for device in held])),
        "EBB_CONFIGURATION": str(launch.configuration),
        "EBB_CHECKPOINT_DIR": checkpoint,
        "EBB_RUN_DIR": paths.folder(launch.key),
        "EBB_YIELD_FILE": paths.yielded(launch.key),
        "EBB_DONE_FILE": paths.done(launch.key),
        "EBB_SAVERS_FILE": paths.savers(launch.key),
        "EBB_STEPS_FILE": paths.steps(launch.key),
        "EBB_RESULT_FILE": paths.result(launch.key),
        "EBB_GRACE_FILE": paths.grace(launch.key),
        "EBB_CHECKPOINT_FILE": paths.checkpoint_names(launch.key),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if launch.snapshots:
        own["EBB_SNAPSHOT_DIR"] = paths.code(launch.key)
    if launch.grace is not None:
        own["EBB_GRACE_SECONDS"] = f"{launch.grace:g}"
    if launch.skip_steps:
        own["EBB_SKIP_STEPS"] = str(launch.skip_steps)
    if launch.max_tasks:
        own |= {"EBB_MIN_TASKS": str(launch.min_tasks), "EBB_MAX_TASKS": str(launch.max_tasks)}
    if launch.array_index is not None:
        own["EBB_ARRAY_INDEX"] = str(launch.array_index)
    if launch.gang is not None:
        own |= _gang(launch.gang, sees_own_devices=bool(launch.devices))
    theirs = inherited | dict(launch.environment)
    if paths.hook and not theirs.get("NO_EBB_HOOK"):
        own |= {"PYTHONPATH": _after(theirs.get("PYTHONPATH"), paths.hook), "EBB_PARK_DIR": paths.park(launch.key)}
    return {**here, **theirs, **devices, **own, **(packed or {})}


def _device_memory(launch: LaunchSpec, sizes: list[int]) -> int:
    """What the run may use of each of its devices, in MiB."""
    limit = 0 if launch.share is None else launch.share.device_memory_mib
    return min([*sizes, *([limit] if limit else [])], default=0)


def _after(theirs: str | None, ours: str) -> str:
    """A PYTHONPATH with our folder behind the user's own, so that no import of theirs changes."""
    return f"{theirs}:{ours}" if theirs else ours


def _path(theirs: str, here: str) -> str:
    """The submitter's machine may have its programs elsewhere than this one: what is in none of those folders is in ours."""
    return ":".join(dict.fromkeys([*theirs.split(":"), *here.split(":")]))


def _gang(gang: Gang, sees_own_devices: bool) -> dict[str, str]:
    """What PyTorch and others read to find the other tasks, by the names that they have given it.

    LOCAL_RANK is the index of a device that the process sees: programs call `torch.cuda.set_device(LOCAL_RANK)`. A task with
    devices sees its own alone, so its first device is 0, and it is as if the task were a node of its own. Its place among the
    tasks of the node is EBB_NODE_TASK.
    """
    local = (0, 1) if sees_own_devices else (gang.local_rank, gang.local_world_size)
    return {
        "EBB_TASK": str(gang.rank),
        "EBB_NODES": ",".join(gang.nodes),
        "RANK": str(gang.rank),
        "WORLD_SIZE": str(gang.world_size),
        "EBB_NODE_TASK": str(gang.local_rank),
        "EBB_NODE_TASKS": str(gang.local_world_size),
        "LOCAL_RANK": str(local[0]),
        "LOCAL_WORLD_SIZE": str(local[1]),
        "NODE_RANK": str(gang.node_rank),
        "MASTER_ADDR": gang.master_address,
        "MASTER_PORT": str(gang.master_port),
    }
