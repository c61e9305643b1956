"""Rates of jobs that share devices, against what the Gandiva paper prints and what Gavel's authors measured."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.sharing.kinds import GANDIVA, TABLE_1, Spread, demand_when_packed, demanded_at
from scheduler_service.sim.sharing.measured import Measured, tables
from scheduler_service.sim.sharing.model import BILLION, Proportional, Site, gandiva

P40 = Site("p40", 1, Spread.SWITCH)
PAPER = gandiva()


def together(kinds: Sequence[str]) -> list[float]:
    """The rate of each of packed jobs, by its rate alone."""
    return [PAPER.rate_packed(kind, [*kinds[:i], *kinds[i + 1 :]], P40) / BILLION for i, kind in enumerate(kinds)]


@pytest.mark.parametrize("name", TABLE_1)
def test_enough_jobs_of_a_kind_reach_the_packed_rate_of_table_1(name: str) -> None:
    row = TABLE_1[name]
    packed = sum(together([name] * 8)) * row.alone
    assert packed == pytest.approx(row.packed, rel=1e-6)


@pytest.mark.parametrize("name", TABLE_1)
def test_a_job_that_is_alone_has_the_rate_of_table_1(name: str) -> None:
    assert PAPER.rate_packed(name, [], P40) == BILLION
    assert SECOND / GANDIVA[name].mini_batch_us == pytest.approx(TABLE_1[name].alone, rel=1e-4)


def test_two_packed_jobs_gain_where_the_table_says_so_and_lose_elsewhere() -> None:
    gains = {name: sum(together([name, name])) > 1 for name in TABLE_1}
    assert [name for name, gain in gains.items() if not gain] == ["lstm", "resnet-50-cifar", "resnext-50"]


def test_two_small_jobs_do_not_slow_each_other_down() -> None:
    assert together(["vae", "super-resolution"]) == [1, 1]


@given(st.lists(st.sampled_from(sorted(GANDIVA)), min_size=1, max_size=6))
def test_a_mate_more_makes_nobody_faster(kinds: list[str]) -> None:
    with_one_more = together([*kinds, "vae"])
    assert all(after <= before for before, after in zip(together(kinds), with_one_more, strict=False))
    assert all(0 < rate <= 1 for rate in with_one_more)


@given(st.floats(0, 100), st.floats(0, 100))
def test_what_a_job_asks_for_is_that_of_table_1_at_its_points(first: float, second: float) -> None:
    assert all(demanded_at(row.utilisation) == pytest.approx(row.alone / row.packed) for row in TABLE_1.values())
    between = demanded_at(first)
    assert 0 <= between <= max(demand_when_packed(GANDIVA[name]) for name in TABLE_1)
    if max(first, second) <= TABLE_1["lstm"].utilisation:
        assert (demanded_at(first) <= demanded_at(second)) or first > second


def test_the_socket_and_the_network_slow_jobs_down_as_in_figures_1_to_4() -> None:
    def apart(name: str, spread: Spread) -> float:
        return PAPER.rate_alone(name, 2, Site("p100", 2, spread)) / BILLION

    assert apart("vgg16", Spread.NODE) == 0.6
    assert apart("resnet-50", Spread.NODE) == 1
    assert PAPER.rate_beside("language-model", [("language-model", BILLION)], []) == 0.81 * BILLION
    assert PAPER.rate_beside("language-model", [("language-model", BILLION // 2)], []) == pytest.approx(0.905 * BILLION)
    assert PAPER.rate_beside("resnet-50", [("language-model", BILLION)], []) == BILLION
    lost = {name: 1 - PAPER.rate_beside(name, [], [BILLION]) / BILLION for name in ("resnet-50", "inception-v3", "deepspeech")}
    assert lost == pytest.approx({"resnet-50": 0.47, "inception-v3": 0.3, "deepspeech": 0.05})


def test_more_devices_make_an_image_model_faster_in_proportion_and_others_less() -> None:
    def grown(name: str) -> float:
        return PAPER.rate_alone(name, 1, Site("p100", 4, Spread.SWITCH)) / BILLION

    assert grown("resnet-50") == 4
    assert grown("gnmt") == pytest.approx(4 * 0.9**2)


def test_jobs_of_unknown_kinds_share_a_device_in_equal_parts() -> None:
    assert Proportional().rate_packed("", ["", ""], P40) == round(BILLION / 3)
    assert Proportional().rate_alone("", 1, P40) == BILLION


ALONE = """device,placement,model,batch_size,gpus,steps_per_s
p100,consolidated,LM,5,1,10
p100,consolidated,LM,5,2,16
p100,spread,LM,5,2,12
v100,consolidated,LM,5,1,20
p100,consolidated,A3C,0,1,4
"""
PAIRS = """device,model,batch_size,gpus,with_model,with_batch_size,with_gpus,steps_per_s,with_steps_per_s
p100,A3C,0,1,LM,5,1,3,8
p100,LM,5,1,LM,5,1,0,0
"""


@pytest.fixture
def gavel(tmp_path: Path) -> Measured:
    alone, pairs = tmp_path / "alone.csv", tmp_path / "pairs.csv"
    alone.write_text(ALONE)
    pairs.write_text(PAIRS)
    return Measured(tables(alone, pairs), "p100")


def test_measured_rates_are_those_of_the_tables(gavel: Measured) -> None:
    kind, of_two = gavel.kind("LM-5", 1), gavel.kind("LM-5", 2)
    assert kind is not None
    assert of_two is not None
    assert (kind.mini_batch_us, of_two.mini_batch_us) == (SECOND // 10, SECOND // 16)
    assert gavel.kind("LM-10", 1) is None
    assert gavel.rate_alone("LM-5", 1, Site("v100", 1, Spread.SWITCH)) == 2 * BILLION
    assert gavel.rate_alone("LM-5", 2, Site("p100", 2, Spread.SCATTERED)) == 0.75 * BILLION
    assert gavel.rate_alone("LM-5", 1, Site("p100", 2, Spread.SWITCH)) == 1.6 * BILLION
    assert gavel.rate_alone("LM-5", 2, Site("p100", 4, Spread.SWITCH)) == 2 * BILLION, "of what was not measured: in proportion"


def test_measured_pairs_slow_each_other_down_as_in_the_table(gavel: Measured) -> None:
    on = Site("p100", 1, Spread.SWITCH)
    assert gavel.rate_packed("LM-5", ["A3C-0"], on) == 0.8 * BILLION
    assert gavel.rate_packed("A3C-0", ["LM-5"], on) == 0.75 * BILLION
    assert gavel.rate_packed("LM-5", ["LM-5"], on) == 0, "the pair does not fit into the device's memory"
    assert gavel.rate_packed("A3C-0", ["A3C-0"], on) == BILLION // 2, "nobody has measured it"
