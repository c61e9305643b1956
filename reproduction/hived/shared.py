"""How tenants share a cluster, in tables and figures: figures 7 to 10 of HiveD's evaluation (sections 5.2 and 5.3)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reproduction.hived import figures as hived_figures
from reproduction.hived import measures as hived_measures
from reproduction.hived.measures import NODE_GPUS
from reproduction.hived.plan import FIGURES, SHOWN, Setting, Study
from reproduction.hived.published import CLAIMS, LOADED_NODES
from reproduction.hived.simulated import POINTS, Seen, days
from reproduction.studies import Table, number
from scheduler_service.sim.experiments.figures import save
from scheduler_service.sim.experiments.history import Floats
from scheduler_service.sim.workloads import hived

SHARING = ("figure-7a", "figure-7b", "figure-8", "figure-9", "figure-10")
"""The parts about sharing."""
TOLERANCE_US = 60_000_000
"""A job counts as delayed from a minute on, because the paper does not mean the grace period of a reclaimed run."""
MINUTE_US = 60_000_000
TITLES = {"private": "private clusters", "quota": "shared by quota", "cells": "HiveD", "static": "HiveD, static binding"}

Known = Mapping[Setting, Seen]


class Late(NamedTuple):
    """How much longer each job waits than in its tenant's private cluster, in microseconds."""

    over: Floats
    in_quota: Floats
    """The part of the excess in which the tenant's quota of GPUs had room."""
    with_cells: Floats
    """The part of the excess in which it was the first to wait, and the tenant had cells for it."""


def compare_with_private(it: Seen, private: Seen, nodes: Mapping[str, int]) -> Late:
    """Compare a setting with private clusters. `nodes`: how many each tenant owns."""
    over = hived_measures.excess(it.history, it.delays, private.history, private.delays)
    gpus = {name: NODE_GPUS * count for name, count in nodes.items()}
    quota = hived_measures.waited_in_quota(it.history, it.delays, it.uses, gpus)
    cells = hived_measures.waited_with_cells(it.history, it.delays, it.uses, nodes)
    return Late(over, hived_measures.anomalies(over, quota), hived_measures.anomalies(over, cells))


def _compare_with_private(setting: Setting, known: Known) -> Late:
    return compare_with_private(known[setting], known[setting.private], setting.quotas())


def table_row(it: Seen, of: Late | None, by_cells: bool, tenants: Iterable[str] = ()) -> tuple[str, ...]:
    """A table row with the cells of COLUMNS, and those of the tenants before the late ones. `of`: None for private clusters."""
    edges = it.edges()
    gone = hived_measures.gpus_preempted(it.history, it.runs, np.linspace(0.0, float(it.history.horizon), POINTS))
    shown = [
        number(100 * float(hived_measures.gpus_in_use(it.uses).means(edges).mean()) / (NODE_GPUS * it.nodes)),
        number(100 * float(hived_measures.fragmentation(it.uses, it.nodes, edges).mean())),
        f"{int(gone.sum()):,}",
    ]
    if of is None:
        return (*shown, *("-" for _ in (*tenants, *COLUMNS[len(shown) :])))
    counts = hived_measures.count_delayed(it.history, of.in_quota, TOLERANCE_US)
    shown += [f"{counts[name][0]:,} ({100 * counts[name][1]:.2g} %)" for name in tenants]
    shown += [f"{_jobs(it, of.in_quota):,}", number(float(of.in_quota.max()) / MINUTE_US)]
    if not by_cells:
        return (*shown, "-", "-")
    return (*shown, f"{_jobs(it, of.with_cells):,}", number(float(of.with_cells.max()) / MINUTE_US))


COLUMNS = (
    "in regular use, %",
    "fragmentation, %",
    "GPUs preempted",
    "late: all",
    "the latest, min",
    "late with cells",
    "the latest, min",
)
LATE = (
    "Late: multi-GPU jobs that waited more than a minute longer than in their tenant's private cluster, although its quota of "
    "GPUs had room; with cells: while they were the first to wait, and its nodes had what they asked for, together."
)


def _jobs(it: Seen, lengths: Floats) -> int:
    return sum(count for count, _ in hived_measures.count_delayed(it.history, lengths, TOLERANCE_US).values())


def sharing_tables(known: Known, study: Study) -> list[Table]:
    return [_sharing(known, study), _claims(known)]


