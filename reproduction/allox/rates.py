"""AlloX's evaluation at other arrival rates, with jobs that were not used to choose any policy or setting."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.figure import Figure

from reproduction.allox.measures import Measures
from reproduction.allox.plan import Point, Study, title
from reproduction.allox.tables import Measured, interval_text, mean
from reproduction.studies import Table
from scheduler_service.sim.experiments.estimates import estimate
from scheduler_service.sim.experiments.figures import COLOURS, sheet

COLUMNS = (
    *("mean completion, s", "against AlloX", "against SJF+"),
    *("disparity of progress", "against AlloX", "worst user, s", "against AlloX"),
)


def table(measured: Measured, study: Study) -> Table:
    """A row for each rate and policy, and a row for each policy at all rates."""
    rates = by_rate(measured)
    rows = [(f"{rate:g}: {title(of)}", _cells(of, [at])) for rate, at in rates.items() for of in at]
    rows += [(f"all: {title(of)}", _cells(of, list(rates.values()))) for of in next(iter(rates.values()))]
    note = (
        f"{len(study.rate_seeds)} sets of jobs in {study.rates_s:,.0f} s. ± half a 95 % interval; of comparisons, set by set. "
        "All: of each set the mean over the rates."
    )
    return Table("allox-rates", "Rates of arrivals, as parts of the paper's", COLUMNS, tuple(rows), note)


def by_rate(measured: Measured) -> Mapping[float, Measured]:
    """The points without their rates, grouped by rate."""
    found: dict[float, dict[Point, Sequence[Measures]]] = {}
    for point, of in measured.items():
        found.setdefault(point.rate, {})[point._replace(rate=1)] = of
    return found


def _cells(of: Point, rates: Sequence[Measured]) -> tuple[str, ...]:
    allox, sjf = Point("allox"), Point("sjf-plus")

    def mean_text(name: str) -> str:
        return interval_text(estimate([fmean(values) for values in _by_set([_values_of(at[of], name) for at in rates])]))

    def text_against(other: Point, name: str) -> str:
        if of == other:
            return ""
        parts = [
            [a / b - 1 for a, b in zip(_values_of(at[of], name), _values_of(at[other], name), strict=True)] for at in rates
        ]
        more = estimate([100 * fmean(values) for values in _by_set(parts)])
        return f"{more.mean:+.1f}" + ("" if more.half is None else f" ± {more.half:.1f}") + " %"

    return (
        mean_text("completion_s"),
        text_against(allox, "completion_s"),
        text_against(sjf, "completion_s"),
        mean_text("disparity"),
        text_against(allox, "disparity"),
        mean_text("worst_user_s"),
        text_against(allox, "worst_user_s"),
    )


def _values_of(measures: Sequence[Measures], name: str) -> list[float]:
    return [getattr(one, name) for one in measures]


def _by_set(at_rates: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Group the values of all rates by set of jobs. The jobs of a set are the same at all rates, so a set is one sample."""
    return list(zip(*at_rates, strict=True))


def figure(measured: Measured) -> Figure:
    """Each policy's mean completion time against its disparity: a dot for each set of jobs, a cross for the means and their
    intervals, and a panel for each rate."""
    at = by_rate(measured)
    drawn, panels = sheet(1, len(at))
    for axes, (rate, found) in zip(panels, at.items(), strict=True):
        for (point, of), colour in zip(found.items(), COLOURS, strict=False):
            x, y = mean(of, "disparity"), mean(of, "completion_s")
            axes.errorbar(x.mean, y.mean, y.half, x.half, color=colour, capsize=3, label=title(point))
            axes.plot([one.disparity for one in of], [one.completion_s for one in of], ".", color=colour, alpha=0.5)
        axes.set(title=f"arrivals x {rate:g}", xlabel="disparity of progress", ylabel="mean completion time, s")
        axes.grid(alpha=0.3)
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", fontsize="x-small", ncols=3)
    return drawn
