"""What a run needs before it can be launched: its folders, its environment, and all that its launcher is told."""

import os
from collections.abc import Mapping

from node_agent.devices.base import Provider
from node_agent.jobs.environment import LOG, Paths, environment
from node_agent.jobs.launching import SpawnRequest
from node_agent.jobs.model import StartOrder


def prepare(
    order: StartOrder, own: Mapping[str, str], node: str, paths: Paths, cluster_id: str, provider: Provider, group: str
) -> SpawnRequest:
    """Makes the folders. `own` is the agent's environment. Raises OSError, and UnknownDevice."""
    key = order.key
    cpus = provider.cpus(order.devices)
    checkpoint = paths.checkpoint(cluster_id, key.job_id)
    given = provider.environment(order.devices)
    variables = environment(own, order, node, paths, checkpoint, provider.inventory, given)
    folder = paths.folder(key)
    make_folder(folder)
    make_folder(checkpoint)
    cwd = os.path.join(paths.state, order.working_directory) if order.working_directory else folder  # noqa: PTH118
    return SpawnRequest(key, order.command, variables, cwd, folder, f"{folder}/{LOG}", cpus, group)


def make_folder(path: str) -> None:
    """Path.mkdir(parents=True, exist_ok=True), without the Path."""
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
