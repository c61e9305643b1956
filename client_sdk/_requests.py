"""What can be asked of a scheduler, as plain values. Both clients make them here, and both transports know how to send them."""

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, TypeVar

from client_sdk import units
from client_sdk.errors import InvalidArgument
from client_sdk.models import Job, JobClass, JobEvent, JobSpec, JobState, Node, Resources

T = TypeVar("T")

DEFAULT_ADDRESS = "127.0.0.1:7737"
_CLASSES = {"trial": JobClass.TRIAL, "best-effort": JobClass.BEST_EFFORT}


class Request(Generic[T]):
    """One call. `T` is what it answers."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Submit(Request[Job]):
    spec: JobSpec
    request_id: str


@dataclass(frozen=True, slots=True)
class Get(Request[Job]):
    job_id: int


@dataclass(frozen=True, slots=True)
class Page:
    jobs: tuple[Job, ...]
    next_token: str
    """Empty on the last page."""


@dataclass(frozen=True, slots=True)
class ListPage(Request[Page]):
    states: tuple[JobState, ...]
    size: int
    token: str = ""


@dataclass(frozen=True, slots=True)
class Cancel(Request[Job]):
    job_id: int


@dataclass(frozen=True, slots=True)
class Story(Request[Sequence[JobEvent]]):
    job_id: int


@dataclass(frozen=True, slots=True)
class ListNodes(Request[Sequence[Node]]):
    pass


def address(given: str | None) -> str:
    """Where the scheduler is: as given, else as the environment says."""
    return given or os.environ.get("EBB_ADDRESS") or DEFAULT_ADDRESS


def submit(spec: JobSpec, request_id: str | None) -> Submit:
    """A submit that may be sent again: where it was given no request_id, it has one of its own."""
    return Submit(spec, request_id or str(uuid.uuid4()))


def job_id(job: Job | int) -> int:
    return job.id if isinstance(job, Job) else job


def job_spec(
    command: Sequence[str | os.PathLike[str]],
    *,
    name: str,
    job_class: JobClass | Literal["trial", "best-effort"],
    cpus: float,
    memory: str | int,
    devices: int,
    grace: float | str | timedelta | None,
    env: Mapping[str, str] | None,
    working_directory: str | os.PathLike[str] | None,
) -> JobSpec:
    """A spec from what people write. Raises InvalidArgument."""
    if isinstance(command, str | bytes):
        raise InvalidArgument(f"give the command as a list of words, such as {str(command).split()!r}: no shell splits it")
    if isinstance(job_class, str) and job_class not in _CLASSES:
        raise InvalidArgument(f'{job_class!r} is not a class of jobs; it is "trial" or "best-effort"')
    return JobSpec(
        command=tuple(os.fspath(word) for word in command),
        resources=Resources(cpus=cpus, memory_mib=units.parse_memory(memory), devices=devices),
        name=name,
        job_class=_CLASSES[job_class] if isinstance(job_class, str) else job_class,
        environment=dict(env or {}),
        working_directory=None if working_directory is None else os.fspath(working_directory),
        grace_period=None if grace is None else units.parse_duration(grace),
    )
