"""The executor by itself: what one message, or one chunk of the launcher's events, brings about, or does not."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node_agent.devices.simulated import simulate_devices
from node_agent.processes.cgroups import Groups
from node_agent.processes.launcher.client import Beside, Connected, Ended, Lost, NotSpawned, Spawned, SpawnRequest, Unable
from node_agent.processes.memory_watch import OomKills
from node_agent.processes.process_groups import start_ticks
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Exited, Ready
from node_agent.run_state.model import (
    Gang,
    LaunchSpec,
    Prepared,
    Process,
    RunKey,
    Running,
    RunPhase,
    Stopped,
    StopReason,
    clean,
)
from node_agent.runs import stopping as module
from node_agent.runs.ending import LAUNCH_ERROR_LIMIT
from node_agent.runs.executor import Executor
from node_agent.runs.rendezvous import Rendezvous
from node_agent.runs.spool_opening import open_spool
from node_agent.spool.spool import Spool
from node_agent.transport import convert
from node_agent.transport.messages import Reports

ONE, TWO = RunKey(1, 1), RunKey(2, 1)


def running(key: RunKey, **more: Any) -> Running:
    return Running(LaunchSpec(key, ("true",), **more), 1)


def stopped(key: RunKey, grace: float, generation: int = 2) -> Stopped:
    return Stopped(key, generation, grace)


class Recorder:
    """In place of the launcher."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, RunKey]] = []

    def spawn(self, request: SpawnRequest) -> None:
        self.asked.append(("spawn", request.key))
        Path(request.run_directory).mkdir(parents=True, exist_ok=True)

    def find(self, key: RunKey, _directory: Path, *, beside: bool = False) -> None:  # noqa: ARG002
        self.asked.append(("find", key))


class Stage:
    def __init__(self, state: Path, monkeypatch: pytest.MonkeyPatch, groups: Groups | None = None) -> None:
        self.spool: Spool = open_spool(state / "spool.db")
        self.launcher = Recorder()
        self.failures: list[Exception] = []
        self.signals: list[tuple[int, int]] = []
        monkeypatch.setattr(module, "is_led_by", lambda pid, ticks: ticks == pid * 10)
        monkeypatch.setattr(module, "kill_group", lambda pid, signum=9: self.signals.append((pid, signum)))
        monkeypatch.setattr(module, "terminate_group", lambda pid, _: self.signals.append((pid, signal.SIGTERM)))
        self.paths = paths = Paths(state, state / "checkpoints", self.spool.short_id)
        self.rendezvous = rendezvous = Rendezvous(lambda: "127.0.0.1")
        provider = simulate_devices("dgx-a100", "n1")
        self.executor = Executor(self.spool, provider, paths, "n1", rendezvous, lambda: None, self.failures.append, groups)
        self.executor.connect(self.launcher)  # type: ignore[arg-type]

    def running(self, key: RunKey, pid: int) -> None:
        self.executor.obey([running(key)])
        self.executor.hear([Spawned(key, pid, pid * 10, child=True)])


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage(tmp_path, monkeypatch)
    yield stage
    stage.executor.close()
    stage.spool.close()


async def test_two_stops_in_one_message_are_one_signal_and_the_earlier_deadline(stage: Stage) -> None:
    stage.running(ONE, 77)
    stage.executor.obey([stopped(ONE, 60), stopped(ONE, 30, generation=3)])
    assert stage.signals == [(77, signal.SIGTERM)]
    record = stage.spool.runs[ONE]
    assert record.signalled
    assert record.stop_deadline == pytest.approx(time.monotonic() + 30, abs=5)
    assert stage.executor.stopping.deadlines[ONE].when() == record.stop_deadline


