"""Conversion of submit options, in the forms that users write, to a `JobSpec`."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from numbers import Real
from typing import Any, Literal, TypedDict

from client_sdk import units
from client_sdk._values.device_parts import part
from client_sdk._values.enums import DependencyKind, Exit0AfterStop, Guarantee, JobClass, ShareMode
from client_sdk._values.exported_environment import export_environment
from client_sdk._values.job_options import Alternative, Jobs, Time
from client_sdk._values.jobs import Job
from client_sdk._values.python_environments import activate_environment
from client_sdk._values.specs import (
    DEFAULT,
    Array,
    Configuration,
    Dependency,
    JobSpec,
    NodeRequest,
    Resources,
    Retry,
    TaskGroup,
    elastic_bounds,
    named_resources,
)
from client_sdk._values.virtual_clusters import CellRequest, Within
from client_sdk.errors import InvalidArgument

_GUARANTEES = {"guaranteed": Guarantee.GUARANTEED, "overflow": Guarantee.OVERFLOW, "opportunistic": Guarantee.OPPORTUNISTIC}
_EXITS = {"stopped": Exit0AfterStop.STOPPED, "done": Exit0AfterStop.DONE}
_CHECKPOINT_SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "CONT", "WINCH", "URG", "IO", "PWR")
_NO_HOOK = {"NO_EBB_HOOK": "1"}
"""The environment of a program that Ebb leaves alone."""
_CLASSES = {"trial": JobClass.TRIAL, "best-effort": JobClass.BEST_EFFORT}

# Values of omitted options, created once because most jobs omit most options.
_NONE: tuple[()] = ()
NO_RETRY = Retry()
ANY_CELLS = CellRequest()
ANY_NODE = NodeRequest()


def job_spec(
    command: Sequence[str | os.PathLike[str]],
    *,
    name: str = "",
    job_class: JobClass | Literal["trial", "best-effort"] = JobClass.BEST_EFFORT,
    cpus: float | None = None,
    memory: str | int | None = None,
    devices: float | None = None,
    gpu_memory: str | int = 0,
    share: ShareMode | Literal["exclusive", "packed", "sliced"] | None = None,
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
    min_tasks: int = 0,
    max_tasks: int = 0,
    after_ok: Jobs = _NONE,
    after_any: Jobs = _NONE,
    after_failed: Jobs = _NONE,
    array: int | None = None,
    array_at_once: int = 0,
    vc: str | None = None,
    guarantee: Guarantee | Literal["guaranteed", "overflow", "opportunistic"] = Guarantee.GUARANTEED,
    pool: str = "",
    model: str = "",
    device_memory: str | int = 0,
    nodes: str | Iterable[str] = _NONE,
    node_labels: Mapping[str, str] | None = None,
    exclude_nodes: str | Iterable[str] = _NONE,
    alternatives: Iterable[Alternative | Configuration] = _NONE,
    pin: str = "",
    cell: str = "",
    within: str | Within | Iterable[str | Within] = (),
    lazy: bool = False,
    vacates: bool = False,
    project: str = "",
    exit_0_after_stop: Exit0AfterStop | Literal["stopped", "done"] = Exit0AfterStop.STOPPED,
    checkpoint_signal: str = "",
    checkpoint_command: str = "",
    snapshot: bool | str | os.PathLike[str] = False,  # noqa: ARG001 (the client stores it, and adds its digest)
    venv: str | os.PathLike[str] | None = None,
    conda: str | os.PathLike[str] | None = None,
    hook: bool = True,
) -> JobSpec:
    """Return the spec for these options. Raises InvalidArgument."""
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
    taken = {"cpus": cpus, "memory": memory, "tasks": tasks, "within": within, "nodes": nodes, "node_labels": node_labels}
    taken["exclude_nodes"] = exclude_nodes
    inherited, given = export_environment(export)
    given |= _environment(env) | ({} if hook else _NO_HOOK)
    inherited, own = activate_environment(venv, conda, inherited, given)
    asked = part(devices, gpu_memory, share)
    resources = _resources(cpus, memory, asked.devices)
    groups = _groups(tasks, resources, cell)
    if groups and (asked.share is not ShareMode.EXCLUSIVE or any(_is_part(group.devices) for group in groups)):
        raise InvalidArgument("a gang has whole devices; leave out tasks, or the part of a device")
    if min_tasks or max_tasks:
        min_tasks, max_tasks = elastic_bounds(groups, min_tasks, max_tasks)
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
        environment=own,
        inherited=inherited,
        working_directory=_folder(working_directory),
        grace_period=None if grace == "auto" else _time(grace),
        priority=priority,
        time_limit=_time(time_limit),
        estimate=_time(estimate),
        retry=_retry(retries, retry_exit_codes, retry_exit_signals),
        task_groups=groups,
        dependencies=dependencies(after_ok=after_ok, after_any=after_any, after_failed=after_failed),
        array=None if array is None else Array(array, array_at_once),
        project=project,
        exit_0_after_stop=_EXITS[exit_0_after_stop] if isinstance(exit_0_after_stop, str) else exit_0_after_stop,
        device_memory_mib=units.parse_memory(device_memory),
        checkpoint_signal=checkpoint_signal and _checkpoint_signal(checkpoint_signal, checkpoint_command),
        checkpoint_command=checkpoint_command,
        min_tasks=min_tasks,
        max_tasks=max_tasks,
        gpu_fraction_ppm=asked.gpu_fraction_ppm,
        gpu_memory_mib=asked.gpu_memory_mib,
        share=asked.share,
        nodes=_nodes(nodes, node_labels, exclude_nodes),
        alternatives=tuple(_alternative(at + 1, one, vc, guarantee, taken) for at, one in enumerate(alternatives)),
        **_tenancy(vc, guarantee, cells),
    )


def _checkpoint_signal(said: str, command: str) -> str:
    """Return it in the scheduler's form: USR1 or USR1@60."""
    if command:
        raise InvalidArgument("checkpoint_signal and checkpoint_command exclude each other; leave one out")
    name, at, seconds = said.upper().partition("@") if isinstance(said, str) else (repr(said), "", "")
    name = name.removeprefix("SIG")
    if name == "TERM":
        raise InvalidArgument("SIGTERM is what a job gets without checkpoint_signal; leave it out")
    if name in ("KILL", "STOP"):
        raise InvalidArgument(f"no program can handle SIG{name}; take another signal, such as USR1")
    if name not in _CHECKPOINT_SIGNALS:
        raise InvalidArgument(f"{name!r} is no checkpoint signal; those are {', '.join(_CHECKPOINT_SIGNALS)}")
    if at and not (seconds.isascii() and seconds.isdigit() and 1 <= int(seconds) < 100_000):
        raise InvalidArgument(f"{seconds!r} is no number of seconds from 1 to 99999; write it like USR1@60")
    return f"{name}@{int(seconds)}" if at else name


