"""Report of what happened, and of whether every check succeeded."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from client_sdk import JobEvent, JobEventKind
from examples.demo.judge import Displacement, Outcome


def report(outcome: Outcome, seconds: float, console: Console) -> bool:
    """Prints everything; whether all checks held."""
    for displacement in outcome.displacements:
        _decision(displacement, outcome, console)
    _note("Each table: lowest score first, as computed here. TO GO: steps left, by which LRTP goes.", console)
    _latencies(outcome, console)
    _lost(outcome, console)
    _heading("Checks", console)
    for check in outcome.checks:
        console.print(Text.assemble(("FAILED  ", "bold red") if check.problems else ("ok      ", "green"), check.claim))
        for problem in check.problems:
            console.print(f"          {problem}", highlight=False, soft_wrap=True)
    failed = sum(bool(check.problems) for check in outcome.checks)
    verdict = f"{failed} of {len(outcome.checks)} checks FAILED" if failed else f"all {len(outcome.checks)} checks held"
    console.print(f"\n{verdict}; {seconds:.1f} s", style="bold red" if failed else "bold green", highlight=False)
    return not failed


def _decision(d: Displacement, outcome: Outcome, console: Console) -> None:
    roles = outcome.roles
    trial = roles[d.trial]
    _heading(f"{trial.name} needed {trial.gpus} GPUs, and {roles[d.victim].name} left for it", console)
    table = _table("JOB", "NODE", "GPUS>", "SIZE>", "GRACE>", "SCORE>", "FITS", "TO GO>", "CHOSEN BY")
    for score in d.scores:
        by = [name for name, job in (("FitGpp", d.victim), ("LRTP", d.lrtp), ("RAND", d.rand)) if job == score.job]
        table.add_row(
            roles[score.job].name,
            score.node,
            str(roles[score.job].gpus),
            f"{score.size:.4f}",
            f"{score.grace:g} s",
            f"{score.score:.4f}",
            "spared" if score.spared else "yes" if score.fits else "no",
            str(d.left[score.job]),
            ", ".join(by),
        )
    console.print(table)


def _latencies(outcome: Outcome, console: Console) -> None:
    _heading("How long the trials waited", console)
    table = _table("TRIAL", "SUBMIT TO START>", "VICTIM", "SAVED AND LEFT IN>", "OF ITS GRACE>")
    for d in outcome.displacements:
        trial, victim = outcome.stories[d.trial], outcome.stories[d.victim]
        start = _between(trial, JobEventKind.SUBMITTED, JobEventKind.STARTED)
        leaving = _between(victim, JobEventKind.PREEMPTED, JobEventKind.VACATED)
        role = outcome.roles[d.victim]
        table.add_row(outcome.roles[d.trial].name, f"{start:.3f} s", role.name, f"{leaving:.3f} s", f"{role.grace:g} s")
    console.print(table)


def _lost(outcome: Outcome, console: Console) -> None:
    _heading("What preemption cost", console)
    table = _table("JOB", "GPUS>", "SAVED AT STEP>", "SAVING>", "WAITING>", "GPU-HOURS LOST>")
    total = 0.0
    for d in outcome.displacements:
        role, story = outcome.roles[d.victim], outcome.stories[d.victim]
        saving = _between(story, JobEventKind.PREEMPTED, JobEventKind.VACATED)
        waiting = _between(story, JobEventKind.VACATED, JobEventKind.STARTED)
        lost = role.gpus * (saving + waiting) / 3600
        total += lost
        saved = ", ".join(map(str, d.saved))
        table.add_row(role.name, str(role.gpus), saved, f"{saving:.1f} s", f"{waiting:.1f} s", f"{lost:.4f}")
    table.add_row("all", "", "", "", "", f"{total:.4f}")
    console.print(table)
    _note("GPU-hours lost: its GPUs x the time from the signal to its next start.", console)
    _note("While it waited, others had those GPUs; no step had to be done again.", console)


def _between(story: Sequence[JobEvent], first: JobEventKind, then: JobEventKind) -> float:
    """Seconds from the one to the next of the other."""
    begin = next(e for e in story if e.kind is first)
    end = next(e for e in story if e.kind is then and e.commit_no >= begin.commit_no)
    assert begin.time is not None  # the scheduler notes a time with every event
    assert end.time is not None
    return (end.time - begin.time).total_seconds()


def _heading(text: str, console: Console) -> None:
    console.print(f"\n{text}", style="bold", highlight=False)


def _note(text: str, console: Console) -> None:
    console.print(text, style="dim", highlight=False)


def _table(*columns: str) -> Table:
    """Columns whose names end with > are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    return table
