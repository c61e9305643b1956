"""Where a run's files are, and what its process finds in its environment. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from node_agent.devices.base import Inventory
from node_agent.jobs.model import RunKey, StartOrder, short

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

    def run(self, key: RunKey) -> Path:
        return Path(f"{self.state}/{RUNS}/{self.spool}/{key}")

    def log(self, key: RunKey) -> Path:
        return Path(f"{self.state}/{RUNS}/{self.spool}/{key}/output.log")

    def yielded(self, key: RunKey) -> Path:
        """A run creates this file to say: I saved my work and leave because I was told to."""
        return Path(f"{self.state}/{RUNS}/{self.spool}/{key}/yielded")

    def checkpoint(self, cluster_id: str, job_id: int) -> Path:
        """The same for every run of a job, on every node: what one run saves, the next one finds."""
        return Path(f"{self.checkpoints}/{short(cluster_id)}/job-{job_id}")


def environment(
    base: Mapping[str, str],
    order: StartOrder,
    node: str,
    paths: Paths,
    checkpoint: Path,
    inventory: Inventory,
    devices: Mapping[str, str],
) -> dict[str, str]:
    """The agent's own variables where they make sense, then the user's, then those that nobody may change."""
    uuids = {device.index: device.uuid for device in inventory.devices}
    inherited = {name: base[name] for name in _INHERITED if name in base}
    own = {
        "EBB_JOB_ID": str(order.key.job_id),
        "EBB_RUN": str(order.key.run),
        "EBB_JOB_NAME": order.name,
        "EBB_NODE": node,
        "EBB_DEVICES": ",".join(map(str, order.devices)),
        "EBB_DEVICE_UUIDS": ",".join(uuids[index] for index in order.devices),
        "EBB_CHECKPOINT_DIR": str(checkpoint),
        "EBB_RUN_DIR": str(paths.run(order.key)),
        "EBB_YIELD_FILE": str(paths.yielded(order.key)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return {**_DEFAULTS, **inherited, **dict(order.environment), **devices, **own}
