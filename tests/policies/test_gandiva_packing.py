"""Packing: probes that are kept where they pay, and undone to the last detail where they do not (Gandiva, section 4.2.2)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.messages import Step
from scheduler_service.core.model import EventKind, JobState
from scheduler_service.core.model.sharing import Row
from scheduler_service.policies.gandiva.memos import kind_of, memo_of, pair_subject
from scheduler_service.policies.gandiva.packing import BETTER, WORSE
from scheduler_service.policies.gandiva.slicing.probes import probe_subject
from tests.core.driver import spec
from tests.policies.introspected import Introspected
from tests.policies.sharing_runs import gang_of

ALONE = 100
"""Milliseconds of a mini-batch."""


def overloaded(jobs: int = 2, **own: float) -> tuple[Introspected, list[int]]:
    """Jobs that take turns on all devices of one server, each of a kind of its own."""
    d = Introspected("n1", **own)
    return d, [d.begin(what=replace(spec(4), name=chr(ord("a") + number))) for number in range(jobs)]


def test_jobs_of_low_utilisation_are_packed_and_stay_so_if_that_is_faster() -> None:
    d, (a, b) = overloaded()
    assert d.rows_of(a) == [[a], [b]]
    d.measure({a: ALONE, b: ALONE})
    told = [line.text for line in d.measure({a: ALONE, b: ALONE}).log if line.kind is EventKind.PROBED]
    tried = told[0]
    assert tried == (
        "packing is tried: jobs 1 and 2 execute together on devices that they use to 20% and 20% when they take turns"
    )
    assert d.run(a).parked_mib == 0
    told = rounds(d, {a: 130, b: 120})
    assert (
        told
        == [
            "packing is kept: the devices do 1.60 times the work that they do in turns; "
            "job 1 takes 130 ms a mini-batch, 100 ms alone; job 2 takes 120 ms a mini-batch, 100 ms alone"
        ]
        * 2
    )
    assert d.rows_of(a) == [[a, b]]
    assert not [subject for _, subject in d.state.memos.rows if "probe/" in subject]
    (memo,) = [memo for (_, subject), memo in d.state.memos.rows.items() if "pair/" in subject]
    assert memo.value[0] == BETTER


def until_packed(d: Introspected, *jobs: int, seconds: int = 600) -> Step:
    for _ in range(seconds // 30):
        taken = d.step(after=30)
        if any(set(jobs) <= set(row) for row in d.rows_of(jobs[0])):
            return taken
    raise AssertionError(f"jobs {jobs} are not packed: {d.rows_of(jobs[0])}")


def rounds(d: Introspected, times: Mapping[int, int], count: int = 4) -> list[str]:
    """Measurements arrive, and servers are looked at, so often; returns what the story says of probes."""
    told = []
    for _ in range(count):
        for taken in (d.measure(times, after=45), d.step(after=15)):
            told += [line.text for line in taken.log if line.kind is EventKind.PROBED]
    return told


def placement(d: Introspected) -> object:
    """All that says who holds devices how, but for generations."""
    groups = [(g.id, g.devices, g.rows, g.period_us, g.open) for g in d.state.share_groups.rows.values()]
    runs = [(run.key, run.devices, run.group, run.device_memory_mib, run.parked_mib) for run in d.state.runs.rows.values()]
    return groups, sorted(runs)


def test_what_is_slower_is_undone_and_not_tried_again() -> None:
    d, (a, b) = overloaded()
    before = placement(d)
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    told = rounds(d, {a: 210, b: 220})
    assert "packing is undone: the devices do 0.93 times the work" in told[0]
    assert placement(d) == before
    assert rounds(d, {a: ALONE, b: ALONE}, 10) == []
    (memo,) = [memo for (_, subject), memo in d.state.memos.rows.items() if "pair/" in subject]
    assert memo.value[0] == WORSE
    told = [line.text for line in d.step(after=90_000).log]  # a day later it is forgotten, and tried again
    assert told
    assert "packing is tried" in told[0]


def test_after_a_failure_the_next_pair_is_tried() -> None:
    d, (a, b, c) = overloaded(3)
    d.profile({a: ALONE}, utilisation=10)
    d.profile({b: ALONE}, utilisation=20)
    d.profile({c: ALONE}, utilisation=30)
    until_packed(d, a, b)
    rounds(d, {a: 300, b: 300}, 3)
    assert d.rows_of(a)[:1] == [[a, c]]
    rounds(d, {a: 120, c: 120}, 3)
    assert d.rows_of(a) == [[a, c], [b]]


def test_after_a_success_the_next_job_joins_the_pack() -> None:
    d, (a, b, c) = overloaded(3)
    d.profile({a: ALONE, b: ALONE, c: ALONE})
    until_packed(d, a, b)
    rounds(d, {a: 110, b: 110}, 3)
    until_packed(d, a, b, c)
    assert d.rows_of(a) == [[a, b, c]]
    told = rounds(d, {a: 400, b: 400, c: 400}, 3)
    assert "packing is undone" in told[0]
    assert d.rows_of(a) == [[a, b], [c]], "the pack that paid stays"


def test_what_was_not_measured_alone_is_not_packed() -> None:
    d, (a, b) = overloaded()
    d.profile({a: ALONE})
    for _ in range(10):
        d.step(after=60)
    assert d.rows_of(a) == [[a], [b]]


def test_what_does_not_fit_into_the_memory_of_a_device_is_not_packed() -> None:
    d, (a, b) = overloaded()
    d.profile({a: ALONE, b: ALONE}, memory=20_000)
    for _ in range(10):
        d.step(after=60)
    assert d.rows_of(a) == [[a], [b]]


@pytest.mark.parametrize("memory", [20_000, 17_000], ids=["do not fit", "leave no room for a third that is parked"])
def test_a_pair_without_room_does_not_keep_others_from_being_packed(memory: int) -> None:
    d, (a, b, c) = overloaded(3)
    for job, uses in ((a, memory), (b, memory), (c, 4000)):
        d.profile({job: ALONE}, memory=uses)
    until_packed(d, a, c)
    assert d.rows_of(a) == [[a, c], [b]]


@pytest.mark.parametrize("what", ["few", "unsettled", "other plan"])
def test_a_probe_is_judged_only_by_mini_batches_that_belong_to_it(what: str) -> None:
    d, (a, b) = overloaded()
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    if what == "few":
        told = [line for _ in range(3) for line in d.measure({a: 110, b: 110}, count=19).log]
    elif what == "unsettled":
        told = list(d.measure({a: 110, b: 110}, count=10_000).log)
    else:
        told = []
    told += [line for _ in range(3) for line in d.step(after=60).log]
    assert told == []
    assert d.rows_of(a) == [[a, b]]


def test_a_probe_that_nobody_measures_is_undone() -> None:
    d, (a, b) = overloaded()
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    told = [line.text for _ in range(12) for line in d.step(after=60).log if line.kind is EventKind.PROBED]
    assert told[:2] == ["packing is undone: the jobs were not measured in time"] * 2
    memo = memo_of(d.state, pair_subject("", kind_of(d.job(a)), kind_of(d.job(b))))
    assert memo is not None
    assert memo.value[0] == WORSE, "else the pair would be tried again at once, and would never do its work"


def test_a_probe_of_jobs_that_take_long_turns_has_ten_of_their_cycles() -> None:
    d, (a, b, c) = overloaded(3)
    d.switches(a, b, c, park=3, resume=3)
    for _ in range(2):
        d.step(after=60)
    assert d.period_of(a) == 600
    d.profile({a: ALONE, b: ALONE, c: ALONE})
    until_packed(d, a, b)
    assert (d.rows_of(a), d.period_of(a)) == ([[a, b], [c]], 600)
    d.step(after=5900)
    assert d.rows_of(a) == [[a, b], [c]], "it is still to be measured"
    told = [line.text for _ in range(3) for line in d.step(after=60).log if line.kind is EventKind.PROBED]
    assert "not measured in time" in told[0]


def test_a_probe_ends_when_one_of_its_jobs_does() -> None:
    d, (a, b) = overloaded()
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    d.leaves(b)
    assert d.run(a).group == 0
    (text,) = [line.text for _ in range(2) for line in d.step(after=60).log if line.kind is EventKind.PROBED]
    assert text == "packing ends undecided: not all of the packed jobs are there any more"
    assert not [subject for _, subject in d.state.memos.rows if "probe/" in subject]


def test_a_new_leader_judges_the_probe_that_the_last_one_began() -> None:
    d, (a, b) = overloaded()
    before = placement(d)
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    d.state = d.state.rebuild()
    d.state.measured.rows.clear()  # which no database has
    told = rounds(d, {a: 300, b: 300}, 3)
    assert "packing is undone" in told[0]
    assert placement(d) == before


def test_nobody_joins_while_a_probe_is_measured() -> None:
    d, (a, b) = overloaded()
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    (number,) = d.state.share_groups.rows
    assert memo_of(d.state, probe_subject("", number)) is not None
    third = d.begin(4)
    assert d.job(third).state is JobState.QUEUED
    rounds(d, {a: 110, b: 110}, 3)
    assert d.rows_of(third) == [[a, b], [third]]


def test_gangs_on_the_same_devices_are_packed_as_wholes() -> None:
    d = Introspected("n1", "n2")
    a, b = (d.submit(replace(gang_of(2, 4), name=name)) for name in "ab")
    for job in (a, b):
        d.step(*(d.ready(job, task) for task in (0, 1)))
        d.step(*(d.started(job, task) for task in (0, 1)))
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    (group,) = d.state.share_groups.rows.values()
    assert group.rows == (Row(tuple(sorted(d.state.runs.rows))),)


TIMES = st.sampled_from((90, 110, 150, 200, 250, 400))


@given(
    jobs=st.integers(2, 4),
    utilisations=st.lists(st.sampled_from((5, 20, 60, 95)), min_size=4, max_size=4),
    packed=st.lists(TIMES, min_size=4, max_size=4),
)
def test_whatever_is_undone_leaves_the_placement_as_it_was(jobs: int, utilisations: list[int], packed: list[int]) -> None:
    """For any jobs and measurements: after an undo all rows, limits and devices are those of before the probe."""
    d, all_jobs = overloaded(jobs)
    for job, used in zip(all_jobs, utilisations, strict=False):
        d.profile({job: ALONE}, utilisation=used)
    before = placement(d)
    for _ in range(14):
        now = placement(d)
        taken = d.step(after=30)
        told = [line.text for line in taken.log if line.kind is EventKind.PROBED]
        if any("is undone" in text for text in told) and not any("is tried" in text for text in told):
            assert placement(d) == before
        elif any("is tried" in text for text in told) and not any("is undone" in text for text in told):
            before = now
        rows = d.rows_of(all_jobs[0])
        times = {
            job: time for job, time in zip(all_jobs, packed, strict=False) if any(job in row and len(row) > 1 for row in rows)
        }
        d.measure(times, after=30)


def test_a_pair_is_judged_by_itself_however_many_take_turns_with_it() -> None:
    """Of four jobs in turns, a pair that does 1.1 times its work makes the whole group only 1.03 times as fast."""
    d, (a, b, *_) = overloaded(4)
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    told = rounds(d, {a: 182, b: 182}, 2)
    assert "packing is kept: the devices do 1.10 times the work" in told[0]


def test_a_pair_that_has_paid_is_tried_before_the_jobs_of_the_lowest_utilisation() -> None:
    d, (a, b, c) = overloaded(3)
    d.profile({b: ALONE, c: ALONE}, utilisation=30)
    until_packed(d, b, c)
    rounds(d, {b: 120, c: 120}, 3)
    d.leaves(b)
    d.leaves(c)
    b, c = (d.begin(what=replace(spec(4), name=name)) for name in "bc")
    d.profile({a: ALONE}, utilisation=10)
    d.profile({b: ALONE}, utilisation=20)
    d.profile({c: ALONE}, utilisation=30)
    until_packed(d, b, c)
    assert [b, c] in d.rows_of(b)


def test_jobs_that_make_no_progress_together_are_not_tried_again() -> None:
    """Without a measurement there is no verdict; jobs that were packed again and again would never end."""
    d, (a, b) = overloaded()
    d.profile({a: ALONE, b: ALONE})
    until_packed(d, a, b)
    told = [line.text for _ in range(30) for line in d.step(after=60).log if line.kind is EventKind.PROBED]
    assert told == ["packing is undone: the jobs were not measured in time"] * 2
    assert d.rows_of(a) == [[a], [b]]
