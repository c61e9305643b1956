"""The live view: every job with its state, its reason and its steps, as `Client.watch` and the step logs tell it.

On a terminal it is a table that stays in place; anywhere else (a pipe, TERM=dumb) each change is a line of its own.
"""

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from client_sdk import Client, EbbError, Job, JobClass, JobReason, JobState

_STYLES = {
    JobState.RUNNING: "green",
    JobState.STARTING: "green",
    JobState.STOPPING: "yellow",
    JobState.SUCCEEDED: "dim",
    JobState.FAILED: "bold red",
}
_REFRESHES = 5
"""A second."""


class Output(Console):
    """A console that raises an error, instead of exiting, when its reader has gone: in a thread, an exit would go unnoticed."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "nobody reads the output any more")


class Board:
    """A table of the jobs, kept up to date by its own thread while it is entered as a context."""

    def __init__(self, console: Console, client: Client, steps: Callable[[Job], str]) -> None:
        self.jobs: dict[int, Job] = {}
        self.broken: EbbError | OSError | None = None
        """The error that ended the updates."""
        self._console = console
        self._client = client.another()
        self._steps = steps
        self._began = time.monotonic()
        self._thread = Thread(target=self._follow, name="watch", daemon=True)
        self._closed = False
        live = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=_REFRESHES) if live else None

    def say(self, text: str) -> None:
        """A line of the story; above the table, where there is one."""
        said = Text.assemble((f"{time.monotonic() - self._began:5.1f} s  ", "dim"), text)
        self._console.print(said, soft_wrap=self._live is None, highlight=False)

    def __enter__(self) -> "Board":
        if self._live:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._closed = True
        self._client.close()
        self._thread.join(5)
        if self._live:
            with suppress(OSError):  # the terminal has gone
                self._live.stop()

    def _follow(self) -> None:
        try:
            for update in self._client.watch():
                for job in update.jobs:
                    before = self.jobs.get(job.id)
                    self.jobs[job.id] = job
                    if self._live is None and (before is None or _shown(before) != _shown(job)):
                        self._tell(job)
        except (EbbError, OSError) as error:
            self.broken = None if self._closed else error

    def _tell(self, job: Job) -> None:
        place = f" on {job.node} {_devices(job)}, run {job.run}" if job.state in _ON_A_NODE else ""
        why = f" ({_reason(job)})" if _reason(job) else ""
        self.say(f"  job {job.id} {job.spec.name}: {job.state.name}{why}{place}, step {self._steps(job)}")

    def _table(self) -> Table:
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        made.add_column("ID", justify="right")
        for column in ("NAME", "CLASS", "STATE"):
            made.add_column(column, no_wrap=True)
        made.add_column("REASON", no_wrap=True, overflow="ellipsis", min_width=12)
        made.add_column("NODE", no_wrap=True)
        made.add_column("GPUS", no_wrap=True)
        made.add_column("STEP", no_wrap=True, justify="right")
        made.add_column("PRE", justify="right")
        for job in sorted(self.jobs.values(), key=lambda j: j.id):
            on_a_node = job.state in _ON_A_NODE
            made.add_row(
                str(job.id),
                job.spec.name,
                Text("trial", style="bold magenta") if job.spec.job_class is JobClass.TRIAL else "best-effort",
                Text(job.state.name, style=_STYLES.get(job.state, "")),
                _reason(job),
                job.node if on_a_node else "",
                _devices(job) if on_a_node else "",
                self._steps(job),
                str(job.preempted_for_trial or ""),
            )
        return made


_ON_A_NODE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING, JobState.UNREACHABLE})


def _shown(job: Job) -> tuple[object, ...]:
    return job.state, job.reason, job.cause_job_id, job.node, job.run


def _reason(job: Job) -> str:
    if job.reason is JobReason.UNSPECIFIED or (job.reason is JobReason.EXITED and not job.exit_code):
        return ""
    words = job.reason.name.lower().replace("_", " ")
    match job.reason:
        case JobReason.PREEMPTED:
            return f"{words} for {job.cause_job_id}"
        case JobReason.BEHIND:
            return f"{words} {job.cause_job_id}"
        case JobReason.EXITED:
            return f"exit {job.exit_code}"
        case _:
            return words


def _devices(job: Job) -> str:
    return ",".join(map(str, job.devices))
