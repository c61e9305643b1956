"""What a run needs before it can be launched: where it saves, its environment, and all that its launcher is told."""

import logging
import os
from collections.abc import Mapping

from node_agent.devices.base import Provider
from node_agent.errors import EnvironmentMissing
from node_agent.processes.launcher.client import SpawnRequest
from node_agent.processes.launcher.prepared_folders import PreparedFolder
from node_agent.processes.launcher.spawn import LOG_FILE
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import LaunchSpec
from node_agent.runs.environment import environment

log = logging.getLogger(__name__)

ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that name a Python environment."""


def prepare(
    launch: LaunchSpec,
    own: Mapping[str, str],
    node: str,
    paths: Paths,
    cluster_id: str,
    provider: Provider,
    group: str,
    prepared: PreparedFolder,
    packed: Mapping[str, str] | None = None,
    warming: bool = False,
) -> SpawnRequest:
    """Makes the folder for checkpoints, of `prepared` where that can be. `own` is the agent's environment, and
    `packed` what a run needs that shares its devices. The checkpoints of a run that is `warming` are still to come.

    Raises OSError, UnknownDevice, and EnvironmentMissing.
    """
    key = launch.key
    _check_environment(launch)
    cpus = provider.cpus(launch.devices)
    checkpoint = paths.checkpoint(cluster_id, key.job_id)
    given = provider.environment(launch.devices)
    variables = environment(own, launch, node, paths, checkpoint, provider.inventory, given, packed)
    folder = paths.folder(key)
    missing = not os.path.isdir(checkpoint)  # noqa: PTH112
    if missing and key.run > 1 and not warming:  # no fault for certain: the run before may never have been launched
        why = f"job {key.job_id} ran before, and has no checkpoints here: {checkpoint} is not there"
        log.warning("run %s: %s. It starts from the beginning. Is %s mounted?", key, why, paths.checkpoints)
    # The other tasks of a gang come to the same folder in the same moment, from elsewhere: it must not be exchanged then.
    alone = launch.gang is None and missing
    if not alone or prepared.take(checkpoint) is None:
        os.makedirs(checkpoint, exist_ok=True)  # noqa: PTH103
    return SpawnRequest(key, launch.command, variables, _working_directory(launch, paths), folder, cpus, group)


def beside(
    launch: LaunchSpec,
    pid: int,
    own: Mapping[str, str],
    node: str,
    paths: Paths,
    cluster_id: str,
    provider: Provider,
    group: str,
) -> SpawnRequest:
    """The checkpoint command of a run whose process is `pid`: in the environment, the directory and the control group of the
    run, with the run's log for what it writes. Raises UnknownDevice."""
    key = launch.key
    given = provider.environment(launch.devices)
    variables = environment(own, launch, node, paths, paths.checkpoint(cluster_id, key.job_id), provider.inventory, given)
    variables["EBB_PID"] = str(pid)
    script = f'exec >>"$EBB_RUN_DIR/{LOG_FILE}" 2>&1\n{launch.checkpoint_command}'
    cwd, cpus = _working_directory(launch, paths), provider.cpus(launch.devices)
    command = ("/bin/sh", "-c", script)
    return SpawnRequest(key, command, variables, cwd, paths.checkpointing(key), cpus, group, beside=True)


def _check_environment(launch: LaunchSpec) -> None:
    """An environment that the job itself names must be there: else another `python` would run, and nobody would notice."""
    for name, path in launch.environment:
        if name in ENVIRONMENTS and not os.access(f"{path}/bin/python", os.X_OK):
            raise EnvironmentMissing(name=name, path=path)


def _working_directory(launch: LaunchSpec, paths: Paths) -> str:
    if not launch.working_directory:
        return paths.code(launch.key) if launch.snapshots else paths.folder(launch.key)
    return os.path.join(paths.state, launch.working_directory)  # noqa: PTH118