async def test_a_run_that_its_checkpoint_command_has_saved_is_not_waited_for_long(stage: Stage) -> None:
    """What it does from there on is lost."""
    stage.executor.obey([running(ONE, checkpoint_command="save")])
    stage.executor.hear([Spawned(ONE, 77, 770, child=True)])
    stage.executor.obey([Stopped(ONE, 2, 1000, StopReason.PREEMPTED)])
    assert stage.launcher.asked == [("spawn", ONE), ("spawn", ONE)]
    assert stage.signals == []
    stage.executor.hear([Beside(Spawned(ONE, 88, 880, child=True)), Beside(Ended(ONE, 0, 0))])
    assert stage.signals == [(77, signal.SIGTERM)]
    record = stage.spool.runs[ONE]
    assert record.checkpoint.startswith("its checkpoint command saved its work in ")
    assert record.stop_deadline is not None
    assert record.stop_deadline == stage.executor.stopping.deadlines[ONE].when() <= time.monotonic() + 10
    stage.executor.hear([Ended(ONE, 0, signal.SIGTERM)])
    (exited,) = [report.event for report in stage.spool.pending() if isinstance(report.event, Exited)]
    assert (exited.yielded, exited.told, exited.checkpoint) == (True, True, record.checkpoint)


async def test_a_stop_that_comes_sooner_leaves_no_time_to_save(stage: Stage) -> None:
    stage.executor.obey([running(ONE, checkpoint_command="save")])
    stage.executor.hear([Spawned(ONE, 77, 770, child=True)])
    stage.executor.obey([Stopped(ONE, 2, 1000, StopReason.PREEMPTED)])
    assert stage.signals == []
    stage.executor.obey([Stopped(ONE, 3, 500, StopReason.CANCELLED)])
    assert stage.signals == [(77, signal.SIGTERM)], "who cancels wants nothing saved"
    assert ("find", ONE) in stage.launcher.asked, "its command is to be ended"


async def test_once_all_are_killed_nothing_is_launched_and_the_next_agent_does(stage: Stage) -> None:
    """The devices of those that were killed are free, and the scheduler may be quick."""
    stage.running(ONE, 77)
    stage.executor.kill_all()
    stage.executor.hear([Ended(ONE, 0, signal.SIGKILL)])
    stage.executor.obey([running(TWO)])
    assert stage.signals == [(77, signal.SIGKILL)]
    assert stage.launcher.asked == [("spawn", ONE)]
    assert stage.spool.runs[TWO].phase is RunPhase.STARTING


async def test_an_event_that_fails_leaves_memory_and_numbers_as_they_were(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.running(ONE, 77)
    stage.executor.obey([running(TWO)])
    before = dict(stage.spool.runs), stage.spool.pending()

    def full(*_: object) -> None:
        raise OSError("the second event fails")

    with monkeypatch.context() as patched:
        patched.setattr(stage.executor._beginning, "handle_spawn", full)
        with pytest.raises(OSError, match="the second event fails"):
            stage.executor.hear([Ended(ONE, 3, 0), Spawned(TWO, 78, 780, child=True)])
    assert (dict(stage.spool.runs), stage.spool.pending()) == before
    stage.executor.hear([Ended(ONE, 3, 0), Spawned(TWO, 78, 780, child=True)])
    assert [(r.sequence, r.key) for r in stage.spool.pending()] == [(1, ONE), (2, ONE), (3, TWO)]


async def test_orders_that_cannot_be_kept_are_not_carried_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(stage.spool, "report", full)
        with pytest.raises(OSError, match="no space"):
            stage.executor.obey([running(ONE), stopped(TWO, 5)])
    assert dict(stage.spool.runs) == {}
    assert stage.launcher.asked == []
    stage.executor.obey([running(TWO)])
    assert stage.launcher.asked == [("spawn", TWO)]


async def test_a_fault_of_the_node_is_not_reported_and_a_stop_then_ends_the_run(stage: Stage) -> None:
    stage.executor.obey([running(ONE)])
    stage.executor.hear([Unable(ONE, "output.log: No space left on device")])
    assert stage.spool.pending() == []
    assert stage.spool.runs[ONE].phase is RunPhase.STARTING
    stage.executor.obey([stopped(ONE, 30)])
    assert stage.launcher.asked == [("spawn", ONE), ("find", ONE)]


async def test_tries_are_further_and_further_apart(stage: Stage) -> None:
    stage.executor.obey([running(ONE)])
    waits = []
    for _ in range(9):
        stage.executor.hear([Unable(ONE, "why")])
        waits.append(stage.executor.starting.retries.timers[ONE].when() - time.monotonic())
    assert waits == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30], abs=0.2)


