"""CRIU: a contract for a fake and, where that works, for the real program; and its failures."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.jobs import criu
from node_agent.jobs.criu import Criu
from node_agent.jobs.processes import stat_fields
from node_agent.jobs.verdict import Verdict
from tests.agent.conftest import until

LIMIT = 60.0
_COUNTER = """
import os, sys, time
path = sys.argv[1]
token = os.urandom(8).hex()
count = int(open(path).read().split()[0]) if os.path.exists(path) else 0
while True:
    count += 1
    with open(path + ".new", "w") as file:
        file.write(f"{count} {token}")
    os.replace(path + ".new", path)
    time.sleep(0.01)
"""


class Counter:
    """A program that counts into a file, and keeps a random word in its memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-S", "-c", _COUNTER, str(path)]
        self._process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        self.pid = self._process.pid
        until(path.exists)

    def count(self) -> int:
        return int(self.path.read_text().split()[0])

    def word(self) -> str:
        return self.path.read_text().split()[1]

    def advances(self) -> None:
        """Waits until it has counted on."""
        before = self.count()
        until(lambda: self.count() > before)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self, pid: int | None = None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid or self.pid, signal.SIGKILL)
        if pid is None:
            self._process.wait()


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[Counter]:
    made = Counter(tmp_path / "count")
    yield made
    made.end()


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says how the fake behaves from now on."""
    path = tmp_path / "plan.json"
    monkeypatch.setenv("EBB_FAKE_CRIU", str(path))

    def write(**given: Any) -> None:
        path.write_text(json.dumps(given))

    write()
    return write


@pytest.fixture
def fake(tmp_path: Path, plan: Callable[..., None]) -> Criu:
    script = tmp_path / "criu"
    module = Path(__file__).with_name("fake_criu.py")
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{module}" "$@"\n')
    script.chmod(0o755)
    return Criu(str(script))


# ---- the contract ----------------------------------------------------------------------------------------------------------


async def the_contract(program: Criu, counter: Counter, images: Path) -> int:
    """What every CRIU keeps. Returns the pid of the program that was restored."""
    counter.advances()
    dumped = await program.dump(counter.pid, images, limit_seconds=LIMIT)
    assert (dumped.verdict, dumped.pid, dumped.why) == (Verdict.DONE, None, "")
    until(counter.has_ended)
    at = counter.count()
    restored = await program.restore(images, limit_seconds=LIMIT)
    assert (restored.verdict, restored.why) == (Verdict.DONE, "")
    assert restored.pid is not None
    assert stat_fields(restored.pid)
    until(lambda: counter.count() > at)
    return restored.pid


async def test_the_contract_holds_for_the_fake(
    fake: Criu, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(criu, "_effective", lambda: 1 << 40)
    assert await fake.unusable() == ""
    counter.end(await the_contract(fake, counter, tmp_path / "images"))


async def test_the_contract_holds_for_the_real_one_or_that_says_why_not(counter: Counter, tmp_path: Path) -> None:
    """Where CRIU works the program goes on with what it had in memory. Elsewhere it must be said what is missing."""
    real = Criu()
    if why := await real.unusable():
        assert why.startswith(("CRIU is not installed", "CRIU is too old", "CRIU does not work", "the agent may not use CRIU"))
        counter.advances()
        return
    word = counter.word()
    pid = await the_contract(real, counter, tmp_path / "images")
    try:
        assert pid == counter.pid
        assert counter.word() == word
    finally:
        counter.end(pid)


# ---- failures --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"version": "Version: 3.17.1"}, "CRIU is too old (Version: 3.17.1): install CRIU 4.2 or later"),
        ({"version": "nonsense"}, "CRIU is too old (nonsense): install CRIU 4.2 or later"),
        ({"fail": {"check": "no vdso"}}, "CRIU does not work on this kernel: no vdso"),
    ],
)
async def test_what_cannot_be_used_is_said(
    fake: Criu, plan: Callable[..., None], monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(criu, "_effective", lambda: 1 << 40)
    plan(**how)
    assert await fake.unusable() == why


async def test_an_agent_that_may_not_use_it_says_so(fake: Criu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criu, "_effective", lambda: 1 << 5)
    assert "run it as root, or with one of CAP_SYS_ADMIN, CAP_CHECKPOINT_RESTORE" in await fake.unusable()


async def test_a_criu_that_is_not_there_is_said() -> None:
    assert "CRIU is not installed" in await Criu("/nowhere/criu").unusable()


async def test_a_program_that_cannot_be_dumped_runs_on(
    fake: Criu, counter: Counter, plan: Callable[..., None], tmp_path: Path
) -> None:
    plan(fail={"dump": "can't dump a socket"})
    outcome = await fake.dump(counter.pid, tmp_path / "images", limit_seconds=LIMIT)
    assert (outcome.verdict, outcome.pid) == (Verdict.REFUSED, counter.pid)
    assert "can't dump a socket" in outcome.why
    counter.advances()
    again = await fake.restore(tmp_path / "images", limit_seconds=LIMIT)
    assert again.verdict is Verdict.REFUSED
    assert "no complete dump" in again.why


async def test_a_dump_that_takes_too_long_loses_the_program(
    fake: Criu, counter: Counter, plan: Callable[..., None], tmp_path: Path
) -> None:
    plan(hang=["dump"])
    outcome = await fake.dump(counter.pid, tmp_path / "images", limit_seconds=0.5)
    assert (outcome.verdict, outcome.pid) == (Verdict.LOST, counter.pid)
    assert "has not exited within 0.5 s" in outcome.why


async def test_a_restore_that_fails_can_be_tried_again(
    fake: Criu, counter: Counter, plan: Callable[..., None], tmp_path: Path
) -> None:
    images = tmp_path / "images"
    await fake.dump(counter.pid, images, limit_seconds=LIMIT)
    until(counter.has_ended)
    plan(fail={"restore": "a file is missing"})
    outcome = await fake.restore(images, limit_seconds=LIMIT)
    assert (outcome.verdict, outcome.pid) == (Verdict.REFUSED, None)
    assert "a file is missing" in outcome.why
    plan()
    restored = await fake.restore(images, limit_seconds=LIMIT)
    assert restored.verdict is Verdict.DONE
    counter.end(restored.pid)


async def test_what_would_overwrite_or_double_is_refused(fake: Criu, counter: Counter, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (images / "ebb.json").write_text(json.dumps({"pid": counter.pid}))
    outcome = await fake.dump(counter.pid, images, limit_seconds=LIMIT)
    assert (outcome.verdict, outcome.why) == (Verdict.REFUSED, f"{images} is not empty")
    outcome = await fake.restore(images, limit_seconds=LIMIT)
    assert outcome.verdict is Verdict.REFUSED
    assert "has its pid" in outcome.why
    gone = await fake.dump(1 << 22, tmp_path / "other", limit_seconds=LIMIT)
    assert (gone.verdict, gone.why) == (Verdict.REFUSED, f"there is no process {1 << 22}")
