"""The paths of a run's files. Pure."""

from dataclasses import dataclass
from pathlib import Path

from node_agent.processes.launcher.spawn import LOG_FILE, SAVERS_FILE, STOP_FILE, YIELD_FILE
from node_agent.run_state.model import RunKey, short_id

RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Paths:
    """The agent's files. `checkpoints` may be on storage that nodes share.

    The numbers of jobs and runs are not unique: another spool, or another cluster, has the same ones. So the runs of each
    spool are separate, and so are the checkpoints of each cluster, and old files are never found.
    """

    state: Path
    checkpoints: Path
    spool: str
    hook: str = ""
    """The folder of the hook (`ebb_inject`); "": jobs run without the hook."""
    node_keys: str = ""
    """The names of the node's locks. Runs get them, so that an agent with another state directory finds them."""

    def paths_of_spool(self, spool: str) -> "Paths":
        """Return the paths of another spool of this state directory."""
        return Paths(self.state, self.checkpoints, spool, self.hook, self.node_keys)

    def folder(self, key: RunKey) -> str:
        """Return the folder of a run as a string: in every launch, making a Path costs more than its use."""
        return f"{self.state}/{RUNS}/{self.spool}/{key.name}"

    def folder_path(self, key: RunKey) -> Path:
        return Path(self.folder(key))

    def log(self, key: RunKey) -> Path:
        return Path(f"{self.folder(key)}/{LOG_FILE}")

    def yield_file(self, key: RunKey) -> str:
        """A run creates this file to say: I saved my work and exit because I was told to."""
        return f"{self.folder(key)}/{YIELD_FILE}"

    def done_file(self, key: RunKey) -> str:
        """A run creates this file, with its pid, to say: my work is complete, and I am only exiting now."""
        return f"{self.folder(key)}/done"

    def savers(self, key: RunKey) -> str:
        """A process of a run adds a line with its pid to this file to say: I save, and I end my own children."""
        return f"{self.folder(key)}/{SAVERS_FILE}"

    def code(self, key: RunKey) -> str:
        """Folder into which the snapshots of a run are unpacked."""
        return f"{self.folder(key)}/code"

    def result(self, key: RunKey) -> str:
        """A run leaves its result in this file."""
        return f"{self.folder(key)}/result"

    def checkpointing(self, key: RunKey) -> str:
        """Folder of the launcher for a run's checkpoint command."""
        return f"{self.folder(key)}/checkpoint-command"

    def steps(self, key: RunKey) -> str:
        """The step file of a run (`ebb_inject.ebb_hook.step_file`). A run that does not count its steps has none."""
        return f"{self.folder(key)}/steps"

    def modules(self, key: RunKey) -> str:
        """The modules that a run has imported, one per line (`ebb_inject.ebb_hook.imported_modules`)."""
        return f"{self.folder(key)}/modules"

    def checkpoint_names(self, key: RunKey) -> str:
        """A run writes to this file which checkpoint it has loaded, and which one it saved last."""
        return f"{self.folder(key)}/checkpoint.json"

    def grace(self, key: RunKey) -> str:
        """A run asks in this file for a grace period, in seconds."""
        return f"{self.folder(key)}/grace"

    def park(self, key: RunKey) -> str:
        """The folder of the control files of a run (`ebb_inject.ebb_hook.control`). A run that cannot park has none."""
        return f"{self.folder(key)}/park"

    def stop(self, key: RunKey) -> Path:
        """Tells a run why it is being terminated; written before the signal."""
        return Path(f"{self.folder(key)}/{STOP_FILE}")

    def prepared_checkpoint(self, node: str) -> str:
        """A folder that will become that of a job. Other nodes may have theirs in the same place."""
        return f"{self.checkpoints}/.spare-{node}"

    def checkpoint(self, cluster_id: str, job_id: int) -> str:
        """The same for every run and every task of a job, on every node: each run finds what earlier ones saved."""
        return f"{self.checkpoints}/{short_id(cluster_id)}/job-{job_id}"
