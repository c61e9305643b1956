"""`ebb-sim reproduce hived`: HiveD's evaluation of sharing (sections 5.2 to 5.4) again (docs/reproduction.md)."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import copyfile

import click
import numpy as np
from rich.console import Console

from scheduler_service.sim.commands import say
from scheduler_service.sim.figures import save
from scheduler_service.sim.metrics import Floats
from scheduler_service.sim.reproduce import hived_figures, hived_measures
from scheduler_service.sim.reproduce.hived_cases import Study, cases, needed
from scheduler_service.sim.reproduce.hived_plan import FIGURES, SHOWN, Setting
from scheduler_service.sim.reproduce.hived_published import CLAIMS, LOADED_NODES
from scheduler_service.sim.reproduce.hived_seen import POINTS, Seen, days, see
from scheduler_service.sim.reproduce.hived_traded import EXCHANGE, exchange_figures, exchange_tables
from scheduler_service.sim.reproduce.laid_out import (
    BadDocument,
    Table,
    as_figure,
    as_markdown,
    joined,
    number,
    on_terminal,
    write_into,
)
from scheduler_service.sim.reproduce.studies import simulated
from scheduler_service.sim.workloads import hived

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SHARING = ("figure-7a", "figure-7b", "figure-8", "figure-9", "figure-10")
PARTS = (*SHARING, *EXCHANGE)
TOLERANCE_US = 60_000_000
"""A job counts as delayed from a minute on: a reclaimed run's grace period is not what the paper means."""
MINUTE_US = 60_000_000
TITLES = {"private": "private clusters", "quota": "shared by quota", "cells": "HiveD", "static": "HiveD, static binding"}


