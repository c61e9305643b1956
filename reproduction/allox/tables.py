"""AlloX's evaluation as tables, with the paper's and its authors' numbers."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from reproduction.allox.devices import CLUSTERS
from reproduction.allox.measures import Measures
from reproduction.allox.plan import (
    ALPHA,
    ERRORS,
    OF_ALL_USERS,
    OVERHEADS,
    SRPT,
    TITLES,
    Part,
    Point,
    Study,
    title,
)
from reproduction.allox.published import ALLOX_WHOLE_S, IF_ALL_USERS, PRINTED, Printed
from reproduction.studies import Table, number
from scheduler_service.sim.experiments.estimates import Estimate, estimate
from scheduler_service.sim.workloads.gavel import DEVICES

Measured = Mapping[Point, Sequence[Measures]]
"""The measures of a part, one for each seed."""
ALLOX = Point("allox")


def mean(of: Sequence[Measures], name: str) -> Estimate:
    return estimate([getattr(one, name) for one in of])


def mean_of(of: Sequence[Measures], configuration: int) -> float:
    """The share of the slots of a configuration that is in use."""
    return fmean(one.utilisation[configuration] for one in of)


def time_saved_share(of: Sequence[Measures], other: Sequence[Measures]) -> Estimate:
    """The share by which the first completion times are shorter, seed by seed."""
    return estimate([1 - mine.completion_s / theirs.completion_s for mine, theirs in zip(of, other, strict=True)])


def interval_text(of: Estimate, scale: float = 1) -> str:
    """Format the mean and half of its interval."""
    return number(of.mean * scale) + ("" if of.half is None else f" ± {number(of.half * scale)}")


def percent(of: Estimate | None) -> str:
    return "-" if of is None else f"{100 * of.mean:+.0f} %"


def by_policy(measured: Measured, told: Callable[[Printed], float | None], note: str, name: str, heading: str) -> Table:
    """A row for each policy: its times, how much less AlloX takes, and the same from the paper or its authors' outputs."""
    columns = (
        *("mean completion, s", "AlloX against it", "theirs, s", "AlloX against it, theirs"),
        *("longest 1 %, s", "disparity of progress", "worst user, s", "GPUs in use", "CPUs in use"),
    )
    rows = []
    mine, theirs = measured[ALLOX], told(PRINTED["allox"])
    for point, of in measured.items():
        printed = told(PRINTED.get(point.policy, Printed())) if point.alpha == ALPHA else None
        ratio = None if printed is None or theirs is None else theirs / printed - 1
        cells = (
            interval_text(mean(of, "completion_s")),
            "" if point == ALLOX else percent(_negate(time_saved_share(mine, of))),
            number(printed),
            "-" if ratio is None or point == ALLOX else f"{100 * ratio:+.0f} %",
            interval_text(mean(of, "longest_s")),
            interval_text(mean(of, "disparity")),
            interval_text(mean(of, "worst_user_s")),
            *(f"{100 * mean_of(of, at):.0f} %" for at in (0, 1)),
        )
        rows.append((title(point), cells))
    return Table(name, heading, columns, tuple(rows), note)


def _negate(of: Estimate) -> Estimate:
    return of._replace(mean=-of.mean)


def experiment(measured: Measured, study: Study) -> Table:
    columns = (
        "mean completion, s",
        "AlloX against it",
        "the paper's, s",
        "AlloX against it, the paper's",
        "GPUs in use",
        "CPUs in use",
    )
    mine, theirs = measured[ALLOX], PRINTED["allox"].experiment_s
    assert theirs is not None
    rows = []
    for point, of in measured.items():
        printed = PRINTED.get(point.policy, Printed()).experiment_s
        cells = (
            interval_text(mean(of, "completion_s")),
            "" if point == ALLOX else percent(_negate(time_saved_share(mine, of))),
            number(printed),
            "" if point == ALLOX else "-" if printed is None else f"{100 * (theirs / printed - 1):+.0f} %",
            *(f"{100 * mean_of(of, at):.0f} %" for at in (0, 1)),
        )
        rows.append((TITLES[point.policy], cells))
    note = f"{len(study.experiments)} sets of 40 jobs, ± half a 95 % interval. In use: until the last job has completed."
    return Table(
        "allox-experiment",
        "The experiment: 4 users, 10 jobs each, on 4 GPUs and 8 CPUs (figures 11, 12)",
        columns,
        tuple(rows),
        note,
    )


def simulation(measured: Measured, jobs: int, study: Study, default: Study) -> Table:
    whole = study.until_s == default.until_s and study.jobs is None
    told = _printed_whole_s if whole else _slice
    source = (
        "the authors' published outputs, of all their jobs"
        if whole
        else "the authors' published outputs, of their first 3,000 s"
    )
    assumed = " Theirs of AlloX is the mean of what follows from the text, 136 to 148 s." if whole else ""
    note = f"{jobs:,} jobs in {study.until_s:,.0f} s, seeds {', '.join(map(str, study.seeds))}. Theirs: {source}.{assumed}"
    return by_policy(measured, told, note, "allox-simulation", "The simulation: 10 users on 20 GPUs and 20 CPUs (figure 13)")