def _sharing(known: Known, study: Study) -> Table:
    tenants = ("prod-a", "res-f")
    rows = tuple(
        (
            _title(setting),
            table_row(
                it,
                None if setting.scheme == "private" else _compare_with_private(setting, known),
                setting.scheme in ("cells", "static") and setting.assignment == "default",
                tenants,
            ),
        )
        for setting, it in known.items()
    )
    columns = (*COLUMNS[:3], *(f"late: {name}" for name in tenants), *COLUMNS[3:])
    busy, jobs = study.for_setting(Setting()), study.workload()
    how = "alike" if busy.durations == "alike" else "by size"
    fitted = f" (load as fitted: by size, times {study.scale:.3g})" if any(not setting.busy for setting in known) else ""
    drawn = f"durations {how}, times {busy.scale:.3g}{fitted}"
    note = f"{jobs.jobs:,} jobs in {jobs.span_days:.3g} days, seed {study.seed}; {drawn}. {LATE}"
    return Table("hived-sharing", "How eleven tenants share a cluster", columns, rows, note)


def _title(setting: Setting) -> str:
    cells = ", cells of every level" if setting.assignment == "levels" else ""
    promoted = "" if setting.promotes else ", none promoted"
    fitted = "" if setting.busy else ", load as fitted"
    return f"{setting.nodes} nodes, {TITLES[setting.scheme]}{cells}{promoted}{fitted}"


def _claims(seen: Known) -> Table:
    """The paper's sentences, and the same numbers here, for the settings that were simulated."""
    busy, fitted = _busy(seen) | _choices(seen, busy=True), _choices(seen, busy=False)

    def amount_text(name: str, unit: str, of: Mapping[str, float]) -> str:
        return f"{number(of[name])} {unit}" if name in of else "-"

    rows = tuple(
        (
            f"figure {claim.figure}, {name}: {claim.said}",
            (
                f"{number(claim.number)} {claim.unit}",
                amount_text(name, claim.unit, busy),
                amount_text(name, claim.unit, fitted),
            ),
        )
        for name, claim in CLAIMS.items()
        if name in busy or name in fitted
    )
    return Table("hived-claims", "What the paper says, and what comes out here", ("paper", "here", "load as fitted"), rows)


def _busy(seen: Known) -> dict[str, float]:
    """Numbers for sharing by quota, and for HiveD to compare with."""
    ours: dict[str, float] = {}
    for nodes, suffix in ((hived.NODES, ""), (LOADED_NODES, "-loaded")):
        quota, cells = Setting(nodes, "quota"), Setting(nodes)
        if quota in seen:
            of_quota = _compare_with_private(quota, seen)
            it = seen[quota]
            codes, names = it.history.vcs
            of = codes == names.index("prod-a")
            curve = hived_measures.moving_mean(it.history.submit[of], np.nan_to_num(of_quota.over[of]), it.edges())
            ours[f"excess{suffix}"] = float(np.nanmax(curve)) / MINUTE_US
            counts = hived_measures.count_delayed(it.history, of_quota.in_quota, TOLERANCE_US)
            if suffix:
                for name in ("res-f", "prod-a"):
                    ours[f"{name}-jobs"], ours[f"{name}-share"] = counts[name][0], 100 * counts[name][1]
            else:
                frag = hived_measures.fragmentation(it.uses, it.nodes, it.edges())
                ours["fragmentation"] = 100 * float(frag.max())
        if cells in seen:
            ours["hived-jobs"] = ours.get("hived-jobs", 0) + _jobs(seen[cells], _compare_with_private(cells, seen).with_cells)
    return ours


def _choices(seen: Known, busy: bool) -> dict[str, float]:
    """Numbers by how cells are bound, and by the levels of cells."""
    ours: dict[str, float] = {}
    dynamic, static = Setting(busy=busy), Setting(scheme="static", busy=busy)
    if dynamic in seen and static in seen:
        taken = [_count_preempted(seen[setting]) for setting in (dynamic, static)]
        ours["preempted"] = 100 * (1 - taken[0] / taken[1]) if taken[1] else 0.0
    single, multi = (Setting(assignment=of, busy=busy, promotes=False) for of in ("default", "levels"))
    if single in seen and multi in seen:
        edges = seen[single].edges()
        gap = [hived_measures.fragmentation(seen[setting].uses, hived.NODES, edges) for setting in (single, multi)]
        ours["multi-level"] = 100 * float(np.median(gap[0] - gap[1]))
        ours["multi-level-most"] = 100 * float((gap[0] - gap[1]).max())
    return ours