async def test_a_node_may_be_at_fault_for_days(stage: Stage) -> None:
    stage.executor.obey([running(ONE)])
    stage.executor.starting.retries._tries[ONE] = 5000  # 2 to the power of that is no float
    stage.executor.hear([Unable(ONE, "why")])
    assert stage.executor.starting.retries.timers[ONE].when() - time.monotonic() == pytest.approx(30, abs=0.2)


async def test_what_is_reported_can_be_sent_and_stored(stage: Stage) -> None:
    stage.executor.obey([running(ONE)])
    stage.executor.hear([NotSpawned(ONE, "command a\0b\udcff: " + "ü" * 5000)])
    (report,) = stage.spool.pending()
    assert isinstance(report.event, Exited)
    error = report.event.launch_error
    assert error.startswith("command a\ufffdb\ufffd: üü")
    assert error.endswith("…")
    assert len(error.encode()) <= LAUNCH_ERROR_LIMIT
    assert convert.encode(Reports((report,)))


def test_clean() -> None:
    assert clean("as it is: ü…") == "as it is: ü…"
    assert clean("a\0b\nc\x1b[2J\udc80") == "a\ufffdb\ufffdc\ufffd[2J\ufffd"
    assert clean("üüüü", 8) == "üüüü"
    assert clean("üüüü", 7) == "üü…"


async def test_what_fails_in_a_callback_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.running(ONE, 77)

    def broken(*_: object) -> None:
        raise OSError("in the timer")

    stage.executor.obey([stopped(ONE, 60)])
    timer = stage.executor.stopping.deadlines[ONE]
    monkeypatch.setattr(module, "kill_group", broken)
    timer._run()  # type: ignore[attr-defined]
    assert [str(error) for error in stage.failures] == ["in the timer"]


async def test_strangers_are_all_gone_before_it_is_said(stage: Stage) -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as run:
        alive = Process(run.pid, start_ticks(run.pid))
        gone = Process(run.pid, alive.start_ticks - 1)
        stage.executor.hear([Connected({}, {"old/1.1": gone, "old/2.1": alive})])
        too_early = stage.executor.cleared.is_set()
        run.kill()
        assert not too_early
        await asyncio.wait_for(stage.executor.cleared.wait(), 20)
    assert stage.failures == []


async def test_what_the_kernel_killed_for_want_of_memory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = 5
    monkeypatch.setattr(OomKills, "read", lambda _: kills)
    monkeypatch.setattr(OomKills, "read_recent", lambda _: kills)
    stage.running(ONE, 77)
    stage.running(TWO, 78)
    told = RunKey(3, 1)
    stage.running(told, 79)
    stage.executor.hear([Ended(ONE, 0, signal.SIGKILL)])
    kills = 6
    stage.executor.obey([stopped(told, 0)])
    stage.executor.hear([Ended(TWO, 0, signal.SIGKILL), Ended(told, 0, signal.SIGKILL)])
    later = RunKey(4, 1)
    stage.running(later, 80)
    stage.executor.hear([Ended(later, 0, signal.SIGKILL)])
    ends = {r.key: r.event.out_of_memory for r in stage.spool.pending() if isinstance(r.event, Exited)}
    assert ends == {ONE: False, TWO: True, told: False, later: False}


