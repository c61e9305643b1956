"""The members of a sweep, and the threads that read what they report."""

import math
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from client_sdk.client import Client
from client_sdk.errors import EbbError
from client_sdk.models import Job, JobState
from client_sdk.training import sweep as in_job


class Report(NamedTuple):
    """A result that a member reported after a step."""

    number: int
    step: int
    value: float
    """NaN: the configuration failed."""


@dataclass
class Member:
    """A job that tries one configuration."""

    number: int
    """From 0 on, in the order in which the configurations were suggested."""
    parameters: Mapping[str, Any]
    job: Job
    reports: list[Report] = field(default_factory=list)
    """In the order of their steps. A run that repeats steps reports nothing new."""
    killed: bool = False
    """The sweep has given it up."""
    has_turn: bool = True
    """It may execute. Otherwise it is suspended until it has a turn again."""
    reported_in_turn: bool = False
    turns: int = 0
    """Those that are over."""
    seconds: float = 0.0
    """For how long it was seen to run."""
    seconds_before: float = 0.0
    """The same before its present turn, or the last one."""
    told: bool = False
    """The search knows how it has ended."""

    @property
    def value(self) -> float:
        """The last that it has reported; NaN if it has reported nothing."""
        return self.reports[-1].value if self.reports else math.nan

    @property
    def seconds_in_turn(self) -> float:
        return self.seconds - self.seconds_before

    @property
    def live(self) -> bool:
        return not self.job.ended

    @property
    def runs(self) -> bool:
        return self.job.state is JobState.RUNNING


class Reader:
    """Follows the output of members, each in a thread, over all of their runs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: queue.Queue[Report] = queue.Queue()
        self._threads: dict[int, threading.Thread] = {}

    def follow(self, member: Member) -> None:
        name = f"sweep-{member.number}"
        thread = threading.Thread(target=self._read, args=(member.number, member.job), name=name, daemon=True)
        self._threads[member.number] = thread
        thread.start()

    def is_through(self, number: int) -> bool:
        """Whether all that the member will ever report was read."""
        return not self._threads[number].is_alive()

    def new(self, seconds: float) -> list[Report]:
        """Return the reports since the last call. If there are none, wait up to `seconds` for one."""
        found: list[Report] = []
        try:
            found.append(self._found.get(timeout=seconds))
            while True:
                found.append(self._found.get_nowait())
        except queue.Empty:
            return found

    def _read(self, number: int, job: Job) -> None:
        for run in range(1, job.run):  # of a sweep that is started again
            self._read_output(number, partial(self._client.logs, job.id, run=run))
        self._read_output(number, partial(self._client.logs, job.id, follow=True))

    def _read_output(self, number: int, output: Callable[[], Iterator[str]]) -> None:
        rest = ""
        # The output may be lost with its node or missing, or the client is closed: the job's state is sufficient then.
        with suppress(EbbError):
            for piece in output():
                *lines, rest = (rest + piece).split("\n")
                for line in lines:
                    if (report := in_job.read(line)) is not None:
                        self._found.put(Report(number, *report))
