"""The study of packing: the best possible pairs, what probing reaches, and the command."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from reproduction.__main__ import main
from reproduction.packing import RULES
from reproduction.packing_mixes import Pairs, Rule, best, best_of, mixes, pairs_of, play
from scheduler_service.sim.sharing.measured import tables

DATA = Path(__file__).parents[1] / "sim" / "data"
KINDS = ("a", "b", "c")
PARTS = ("packing-first", "packing-last", "figure-packing")
RATES = "device,placement,model,batch_size,gpus,steps_per_s\n" + "".join(
    f"{device},consolidated,net,{size},1,10\n" for device in ("p100", "v100") for size in (1, 2)
)
PAIRS = "device,model,batch_size,gpus,with_model,with_batch_size,steps_per_s,with_steps_per_s\n" + "".join(
    f"{device},net,{one},1,net,{other},7.5,7.5\n" for device in ("p100", "v100") for one in (1, 2) for other in (1, 2)
)


def of(ab: float, ac: float, bc: float, alike: float = 1.0) -> Pairs:
    sums = {("a", "b"): ab, ("a", "c"): ac, ("b", "c"): bc}
    work = {pair: alike if len(set(pair)) == 1 else sums[min(pair), max(pair)] for pair in product(KINDS, KINDS)}
    return Pairs(KINDS, work, {"a": 100_000, "b": 500_000, "c": 900_000})


def every_packing(jobs: Sequence[int]) -> list[list[tuple[int, int]]]:
    """All ways to pack some pairs of these jobs."""
    if len(jobs) < 2:
        return [[]]
    first, *rest = jobs
    found = every_packing(rest)
    for other in rest:
        found = found + [[(first, other), *more] for more in every_packing([job for job in rest if job != other])]
    return found


@given(st.tuples(*[st.floats(0, 2)] * 4), st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
def test_no_packing_is_better_than_the_best(sums: tuple[float, float, float, float], jobs: list[str]) -> None:
    known = of(*sums)

    def does(packing: list[tuple[int, int]]) -> float:
        packed = sum(known.work[jobs[one], jobs[other]] for one, other in packing)
        return (packed + len(jobs) - 2 * len(packing)) / (len(jobs) - len(packing))

    assert best_of(known, jobs) == pytest.approx(max(map(does, every_packing(range(len(jobs))))), abs=1e-6)


@pytest.mark.parametrize("rule", get_args(Rule))
def test_probing_reaches_no_more_than_the_best_and_pairs_of_all_jobs_no_less_than_those_of_a_device(rule: Rule) -> None:
    known = of(1.3, 1.6, 0.8, 1.1)
    some = mixes(known, 6, 3, 4, seed=1)
    for mix, seen in zip(some, play(known, some, rule, seed=1), strict=True):
        limits = best(known, mix)
        assert limits.here <= limits.anywhere + 1e-9
        assert 1 <= seen.work <= (max(known.work.values()) if rule == "moved" else limits.here) + 1e-9
        assert seen.undone <= seen.probes
        assert (rule == "moved") or not seen.moves


def test_a_pair_that_did_not_pay_is_not_probed_again_and_one_that_paid_is_packed_first() -> None:
    known = of(1.3, 1.6, 0.5)
    first, second = play(known, [[["b", "c"]], [["b", "c"]]], "learnt", seed=1)
    assert (first.probes, first.undone, second.probes) == (1, 1, 0)
    assert first.lost_min == pytest.approx(1)
    taught = play(known, [[["a", "c"]], [["a", "b", "c"]]], "learnt", seed=1)[1]
    untaught = play(known, [[["a", "b", "c"]]], "utilisation", seed=1)[0]
    assert taught.work == pytest.approx((1.6 + 1) / 2)
    assert untaught.work == pytest.approx((1.3 + 1) / 2)


def test_jobs_of_other_devices_are_packed_too_if_one_of_them_moves() -> None:
    known = of(0.5, 1.6, 0)
    apart = [["a", "b"], ["c", "c"]]
    first, second = (play(known, [apart], rule, seed=1)[0] for rule in ("learnt", "moved"))  # type: ignore[arg-type]
    assert (first.work, first.moves) == (1, 0)
    assert second.moves == pytest.approx(1 / 2), "per device"
    assert second.work == pytest.approx(((1.6 + 1) / 2 + 1) / 2), "one device has three jobs, and the other one has one"


def test_the_verdict_of_the_group_depends_on_how_many_take_turns() -> None:
    known = of(1.09, 1.0, 1.0)
    two, four = [[["a", "b"]]], [[["a", "b", "c", "c"]]]
    assert play(known, four, "utilisation", seed=1)[0].work > 1
    assert play(known, four, "group", seed=1)[0].work == 1
    assert play(known, two, "group", seed=1)[0].work > 1


def test_pairs_are_those_of_the_tables() -> None:
    known = pairs_of(tables(DATA / "gavel_rates.csv", DATA / "gavel_pairs.csv"), "p100")
    assert known.kinds == ("net-16", "wide-64")
    assert known.work["net-16", "net-16"] == 1.5, "each has 1.5 of the 2 steps a second that it has alone"
    assert known.work["net-16", "wide-64"] == 0, "nobody has measured that it fits"
    assert known.utilisation["net-16"] == pytest.approx(1_000_000 / 1.5, abs=1), "1 by what two jobs do"
    assert known.utilisation["wide-64"] == 1_000_000


def test_the_command_compares_all_rules(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in PARTS))
    rates, pairs = tmp_path / "rates.csv", tmp_path / "pairs.csv"
    rates.write_text(RATES)
    pairs.write_text(PAIRS)
    told = ["packing", "--quick", "--rates", str(rates), str(pairs), "-o", str(tmp_path / "results")]
    done = CliRunner().invoke(main, [*told, "--document", str(document)])
    assert done.exit_code == 0, done.output
    text = document.read_text()
    assert all(title in text for title in RULES.values())
    assert "| V100, 4 jobs on each: best pairs on each GPU | 1.500 ± 0.000 |" in text, "all pairs do 1.5"
    assert (tmp_path / "page" / "figure-packing.svg").exists()
