"""Where a run's files are. Pure."""

from dataclasses import dataclass
from pathlib import Path

from node_agent.processes.launcher.spawn import LOG_FILE, SAVERS_FILE, STOP_FILE, YIELD_FILE
from node_agent.run_state.model import RunKey, short

RUNS = "runs"


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