def _alternative(
    number: int, said: Alternative | Configuration, vc: str | None, guarantee: Guarantee | str, taken: Mapping[str, Any]
) -> Configuration:
    """`taken`: the options of the job that apply to an alternative that omits them."""
    if isinstance(said, Configuration):
        return said
    wrong = [str(name) for name in said if name not in Alternative.__annotations__] if isinstance(said, Mapping) else None
    if wrong is None or wrong:
        known = ", ".join(Alternative.__annotations__)
        raise InvalidArgument(f"alternative {number}: {said!r} is not one; it has some of: {known}")
    options: dict[str, Any] = {name: value for name, value in taken.items() if value not in (None, ())} | dict(said)
    if not isinstance(options.get("tasks", 0), int):
        options = {name: value for name, value in options.items() if name not in ("cpus", "memory") or name in said}
    try:
        spec = job_spec(options.pop("command", ()), export="NONE", vc=vc, guarantee=guarantee, **options)  # type: ignore[arg-type]
    except InvalidArgument as error:
        raise InvalidArgument(f"alternative {number}: {error}") from error
    if spec.share is not ShareMode.EXCLUSIVE:
        raise InvalidArgument(f"alternative {number}: it has whole devices; only a job without alternatives has a part of one")
    return spec.configurations[0]


