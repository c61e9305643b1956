"""The options of a job that is submitted, in the words that people write."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypedDict

from client_sdk._values.enums import Exit0AfterStop, Guarantee, JobClass, ShareMode
from client_sdk._values.jobs import Job
from client_sdk._values.specs import Configuration, TaskGroup
from client_sdk._values.virtual_clusters import Within

Time: TypeAlias = float | str | timedelta
"""A length of time: a number of seconds, or like "90s", "1h30m", "2d"."""
Moment: TypeAlias = str | datetime
"""A point in time: a datetime with a time zone, or like "2025-01-31T08:00" (UTC), "+2h" (from now), "now"."""
Jobs: TypeAlias = Job | int | Iterable[Job | int]


class Alternative(TypedDict, total=False):
    """Another configuration in which a job can run, such as {"devices": 2, "model": "V100", "estimate": "3h"}. The policy
    chooses one for each launch. An alternative takes from the job's options what it leaves out of `cpus`, `memory`, `tasks`
    (a number), `nodes`, `node_labels`, `exclude_nodes` and `within`; everything else it says itself. All means what it means
    in `JobOptions`."""

    cpus: float
    memory: str | int
    devices: int
    device_memory: str | int
    estimate: Time | None
    tasks: int | Sequence[TaskGroup]
    pool: str
    model: str
    pin: str
    cell: str
    within: str | Within | Iterable[str | Within]
    nodes: str | Iterable[str]
    node_labels: Mapping[str, str]
    exclude_nodes: str | Iterable[str]
    command: Sequence[str | os.PathLike[str]]
    """Left out, the job's."""
    env: Mapping[str, str] | None
    """Added to the job's, whose variables of the same names it replaces."""


