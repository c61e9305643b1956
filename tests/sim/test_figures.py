"""Means and their intervals, tables and figures: what is shown is what was measured, and nothing is cut off."""

import io
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from scheduler_service.sim.experiments import figures, tables
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.commands import as_data, present
from scheduler_service.sim.experiments.estimates import Estimate, Group, estimate, group_summaries, student
from scheduler_service.sim.experiments.kept_results import Summary
from scheduler_service.sim.experiments.metrics import POINTS, QUANTILES

METRICS = tuple(tables.SHAPES)


def group(label: str, *values: float, **others: float) -> Group:
    """A group with these mean slowdowns of trials, by seed, and whatever else."""
    numbers = {seed: {"trial.slowdown.mean": value, "preemptions": 1.0, **others} for seed, value in enumerate(values, 1)}
    curves = {
        seed: {
            "hours": [float(i) for i in range(POINTS)],
            "trial.queue": [value] * POINTS,
            "utilisation.gpu": [0.5] * POINTS,
            "trial.slowdown": [1 + value * i / len(QUANTILES) for i in range(len(QUANTILES))],
        }
        for seed, value in enumerate(values, 1)
    }
    return Group(label, numbers, curves, "alike")


def summary(
    folder: Path, seed: int = 1, repeat: int = 0, policy: str = "fifo", nodes: int = 1, slowdown: float = 1.0
) -> Summary:
    case = Case.model_validate(
        {
            "cluster": [{"nodes": nodes, "gpus": 8}],
            "workload": {"kind": "fitgpp", "jobs": 4},
            "policy": {"name": policy},
            "seed": seed,
            "repeat": repeat,
        }
    )
    return Summary(
        case, {"trial.slowdown.mean": slowdown}, {"hours": [float(repeat)]}, 1.0, "engine", {}, folder / case.digest(), {}
    )


def named(of: Summary, label: str) -> Summary:
    policy = of.case.policy.model_copy(update={"label": label})
    return replace(of, case=of.case.model_copy(update={"policy": policy}))


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (7, 2.3646), (8, 2.3060), (30, 2.0423), (1000, 1.9623)]
)
def test_student_is_as_printed_in_tables(freedom: int, t: float) -> None:
    assert student(freedom) == pytest.approx(t, abs=5e-5)


def test_an_interval_has_the_mean_in_it_19_times_in_20() -> None:
    rng = random.Random(1)
    hits = 0
    for _ in range(2000):
        found = estimate([rng.gauss(10, 3) for _ in range(4)])
        assert found.half is not None
        hits += abs(found.mean - 10) <= found.half
    assert 0.94 < hits / 2000 < 0.96
    assert estimate([4.0]) == Estimate(4.0, None)


def test_repeats_of_a_seed_count_once(tmp_path: Path) -> None:
    told = [(1, 0, 1.0), (1, 1, 3.0), (2, 0, 5.0), (2, 1, 5.0)]
    summaries = [summary(tmp_path, seed, repeat, slowdown=value) for seed, repeat, value in told]
    (made,) = group_summaries({tmp_path: summaries})
    assert made.numbers == {1: {"trial.slowdown.mean": 2.0}, 2: {"trial.slowdown.mean": 5.0}}
    assert made.estimate("trial.slowdown.mean") == estimate([2.0, 5.0])
    assert made.curves == {1: {"hours": [0.0]}, 2: {"hours": [0.0]}}


