"""What the commands share: the client of this call, and options that several have."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from client_sdk.client import Client
from client_sdk.errors import InvalidArgument
from client_sdk.models import JobState

F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """One call of `ebb`."""

    def __init__(self, address: str | None, timeout: float) -> None:
        self.client = Client(address, timeout=timeout)

    def close(self) -> None:
        self.client.close()


JOB_ID = click.IntRange(min=1)
"""The type of an argument that is a job's id."""


def output_option(*formats: str) -> Callable[[F], F]:
    """-o, with the formats that a command has besides its own text."""
    return click.option(
        "-o", "--output", "fmt", type=click.Choice(formats), help="Another form; json prints exactly one JSON value."
    )


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
no_header_option = click.option("--no-header", is_flag=True, help="Leave the line of column names out.")

_SHORT = {
    "PD": JobState.QUEUED,
    "CF": JobState.STARTING,
    "R": JobState.RUNNING,
    "CG": JobState.STOPPING,
    "NF": JobState.UNREACHABLE,
    "CD": JobState.SUCCEEDED,
    "F": JobState.FAILED,
    "CA": JobState.CANCELLED,
}


def parse_states(text: str) -> list[JobState]:
    """States by name or by Slurm's short code, separated by commas. Raises InvalidArgument."""
    names = {state.name: state for state in JobState if state is not JobState.UNSPECIFIED} | _SHORT
    words = [word for word in text.upper().replace(",", " ").split() if word]
    unknown = [word for word in words if word not in names]
    if unknown or not words:
        raise InvalidArgument(f"{', '.join(unknown) or 'nothing'!r} is no state; states are {', '.join(names)}")
    return [names[word] for word in words]
