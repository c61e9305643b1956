"""The progress of a sweep, for people: a bar with an estimate on a terminal, a line for each simulation elsewhere."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from scheduler_service.sim.experiments.sweep import Watch


class Remaining(ProgressColumn):
    """The remaining time, if the rate of progress does not change."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        done, elapsed = task.completed / task.total if task.total else 0.0, task.elapsed or 0.0
        if done < 0.005 or elapsed < 1:
            return Text("")
        return Text(f"about {length(elapsed * (1 - done) / done)} left", style="cyan")


def length(seconds: float) -> str:
    """Format seconds as 40 s, 12 min or 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


class Screen(Watch):
    """Shows the progress of a sweep."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            Remaining(),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._task = self._bar.add_task("", start=False, total=None)
        self._cases = self._ended = 0
        self._begun = False
        self._shares: dict[int, float] = {}
        """The completed part of each simulation in progress."""

    def __enter__(self) -> "Screen":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, cases: int, kept: int, workers: int) -> None:
        self._cases = cases
        if kept:
            self.say(f"{kept} of {cases + kept} simulations are there already")
        if cases:
            several = "" if min(workers, cases) == 1 else f", {min(workers, cases)} at a time"
            several = several if workers else "; the cluster has no workers yet"
            self.say(f"{cases} simulation{'s' if cases > 1 else ''} to do{several}")
        self._show()

    def report_progress(self, number: int, over: int, total: int | None) -> None:
        self._begins()
        if total:
            self._shares[number] = min(over / total, 1)
            self._show()

    def report_end(self, number: int, name: str, error: str | None) -> None:
        self._begins()
        self._ended += 1
        self._shares.pop(number, None)
        if error is not None:
            self.say(f"FAILED {name}: {error}")
        elif not self._live:
            self.say(f"{self._ended}/{self._cases} {name}")
        self._show()

    def say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _begins(self) -> None:
        """Start the clock with the first report of a worker: how long workers take to start says nothing about simulations."""
        if not self._begun:
            self._begun = True
            self._bar.start_task(self._task)

    def _show(self) -> None:
        done = self._ended + sum(self._shares.values())
        self._bar.update(
            self._task, completed=done, total=self._cases or None, description=f"{self._ended} of {self._cases} simulations"
        )
