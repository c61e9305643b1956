"""The driver's checkpoint: a contract for the fake driver and, where there is a GPU, for the real one; and its failures."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from node_agent.devices import driver_checkpoint
from node_agent.devices.driver_checkpoint import DriverCheckpoint, Outcome, ProcessState, reason_against
from node_agent.run_state.park_state import Verdict
from tests.agent.conftest import until
from tests.agent.fake_checkpoint_driver import write_plan

PID = 4242
_CUDA_PROGRAM = """
from cuda.bindings import driver
(_,), (_, device) = driver.cuInit(0), driver.cuDeviceGet(0)
_, context = driver.cuDevicePrimaryCtxRetain(device)
driver.cuCtxSetCurrent(context)
_, memory = driver.cuMemAlloc(1 << 28)
print("ready", flush=True)
input()
"""


class Fake:
    """What the fake driver knows, as a test changes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.plan(pids={PID: "running"})
        self.driver = DriverCheckpoint((sys.executable, "-m", "tests.agent.fake_checkpoint_driver", str(path)))

    def known(self) -> Any:
        return json.loads(self._path.read_text())

    def plan(self, **plan: Any) -> None:
        known = self.known() if self._path.exists() else {}
        write_plan(self._path, known | plan)


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[Fake]:
    made = Fake(tmp_path / "driver.json")
    yield made
    await made.driver.close()


async def suspend(driver: DriverCheckpoint, pid: int = PID) -> Outcome:
    return await driver.suspend(pid, lock_seconds=5.0, limit_seconds=30.0)


async def resume(driver: DriverCheckpoint, pid: int = PID, **more: Any) -> Outcome:
    return await driver.resume(pid, limit_seconds=30.0, **more)


# ---- the contract ----------------------------------------------------------------------------------------------------------


async def the_contract(driver: DriverCheckpoint, pid: int) -> None:
    """What every driver keeps."""
    assert await driver.unusable() == ""
    assert await driver.state(pid) is ProcessState.RUNNING
    refused = await resume(driver, pid)
    assert (refused.verdict, refused.state) == (Verdict.REFUSED, ProcessState.RUNNING), "it was never suspended"
    assert refused.why
    for _ in range(2):
        done = await suspend(driver, pid)
        assert (done.verdict, done.state, done.why) == (Verdict.DONE, ProcessState.CHECKPOINTED, "")
        assert await driver.state(pid) is ProcessState.CHECKPOINTED
        done = await resume(driver, pid)
        assert (done.verdict, done.state, done.why) == (Verdict.DONE, ProcessState.RUNNING, "")
    nobody = await suspend(driver, 1 << 22)
    assert (nobody.verdict, nobody.state) == (Verdict.REFUSED, None)
    assert str(1 << 22) in nobody.why


async def test_the_contract_holds_for_the_fake(fake: Fake) -> None:
    await the_contract(fake.driver, PID)


def test_the_contract_holds_on_the_event_loop_of_the_agent(tmp_path: Path) -> None:
    async def scene() -> None:
        fake = Fake(tmp_path / "driver.json")
        try:
            await the_contract(fake.driver, PID)
        finally:
            await fake.driver.close()

    uvloop.run(scene())


async def test_the_contract_holds_for_the_real_driver_or_that_says_why_not() -> None:
    """Where there is a GPU, a process with memory on it is suspended. Elsewhere the helper must say what is missing."""
    driver = DriverCheckpoint()
    try:
        if why := await driver.unusable():
            assert "cuda-core is not installed" in why or "the driver cannot be used" in why
            refused = await suspend(driver)
            assert (refused.verdict, refused.state, refused.why) == (Verdict.REFUSED, None, why)
            return
        command = [sys.executable, "-c", _CUDA_PROGRAM]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            try:
                await the_contract(driver, program.pid)
            finally:
                program.kill()
    finally:
        await driver.close()


async def test_what_an_agent_left_half_done_is_taken_up(fake: Fake) -> None:
    fake.plan(pids={PID: "locked"})
    assert (await suspend(fake.driver)).verdict is Verdict.DONE
    fake.plan(pids={PID: "locked"})
    assert (await resume(fake.driver)).verdict is Verdict.DONE


# ---- failures --------------------------------------------------------------------------------------------------------------


async def test_a_process_that_cannot_be_locked_runs_on(fake: Fake) -> None:
    fake.plan(fail={"lock": "CUDA_ERROR_NOT_READY"})
    outcome = await suspend(fake.driver)
    assert (outcome.verdict, outcome.state) == (Verdict.REFUSED, ProcessState.RUNNING)
    assert outcome.why == f"lock of process {PID}: CUDA_ERROR_NOT_READY"


async def test_a_process_that_cannot_be_checkpointed_is_unlocked(fake: Fake) -> None:
    fake.plan(fail={"checkpoint": "CUDA_ERROR_NOT_SUPPORTED"})
    outcome = await suspend(fake.driver)
    assert (outcome.verdict, outcome.state) == (Verdict.REFUSED, ProcessState.RUNNING)
    assert "CUDA_ERROR_NOT_SUPPORTED" in outcome.why