@click.command("hived")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this one; may be given several times.")
@click.option(
    "--share", metavar="PART", type=click.FloatRange(0.001, 1), default=1.0, show_default=True, help="Of the two months."
)
@click.option("--scale", type=click.FloatRange(0.01, 10), default=1.0, show_default=True, help="Of what all jobs ask for.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), default="results/hived", show_default=True)
@click.option("--on", metavar="WHERE", default="local", show_default=True, help="local, local[N], or tcp://HOST:PORT of Dask.")
@click.option("--fresh", is_flag=True, help="Simulate anew what is there already.")
@click.option(
    "--document", metavar="FILE", type=FILE, help="Fill in the tables of this Markdown file, and put figures beside it."
)
def command(
    parts: tuple[str, ...], share: float, scale: float, seed: int, output: Path, on: str, fresh: bool, document: Path | None
) -> None:
    """Figures 7 to 12 and tables 4 and 5 of the HiveD paper (OSDI 2020), beside what it says of them.

    Eleven tenants share 279 nodes, and 200: by quotas of GPUs, in virtual clusters, and not at all. When jobs come and how long
    they run is not in the paper, but fitted to what it prints (docs/workloads.md).

    \b
    Examples:
      ebb-sim reproduce hived --share 0.1
      ebb-sim reproduce hived --part figure-7b -o results/hived
    """
    study = Study(share, scale, seed)
    chosen = parts or PARTS
    settings = list(dict.fromkeys(setting for part in chosen for setting in needed(part)))
    wanted = {setting: cases(setting, study) for setting in settings}
    found = simulated((case for of in wanted.values() for case in of), output, on, fresh, keep="all")
    known = {setting: see(setting, of, found, output) for setting, of in wanted.items()}
    shared = {setting: known[setting] for part in chosen if part in SHARING for setting in needed(part)}
    tables = [_sharing(shared, study), _claims(shared)] if shared else []
    tables += exchange_tables(chosen, known, study)
    console, notes = Console(highlight=False), Console(stderr=True)
    for table in tables:
        on_terminal(console, table)
    (output / "tables.md").write_text(joined(tables), encoding="utf-8")
    drawn = _figures(chosen, known, output / "figures") | exchange_figures(chosen, known, output / "figures")
    if document is not None:
        beside = document.with_suffix("")
        try:
            figures = {name: as_figure(name, title, beside.name) for name, title in drawn.items()}
            write_into(document, {table.name: as_markdown(table) for table in tables} | figures)
            beside.mkdir(exist_ok=True)
            for name in drawn:
                copyfile(output / "figures" / f"{name}.svg", beside / f"{name}.svg")
        except (BadDocument, OSError) as error:
            say(notes, f"ebb-sim: {document}: {error}")
            sys.exit(2)
    say(notes, f"{output}: tables.md, figures/")


# ---- what came of it -----------------------------------------------------------------------------------------------------


def _anomalies(setting: Setting, seen: Mapping[Setting, Seen]) -> tuple[Floats, Floats]:
    """Of each job: how much longer it waits than in the private cluster, and how much of that although in quota."""
    shared, private = seen[setting], seen[Setting(setting.nodes, "private")]
    over = hived_measures.excess(shared.history, shared.delays, private.history, private.delays)
    gpus = {name: 8 * nodes for name, nodes in setting.quotas().items()}
    within = hived_measures.waited_in_quota(shared.history, shared.delays, shared.uses, gpus)
    return over, hived_measures.anomalies(over, within)


def _sharing(seen: Mapping[Setting, Seen], study: Study) -> Table:
    rows = []
    for setting, it in seen.items():
        edges = it.edges()
        shared = setting.scheme != "private"
        lengths = _anomalies(setting, seen)[1] if shared else np.zeros(len(it.history.submit))
        late = hived_measures.delayed(it.history, lengths, TOLERANCE_US)
        gone = hived_measures.preempted(it.history, it.runs, np.linspace(0.0, float(it.history.horizon), POINTS))
        rows.append(
            (
                _title(setting),
                (
                    number(100 * float(hived_measures.used(it.uses).means(edges).mean()) / (8 * it.nodes)),
                    number(100 * float(hived_measures.fragmentation(it.uses, it.nodes, edges).mean())),
                    f"{int(gone.sum()):,}",
                    *(f"{late[name][0]:,} ({100 * late[name][1]:.2g} %)" if shared else "-" for name in ("prod-a", "res-f")),
                    f"{sum(count for count, _ in late.values()):,}" if shared else "-",
                    number(float(lengths.max()) / MINUTE_US) if shared else "-",
                ),
            )
        )
    columns = (
        "in regular use, %",
        "fragmentation, %",
        "GPUs preempted",
        "late: prod-a",
        "late: res-f",
        "late: all",
        "the latest, min",
    )
    jobs = study.workload().jobs
    note = (
        f"{jobs:,} jobs, seed {study.seed}. Late: multi-GPU jobs that waited more than a minute longer than in their tenant's "
        "private cluster, although its quota had room."
    )
    return Table("hived-sharing", "How eleven tenants share a cluster", columns, tuple(rows), note)


def _title(setting: Setting) -> str:
    cells = ", cells of every level" if setting.assignment == "levels" else ""
    return f"{setting.nodes} nodes, {TITLES[setting.scheme]}{cells}"


def _claims(seen: Mapping[Setting, Seen]) -> Table:
    """The paper's sentences, and the same numbers here, of those settings that were simulated."""
    ours: dict[str, float] = {}
    for nodes, suffix in ((hived.NODES, ""), (LOADED_NODES, "-loaded")):
        quota, cells = Setting(nodes, "quota"), Setting(nodes)
        if quota in seen:
            over, lengths = _anomalies(quota, seen)
            it = seen[quota]
            codes, names = it.history.vcs
            of = codes == names.index("prod-a")
            curve = hived_measures.moving_mean(it.history.submit[of], np.nan_to_num(over[of]), it.edges())
            ours[f"excess{suffix}"] = float(np.nanmax(curve)) / MINUTE_US
            late = hived_measures.delayed(it.history, lengths, TOLERANCE_US)
            if suffix:
                for name in ("res-f", "prod-a"):
                    ours[f"{name}-jobs"], ours[f"{name}-share"] = late[name][0], 100 * late[name][1]
            else:
                frag = hived_measures.fragmentation(it.uses, it.nodes, it.edges())
                ours["fragmentation"] = 100 * float(frag.max())
        if cells in seen:
            late = hived_measures.delayed(seen[cells].history, _anomalies(cells, seen)[1], TOLERANCE_US)
            ours["hived-jobs"] = ours.get("hived-jobs", 0) + sum(count for count, _ in late.values())
    dynamic, static, multi = Setting(), Setting(scheme="static"), Setting(assignment="levels")
    if dynamic in seen and static in seen:
        taken = [_preempted(seen[setting]) for setting in (dynamic, static)]
        ours["preempted"] = 100 * (1 - taken[0] / taken[1]) if taken[1] else 0.0
    if dynamic in seen and multi in seen:
        edges = seen[dynamic].edges()
        gap = [hived_measures.fragmentation(seen[setting].uses, hived.NODES, edges) for setting in (dynamic, multi)]
        ours["multi-level"] = 100 * float(np.median(gap[0] - gap[1]))
        ours["multi-level-most"] = 100 * float((gap[0] - gap[1]).max())
    rows = tuple(
        (
            f"figure {claim.figure}, {name}: {claim.said}",
            (f"{number(claim.number)} {claim.unit}", f"{number(ours[name])} {claim.unit}"),
        )
        for name, claim in CLAIMS.items()
        if name in ours
    )
    return Table("hived-claims", "What the paper says, and what comes out here", ("paper", "here"), rows)


def _preempted(it: Seen) -> int:
    return int(hived_measures.preempted(it.history, it.runs, np.array([0.0, float(it.history.horizon) + 1])).sum())


# ---- figures -------------------------------------------------------------------------------------------------------------


def _figures(parts: Iterable[str], seen: Mapping[Setting, Seen], folder: Path) -> dict[str, str]:
    """Draws them; returns their titles by their names."""
    titles: dict[str, str] = {}
    for part in parts:
        name = f"hived-{part}"
        if part in ("figure-7a", "figure-7b"):
            nodes = FIGURES[part][0].nodes
            save(hived_figures.sharing(_shared(nodes, seen)), folder, name)
            titles[name] = f"Queueing delays, use and fragmentation on {nodes} nodes"
        elif part == "figure-9":
            edges = seen[Setting()].edges()
            curves = {
                ("multi-level" if setting.assignment == "levels" else "single-level"): hived_measures.fragmentation(
                    seen[setting].uses, hived.NODES, edges
                ).tolist()
                for setting in FIGURES[part]
            }
            save(hived_figures.fragmentation(days(edges), curves), folder, name)
            titles[name] = "Fragmentation with cells of every level, and of nodes alone"
        elif part == "figure-10":
            edges = seen[Setting()].edges()
            shares = {f"idle for {hours} hours": _idle(seen, FIGURES[part], edges, hours) for hours in (10, 100)}
            save(hived_figures.idle(days(edges), shares), folder, name)
            titles[name] = "Nodes that regular jobs leave idle for long"
    return titles


def _shared(nodes: int, seen: Mapping[Setting, Seen]) -> hived_figures.Shared:
    of = {TITLES[scheme]: seen[Setting(nodes, scheme)] for scheme in ("private", "quota", "cells")}
    edges = of[TITLES["cells"]].edges()
    delays = {tenant: {title: _delay(it, tenant, edges[1:]) for title, it in of.items()} for tenant in SHOWN}
    in_use = {title: (hived_measures.used(it.uses).means(edges) / (8 * it.nodes)).tolist() for title, it in of.items()}
    lost = {title: hived_measures.fragmentation(it.uses, it.nodes, edges).tolist() for title, it in of.items()}
    return hived_figures.Shared(days(edges), delays, in_use, lost)


def _delay(it: Seen, tenant: str, at: Floats) -> list[float]:
    """In minutes."""
    codes, names = it.history.vcs
    of = codes == names.index(tenant)
    curve: list[float] = (hived_measures.moving_mean(it.history.submit[of], it.delays[of], at) / MINUTE_US).tolist()
    return curve


def _idle(seen: Mapping[Setting, Seen], settings: Iterable[Setting], edges: Floats, hours: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for setting in settings:
        it = seen[setting]
        steps = hived_measures.idle(it.uses, it.nodes, int(edges[0]), int(edges[-1]), hours * 3_600_000_000)
        found[TITLES[setting.scheme]] = (steps.means(edges) / it.nodes).tolist()
    return found
