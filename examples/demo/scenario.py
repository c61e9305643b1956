"""Who plays: two nodes, best-effort jobs that fill them, a job that waits behind them, and the trials that arrive.

FitGpp weighs how large a job is against how long its grace period is (score = size share + 4 x grace share), and takes
the lowest score among those whose leaving makes room. The numbers are such that this choice is not the obvious one:

* `tune` (2 GPUs) fits in anybody's place. Smallest are cyclegan and lstm, longest to go has bert; dlrm is larger than the
  first two and is chosen, because it needs the shortest grace period.
* `sweep` (4 GPUs) fits in wav2vec's place alone: nobody else leaves enough (Eqn 2).
* `debug` (3 GPUs) fits in resnet's or bert's place: bert has the longest to go, resnet is chosen.

dlrm, once preempted, is spared afterwards (Eqn 4, P = 1).
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from client_sdk import JobClass, JobSpec, Resources

NODES = {"dgx": "dgx-a100", "pcie": "pcie-8"}
"""Names and profiles: 8 GPUs each, in 128 cores and 1 TiB, and in 64 cores and 512 GiB."""

GIB = 1024


@dataclass(frozen=True)
class Role:
    """A job before it is submitted. `seed` is that of its data; `save` is how many seconds a checkpoint takes it."""

    name: str
    gpus: int
    cpus: int
    memory_gib: int
    steps: int
    seed: int
    grace: float = 30
    save: float = 0
    device_memory_gib: int = 0
    """The minimum memory of each of its GPUs."""
    job_class: JobClass = JobClass.BEST_EFFORT

    def arguments(self, until: Path | None = None) -> list[str]:
        """Return the arguments of examples/train.py. Its files go to the folder in which it is started, in Ebb and outside. If
        it pauses, it does so until the file `until` exists."""
        files = ["--step-log", STEP_LOG, "--result", RESULT]
        size = ["--steps", str(self.steps), "--batch", str(BATCH)]
        wait = [] if until is None else ["--wait-at", str(int(WAITS * self.steps)), "--wait-for", str(until)]
        return [*size, "--seed", str(self.seed), "--save-seconds", str(self.save), *files, *wait]

    def spec(self, train: list[str], folder: str, until: Path) -> JobSpec:
        """Return the spec to submit; `train` is the call of train.py. A best-effort job pauses until the file exists."""
        arguments = self.arguments(until if self.job_class is JobClass.BEST_EFFORT else None)
        return JobSpec(
            name=self.name,
            job_class=self.job_class,
            command=(*train, *arguments),
            resources=Resources(cpus=self.cpus, memory_mib=self.memory_gib * GIB, devices=self.gpus),
            environment=ENVIRONMENT,
            working_directory=folder,
            grace_period=timedelta(seconds=self.grace),
            device_memory_mib=self.device_memory_gib * GIB,
        )


@dataclass(frozen=True)
class Cue:
    """A trial, and when it arrives: as soon as the job that it will displace has done this share of its steps."""

    trial: Role
    victim: str
    share: float


WAITS = 0.6
"""The share of its steps after which a job waits until all trials have come: whatever the machine, none has ended by then."""

BATCH = 256
"""Samples of a step, which then takes some 4 ms of one core; six jobs share what there is."""

STEP_LOG, RESULT = "steps.jsonl", "result.json"

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""With more threads the order of a sum is left to chance, and so are its last bits."""

# In the order in which they are submitted: 4 + 2 + 2 GPUs fill dgx, 2 + 3 + 3 fill pcie, and the last one has to wait. The
# first needs GPUs with more memory than those of pcie. The next ones take the rest of its node, which breaks up no idle one.
JOBS = (
    Role("wav2vec", gpus=4, cpus=48, memory_gib=512, grace=5, steps=800, seed=1, save=0.8, device_memory_gib=40),
    Role("cyclegan", gpus=2, cpus=16, memory_gib=128, grace=8, steps=650, seed=2, save=1.0),
    Role("lstm", gpus=2, cpus=16, memory_gib=128, grace=15, steps=650, seed=3, save=1.5),
    Role("dlrm", gpus=2, cpus=16, memory_gib=160, grace=4, steps=450, seed=4, save=0.6),
    Role("resnet", gpus=3, cpus=16, memory_gib=96, grace=10, steps=900, seed=5, save=1.2),
    Role("bert", gpus=3, cpus=24, memory_gib=192, grace=20, steps=900, seed=6, save=2.0),
    Role("latecomer", gpus=2, cpus=8, memory_gib=64, grace=10, steps=80, seed=7),
)
FILLING = 6
"""How many of them start at once."""

CUES = (
    Cue(Role("tune", gpus=2, cpus=8, memory_gib=64, steps=60, seed=11, job_class=JobClass.TRIAL), "dlrm", 0.36),
    Cue(Role("sweep", gpus=4, cpus=16, memory_gib=128, steps=60, seed=12, job_class=JobClass.TRIAL), "wav2vec", 0.36),
    Cue(Role("debug", gpus=3, cpus=16, memory_gib=96, steps=60, seed=13, job_class=JobClass.TRIAL), "resnet", 0.36),
)
ROLES = {role.name: role for role in (*JOBS, *(cue.trial for cue in CUES))}

CONTROL = Role("control", gpus=0, cpus=1, memory_gib=1, steps=100, seed=21)
"""Runs outside of Ebb, to see the check itself fail."""