class JobOptions(TypedDict, total=False):
    """The options of `Client.submit` and `Client.preview`, each of which may be left out."""

    name: str
    """For people; need not be unique. Letters and digits of ASCII, blanks and any of "._:/=+-"; 128 at most."""
    job_class: JobClass | Literal["trial", "best-effort"]
    """Best-effort where it is left out."""
    cpus: float
    """Cores, also fractions. Left out: what goes with the devices, or 1 without any."""
    memory: str | int
    """Of the host: like "4GiB", or a number of MiB. Left out: what goes with the devices, or "1GiB" without any."""
    devices: float
    """GPUs; none. A whole number, or a fraction of one GPU, such as 0.5, which the job shares with others."""
    gpu_memory: str | int
    """The most memory of its GPU that the job uses: like "10GiB", or a number of MiB. It then shares the GPU with others."""
    share: ShareMode | Literal["exclusive", "packed", "sliced"] | None
    """How it shares its GPU: in turn with others (sliced), at the same time as others (packed), or not at all (exclusive). Left
    out, a job with a fraction is sliced, and a job that names only `gpu_memory` is packed."""
    grace: Time | None
    """How long it needs to save its work when it is preempted. None and "auto" begin with the site's default, and a job whose
    saves take longer gets more, up to the site's limit; zero says that it may be killed at once and go on from its last
    checkpoint."""
    env: Mapping[str, str] | None
    """Variables that the job is to have. They win over what it inherits."""
    export: str | Iterable[str] | None
    """What the job inherits from the environment of this process, as for sbatch: "ALL", "NONE", or names and NAME=VALUE, such
    as "PATH,LR=0.1" or ["PATH", "CONDA_*"]. By default PATH, VIRTUAL_ENV and CONDA_*, so that an active virtual environment is
    the job's, too. The directories of the agent's own PATH follow those of PATH."""
    working_directory: str | os.PathLike[str] | None
    """An absolute path on the node; None means the job's own directory there."""
    priority: int
    """-1000 to 1000; 0. Higher ones stand before others in their queue."""
    time_limit: Time | None
    """The longest that it may run, over all of its runs."""
    estimate: Time | None
    """How long it is expected to run: what waits behind it can then be told when."""
    retries: int
    """How often it is run again when a run fails, and for which exit codes or signals; with neither, for every failure."""
    retry_exit_codes: Iterable[int]
    retry_exit_signals: Iterable[int]
    tasks: int | Sequence[TaskGroup]
    """A gang: tasks that start together or not at all. A number of them, each with cpus, memory and devices; or groups, each of
    which says its own."""
    min_tasks: int
    """An elastic job: the least number of its tasks, 1 by default, and the greatest one, `tasks` by default. `Client.resize`
    changes the number within these bounds. `tasks` is the number with which it starts."""
    max_tasks: int
    after_ok: Jobs
    """It waits until these have succeeded, have ended (`after_any`), or have failed."""
    after_any: Jobs
    after_failed: Jobs
    array: int | None
    """So many jobs of this spec, told apart by EBB_ARRAY_INDEX; at most `array_at_once` are under way (0: any number)."""
    array_at_once: int
    vc: str | None
    """The virtual cluster that it belongs to; left out, it is taken from EBB_VC. Needed where the site has virtual clusters."""
    guarantee: Guarantee | Literal["guaranteed", "overflow", "opportunistic"]
    """Whether it waits for cells of its virtual cluster (guaranteed), runs meanwhile in anybody's idle ones (overflow), or only
    in those (opportunistic)."""
    pool: str
    """The pool in which it runs, by name; for sites with virtual clusters."""
    model: str
    """The model of its devices, such as "A100-SXM4-80GB"."""
    device_memory: str | int
    """At least so much memory on each of its devices: like "40GiB", or a number of MiB."""
    nodes: str | Iterable[str]
    """One of these nodes, by name. Like `node_labels` and `exclude_nodes` for sites without virtual clusters."""
    node_labels: Mapping[str, str]
    """Nodes that have all of these labels, such as {"zone": "a"}."""
    exclude_nodes: str | Iterable[str]
    """None of these nodes."""
    alternatives: Iterable[Alternative | Configuration]
    """Other configurations in which it can run: other models of device, or CPUs."""
    pin: str
    """The pinned cell of its virtual cluster to run in."""
    cell: str
    """The level of which it has a whole cell, such as "socket"; for a gang say it in each group of `tasks`."""
    within: str | Within | Iterable[str | Within]
    """All of its tasks run in one cell of this level, such as "rack"."""
    lazy: bool
    """Where a job of its own virtual cluster takes its cells, it runs on as opportunistic until somebody needs them."""
    vacates: bool
    """Leave, and wait for other cells, where the virtual cluster owns fewer than it did; False: run on as opportunistic."""
    project: str
    """What you work on: policies that order jobs by usage charge the job to this project. Letters and digits of ASCII, and any
    of "._-"; 64 at most."""
    exit_0_after_stop: Exit0AfterStop | Literal["stopped", "done"]
    """What an exit with 0 means after a stop signal for preemption, suspension, reclaim, requeue or drain: the program was
    stopped, and the job runs again (the default), or its work is done. A program that writes EBB_DONE_FILE has finished in any
    case."""
    checkpoint_signal: str
    """The signal that asks the program to save when the job is preempted, suspended, requeued, drained, reclaimed or out of
    time: "USR1", or "USR1@60" if saving takes up to 60 seconds. It is sent at once; SIGTERM follows after this time, or in the
    last tenth of the grace period (at most its last 30 s). Left out, SIGTERM is sent at once."""
    checkpoint_command: str
    """A command, for /bin/sh, that then saves the program's work from outside, with the program's process id in EBB_PID. An
    exit with 0 means that the work is saved, and the program is stopped. Otherwise SIGTERM follows."""
    snapshot: bool | str | os.PathLike[str]
    """Take the files of a directory along (True: of the current one): what git tracks or would track, elsewhere all that
    `.ebbignore` does not name. Each run has a copy of its own, in which the command starts if no `working_directory` is
    given."""
    venv: str | os.PathLike[str] | None
    """The virtual environment in which the command runs, by its path on the nodes. `python` is then that environment's."""
    conda: str | os.PathLike[str] | None
    """The conda environment in which the command runs: its path on the nodes, or its name, which is looked up here."""
    hook: bool
    """Whether Ebb counts the optimizer steps of PyTorch programs, and may park them; True. False leaves the program alone, by
    NO_EBB_HOOK in its environment."""
