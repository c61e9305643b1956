"""Prepares the launch of a run: the folder for its checkpoints, its environment, and the request to its launcher."""

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
    """Make the folder for checkpoints, from `prepared` if possible. `own` is the agent's environment, and `packed`
    the variables for a run that shares its devices. The checkpoints of a run that is `warming` are still to come.

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
    # The other tasks of a gang use the same folder at the same time: it must not be replaced then.
    alone = launch.gang is None and missing
    if not alone or prepared.move_to(checkpoint) is None:
        os.makedirs(checkpoint, exist_ok=True)  # noqa: PTH103
    return SpawnRequest(key, launch.command, variables, _working_directory(launch, paths), folder, cpus, group)


def build_checkpoint_command(
    launch: LaunchSpec,
    pid: int,
    own: Mapping[str, str],
    node: str,
    paths: Paths,
    cluster_id: str,
    provider: Provider,
    group: str,
) -> SpawnRequest:
    """Return the checkpoint command of a run whose process is `pid`: in the environment, the directory and the control group of
    the run, with its output in the run's log. Raises UnknownDevice."""
    key = launch.key
    given = provider.environment(launch.devices)
    variables = environment(own, launch, node, paths, paths.checkpoint(cluster_id, key.job_id), provider.inventory, given)
    variables["EBB_PID"] = str(pid)
    script = f'exec >>"$EBB_RUN_DIR/{LOG_FILE}" 2>&1\n{launch.checkpoint_command}'
    cwd, cpus = _working_directory(launch, paths), provider.cpus(launch.devices)
    command = ("/bin/sh", "-c", script)
    return SpawnRequest(key, command, variables, cwd, paths.checkpointing(key), cpus, group, beside=True)


def _check_environment(launch: LaunchSpec) -> None:
    """Check that an environment that the job itself names exists: otherwise another `python` would run, unnoticed."""
    for name, path in launch.environment:
        if name in ENVIRONMENTS and not os.access(f"{path}/bin/python", os.X_OK):
            raise EnvironmentMissing(name=name, path=path)


def _working_directory(launch: LaunchSpec, paths: Paths) -> str:
    if not launch.working_directory:
        return paths.code(launch.key) if launch.snapshots else paths.folder(launch.key)
    return os.path.join(paths.state, launch.working_directory)  # noqa: PTH118
