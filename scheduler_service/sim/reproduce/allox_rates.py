"""AlloX's evaluation at other rates of arrivals, with jobs by which no policy and no setting was chosen."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from scheduler_service.sim.estimates import Estimate, estimate
from scheduler_service.sim.figures import COLOURS, sheet
from scheduler_service.sim.reproduce.allox_measures import Measures
from scheduler_service.sim.reproduce.allox_plan import Point, Study, title
from scheduler_service.sim.reproduce.allox_tables import Measured, mean, said
from scheduler_service.sim.reproduce.studies import Table, number

COLUMNS = (
    *("mean completion, s", "against AlloX", "against SJF+"),
    *("disparity of progress", "against AlloX", "worst user, s", "against AlloX"),
)


def table(measured: Measured, study: Study) -> Table:
    """A row for each rate and policy, and one for each policy at all rates together."""
    rates = by_rate(measured)
    rows = [(f"{rate:g}: {title(of)}", _cells(of, at)) for rate, at in rates.items() for of in at]
    policies = next(iter(rates.values()))
    everywhere = {of: [one for at in rates.values() for one in at[of]] for of in policies}
    rows += [(f"all: {title(of)}", _cells(of, everywhere)) for of in everywhere]
    seeds = f"{len(study.rate_seeds)} sets of jobs in {study.rates_s:,.0f} s at each rate"
    note = f"{seeds}. ± half a 95 % interval; of comparisons, set by set."
    return Table("allox-rates", "Rates of arrivals, as parts of the paper's", COLUMNS, tuple(rows), note)


def by_rate(measured: Measured) -> Mapping[float, Measured]:
    """By rate: the points without their rates."""
    found: dict[float, dict[Point, Sequence[Measures]]] = {}
    for point, of in measured.items():
        found.setdefault(point.rate, {})[point._replace(rate=1)] = of
    return found


def _cells(of: Point, measured: Measured) -> tuple[str, ...]:
    mine, allox, sjf = measured[of], measured[Point("allox")], measured[Point("sjf-plus")]
    return (
        said(mean(mine, "completion_s")),
        "" if mine is allox else _more(mine, allox, lambda one: one.completion_s),
        "" if mine is sjf else _more(mine, sjf, lambda one: one.completion_s),
        said(mean(mine, "disparity")),
        "" if mine is allox else _more(mine, allox, lambda one: one.disparity),
        said(mean(mine, "worst_user_s")),
        "" if mine is allox else _more(mine, allox, lambda one: one.worst_user_s),
    )


def _more(mine: Sequence[Measures], others: Sequence[Measures], of: Callable[[Measures], float]) -> str:
    """How much more the first ones have, as a part of what the others have, set by set."""
    parts: Estimate = estimate([of(one) / of(other) - 1 for one, other in zip(mine, others, strict=True)])
    half = "" if parts.half is None else f" ± {number(100 * parts.half)}"
    return f"{100 * parts.mean:+.1f}{half} %"


def figure(measured: Measured) -> Figure:
    """Each policy's mean completion time by its disparity; a panel for each rate."""
    at = by_rate(measured)
    drawn, panels = sheet(1, len(at))
    for axes, (rate, found) in zip(panels, at.items(), strict=True):
        for (point, of), colour in zip(found.items(), COLOURS, strict=False):
            x, y = mean(of, "disparity"), mean(of, "completion_s")
            axes.errorbar(x.mean, y.mean, y.half, x.half, "o", color=colour, capsize=3, label=title(point))
        axes.set(title=f"{rate:g} times the arrivals", xlabel="disparity of progress", ylabel="mean completion time, s")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize="x-small")
    return drawn
