"""Tables 3 and 4 and figure 14 of the Gandiva paper: how soon a search finds its configuration, if its jobs wait for each
other, and if they take turns.

Numbers that the paper does not print are fitted: 1,000 mini-batches take as long as the paper's Gandiva takes for each further
batch of configurations; the share of promising configurations follows from what each further one costs the baseline; the time
until the right one is known, from what is left. Table 4 gives that time directly for 70 %.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from reproduction.gandiva.plan import BASELINE, GANDIVA, TITLES, servers
from reproduction.gandiva.published import ACCURACIES, SEARCHES, Found
from reproduction.studies import Simulated, Table, estimate_text, group, number
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.estimates import Group
from scheduler_service.sim.experiments.figures import lines, sheet
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.site import Policy
from scheduler_service.sim.workloads import GandivaSearch
from scheduler_service.sim.workloads.gandiva_search import EVALUATIONS

FOUND, EXPLORED = "search.found_min", "search.explored"
OWN = (("packing", 0.0), ("growth", 0.0))
"""Section 6.2 has time slicing and migration only."""
LIVE = 2
"""Jobs per GPU that are not suspended; more only if more are new."""


class Size(NamedTuple):
    """A row of table 3, with the fitted numbers."""

    gpus: int
    more: int
    """How many jobs are submitted each time, and how many have GPUs to themselves."""
    evaluation_min: float


SIZES = (Size(4, 2, 1.9), Size(16, 8, 2.6))
LARGE = Size(16, 8, 45.0)
"""The cluster of table 4."""
OF_LARGE = {"jobs": 100, "promising": 0.72}
WHOLE_MIN = EVALUATIONS * LARGE.evaluation_min
KNOWN_AFTER_MIN = {"70 %": 134.1, "80 %": 217.0, "90 %": 446.0}
"""Minutes of training until table 4's configuration is known to be right; the first is printed, the others are fitted."""

Searches = Mapping[tuple[str, str], Mapping[str, Group]]
"""Results by the table's row and column, and by policy."""


def cases(seeds: Iterable[int], quick: bool) -> dict[tuple[str, str], dict[str, list[Case]]]:
    """Cases by the row and the column of the table, and by policy."""
    found: dict[tuple[str, str], dict[str, list[Case]]] = {}
    every = list(seeds)
    for size in SIZES:
        for printed in SEARCHES[size.gpus][: 1 if quick else None]:
            workload = _workload(size, position=printed.position)
            found[f"{size.gpus} GPUs", str(printed.position)] = _cases_of_both(size, workload, every)
    for accuracy, printed in () if quick else ACCURACIES.items():
        after = KNOWN_AFTER_MIN[accuracy] / WHOLE_MIN
        workload = _workload(LARGE, position=printed.position, found_after=after, **OF_LARGE)
        found["accuracy", accuracy] = _cases_of_both(LARGE, workload, every)
    return found


def _workload(size: Size, **more: float) -> GandivaSearch:
    return GandivaSearch(gpus=size.gpus, more=size.more, evaluation_min=size.evaluation_min, **more)  # type: ignore[arg-type]


def _cases_of_both(size: Size, workload: GandivaSearch, seeds: Sequence[int]) -> dict[str, list[Case]]:
    best = {"exclusive": size.more, "live": LIVE * size.gpus}
    cluster, sharing = (servers(size.gpus // 4, "p40", 24),), Sharing(interference=False)
    ways = {
        BASELINE: (workload, Policy(name=BASELINE, label=TITLES[BASELINE])),
        GANDIVA: (workload.model_copy(update=best), Policy(name=GANDIVA, label=TITLES[GANDIVA], settings=OWN)),
    }
    return {
        name: [Case(cluster=cluster, workload=jobs, policy=policy, sharing=sharing, seed=seed) for seed in seeds]
        for name, (jobs, policy) in ways.items()
    }


def groups(found: Simulated, wanted: Mapping[tuple[str, str], Mapping[str, Sequence[Case]]]) -> Searches:
    return {place: {name: group(found, some) for name, some in of.items()} for place, of in wanted.items()}


# ---- tables ------------------------------------------------------------------------------------------------------------


def tables(searches: Searches) -> list[Table]:
    of_sizes = [(row, column) for row, column in searches if row != "accuracy"]
    made = [_table("table-3", "Table 3: minutes until the right configuration is found, by its position", searches, of_sizes)]
    accuracies = [(row, column) for row, column in searches if row == "accuracy"]
    if accuracies:
        made.append(_table("table-4", "Table 4: minutes until a model of this accuracy is found", searches, accuracies))
    made.append(_explored_table(searches, of_sizes))
    return made


def _table(name: str, title: str, searches: Searches, places: Sequence[tuple[str, str]]) -> Table:
    columns = ("paper, FIFO", "FIFO", "paper, Gandiva", "Gandiva", "paper, speedup", "speedup")
    rows = []
    for place in places:
        printed, of = _printed_result(place), searches[place]
        base, ours = (of[policy].estimate(FOUND) for policy in (BASELINE, GANDIVA))
        faster = "-" if base is None or ours is None else f"{base.mean / ours.mean:.2f}"
        both = (number(printed.fifo), estimate_text(base), number(printed.gandiva), estimate_text(ours))
        rows.append((", ".join(place).replace("accuracy, ", ""), (*both, f"{printed.fifo / printed.gandiva:.2f}", faster)))
    return Table(name, title, columns, tuple(rows))


def _printed_result(place: tuple[str, str]) -> Found:
    row, column = place
    if row == "accuracy":
        return ACCURACIES[column]
    return next(one for one in SEARCHES[int(row.split()[0])] if str(one.position) == column)


def _explored_table(searches: Searches, places: Sequence[tuple[str, str]]) -> Table:
    """Configurations judged per hour, until the search for the last position has ended."""
    last = {row: (row, column) for row, column in places}
    rows = []
    for row, place in last.items():
        rates = {}
        for policy, of in searches[place].items():
            explored, took = of.estimate(EXPLORED), of.estimate(FOUND)
            rates[policy] = None if explored is None or took is None else explored.mean * 60 / took.mean
        base, ours = rates[BASELINE], rates[GANDIVA]
        times = "-" if base is None or ours is None else f"{ours / base:.1f}"
        rows.append((row, ("almost 10", number(base), number(ours), times)))
    columns = ("paper, Gandiva / FIFO", "FIFO, an hour", "Gandiva, an hour", "Gandiva / FIFO")
    return Table("figure-14", "Figure 14: explored configurations", columns, tuple(rows))


# ---- the figure ----------------------------------------------------------------------------------------------------------


def draw_explored(searches: Searches) -> Figure:
    """Draw figure 14: configurations that were judged at least once, over time, in the searches for the last position."""
    last = {row: of for (row, _), of in searches.items() if row != "accuracy"}
    figure, all_axes = sheet(1, len(last))
    for (row, of), axes in zip(last.items(), all_axes, strict=True):
        drawn = []
        for one in of.values():
            seed = min(one.curves)
            counts, until = one.curves[seed][EXPLORED], one.numbers[seed][FOUND]
            drawn.append((one.label, [until * (i + 1) / len(counts) for i in range(len(counts))], counts))
        lines(axes, drawn)
        axes.set(title=row, xlabel="minutes", ylabel="explored configurations")
        axes.legend(fontsize="small")
    return figure