async def test_a_run_that_is_killed_for_its_memory_says_so_however_it_is_found(stage: Stage) -> None:
    for key, pid in ((ONE, 77), (TWO, 78)):
        stage.running(key, pid)
        stage.executor.stopping.kill_for_memory(key, 1 << 30)
        stage.executor.stopping.kill_for_memory(key, 1 << 30)
    assert stage.signals == [(77, 9), (77, 9), (78, 9), (78, 9)]
    stage.executor.hear([Ended(ONE, 0, 0)])  # it came to its end before the signal did
    stage.executor.hear([Lost(TWO)])
    ends = [r.event for r in stage.spool.pending() if isinstance(r.event, Exited)]
    assert ends == [Exited(), Exited(signal=9, out_of_memory=True)]
    stage.executor.stopping.kill_for_memory(ONE, 1 << 30)
    assert len(stage.signals) == 4


@pytest.mark.parametrize(
    ("said", "ended", "reported"),
    [
        ("77", (0, signal.SIGTERM), Exited(done=True)),
        ("77", (143, 0), Exited(done=True)),
        ("77", (0, 0), Exited(done=True)),
        ("99", (0, 0), Exited()),
        (None, (0, 0), Exited()),
        ("77", (0, signal.SIGKILL), Exited(signal=9)),  # there was more to do after its work, and it did not come to its end
        ("77", (1, 0), Exited(1)),
        ("99", (0, signal.SIGTERM), Exited(signal=15)),  # a child's word, and the run had more to do
        ("", (0, signal.SIGTERM), Exited(signal=15)),
        (None, (0, signal.SIGTERM), Exited(signal=15)),
    ],
)
async def test_a_run_that_was_done_when_the_signal_came(
    stage: Stage, said: str | None, ended: tuple[int, int], reported: Exited
) -> None:
    stage.running(ONE, 77)
    if said is not None:
        Path(stage.paths.done_file(ONE)).write_text(said)
    stage.executor.obey([stopped(ONE, 60)])
    stage.executor.hear([Ended(ONE, *ended)])
    event = stage.spool.pending()[-1].event
    assert isinstance(event, Exited)
    assert replace(event, save=None) == replace(reported, told=True), "what it saved is another matter"


async def test_a_run_that_ended_before_it_was_told_to_stop_is_not_said_to_have_been_told(stage: Stage) -> None:
    stage.running(ONE, 77)
    stage.executor.hear([Ended(ONE, 0, 0)])
    stage.executor.obey([stopped(ONE, 60)])
    (exited,) = [r.event for r in stage.spool.pending() if isinstance(r.event, Exited)]
    assert exited == Exited()


async def test_a_gang_that_cannot_get_ready_tries_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Prepared(LaunchSpec(ONE, ("true",), gang=Gang(0, 2, 0, 1, 0, ("n1", "n2"))), 1)

    def unknown() -> str:
        raise OSError("Name or service not known")

    monkeypatch.setattr(stage.rendezvous, "address", unknown)
    stage.executor.obey([wanted])
    assert stage.spool.pending() == []
    assert stage.spool.runs[ONE].phase is RunPhase.PREPARING
    monkeypatch.undo()
    stage.executor.starting.retries.timers[ONE]._run()  # type: ignore[attr-defined]
    (report,) = stage.spool.pending()
    assert report.event == Ready("127.0.0.1", stage.spool.runs[ONE].port)
    assert stage.launcher.asked == []


async def test_a_run_that_has_started_is_not_tried_again(stage: Stage) -> None:
    stage.executor.obey([running(ONE)])
    stage.executor.hear([Unable(ONE, "no room on the disk")])
    assert ONE in stage.executor.starting.retries.timers
    stage.executor.hear([Spawned(ONE, 77, 770, child=True)])
    assert not stage.executor.starting.retries.timers


async def test_an_agent_that_is_closed_tries_nothing_and_kills_nobody_any_more(stage: Stage) -> None:
    stage.executor.obey([running(TWO)])
    stage.executor.hear([Unable(TWO, "no room on the disk")])
    stage.running(ONE, 77)
    stage.executor.obey([stopped(ONE, 60)])
    stage.executor.close()
    assert stage.executor.starting.retries.timers[TWO].cancelled()
    assert stage.executor.stopping.deadlines[ONE].cancelled()
