"""Runs that take turns on the devices of an agent, and parks that the scheduler desires: real agents, real processes."""

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import pairwise, product
from pathlib import Path

from ebb.agent.v1 import agent_link_pb2 as pb

from tests import preloaded
from tests.agent.conftest import AgentProcess, _kill, alive, of_state, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler, gang, share_plan
from tests.agent.parkable import PROGRAM
from tests.agent.test_snapshots import archive
from tests.nvml.conftest import PlugIn, library, plug_in  # noqa: F401 (fixtures)
from tests.nvml.test_machines import load

Start = Callable[..., AgentProcess]
MACHINE = Path(__file__).parents[1] / "nvml" / "machines" / "pcie-8.json"
COMMAND = (sys.executable, "-S", "-c", PROGRAM)


def segments(state: Path, job: int) -> list[tuple[float, float]]:
    """When a program has executed, from its point of view; without the segment that it is in."""
    text = (run_directory(state, job) / "segments.txt").read_text()
    return [(float(line.split()[0]), float(line.split()[1])) for line in text.splitlines()]


def steps(state: Path, job: int) -> int:
    file = run_directory(state, job) / "steps.txt"
    return int(file.read_text() or 0) if file.exists() else 0


def goes_on(state: Path, job: int) -> None:
    before = steps(state, job)
    until(lambda: steps(state, job) > before, 60.0)


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def never_together(state: Path, *jobs: int) -> list[tuple[float, float, int]]:
    """All segments of these jobs, in order, of which no two may overlap."""
    found = sorted((begin, end, job) for job in jobs for begin, end in segments(state, job))
    for (_, end, _), (begin, _, _) in pairwise(found):
        assert begin >= end
    return found


def begin(scheduler: FakeScheduler, plan: pb.SharePlan, *jobs: int, mood: str = "", devices: tuple[int, ...] = (0,)) -> None:
    for job in jobs:
        scheduler.start(job, *COMMAND, mood, share=plan, devices=devices)


def switched(scheduler: FakeScheduler, times: int) -> bool:
    """Whether members were parked so often, as they are seen now."""
    return sum(seen.switches for seen in scheduler.slices().values()) >= times


# ---- turns -----------------------------------------------------------------------------------------------------------------