def test_groups_are_told_apart_by_their_folder_and_their_case(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    folders = {
        before: [summary(before), summary(before, policy="rand")],
        after: [summary(after, nodes=2), summary(after, nodes=3)],
    }
    made = group_summaries(folders)
    assert [one.label for one in made] == ["before: fifo", "rand", "after: fifo", "after: fifo #2"]
    assert made[0].unlike == made[1].unlike != made[2].unlike


def test_groups_whose_titles_look_like_numbered_ones_are_all_there(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folders = {folder: [named(summary(folder, nodes=n), label) for n, label in ((1, "a #1"), (2, "a #2"), (3, "a #2"))]}
    assert [one.label for one in group_summaries(folders)] == ["a #1", "one: a #2", "one: a #2 #2"]


def test_a_change_is_measured_seed_by_seed() -> None:
    """Between seeds the two vary by far more than from each other: the interval of the pairs is narrow all the same."""
    base, other = group("fifo", 10, 20, 30), group("ours", 9, 18, 28)
    found = other.change("trial.slowdown.mean", base)
    assert found is not None
    assert found.mean == pytest.approx(-5 / 3 / 20)
    assert found.half == pytest.approx(student(2) * stdev([1, 2, 2]) / 3**0.5 / 20)
    alone = other.estimate("trial.slowdown.mean")
    assert alone is not None
    assert alone.mean == fmean([9, 18, 28])
    assert alone.half is not None
    assert found.half * 20 < alone.half / 10
    assert other.change("no.such", base) is None
    assert group("x", 1, none=0).change("none", group("y", 1, none=0)) is None  # a share of nothing


def printed(groups: list[Group], width: int, against: Group | None = None) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    tables.show(console, groups, METRICS, against)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_every_number_is_there_at_every_width(width: int) -> None:
    names = {column.metric for shapes in tables.SHAPES.values() for shape in shapes for column in shape.columns}
    values = {name: float(1000 + 7 * place) for place, name in enumerate(sorted(names)) if name != "trial.slowdown.mean"}
    shown = printed([group("a [b] policy with a long name", 1, 2, **values), group("other", 3, 4, **values)], width)
    assert "…" not in shown
    assert shown.count("a [b] policy with a long name") == shown.count("other") > 10
    scales = {column.metric: column for shapes in tables.SHAPES.values() for shape in shapes for column in shape.columns}
    for name, value in values.items():
        column = scales[name]
        assert shown.count(f"{value * column.scale:,.{column.digits}f} ± 0.") >= 2 or not column.digits, name
    assert "1.50 ± 6.35" in shown


def test_what_no_policy_has_is_no_table_and_what_one_lacks_is_a_dash() -> None:
    shown = printed([group("a", 1, 2), group("b", 1, 2, **{"gpu_h.useful": 5.0})], 100)
    assert "fairness" not in shown.lower()
    assert re.search(r"^a +-$", shown, re.MULTILINE)
    assert re.search(r"^b +5 ± 0$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("seeds", "against", "told"),
    [
        ([3, 3], None, "means over 3 seeds ± their 95 % interval"),
        ([2, 4], None, "means over 2 to 4 seeds ± their 95 % interval"),
        ([1, 1], None, "one seed: nothing says how far chance goes"),
        ([2, 4], 0, "means over 2 seeds that both have ± their 95 % interval"),
        ([5, 1, 3], 0, "means over 1 to 3 seeds that both have ± their 95 % interval"),
        ([5, 1], 0, "one seed that both have: nothing says how far chance goes"),
        ([3, 0], 0, "no seed that both have: nothing can be compared"),
    ],
)
def test_the_number_of_seeds_is_that_of_what_is_compared(
    seeds: list[int], against: int | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [group(str(count), *range(1, count + 1)) for count in seeds]
    present(made, ["slowdown"], None if against is None else made[against], as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == told


def test_what_one_seed_lacks_is_null_in_json() -> None:
    made = Group("a", {1: {"x": 1.0, "y": 2.0}, 2: {"x": 3.0, "z": 4.0}}, {}, "alike")
    (told,) = as_data([made])["policies"]
    assert told["metrics"]["x"]["mean"] == 2
    assert (told["metrics"]["y"], told["metrics"]["z"]) == (None, None)


def test_memory_in_use_is_shown_beside_gpus_and_cpus() -> None:
    memory = {"utilisation.memory": 0.25, "utilisation.memory.arrivals": 0.5}
    shown = printed([group("a", 1, 2, **memory)], 100)
    assert re.search(r"while jobs came\n +memory\na +50.0 ± 0.0\n", shown)
    assert re.search(r"end of the last job\n +memory\na +25.0 ± 0.0\n", shown)
    made = group("a", 1)
    made.curves[1]["utilisation.memory"] = [0.25] * POINTS
    drawn = figures.utilisation([made])
    assert drawn is not None
    assert [axes.get_title() for axes in drawn.axes] == ["GPUs in use", "Memory in use"]


@pytest.mark.parametrize(("seeds", "said"), [((1,), "submit"), ((1, 2), "submit (of the first seed)")])
def test_curves_over_time_say_of_which_seed_they_are(seeds: tuple[float, ...], said: str) -> None:
    for drawn in (figures.queue([group("a", 1), group("b", *seeds)]), figures.utilisation([group("b", *seeds)])):
        assert drawn is not None
        assert drawn.axes[-1].get_xlabel() == f"hours since the first {said}"


def test_what_is_rare_is_shown_where_anybody_has_it() -> None:
    def shown(*counts: float) -> str:
        made = [group(str(number), 1, reclaimed=count) for number, count in enumerate(counts)]
        return printed(made, 100)

    assert "Told to leave cells" not in shown(0, 0)
    assert re.search(r"Told to leave cells.*\n +runs\n0 +0\n1 +7\n", shown(0, 7))


def test_changes_have_a_sign_and_leave_out_what_they_are_measured_against() -> None:
    base = group("fifo", 10, 20, 30)
    shown = printed([base, group("ours", 9, 18, 28)], 100, base)
    assert re.search(r"^ours +-8\.3 ± 7\.2 %$", shown, re.MULTILINE)
    assert not re.search(r"^fifo", shown, re.MULTILINE)


def test_virtual_clusters_are_the_columns_of_their_tables() -> None:
    shares = {f"vc.{name}.share": 0.5 for name in ("dev.1", "lab", "")} | {"vc.lab.slowdown.mean": 3.0}
    console = Console(file=io.StringIO(), width=100)
    tables.show(console, [group("a", 1, **shares)], ["vcs"])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"\(none\) +dev\.1 +lab\n", shown)
    assert re.search(r"^a +50\.0 +50\.0 +50\.0$", shown, re.MULTILINE)
    assert re.search(r"lab\n+a +3\.00$", shown, re.MULTILINE)


COSTS = {f"gpu_h.{name}": 10.0 for name in ("capacity", *figures.COSTS)}
FULL = [
    group(f"policy {n}", 2.0 + n, 3.0 + n, **{"fairness.user.slowdown": 0.9, "preempted.share": 0.1, **COSTS}) for n in range(5)
]


@pytest.mark.parametrize("name", list(figures.FIGURES))
def test_a_figure_has_units_and_all_policies_and_is_drawn_the_same_again(name: str, tmp_path: Path) -> None:
    made = figures.FIGURES[name](FULL)
    assert isinstance(made, Figure)
    labels = [axis.get_label_text() for axes in made.axes for axis in (axes.xaxis, axes.yaxis)]
    assert any(labels), "no axis says what it shows"
    png, svg = figures.save(made, tmp_path / "one", name)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ET.parse(svg).getroot().tag.endswith("svg")
    again = figures.FIGURES[name](FULL)
    assert again is not None
    for path in figures.save(again, tmp_path / "two", name):
        assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes(), path


def test_lines_are_what_was_measured() -> None:
    made = figures.slowdown(FULL)
    assert made is not None
    drawn = {str(line.get_label()): line for line in made.axes[0].get_lines()}
    assert list(drawn) == [group.label for group in FULL]
    mean = [1 + 2.5 * i / len(QUANTILES) for i in range(len(QUANTILES))]  # of two seeds with 2.0 and 3.0
    assert list(drawn["policy 0"].get_ydata()) == pytest.approx(mean)  # type: ignore[call-overload]
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn.values()}) == len(FULL)


def test_labels_are_drawn_as_they_are(tmp_path: Path) -> None:
    """To matplotlib a $ begins a formula, and what begins with _ is no matter for a legend."""
    figures.draw([group("$a^ costs $5", 1, 2), group("_b", 1, 2)], tmp_path)
    drawn = (tmp_path / "slowdown.svg").read_text()
    assert "<!-- $a^ costs $5 -->" in drawn
    assert "<!--  _b -->" in drawn


def test_what_there_is_nothing_of_is_not_drawn(tmp_path: Path) -> None:
    empty = Group("a", {1: {"jobs": 0.0}}, {1: {}}, "alike")
    assert figures.draw([empty], tmp_path) == []
    names = {path.stem for path in figures.draw([group("a", 1, 2)], tmp_path)}
    assert names == {"slowdown", "queue", "utilisation", "preemptions"}


def panels(*groups: Group) -> list[str]:
    made = figures.preemptions(groups)
    return [] if made is None else [axes.get_title() for axes in made.axes]


def test_runs_that_left_for_the_owners_of_their_cells_are_drawn_where_there_are_any() -> None:
    preempted, reclaimed = (
        ["Jobs preempted", "From preemption to next start"],
        ["Jobs told to leave cells", "Runs told to leave cells"],
    )
    none = {"reclaimed": 0.0, "reclaimed.share": 0.0}
    some = {"reclaimed": 4.0, "reclaimed.share": 0.25}
    assert panels(group("a", 1)) == panels(group("a", 1, **none)) == preempted
    assert panels(group("a", 1, **some), group("b", 1, **none)) == preempted + reclaimed
    assert panels(group("a", 1, **some | {"preemptions": 0.0})) == reclaimed
    assert panels(group("a", 1, **none | {"preemptions": 0.0})) == []


def test_pyplot_is_left_alone() -> None:
    """Its global state would be shared by whoever draws in the same process."""
    import sys

    assert "matplotlib.pyplot" not in sys.modules
