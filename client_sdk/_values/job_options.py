"""The options of a submit, in the forms that users write."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypedDict

from client_sdk._values.enums import Exit0AfterStop, Guarantee, JobClass, ShareMode
from client_sdk._values.jobs import Job
from client_sdk._values.specs import Configuration, TaskGroup
from client_sdk._values.virtual_clusters import Within

Time: TypeAlias = float | str | timedelta
"""A length of time: a number of seconds, or a text such as "90s", "1h30m" or "2d"."""
Moment: TypeAlias = str | datetime
"""A point in time: a datetime with a time zone, or a text such as "2025-01-31T08:00" (UTC), "+2h" (from now) or "now"."""
Jobs: TypeAlias = Job | int | Iterable[Job | int]


class Alternative(TypedDict, total=False):
    """Another configuration in which a job can run, such as {"devices": 2, "model": "V100", "estimate": "3h"}. The policy
    chooses one for each launch. If an alternative omits `cpus`, `memory`, `tasks` (a number), `nodes`, `node_labels`,
    `exclude_nodes` or `within`, the job's option applies; no other option is taken from the job. The keys have the same meaning
    as in `JobOptions`."""

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
    """The job's, if omitted."""
    env: Mapping[str, str] | None
    """Added to the job's variables; replaces those of the same name."""