def _count_preempted(it: Seen) -> int:
    return int(hived_measures.gpus_preempted(it.history, it.runs, np.array([0.0, float(it.history.horizon) + 1])).sum())


# ---- figures -------------------------------------------------------------------------------------------------------------


def sharing_figures(parts: Iterable[str], seen: Known, folder: Path) -> dict[str, str]:
    """Draw the figures; return their titles by name."""
    titles: dict[str, str] = {}
    for part in parts:
        name = f"hived-{part}"
        if part in ("figure-7a", "figure-7b"):
            nodes = FIGURES[part][0].nodes
            save(hived_figures.sharing(_figure_data(nodes, seen)), folder, name)
            titles[name] = f"Queueing delays, use and fragmentation on {nodes} nodes"
        elif part == "figure-8":
            save(hived_figures.preemption(*_preemption(seen, _settings_drawn(part))), folder, name)
            titles[name] = "GPUs preempted in 12 hours, with dynamic and with static binding"
        elif part == "figure-9":
            edges = seen[_settings_drawn(part)[0]].edges()
            curves = {
                ("multi-level" if setting.assignment == "levels" else "single-level"): hived_measures.fragmentation(
                    seen[setting].uses, hived.NODES, edges
                ).tolist()
                for setting in _settings_drawn(part)
            }
            save(hived_figures.fragmentation(days(edges), curves), folder, name)
            titles[name] = "Fragmentation with cells of every level, and of nodes alone"
        elif part == "figure-10":
            edges = seen[Setting()].edges()
            shares = {f"idle for {hours} hours": _idle_shares(seen, FIGURES[part], edges, hours) for hours in (10, 100)}
            save(hived_figures.draw_idle(days(edges), shares), folder, name)
            titles[name] = "Nodes that regular jobs leave idle for long"
    return titles


def _settings_drawn(part: str) -> tuple[Setting, ...]:
    """The settings of the paper's own figure: the first two."""
    return FIGURES[part][:2]


def _preemption(seen: Known, settings: Iterable[Setting]) -> tuple[list[float], dict[str, list[float]], dict[str, list[float]]]:
    """The ends of 12-hour windows in days, the GPUs preempted in each, and the share of the tenants' nodes that are bound: with
    static binding all, else those with regular jobs."""
    gone: dict[str, list[float]] = {}
    bound: dict[str, list[float]] = {}
    first, last = seen[Setting()].edges(1)
    edges = np.arange(first, last, hived_measures.WINDOW_US)
    for setting in settings:
        it, static = seen[setting], setting.scheme == "static"
        gone[TITLES[setting.scheme]] = hived_measures.gpus_preempted(it.history, it.runs, edges).tolist()
        share = hived_measures.busy(it.uses).means(edges) / sum(setting.quotas().values())
        bound[TITLES[setting.scheme]] = [1.0] * len(share) if static else share.tolist()
    return days(edges), gone, bound


def _figure_data(nodes: int, seen: Known) -> hived_figures.Shared:
    of = {TITLES[scheme]: seen[Setting(nodes, scheme)] for scheme in ("private", "quota", "cells")}
    edges = of[TITLES["cells"]].edges()
    delays = {tenant: {title: _delay(it, tenant, edges[1:]) for title, it in of.items()} for tenant in SHOWN}
    in_use = {title: (hived_measures.gpus_in_use(it.uses).means(edges) / (8 * it.nodes)).tolist() for title, it in of.items()}
    lost = {title: hived_measures.fragmentation(it.uses, it.nodes, edges).tolist() for title, it in of.items()}
    return hived_figures.Shared(days(edges), delays, in_use, lost)


def _delay(it: Seen, tenant: str, at: Floats) -> list[float]:
    """The moving mean of delays, in minutes."""
    codes, names = it.history.vcs
    of = codes == names.index(tenant)
    curve: list[float] = (hived_measures.moving_mean(it.history.submit[of], it.delays[of], at) / MINUTE_US).tolist()
    return curve


def _idle_shares(seen: Known, settings: Iterable[Setting], edges: Floats, hours: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for setting in settings:
        it = seen[setting]
        steps = hived_measures.idle_nodes(it.uses, it.nodes, int(edges[0]), int(edges[-1]), hours * 3_600_000_000)
        found[TITLES[setting.scheme]] = (steps.means(edges) / it.nodes).tolist()
    return found
