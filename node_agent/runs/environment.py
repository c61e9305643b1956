"""Builds the environment of a run's process. Pure."""

from collections.abc import Mapping

from node_agent.devices.base import Inventory
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import Gang, LaunchSpec

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR")
_DEFAULTS = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
}
"""Variables of each run, unless the job's own environment, its submitter's or (`_INHERITED`) the agent's names them. Without
PYTHONUNBUFFERED, Python writes to a log file only after some kilobytes of output, or when it exits."""


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
    """Combine the agent's own variables where they make sense, then those inherited from the job's submitter, then those that
    its user set, then those that cannot be overridden. `packed`: variables for a run that shares its devices."""
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
        "EBB_NODE_KEYS": paths.node_keys,
        "EBB_DEVICES": ",".join(map(str, launch.devices)),
        "EBB_DEVICE_UUIDS": ",".join(uuids[index] for index in launch.devices),
        "EBB_DEVICE_MODEL": ",".join(sorted({device.model for device in held})),
        "EBB_DEVICE_MEMORY_MIB": str(_device_memory(launch, [device.memory_mib for device in held])),
        "EBB_CONFIGURATION": str(launch.configuration),
        "EBB_CHECKPOINT_DIR": checkpoint,
        "EBB_RUN_DIR": paths.folder(launch.key),
        "EBB_YIELD_FILE": paths.yield_file(launch.key),
        "EBB_DONE_FILE": paths.done_file(launch.key),
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
        own |= {"PYTHONPATH": _append_folder(theirs.get("PYTHONPATH"), paths.hook), "EBB_PARK_DIR": paths.park(launch.key)}
    return {**here, **theirs, **devices, **own, **(packed or {})}


def _device_memory(launch: LaunchSpec, sizes: list[int]) -> int:
    """Return the memory that the run may use of each of its devices, in MiB."""
    limit = 0 if launch.share is None else launch.share.device_memory_mib
    return min([*sizes, *([limit] if limit else [])], default=0)


def _append_folder(theirs: str | None, ours: str) -> str:
    """Return a PYTHONPATH with our folder behind the user's own, so that none of their imports changes."""
    return f"{theirs}:{ours}" if theirs else ours


def _path(theirs: str, here: str) -> str:
    """Append our PATH to the submitter's: programs that are in none of the submitter's folders here are found in ours."""
    return ":".join(dict.fromkeys([*theirs.split(":"), *here.split(":")]))


def _gang(gang: Gang, sees_own_devices: bool) -> dict[str, str]:
    """Return the variables by which PyTorch and others find the other tasks, with the names that they use.

    LOCAL_RANK is the index of a device that the process sees: programs call `torch.cuda.set_device(LOCAL_RANK)`. A task with
    devices sees only its own, so its first device is 0, as if the task were a node of its own. Its place among the tasks of
    the node is EBB_NODE_TASK.
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