@pytest.mark.parametrize("call", ["lock", "checkpoint"])
async def test_a_process_that_failed_on_its_way_out_is_lost(fake: Fake, call: str) -> None:
    fake.plan(broken=[call])
    outcome = await suspend(fake.driver)
    assert (outcome.verdict, outcome.state) == (Verdict.LOST, ProcessState.FAILED)
    assert call in outcome.why


async def test_a_process_that_cannot_be_unlocked_again_is_lost(fake: Fake) -> None:
    fake.plan(fail={"checkpoint": "CUDA_ERROR_OUT_OF_MEMORY", "unlock": "CUDA_ERROR_UNKNOWN"})
    outcome = await suspend(fake.driver)
    assert (outcome.verdict, outcome.state) == (Verdict.LOST, ProcessState.LOCKED)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in outcome.why


async def test_a_restore_that_is_refused_can_be_tried_again(fake: Fake) -> None:
    await suspend(fake.driver)
    fake.plan(fail={"restore": "CUDA_ERROR_OUT_OF_MEMORY"})
    outcome = await resume(fake.driver)
    assert (outcome.verdict, outcome.state) == (Verdict.REFUSED, ProcessState.CHECKPOINTED)
    fake.plan(fail={})
    assert (await resume(fake.driver, gpu_pairs={"GPU-a": "GPU-b", "GPU-b": "GPU-a"})).verdict is Verdict.DONE


async def test_a_restore_on_one_gpu_twice_is_refused(fake: Fake) -> None:
    await suspend(fake.driver)
    outcome = await resume(fake.driver, gpu_pairs={"GPU-a": "GPU-b", "GPU-b": "GPU-b"})
    assert (outcome.verdict, outcome.state) == (Verdict.REFUSED, ProcessState.CHECKPOINTED)


@pytest.mark.parametrize("call", ["restore", "unlock"])
async def test_a_process_that_failed_on_its_way_back_is_lost(fake: Fake, call: str) -> None:
    await suspend(fake.driver)
    fake.plan(broken=[call])
    assert (await resume(fake.driver)).verdict is Verdict.LOST


async def test_a_call_that_hangs_has_a_limit_and_the_state_is_asked_of_another_helper(fake: Fake) -> None:
    fake.plan(hang=["checkpoint"])
    outcome = await fake.driver.suspend(PID, lock_seconds=5.0, limit_seconds=0.2)
    assert (outcome.verdict, outcome.state) == (Verdict.REFUSED, ProcessState.RUNNING), "it was locked, and was unlocked"
    assert "has not answered within 0.2 s" in outcome.why
    fake.plan(hang=[])
    assert (await suspend(fake.driver)).verdict is Verdict.DONE


async def test_a_driver_that_hangs_altogether_loses_the_process(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_checkpoint, "_ASK_LIMIT", 0.2)
    fake.plan(hang=["state", "checkpoint"])
    assert await fake.driver.state(PID) is None
    monkeypatch.setattr(driver_checkpoint, "_MARGIN", 0.2)
    outcome = await fake.driver.suspend(PID, lock_seconds=0.1, limit_seconds=0.2)
    assert (outcome.verdict, outcome.state) == (Verdict.LOST, None)


async def test_a_request_that_is_cancelled_does_not_answer_the_next(fake: Fake) -> None:
    assert await fake.driver.state(PID) is ProcessState.RUNNING
    fake.plan(hang=["checkpoint"])
    request = asyncio.ensure_future(suspend(fake.driver))
    await asyncio.to_thread(until, lambda: fake.known()["pids"][str(PID)] == "locked")
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    fake.plan(hang=[])
    assert await fake.driver.state(PID) is ProcessState.LOCKED
    assert (await resume(fake.driver)).verdict is Verdict.DONE


async def test_an_unusable_driver_says_why(fake: Fake) -> None:
    fake.plan(unusable="no driver here")
    assert await fake.driver.unusable() == "no driver here"
    assert (await suspend(fake.driver)).why == "no driver here"


def test_the_helper_of_an_agent_that_was_killed_ends_without_a_traceback(fake: Fake, tmp_path: Path) -> None:
    with subprocess.Popen(
        (sys.executable, "-m", "tests.agent.fake_checkpoint_driver", str(tmp_path / "driver.json")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as helper:
        assert helper.stdin is not None
        assert helper.stdout is not None
        assert helper.stderr is not None
        assert json.loads(helper.stdout.readline()) == {"unusable": ""}
        helper.stdout.close()
        helper.stdin.write(json.dumps({"call": "lock", "pid": PID, "timeout_ms": 1}).encode() + b"\n")
        helper.stdin.close()
        errors = helper.stderr.read()
    assert (helper.returncode, errors) == (0, b"")
    assert fake.known()["pids"] == {str(PID): "locked"}, "what the agent asked last is done"


async def test_a_helper_that_cannot_be_started_is_told() -> None:
    driver = DriverCheckpoint(("/nowhere/helper",))
    assert "cannot be started" in await driver.unusable()


def test_what_is_against_it_beforehand() -> None:
    assert reason_against(1, mig=False, mps=False, machine="x86_64") == ""
    assert "MIG" in reason_against(1, mig=True, mps=False, machine="x86_64")
    assert "MPS" in reason_against(1, mig=False, mps=True, machine="x86_64")
    assert "has 8" in reason_against(8, mig=False, mps=False, machine="x86_64")
    assert "aarch64" in reason_against(1, mig=False, mps=False, machine="aarch64")
