"""Parts shared by the commands: the client of this invocation, and common options."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from client_sdk.client import Client
from client_sdk.errors import InvalidArgument
from client_sdk.models import Job, JobReason, JobState

F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """One call of `ebb`."""

    def __init__(self, address: str | None, timeout: float) -> None:
        self.client = Client(address, timeout=timeout)

    def close(self) -> None:
        self.client.close()


class Number(click.FloatRange):
    """A number in a range. To be no number, which NaN is, is outside of each."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


def an_id(value: str) -> int:
    """The type of an argument that is the id of something."""
    if value.isascii() and value.isdigit() and len(value) < 20 and (found := int(value)):
        return found
    raise click.BadParameter(f"{value!r} is no id; ids are whole numbers from 1")


def output_option(*formats: str) -> Callable[[F], F]:
    """-o, with the formats that a command has besides its own text."""
    return click.option(
        "-o", "--output", "fmt", type=click.Choice(formats), help="Another form; json prints exactly one JSON value."
    )


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
no_header_option = click.option("--no-header", is_flag=True, help="Leave the line of column names out.")

SHORT: dict[str, tuple[JobState, JobReason | None]] = {
    "PD": (JobState.QUEUED, None),
    "PR": (JobState.QUEUED, JobReason.PREEMPTED),
    "CF": (JobState.STARTING, None),
    "R": (JobState.RUNNING, None),
    "CG": (JobState.STOPPING, None),
    "S": (JobState.SUSPENDED, None),
    "NF": (JobState.UNREACHABLE, None),
    "CD": (JobState.SUCCEEDED, None),
    "F": (JobState.FAILED, None),
    "OOM": (JobState.FAILED, JobReason.OUT_OF_MEMORY),
    "CA": (JobState.CANCELLED, None),
    "TO": (JobState.TIMED_OUT, None),
}
"""Slurm's codes. Some are an Ebb state for a reason."""


@dataclass(frozen=True, slots=True)
class States:
    """Which jobs a user wants to see."""

    wanted: frozenset[tuple[JobState, JobReason | None]]

    @property
    def states(self) -> list[JobState]:
        return sorted({state for state, _ in self.wanted})

    @property
    def has_reasons(self) -> bool:
        """Whether it takes more than the state of a job to tell."""
        return any(reason is not None and (state, None) not in self.wanted for state, reason in self.wanted)

    def match(self, job: Job) -> bool:
        return (job.state, None) in self.wanted or (job.state, job.reason) in self.wanted


def parse_states(text: str) -> States:
    """States by name or by Slurm's short code, separated by commas. Raises InvalidArgument."""
    names = {state.name: (state, None) for state in JobState if state is not JobState.UNSPECIFIED} | SHORT
    words = [word for word in text.upper().replace(",", " ").split() if word]
    unknown = [word for word in words if word not in names]
    if unknown or not words:
        raise InvalidArgument(f"{', '.join(unknown) or 'nothing'!r} is no state; states are {', '.join(names)}")
    return States(frozenset(names[word] for word in words))
