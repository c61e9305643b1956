"""What can be said of a job that is submitted, in the words that people write, and the spec that it makes."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from numbers import Real
from typing import Literal, TypeAlias, TypedDict

from client_sdk import units
from client_sdk._values.export import exported
from client_sdk._values.jobs import Job
from client_sdk._values.specs import Array, Dependency, JobSpec, Resources, Retry, TaskGroup
from client_sdk._values.states import DependencyKind, Exit0AfterStop, Guarantee, JobClass
from client_sdk._values.virtual_clusters import CellRequest, Within
from client_sdk.errors import InvalidArgument

Time: TypeAlias = float | str | timedelta
"""A length of time: a number of seconds, or like "90s", "1h30m", "2d"."""
Moment: TypeAlias = str | datetime
"""A point in time: a datetime with a time zone, or like "2025-01-31T08:00" (UTC), "+2h" (from now), "now"."""
Jobs: TypeAlias = Job | int | Iterable[Job | int]

_GUARANTEES = {"guaranteed": Guarantee.GUARANTEED, "overflow": Guarantee.OVERFLOW, "opportunistic": Guarantee.OPPORTUNISTIC}
_EXITS = {"stopped": Exit0AfterStop.STOPPED, "done": Exit0AfterStop.DONE}
_CLASSES = {"trial": JobClass.TRIAL, "best-effort": JobClass.BEST_EFFORT}

# What an option is that was left out, made once: most jobs leave most of them out.
_NONE: tuple[()] = ()
_ONE_CPU = Resources(cpus=1, memory_mib=units.parse_memory("1GiB"))
NO_RETRY = Retry()
ANY_CELLS = CellRequest()


class JobOptions(TypedDict, total=False):
    """The options of `Client.submit` and `Client.preview`, each of which may be left out."""

    name: str
    """For people; need not be unique. Letters and digits of ASCII, blanks and any of "._:/=+-"; 128 at most."""
    job_class: JobClass | Literal["trial", "best-effort"]
    """Best-effort where it is left out."""
    cpus: float
    """Cores, also fractions; 1."""
    memory: str | int
    """Of the host: like "4GiB", or a number of MiB; "1GiB"."""
    devices: int
    """GPUs; none."""
    grace: Time | None
    """How long it needs to save its work when it is preempted. None leaves it to the site; zero says that it may be killed at
    once and go on from its last checkpoint."""
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
    """Which nodes it runs on, by the pool's name or by the `model` of its devices."""
    model: str
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


def job_spec(
    command: Sequence[str | os.PathLike[str]],
    *,
    name: str = "",
    job_class: JobClass | Literal["trial", "best-effort"] = JobClass.BEST_EFFORT,
    cpus: float | None = None,
    memory: str | int | None = None,
    devices: int | None = None,
    grace: Time | None = None,
    env: Mapping[str, str] | None = None,
    export: str | Iterable[str] | None = None,
    working_directory: str | os.PathLike[str] | None = None,
    priority: int = 0,
    time_limit: Time | None = None,
    estimate: Time | None = None,
    retries: int = 0,
    retry_exit_codes: Iterable[int] = _NONE,
    retry_exit_signals: Iterable[int] = _NONE,
    tasks: int | Sequence[TaskGroup] = (),
    after_ok: Jobs = _NONE,
    after_any: Jobs = _NONE,
    after_failed: Jobs = _NONE,
    array: int | None = None,
    array_at_once: int = 0,
    vc: str | None = None,
    guarantee: Guarantee | Literal["guaranteed", "overflow", "opportunistic"] = Guarantee.GUARANTEED,
    pool: str = "",
    model: str = "",
    pin: str = "",
    cell: str = "",
    within: str | Within | Iterable[str | Within] = (),
    lazy: bool = False,
    vacates: bool = False,
    project: str = "",
    exit_0_after_stop: Exit0AfterStop | Literal["stopped", "done"] = Exit0AfterStop.STOPPED,
) -> JobSpec:
    """A spec from what people write. Raises InvalidArgument."""
    if isinstance(command, str | bytes):
        raise InvalidArgument(f"give the command as a list of words, such as {str(command).split()!r}: no shell splits it")
    if not isinstance(command, Iterable):
        raise InvalidArgument(f"{command!r} is no command; give it as a list of words")
    words = tuple(map(_word, command))
    if words and not words[0]:
        raise InvalidArgument("the first word of the command, which is the program to run, is empty")
    if isinstance(job_class, str) and job_class not in _CLASSES:
        raise InvalidArgument(f'{job_class!r} is not a class of jobs; it is "trial" or "best-effort"')
    if isinstance(exit_0_after_stop, str) and exit_0_after_stop not in _EXITS:
        raise InvalidArgument(f'exit_0_after_stop={exit_0_after_stop!r} is unknown; it is "stopped" or "done"')
    if not (isinstance(tasks, int) or not tasks or cpus is memory is devices is None):
        raise InvalidArgument("cpus, memory and devices are those of a job of one task: say them in each group of `tasks`")
    inherited, given = exported(export)
    resources = _resources(cpus, memory, devices)
    groups = _groups(tasks, resources, cell)
    if isinstance(tasks, int):
        cell = ""  # of each task
    if array is None and array_at_once:
        raise InvalidArgument("array_at_once is for an array: say its size in `array`")
    cells = ANY_CELLS
    if pool or model or pin or cell or within or lazy or vacates:
        cells = CellRequest(pool=pool, model=model, pin=pin, level=cell, within=_within(within), lazy=lazy, vacates=vacates)
    return JobSpec(
        command=words,
        resources=Resources() if groups else resources,
        name=name,
        job_class=_CLASSES[job_class] if isinstance(job_class, str) else job_class,
        environment=given | _environment(env),
        inherited=inherited,
        working_directory=_folder(working_directory),
        grace_period=_time(grace),
        priority=priority,
        time_limit=_time(time_limit),
        estimate=_time(estimate),
        retry=_retry(retries, retry_exit_codes, retry_exit_signals),
        task_groups=groups,
        dependencies=dependencies(after_ok=after_ok, after_any=after_any, after_failed=after_failed),
        array=None if array is None else Array(array, array_at_once),
        project=project,
        exit_0_after_stop=_EXITS[exit_0_after_stop] if isinstance(exit_0_after_stop, str) else exit_0_after_stop,
        **_tenancy(vc, guarantee, cells),
    )