def _nodes(names: str | Iterable[str], labels: Mapping[str, str] | None, excluded: str | Iterable[str]) -> NodeRequest:
    if names is excluded is _NONE and labels is None:
        return ANY_NODE
    try:
        return NodeRequest(names=_sort_names(names), labels=dict(labels or {}), excluded=_sort_names(excluded))
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"nodes and exclude_nodes are names of nodes, and node_labels a mapping; not {names!r}, {excluded!r} and {labels!r}"
        ) from None


def _sort_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Sort as the scheduler does, so that its answer has the spec that was sent."""
    return (names,) if isinstance(names, str) else tuple(sorted(set(names)))


def _groups(tasks: int | Sequence[TaskGroup], alike: Resources, level: str) -> tuple[TaskGroup, ...]:
    if isinstance(tasks, int):
        return (TaskGroup(tasks, alike.devices, alike.cpus, alike.memory_mib, level=level),)
    if not isinstance(tasks, Iterable) or any(not isinstance(group, TaskGroup) for group in tasks):
        raise InvalidArgument(f"tasks is a number, or a list such as [TaskGroup(4, devices=1, cpus=4)], and not {tasks!r}")
    return tuple(tasks)


def _is_part(devices: float) -> bool:
    return isinstance(devices, float) and not devices.is_integer()


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
    beyond_model = cells != CellRequest(model=cells.model)
    if not name and (beyond_model or guarantee is not Guarantee.GUARANTEED):
        raise InvalidArgument("cells and guarantees are those of a virtual cluster: say which, by vc (--vc) or EBB_VC")
    return {"virtual_cluster": name, "guarantee": guarantee, "cells": cells}


def _within(value: str | Within | Iterable[str | Within]) -> tuple[Within, ...]:
    each = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if not all(isinstance(one, str | Within) for one in each):
        raise InvalidArgument(f'within is a level such as "rack", or a list of such, and not {value!r}')
    return tuple(Within(one) if isinstance(one, str) else one for one in each)


def _resources(cpus: float | None, memory: str | int | None, devices: int) -> Resources:
    if cpus is not None and not (isinstance(cpus, Real) and math.isfinite(cpus)):
        raise InvalidArgument(f"cpus: {cpus!r} is no number of CPUs")
    named, mib = named_resources(DEFAULT if cpus is None else cpus, DEFAULT if memory is None else memory, devices)
    return Resources(cpus=named, memory_mib=mib, devices=devices)


def _time(value: Time | None) -> timedelta | None:
    return None if value is None else units.parse_duration(value)


def _retry(limit: int, codes: Iterable[int], signals: Iterable[int]) -> Retry:
    if limit == 0 and codes is signals is _NONE:
        return NO_RETRY
    # Sort as the scheduler does, so that its answer has the spec that was sent.
    try:
        retry = Retry(limit, tuple(sorted(set(map(int, codes)))), tuple(sorted(set(map(int, signals)))))
    except (TypeError, ValueError):
        raise InvalidArgument(f"exit codes and signals are lists of numbers, and not {codes!r} and {signals!r}") from None
    if not limit and retry != NO_RETRY:
        raise InvalidArgument("say how often a run that fails so is to be tried again: retries=3 (--retries 3), for example")
    return retry


def dependencies(*, after_ok: Jobs = _NONE, after_any: Jobs = _NONE, after_failed: Jobs = _NONE) -> tuple[Dependency, ...]:
    """Return the dependencies of a job, for example with `dependencies(after_ok=[7, 8], after_any=other)`."""
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
    except TypeError:  # some are not numbers and cannot be sorted with numbers
        said = ", ".join(sorted(repr(number) for number, _ in pairs if not isinstance(number, int)))
        raise InvalidArgument(f"a job waits for jobs, or for ids of jobs, and not for {said}") from None


def job_id(job: Job | int) -> int:
    return job.id if isinstance(job, Job) else job