class JobOptions(TypedDict, total=False):
    """The options of `Client.submit` and `Client.preview`, all optional."""

    name: str
    """A name for people; need not be unique. At most 128 ASCII letters, digits, spaces and any of "._:/=+-"."""
    job_class: JobClass | Literal["trial", "best-effort"]
    """Best-effort by default."""
    cpus: float
    """CPU cores, whole or fractional. Default: the devices' share of the node, or 1 without devices."""
    memory: str | int
    """Host memory, such as "4GiB", or a number of MiB. Default: the devices' share of the node, or "1GiB" without devices."""
    devices: float
    """GPUs; 0 by default. A whole number, or a fraction of one GPU, such as 0.5, which the job shares with others."""
    gpu_memory: str | int
    """The most GPU memory that the job uses: "10GiB", for example, or a number of MiB. The job then shares its GPU."""
    share: ShareMode | Literal["exclusive", "packed", "sliced"] | None
    """How it shares its GPU: in turns with others (sliced), at the same time as others (packed), or not at all (exclusive). By
    default, a job with a fraction is sliced, and a job that names only `gpu_memory` is packed."""
    grace: Time | None
    """How long it needs to save its work when it is preempted. None and "auto" start with the site's default, and a job whose
    saves take longer gets more, up to the site's limit; with zero it may be killed immediately and resume from its last
    checkpoint."""
    env: Mapping[str, str] | None
    """Environment variables of the job. They override inherited ones."""
    export: str | Iterable[str] | None
    """Variables that the job inherits from the environment of this process, as for sbatch: "ALL", "NONE", or names and
    NAME=VALUE, such as "PATH,LR=0.1" or ["PATH", "CONDA_*"]. By default PATH, VIRTUAL_ENV and CONDA_*, so that the job runs in
    an active virtual environment, too. The directories of the agent's own PATH are appended to PATH."""
    working_directory: str | os.PathLike[str] | None
    """An absolute path on the node; None means the job's own directory there."""
    priority: int
    """-1000 to 1000; 0 by default. Jobs with a higher priority start first."""
    time_limit: Time | None
    """The maximum run time, over all of its runs."""
    estimate: Time | None
    """How long it is expected to run; start estimates of the jobs that wait for it use this."""
    retries: int
    """Retry up to this number of times if a run fails with one of the given exit codes or signals; if none is given, after any
    failure."""
    retry_exit_codes: Iterable[int]
    retry_exit_signals: Iterable[int]
    tasks: int | Sequence[TaskGroup]
    """A gang: tasks that start together or not at all. A number of tasks, each with `cpus`, `memory` and `devices`; or groups
    with their own resources."""
    min_tasks: int
    """For an elastic job: the minimum number of tasks, 1 by default, and the maximum, `tasks` by default. It starts with
    `tasks` tasks, and `Client.resize` changes the number within these bounds."""
    max_tasks: int
    after_ok: Jobs
    """Wait until these jobs have succeeded; `after_any`: have ended; `after_failed`: have failed."""
    after_any: Jobs
    after_failed: Jobs
    array: int | None
    """Number of jobs of this spec, which differ in EBB_ARRAY_INDEX; at most `array_at_once` run at a time (0: any number)."""
    array_at_once: int
    vc: str | None
    """The virtual cluster of the job; EBB_VC by default. Required on sites with virtual clusters."""
    guarantee: Guarantee | Literal["guaranteed", "overflow", "opportunistic"]
    """Whether it waits for cells of its virtual cluster (guaranteed), may run in any idle cells meanwhile (overflow), or only
    ever runs in idle cells (opportunistic)."""
    pool: str
    """The name of the pool in which it runs, on sites with virtual clusters."""
    model: str
    """The model of its devices, such as "A100-SXM4-80GB"."""
    device_memory: str | int
    """The minimum memory of each of its devices: "40GiB", for example, or a number of MiB."""
    nodes: str | Iterable[str]
    """Run on these nodes only, by name. Like `node_labels` and `exclude_nodes`, for sites without virtual clusters."""
    node_labels: Mapping[str, str]
    """Run only on nodes that have all of these labels, such as {"zone": "a"}."""
    exclude_nodes: str | Iterable[str]
    """Do not run on these nodes."""
    alternatives: Iterable[Alternative | Configuration]
    """Other configurations in which it can run, such as other device models, or CPUs only."""
    pin: str
    """The name of the pinned cell of its virtual cluster in which it runs."""
    cell: str
    """The level of the whole cell that it gets, such as "socket"; for a gang, set it in each group of `tasks`."""
    within: str | Within | Iterable[str | Within]
    """Run all of its tasks in one cell of this level, such as "rack"."""
    lazy: bool
    """If its own virtual cluster takes its cells back, keep running as an opportunistic job until they are reclaimed."""
    vacates: bool
    """If the virtual cluster loses cells, stop and wait for other cells; False: keep running as an opportunistic job."""
    project: str
    """The project that policies which order jobs by usage charge for the job. At most 64 ASCII letters, digits and any of
    "._-"."""
    exit_0_after_stop: Exit0AfterStop | Literal["stopped", "done"]
    """Meaning of exit code 0 after a stop signal for preemption, suspension, reclaim, requeue or drain: stopped, so that the
    job runs again (the default), or done. A program that writes EBB_DONE_FILE has finished in any case."""
    checkpoint_signal: str
    """The signal that asks the program to save when the job is preempted, suspended, requeued, drained, reclaimed or out of
    time: "USR1", or "USR1@60" if saving takes up to 60 seconds. It is sent first; SIGTERM follows after this time, or in the
    last tenth of the grace period (at most its last 30 s). By default, SIGTERM is sent first."""
    checkpoint_command: str
    """A shell command (/bin/sh) that saves the program's work from outside in these cases; EBB_PID is the program's process ID.
    If it exits with 0, the work is saved and the program is stopped. Otherwise SIGTERM follows."""
    snapshot: bool | str | os.PathLike[str]
    """Copy the files of a directory to the job (True: the current directory): those that git tracks or would track, or without
    git all that `.ebbignore` does not name. Each run has its own copy, in which the command starts if no `working_directory` is
    given."""
    venv: str | os.PathLike[str] | None
    """The path of a virtual environment on the nodes, in which the command runs, so that `python` is that environment's."""
    conda: str | os.PathLike[str] | None
    """The conda environment in which the command runs: its path on the nodes, or its name, which this process looks up."""
    hook: bool
    """Whether Ebb counts the optimizer steps of PyTorch programs and may park them; True by default. False sets NO_EBB_HOOK in
    the environment of the program, which turns this off."""