def test_runs_take_turns_by_their_weights(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    begin(scheduler, share_plan((1,), (2,), period=1.2, weights=(1, 2)), 1, 2)
    scheduler.started(1), scheduler.started(2)
    scheduler.wait(lambda: all(seen.switches >= 6 for seen in scheduler.slices().values()) and len(scheduler.slices()) == 2, 60)
    found = never_together(state, 1, 2)
    assert {job for _, _, job in found} == {1, 2}
    seen = scheduler.slices()
    assert seen[1].rung == seen[2].rung == "cooperative"
    assert not (seen[1].executing and seen[2].executing)
    had = {job: sum(end - start for start, end in segments(state, job)[:6]) for job in (1, 2)}
    assert 1.4 < had[2] / had[1] < 2.8, had
    assert not [report for report in scheduler.reports if report.WhichOneof("event") in ("parked", "resumed", "park_refused")]
    for job in (1, 2):
        told = seen[job].executed.ToTimedelta().total_seconds()
        assert told <= seen[job].since.ToTimedelta().total_seconds()


def test_an_agent_that_is_killed_in_a_turn_goes_on(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    """It leaves one run parked; the next agent resumes it when its turn comes."""
    first = agent()
    scheduler.connected()
    begin(scheduler, share_plan((1,), (2,), period=1.0), 1, 2)
    for times in range(1, 4):
        scheduler.wait(partial(switched, scheduler, 4 * times), 60)
        first.kill()
        scheduler.observations.clear()
        first = agent()
        scheduler.connected(times + 1)
    for job in (1, 2):
        goes_on(state, job)
    never_together(state, 1, 2)
    assert len({report.sequence for report in scheduler.reports}) == 2, "nothing but two starts was reported"


def test_runs_of_a_row_of_weight_0_are_parked_until_the_others_have_ended(
    agent: Start, scheduler: FakeScheduler, state: Path
) -> None:
    agent()
    scheduler.connected()
    begin(scheduler, share_plan((1,), (2,), period=1.0), 1, 2)
    scheduler.started(1), scheduler.started(2)
    scheduler.wait(partial(switched, scheduler, 2), 60)
    scheduler.observations.clear()
    begin(scheduler, share_plan((1,), (2,), period=1.0, generation=2, weights=(1, 0)), 1, 2)
    scheduler.wait(lambda: len(seen := scheduler.slices()) == 2 and seen[1].executing and not seen[2].executing, 60)
    parked = steps(state, 2)
    for _ in range(3):
        goes_on(state, 1)
    assert steps(state, 2) == parked
    scheduler.stop(1, 30)
    scheduler.exited(1)
    goes_on(state, 2)
    never_together(state, 1, 2)


def test_a_row_whose_runs_have_ended_gives_its_time_away(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    plan = share_plan((1,), (2,), period=1.0)
    scheduler.start(1, "/bin/sleep", "0.01", share=plan, devices=(0,))
    begin(scheduler, plan, 2)
    assert scheduler.exited(1).exit_code == 0
    pid = scheduler.started(2).pid
    goes_on(state, 2)
    scheduler.observations.clear()
    switches = scheduler.wait(lambda: scheduler.slices().get(2)).switches
    count = len(scheduler.observations)
    scheduler.wait(lambda: len(scheduler.observations) >= count + 3)
    assert scheduler.slices()[2].switches == switches
    assert scheduler.slices()[2].executing
    assert alive(pid)


def test_a_parked_run_that_is_stopped_saves_its_work(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    """Its turn would come in ten minutes."""
    agent()
    scheduler.connected()
    period = 1200.0
    turn = 0 if time.time() % period < period / 2 else 1
    if period / 2 - time.time() % (period / 2) < 30:
        period = 1300.0  # so that no turn ends during the test
        turn = 0 if time.time() % period < period / 2 else 1
    has, lacks = (1, 2) if turn == 0 else (2, 1)
    plan = share_plan((1,), (2,), period=period)
    scheduler.start(lacks, *COMMAND, devices=(0,))  # alone at first
    parked = scheduler.started(lacks).pid
    goes_on(state, lacks)
    begin(scheduler, plan, 1, 2)
    scheduler.started(has)
    goes_on(state, has)
    assert process_state(parked) == "T"
    scheduler.stop(lacks, 30)
    exited = scheduler.exited(lacks)
    assert (exited.exit_code, exited.exit_signal, exited.yielded) == (0, 0, True)
    goes_on(state, has)
    never_together(state, 1, 2)


def test_all_members_of_a_group_save_their_work(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    """The agent is not there when they are to be stopped, and one of them is parked."""
    first = agent()
    scheduler.connected()
    begin(scheduler, share_plan((1,), (2,), (3,), period=1.5), 1, 2, 3)
    scheduler.wait(lambda: len(scheduler.slices()) == 3 and switched(scheduler, 5), 60)
    first.kill()
    first = agent()
    scheduler.connected(2)
    for job in (1, 2, 3):
        scheduler.stop(job, 60)
    for job in (1, 2, 3):
        assert scheduler.exited(job, limit=60).yielded
    never_together(state, 1, 2, 3)


def test_a_parked_run_is_killed_at_once_without_a_grace_period(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    begin(scheduler, share_plan((1,), (2,), period=1.0), 1, 2)
    scheduler.wait(partial(switched, scheduler, 2), 60)
    for job in (1, 2):
        scheduler.stop(job, 0)
    for job in (1, 2):
        assert scheduler.exited(job).exit_signal == signal.SIGKILL


def test_a_run_without_a_group_any_more_goes_on(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    begin(scheduler, share_plan((1,), (2,), period=600.0), 1, 2)
    until(lambda: scheduler.of(1) or scheduler.of(2))
    begin(scheduler, share_plan((1,), (2,), period=1.0, generation=2), 1, 2)
    pids = {scheduler.started(job).pid for job in (1, 2)}
    assert len(pids) == 2, "the one that waited for its turn has begun"
    scheduler.start(1, *COMMAND, "", devices=(0,))
    scheduler.stop(2, 30)
    scheduler.exited(2)
    goes_on(state, 1)
    until(lambda: not scheduler.slices())


def test_a_run_that_cannot_start_leaves_its_turn_to_others(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    """The snapshot of the first run comes late. The second one is never parked until then."""
    agent()
    scheduler.connected()
    digest = archive(scheduler, code="x")
    scheduler.fetching.clear()
    plan = share_plan((1,), (2,), period=1.0)
    scheduler.start(1, *COMMAND, share=plan, devices=(0,), snapshots=[digest])
    begin(scheduler, plan, 2)
    scheduler.started(2)
    goes_on(state, 2)
    count = len(scheduler.observations)
    scheduler.wait(lambda: len(scheduler.observations) >= count + 10)
    assert scheduler.slices()[2].switches == 0
    assert not scheduler.of(1)
    scheduler.fetching.set()
    scheduler.started(1)
    scheduler.wait(lambda: len(scheduler.slices()) == 2 and switched(scheduler, 8), 60)


# ---- parks that the scheduler desires --------------------------------------------------------------------------------------


def test_a_run_is_parked_and_resumed_as_desired(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, *COMMAND, devices=(0,))
    pid = scheduler.started(1).pid
    goes_on(state, 1)
    for times in (1, 2):
        scheduler.start(1, *COMMAND, devices=(0,), park_within=60)
        parked = scheduler.event("parked", 1, times=times)
        assert (parked.rung, parked.bytes, parked.residue_bytes) == ("cooperative", 64 << 20, 5)
        assert set(parked.phases) == {"copy", "wait", "stop"}
        assert process_state(pid) == "T"
        first.kill()
        first = agent()
        hello = scheduler.connected(times + 1)
        assert [run.phase for run in hello.runs] == [pb.RUN_PHASE_PARKED]
        assert process_state(pid) == "T"
        scheduler.start(1, *COMMAND, devices=(0,))
        assert scheduler.event("resumed", 1, times=times).rung == "cooperative"
        goes_on(state, 1)
    assert len(scheduler.of(1)) == 5


def test_a_run_that_is_to_be_parked_before_it_has_begun(agent: Start, scheduler: FakeScheduler) -> None:
    """Nothing of it is on a device yet, or it parks itself."""
    agent()
    scheduler.connected()
    scheduler.start(1, *COMMAND, devices=(0,), park_within=60)
    pid = scheduler.started(1).pid
    assert scheduler.event("parked", 1).rung in ("stopped", "cooperative")
    assert process_state(pid) == "T"


def test_a_run_that_was_parked_as_desired_has_no_devices_to_save_on(
    agent: Start, scheduler: FakeScheduler, state: Path
) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, *COMMAND, devices=(0,))
    scheduler.started(1)
    goes_on(state, 1)
    scheduler.start(1, *COMMAND, devices=(0,), park_within=60)
    scheduler.event("parked", 1)
    scheduler.stop(1, 600)
    exited = scheduler.exited(1)
    assert (exited.exit_signal, exited.told, exited.yielded) == (signal.SIGKILL, True, False)


def test_no_room_in_host_memory(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent("--parked-memory-mib", "0")
    scheduler.connected()
    scheduler.start(1, *COMMAND, devices=(0,))
    scheduler.started(1)
    goes_on(state, 1)
    scheduler.start(1, *COMMAND, devices=(0,), park_within=60)
    refused = scheduler.event("park_refused", 1)
    assert not refused.lost
    assert "0 MiB of 0 MiB" in refused.reason
    goes_on(state, 1)
    scheduler.stop(1, 30)
    assert scheduler.exited(1).yielded


def test_a_process_that_dies_while_it_is_parked(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, *COMMAND, devices=(0,))
    pid = scheduler.started(1).pid
    goes_on(state, 1)
    scheduler.start(1, *COMMAND, devices=(0,), park_within=60)
    scheduler.event("parked", 1)
    os.kill(pid, signal.SIGKILL)
    assert scheduler.exited(1).exit_signal == signal.SIGKILL


# ---- on GPUs ---------------------------------------------------------------------------------------------------------------


def test_a_run_that_cannot_be_parked_keeps_its_gpu(
    agent: Start,
    scheduler: FakeScheduler,
    state: Path,
    plug_in: PlugIn,  # noqa: F811
) -> None:
    """Its program refuses, it has memory on the GPU, and this machine has no driver that could help."""
    shim = plug_in(load(MACHINE)[0])
    agent(devices="nvml")
    scheduler.connected()
    scheduler.start(1, *COMMAND, "refuses", devices=(0,))
    pid = scheduler.started(1).pid
    goes_on(state, 1)
    shim.processes(0, {pid: 1000})
    scheduler.wait(lambda: scheduler.observations and scheduler.observations[-1].cycles)
    begin(scheduler, share_plan((1,), (2,), period=1.0), 1, 2, mood="refuses")
    refused = scheduler.event("park_refused", 1)
    assert not refused.lost
    assert "CUDA graphs" in refused.reason
    count = len(scheduler.observations)
    scheduler.wait(lambda: len(scheduler.observations) >= count + 4)
    seen = scheduler.slices()[1]
    assert (seen.tried, seen.switches, seen.outlasted.ToTimedelta()) == (True, 0, timedelta())
    goes_on(state, 1)
    assert not scheduler.of(2), "there is no room on the device for another program"
    assert len([report for report in scheduler.of(1) if report.WhichOneof("event") == "park_refused"]) == 1
    scheduler.stop(1, 30)
    assert scheduler.exited(1).yielded
    scheduler.started(2)
    goes_on(state, 2)


# ---- several nodes ---------------------------------------------------------------------------------------------------------


def test_the_agents_of_two_nodes_switch_together(agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path) -> None:
    """Runs 1 and 2 are a row, and 3 and 4 another one. Each node has a run of either row, and the nodes do not talk."""
    other, elsewhere = FakeScheduler(), tmp_path / "elsewhere"
    plan = share_plan((1, 2), (3, 4), period=2.0)
    second = AgentProcess(elsewhere, other.address, node="n2", start=preloaded.start)
    try:
        agent()
        scheduler.connected(), other.connected()
        begin(scheduler, plan, 1, 3)
        begin(other, plan, 2, 4)
        for fake in (scheduler, other):
            fake.wait(partial(switched, fake, 8), 60)
        of = {1: segments(state, 1), 3: segments(state, 3), 2: segments(elsewhere, 2), 4: segments(elsewhere, 4)}
    finally:
        second.kill()
        until(lambda: not [_kill(pid) for pid in of_state(elsewhere)])
        other.close()
    begun = max(found[1][0] for found in of.values())
    ended = min(found[-1][1] for found in of.values())
    assert ended - begun > 2.0
    for one, two in ((1, 4), (3, 2)):
        assert overlap(of[one], of[two], begun, ended) < 0.2 * (ended - begun), "they are of different rows"
    assert overlap(of[1], of[2], begun, ended) > 0.2 * (ended - begun), "they are of one row"


def test_the_agents_of_two_nodes_give_the_ranks_of_a_gang_the_same_numbers(
    agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path
) -> None:
    """Two gangs of two tasks take turns, and by these numbers their ranks know each park. An agent that is killed and
    started again gives the same ones, and so does one that has heard of a later plan than the others."""
    other, elsewhere = FakeScheduler(), tmp_path / "elsewhere"
    rows = [pb.ShareRow(runs=[pb.ShareMember(job_id=job, run=1, task=task) for task in (0, 1)], weight=1) for job in (1, 2)]
    plan, later = (pb.SharePlan(group=1, generation=generation, rows=rows) for generation in (1, 2))
    for each in (plan, later):
        each.period.FromMilliseconds(2000)
    second = AgentProcess(elsewhere, other.address, node="n2", start=preloaded.start)
    try:
        agent()
        scheduler.connected(), other.connected()
        for job in (1, 2):
            for rank, (fake, known) in enumerate(((scheduler, plan), (other, later))):
                place = gang(rank, go=("127.0.0.1", 1), size=2)
                fake.start(job, *COMMAND, share=known, devices=(0,), gang=place)
        for fake in (scheduler, other):
            fake.wait(partial(switched, fake, 8), 60)
        second.kill()
        other.observations.clear()
        second = AgentProcess(elsewhere, other.address, node="n2", start=preloaded.start)
        other.connected(2)
        other.wait(partial(switched, other, 14), 60)
        scheduler.wait(partial(switched, scheduler, 14), 60)
    finally:
        second.kill()
        until(lambda: not [_kill(pid) for pid in of_state(elsewhere)])
        other.close()
    seen: set[str] = set()
    for job in (1, 2):
        here, there = (list(dict.fromkeys(numbers(folder, job, rank))) for rank, folder in enumerate((state, elsewhere)))
        both = [number for number in here if number in there]
        assert len(both) >= 3
        assert both == [number for number in there if number in here], "in the same order"
        assert len(both) >= 0.7 * max(len(here), len(there))
        assert not seen & set(both), "each park of each gang has a number of its own"
        seen |= set(both)


def numbers(state: Path, job: int, rank: int) -> list[str]:
    """Of the parks that a rank was asked for."""
    (folder,) = state.glob(f"runs/*/{job}.1.{rank}" if rank else f"runs/*/{job}.1")
    return (folder / "numbers.txt").read_text().split()


def overlap(ones: list[tuple[float, float]], others: list[tuple[float, float]], begun: float, ended: float) -> float:
    """Seconds in which both execute."""
    return sum(max(0.0, min(a_end, b_end, ended) - max(a, b, begun)) for (a, a_end), (b, b_end) in product(ones, others))
