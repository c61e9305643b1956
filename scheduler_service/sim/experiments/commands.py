"""The commands of `ebb-sim`, after their arguments have been checked."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from scheduler_service.sim.experiments import kept_results, sweep
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.estimates import Group, group_summaries
from scheduler_service.sim.experiments.kept_results import Keep, Summary
from scheduler_service.sim.experiments.runner_port import BadAddress
from scheduler_service.sim.experiments.sweep import Stopped, SweepFailed
from scheduler_service.sim.experiments.tables import show
from scheduler_service.sim.progress import Screen, length

MOST_LOST = 0.05
"""The share of the work of all jobs above which a warning about lost work is printed."""


class Unusable(Exception):
    """The named folder holds no results; the message says why."""


def compute(
    cases: Sequence[Case],
    folder: Path,
    on: str,
    metrics: Sequence[str],
    *,
    keep: Keep,
    as_csv: bool,
    fresh: bool,
    figures: bool,
    as_json: bool,
) -> int:
    """Simulate the missing cases and present all of them; return the exit status."""
    notes, failed = Console(stderr=True), 0
    if not fresh and (whose := _of_another_run(cases, folder)):
        say(notes, f"ebb-sim: {folder} {whose}. Choose another folder with -o, or replace these results with --fresh.")
        return 2
    try:
        with Screen(notes) as screen:
            summaries = sweep.sweep(cases, folder, on, keep=keep, as_csv=as_csv, fresh=fresh, watch=screen)
    except BadAddress as error:
        say(notes, f"ebb-sim: {error}")
        return 2
    except OSError as error:
        say(notes, f"ebb-sim: no results can be written to {folder}: {error.strerror}. What is complete there is kept.")
        return 1
    except Stopped as stopped:
        say(notes, f"ebb-sim: stopped; {stopped} in {folder}. Run the same command to continue.")
        return 130
    except SweepFailed as error:
        summaries, failed = error.summaries, len(error.failures)
    groups = group_summaries({folder: summaries})
    (folder / "summary.json").write_text(json.dumps(as_data(groups), indent=1))
    if groups and figures:  # before anything is shown, because its reader may have seen enough and close the pipe
        from scheduler_service.sim.experiments.figures import draw

        draw(groups, folder / "figures")
    present(groups, metrics, None, as_json)
    for line in warnings(summaries):
        say(notes, line)
    took = length(sum(summary.took_s for summary in summaries))
    drawn = ", figures/" if groups and figures else ""
    say(notes, f"\n{folder}: summary.json{drawn}, and a folder for each simulation ({took} of one core)")
    if failed:
        of = len({*cases, *(recording for case in cases if (recording := case.recording()) is not None)})
        say(notes, f"ebb-sim: {failed} of {of} simulations failed")
    return 1 if failed else 0


def _of_another_run(cases: Sequence[Case], folder: Path) -> str:
    """Why these cases would overwrite results of another run in the folder; empty if they would not."""
    try:
        other = kept_results.differences(folder, cases)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"has results that cannot be read ({error})"
    return f"has the results of another run: {', '.join(other)} {'differs' if len(other) == 1 else 'differ'}" if other else ""


def groups_in(folders: Sequence[Path]) -> list[Group]:
    """Group the results in the folders, and report folders with missing simulations. Raises Unusable."""
    found: dict[Path, list[Summary]] = {}
    for folder in folders:
        try:
            complete, of = kept_results.load(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason: object = error
            if isinstance(error, OSError) and error.filename is not None:
                here = Path(error.filename) == folder / kept_results.MANIFEST
                reason = (
                    f"there is no {kept_results.MANIFEST} in it"
                    if here
                    else f"{error.filename} cannot be read: {error.strerror}"
                )
            raise Unusable(f"{folder} holds no results of `ebb-sim run`: {reason}") from None
        found[folder] = complete
        if 0 < len(complete) < of:
            missing = f"{of - len(complete)} of {of} simulations are missing; the same run makes them"
            say(Console(stderr=True), f"{folder}: {missing}")
    if not any(found.values()):
        raise Unusable(f"no simulation of {', '.join(map(str, folders))} is complete")
    return group_summaries(found)


def present(groups: Sequence[Group], metrics: Sequence[str], against: Group | None, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(as_data(groups, against), indent=1) + "\n")
        return
    console = Console(highlight=False)
    if not groups:
        return
    show(console, groups, metrics, against)
    console.print(f"\n{_samples(groups, against)}", style="dim", soft_wrap=True)
    if len({group.unlike for group in groups}) > 1:
        console.print("these are of different jobs or clusters", style="dim", soft_wrap=True)


def _samples(groups: Sequence[Group], against: Group | None) -> str:
    """The number of seeds behind the means; in comparisons, of the seeds that both groups have."""
    if against is None:
        counts, which = {len(group.numbers) for group in groups}, "seeds"
    else:
        others = [group for group in groups if group is not against]
        counts, which = {len(group.numbers.keys() & against.numbers.keys()) for group in others}, "seeds that both have"
    least, most = min(counts, default=0), max(counts, default=0)
    if most == 0:
        return "no seed that both have: nothing can be compared"
    if most == 1:
        return f"one {which.replace('seeds', 'seed')}: nothing says how far chance goes"
    return f"means over {least if least == most else f'{least} to {most}'} {which} ± their 95 % interval"


def as_data(groups: Sequence[Group], against: Group | None = None) -> dict[str, Any]:
    """The summary as JSON: for each policy every metric's mean over seeds and half of its 95 % interval; null if not all seeds
    have the metric, or it cannot be compared."""
    policies = []
    for group in groups:
        names = dict.fromkeys(name for numbers in group.numbers.values() for name in numbers)
        estimates = {name: group.estimate(name) if against is None else group.change(name, against) for name in names}
        told = {name: None if e is None else {"mean": e.mean, "interval": e.half} for name, e in estimates.items()}
        policies.append({"label": group.label, "seeds": list(group.numbers), "metrics": told})
    return {"policies": policies} if against is None else {"against": against.label, "policies": policies}


def warnings(summaries: Sequence[Summary]) -> list[str]:
    """Warnings about the metrics: jobs that are not included, and work that was lost."""
    lines = []
    for summary in summaries:
        if left := round(summary.numbers.get("unfinished", 0)):
            lines.append(
                f"{sweep.name_of(summary.case)}: {left} of {summary.numbers['jobs']:.0f} jobs never ended: "
                "nothing fits them, their nodes never came back, or a gang takes longer to start than its gang_start"
            )
        if (lost := summary.numbers.get("lost.share", 0.0)) > MOST_LOST:
            lines.append(
                f"{sweep.name_of(summary.case)}: {lost:.0%} of the work was lost: it came after the last checkpoint of "
                "runs that were killed. Jobs save within their grace period (grace_s of the workload), or by themselves "
                "(checkpoint_every of the delays)"
            )
    skipped = {(summary.case.seed, told): count for summary in summaries for told, count in summary.skipped.items()}
    for (seed, told), count in skipped.items():
        lines.append(f"seed {seed}: {count:,} of the workload's jobs skipped: {told}")
    return lines


def say(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)