def _groups(tasks: int | Sequence[TaskGroup], alike: Resources, level: str) -> tuple[TaskGroup, ...]:
    if isinstance(tasks, int):
        return (TaskGroup(tasks, alike.devices, alike.cpus, alike.memory_mib, level=level),)
    if not isinstance(tasks, Iterable) or any(not isinstance(group, TaskGroup) for group in tasks):
        raise InvalidArgument(f"tasks is a number, or a list such as [TaskGroup(4, devices=1, cpus=4)], and not {tasks!r}")
    return tuple(tasks)


def _word(word: str | os.PathLike[str]) -> str:
    try:
        return os.fspath(word)
    except TypeError:
        raise InvalidArgument(f"{word!r} is no word of a command; write it as a str") from None


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    try:
        return dict(env or {})
    except (TypeError, ValueError):
        raise InvalidArgument(f'env is a mapping such as {{"LR": "0.1"}}, and not {env!r}') from None


def _folder(path: str | os.PathLike[str] | None) -> str | None:
    try:
        return None if path is None else os.fspath(path)
    except TypeError:
        raise InvalidArgument(f"the working_directory, {path!r}, is no path") from None


class _Tenancy(TypedDict):
    virtual_cluster: str
    guarantee: Guarantee
    cells: CellRequest


def _tenancy(vc: str | None, guarantee: Guarantee | str, cells: CellRequest) -> _Tenancy:
    if isinstance(guarantee, str):
        if guarantee not in _GUARANTEES:
            raise InvalidArgument(f"{guarantee!r} is no guarantee; it is {', '.join(_GUARANTEES)}")
        guarantee = _GUARANTEES[guarantee]
    name = os.environ.get("EBB_VC", "") if vc is None else vc
    if not name and (cells != ANY_CELLS or guarantee is not Guarantee.GUARANTEED):
        raise InvalidArgument("cells and guarantees are those of a virtual cluster: say which, by vc (--vc) or EBB_VC")
    return {"virtual_cluster": name, "guarantee": guarantee, "cells": cells}


def _within(value: str | Within | Iterable[str | Within]) -> tuple[Within, ...]:
    each = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if not all(isinstance(one, str | Within) for one in each):
        raise InvalidArgument(f'within is a level such as "rack", or a list of such, and not {value!r}')
    return tuple(Within(one) if isinstance(one, str) else one for one in each)


def _resources(cpus: float | None, memory: str | int | None, devices: int | None) -> Resources:
    mib = _ONE_CPU.memory_mib if memory is None else units.parse_memory(memory)
    if cpus is not None and not (isinstance(cpus, Real) and math.isfinite(cpus)):
        raise InvalidArgument(f"cpus: {cpus!r} is no number of CPUs")
    return Resources(cpus=_ONE_CPU.cpus if cpus is None else cpus, memory_mib=mib, devices=devices or 0)


def _time(value: Time | None) -> timedelta | None:
    return None if value is None else units.parse_duration(value)


def _retry(limit: int, codes: Iterable[int], signals: Iterable[int]) -> Retry:
    if limit == 0 and codes is signals is _NONE:
        return NO_RETRY
    # In order, as the scheduler keeps them, so that a spec that was sent is the spec that is answered.
    try:
        retry = Retry(limit, tuple(sorted(set(map(int, codes)))), tuple(sorted(set(map(int, signals)))))
    except (TypeError, ValueError):
        raise InvalidArgument(f"exit codes and signals are lists of numbers, and not {codes!r} and {signals!r}") from None
    if not limit and retry != NO_RETRY:
        raise InvalidArgument("say how often a run that fails so is to be tried again: retries=3 (--retries 3), for example")
    return retry


def dependencies(*, after_ok: Jobs = _NONE, after_any: Jobs = _NONE, after_failed: Jobs = _NONE) -> tuple[Dependency, ...]:
    """What a job waits for, such as `dependencies(after_ok=[7, 8], after_any=other)`."""
    if after_ok is after_any is after_failed is _NONE:
        return ()
    kinds = {
        DependencyKind.AFTER_OK: after_ok,
        DependencyKind.AFTER_ANY: after_any,
        DependencyKind.AFTER_FAILED: after_failed,
    }
    pairs = {(job_id(job), kind) for kind, jobs in kinds.items() for job in (jobs if isinstance(jobs, Iterable) else (jobs,))}
    try:
        return tuple(Dependency(*pair) for pair in sorted(pairs))
    except TypeError:  # some are no numbers, which do not stand in an order with numbers
        said = ", ".join(sorted(repr(number) for number, _ in pairs if not isinstance(number, int)))
        raise InvalidArgument(f"a job waits for jobs, or for ids of jobs, and not for {said}") from None


def job_id(job: Job | int) -> int:
    return job.id if isinstance(job, Job) else job
