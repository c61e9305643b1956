"""Tables 4 and 5 and figures 11 and 12 of HiveD's evaluation: cell exchange (section 5.4)."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from reproduction.hived import figures as hived_figures
from reproduction.hived.exchange import Gained, Windows, balances, gain_of_tenant
from reproduction.hived.measures import NODE_GPUS, gpus_in_use
from reproduction.hived.plan import BALANCES, ENDS, FIGURES, Setting, Study
from reproduction.hived.published import BALANCED, DEFAULT, Balanced, Default
from reproduction.hived.simulated import Seen, days
from reproduction.studies import Table, number
from scheduler_service.sim.experiments.figures import save

EXCHANGE = ("table-4", "table-5", "figure-11", "figure-12")
"""The parts about exchange."""
PRINTED: dict[str, Mapping[str, Default | Balanced]] = {"table-4": DEFAULT, "table-5": BALANCED}
TITLES = {
    "table-4": "Table 4: guaranteed cells gained by exchange, cells assigned by default",
    "table-5": "Table 5: the same, cells assigned by what tenants ask for",
}

_Known = Mapping[Setting, Seen]


def gains(part: str, known: _Known) -> dict[str, Gained]:
    """The gains of each tenant."""
    without, with_it = FIGURES[part]
    before, after = known[without], known[with_it]
    begin, end = (int(edge) for edge in before.edges(1))
    alone, exchanged = before.use(), after.use()
    owned = _owned_gpus(without)
    return {name: gain_of_tenant(name, gpus, alone, exchanged, _windows(after), begin, end) for name, gpus in owned.items()}


def exchange_tables(parts: Iterable[str], known: _Known, study: Study) -> list[Table]:
    return [_table(part, known, study) for part in parts if part in PRINTED]


def exchange_figures(parts: Iterable[str], known: _Known, folder: Path) -> dict[str, str]:
    """Draw the figures; return their titles by name."""
    titles: dict[str, str] = {}
    if "figure-11" in parts:
        (setting,) = FIGURES["figure-11"]
        it = known[setting]
        edges = it.edges()
        of = balances(it.use(), _owned_gpus(setting), it.nodes * NODE_GPUS, _windows(it), edges)
        curves = {
            name: {
                "gave in exchange": of[name].given.tolist(),
                "took in exchange": of[name].taken.tolist(),
                "lent to low-priority jobs": of[name].lent.tolist(),
                "its low-priority jobs": of[name].borrowed.tolist(),
            }
            for name in BALANCES
        }
        save(hived_figures.draw_exchanged(days(edges), curves), folder, "hived-figure-11")
        titles["hived-figure-11"] = "GPU-hours that three tenants gave to others, and had of them"
    if "figure-12" in parts:
        without, _ = FIGURES["figure-12"]
        it, found = known[without], gains("figure-12", known)
        edges, owned = it.edges(), _owned_gpus(without)
        ranked = sorted(found, key=lambda name: -found[name].gain)
        use = it.use()
        shown = {
            name: (gpus_in_use(use.uses_of(name)[1]).means(edges) / owned[name]).tolist()
            for name in (*ranked[:ENDS], *ranked[-ENDS:])
        }
        save(hived_figures.usage(days(edges), shown), folder, "hived-figure-12")
        titles["hived-figure-12"] = "GPUs in use by the tenants that gain most, and least, against what they own"
    return titles


def _table(part: str, known: _Known, study: Study) -> Table:
    printed, found = PRINTED[part], gains(part, known)
    rows = tuple((name, _row(printed[name], found[name])) for name in printed)
    columns: tuple[str, ...] = ("effective: paper", "here", "increased: paper", "here", "gain: paper", "here")
    if part == "table-5":
        columns += ("RF: paper", "here")
    traded = _windows(known[FIGURES[part][1]])
    taken, had = (sum(getattr(one, name) for one in found.values()) for name in ("taken_h", "had_h"))
    jobs, nodes = study.workload(), int(traded.gpus.sum()) // NODE_GPUS
    note = (
        f"{jobs.jobs:,} jobs in {jobs.span_days:.3g} days, seed {study.seed}. In per cent of what a tenant owns, but for RF, "
        f"while jobs come. {len(traded.giver):,} exchanges of {nodes:,} nodes in all; while jobs come {taken:,.0f} GPU-hours, "
        f"of which {had:,.0f} were used."
    )
    return Table(f"hived-{part}", TITLES[part], (*columns, "all guaranteed", "GPU-h given", "GPU-h taken"), rows, note)


def _row(printed: Default | Balanced, here: Gained) -> tuple[str, ...]:
    cells: list[str] = []
    ours = (here.effective, here.increased, here.gain)
    for paper, value in zip((printed.effective, printed.increased, printed.gain), ours, strict=True):
        cells += (number(paper), number(100 * value))
    if isinstance(printed, Balanced):
        cells += (number(printed.fluctuation), number(here.fluctuation))
    return (*cells, number(100 * here.regular), f"{here.given_h:,.0f}", f"{here.taken_h:,.0f}")


def _owned_gpus(setting: Setting) -> dict[str, int]:
    """GPUs of each tenant."""
    return {name: nodes * NODE_GPUS for name, nodes in setting.quotas().items()}


def _windows(it: Seen) -> Windows:
    assert it.traded is not None
    return it.traded