def _printed_whole_s(printed: Printed) -> float | None:
    return sum(ALLOX_WHOLE_S) / 2 if printed is PRINTED["allox"] else printed.whole_s


def _slice(printed: Printed) -> float | None:
    return printed.slice_s


def claims(measured: Measured) -> Table:
    """The paper's statements about AlloX against other policies, and the same results here."""
    rows = [
        (
            f"less than {TITLES[name]}",
            (percent(time_saved_share(measured[ALLOX], measured[Point(name)])), percent(Estimate(printed.less, None))),
        )
        for name, printed in PRINTED.items()
        if printed.less is not None and name != SRPT
    ]
    bound = measured[Point(SRPT)]
    rows.append(("more than SRPT", (percent(_negate(time_saved_share(measured[ALLOX], bound))), "+30 %")))
    of_all = percent(_negate(time_saved_share(measured[OF_ALL_USERS], bound)))
    rows.append(("more than SRPT with alpha = 1", (of_all, percent(Estimate(IF_ALL_USERS, None)))))
    longest = [1 - a.longest_s / b.longest_s for a, b in zip(measured[ALLOX], bound, strict=True)]
    rows.append(("less than SRPT for the longest 1 %", (percent(estimate(longest)), "more than 0")))
    return Table("allox-claims", "AlloX's mean completion time against others", ("here", "the paper"), tuple(rows))


DEVICE_TITLES: Mapping[Part, str] = {
    "devices": "Philly's jobs on three models of GPU",
    "busy-devices": "Philly's jobs on half as many GPUs",
}


def devices(measured: Measured, part: Part, jobs: int) -> Table:
    columns = (
        *("mean completion, s", "AlloX against it", "median, s", "longest 1 %, s", "disparity of progress"),
        *(f"{name.upper()} in use" for name in DEVICES),
    )
    rows = [
        (
            title(point),
            (
                interval_text(mean(of, "completion_s")),
                "" if point == ALLOX else percent(_negate(time_saved_share(measured[ALLOX], of))),
                interval_text(mean(of, "median_s")),
                interval_text(mean(of, "longest_s")),
                interval_text(mean(of, "disparity")),
                *(f"{100 * use:.0f} %" for use in of[0].utilisation),
            ),
        )
        for point, of in measured.items()
    ]
    nodes = ", ".join(f"{8 * count} {name.upper()}s" for name, count in CLUSTERS[part].nodes.items())
    note = f"{jobs:,} jobs on {nodes}. In use: while jobs come."
    return Table(f"allox-{part}", DEVICE_TITLES[part], columns, tuple(rows), note)


def starvation(measured: Measured, seeds: int) -> Table:
    rows = [
        (
            TITLES[point.policy],
            (
                interval_text(mean(of, "completion_s")),
                interval_text(mean(of, "long_user_s")),
                interval_text(mean(of, "long_user_done"), 100),
                interval_text(mean(of, "disparity")),
            ),
        )
        for point, of in measured.items()
    ]
    columns = ("mean completion, s", "of the user with long jobs, s", "of whose jobs are done, %", "disparity of progress")
    note = f"{seeds} sets of jobs. Done: when the last job of all users comes."
    return Table("allox-starvation", "A user whose jobs take five times as long (figure 15)", columns, tuple(rows), note)


def by_alpha(measured: Measured, seeds: int) -> Table:
    srpt = measured[Point(SRPT)]
    rows = [
        (
            f"AlloX, alpha = {point.alpha:g}" if point.policy == "allox" else TITLES[point.policy],
            (
                interval_text(mean(of, "completion_s")),
                "" if point.policy == SRPT else percent(_negate(time_saved_share(of, srpt))),
                interval_text(mean(of, "disparity")),
                interval_text(mean(of, "worst_user_s")),
            ),
        )
        for point, of in measured.items()
    ]
    columns = ("mean completion, s", "against SRPT", "disparity of progress", "worst user, s")
    note = f"{seeds} sets of jobs. The paper has {100 * IF_ALL_USERS:.0f} % more than SRPT at alpha = 1."
    return Table("allox-alpha", "The part of the users that is considered (figure 16)", columns, tuple(rows), note)


def sensitivity_table(measured: Measured, part: Part, seeds: int) -> Table:
    """A row for each policy and a column for each value."""
    values, title = (
        (ERRORS, "Errors of the estimates (figure 17): mean completion time, s")
        if part == "errors"
        else (OVERHEADS, "What profiling takes (figure 18): mean completion time, s")
    )
    names = list(dict.fromkeys(point.policy for point in measured))
    rows = tuple(
        (TITLES[name], tuple(interval_text(mean(measured[point_with(part, name, value)], "completion_s")) for value in values))
        for name in names
    )
    return Table(f"allox-{part}", title, tuple(f"{100 * value:g} %" for value in values), rows, f"{seeds} sets of jobs.")


def point_with(part: Part, name: str, value: float) -> Point:
    return Point(name, error=value) if part == "errors" else Point(name, profiling=value)
