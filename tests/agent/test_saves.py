"""What an agent tells of the saves of real programs: what would save them, and whether they had saved when they ended."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import job_pb2

from tests.agent.conftest import AgentProcess, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler

ROOT = Path(__file__).parents[2]
SAVED, NOT_SAVED, UNKNOWN = job_pb2.SAVE_OUTCOME_SAVED, job_pb2.SAVE_OUTCOME_NOT_SAVED, job_pb2.SAVE_OUTCOME_UNSPECIFIED

NOTHING = "open('ready', 'w').close(); import time; time.sleep(600)"
HANDLER = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)); " + NOTHING
SAVES = """
import time
from client_sdk.training import Checkpointer, steps
with Checkpointer() as checkpoint:
    while True:
        steps().advance()
        {before}
        checkpoint.at_boundary(lambda: b"x" * 100_000)
        time.sleep(0.02)
        open("ready", "w").close()
"""
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, -1))"
BUSY = "time.sleep(600 if steps().step > 1 else 0)"
"""A step that lasts."""


@pytest.mark.parametrize(
    ("program", "wrapped", "means", "outcome", "says"),
    [
        (NOTHING, False, pb.SAVE_MEANS_NONE, NOT_SAVED, "has not registered"),
        (NOTHING, True, pb.SAVE_MEANS_NONE, NOT_SAVED, "has not registered"),
        (HANDLER, False, pb.SAVE_MEANS_HANDLER, UNKNOWN, "handles SIGTERM itself"),
        (SAVES.format(before=""), False, pb.SAVE_MEANS_REGISTERED, SAVED, ""),
        (SAVES.format(before=""), True, pb.SAVE_MEANS_REGISTERED, SAVED, ""),
        (SAVES.format(before=FULL), False, pb.SAVE_MEANS_REGISTERED, NOT_SAVED, "File too large"),
        (SAVES.format(before=BUSY), False, pb.SAVE_MEANS_REGISTERED, NOT_SAVED, "end of its grace period"),
    ],
    ids=["nothing", "nothing in a shell", "handler", "saves", "saves in a shell", "full disk", "long step"],
)
def test_what_is_told_of_a_program(
    scheduler: FakeScheduler,
    agent: Callable[..., AgentProcess],
    state: Path,
    program: str,
    wrapped: bool,
    means: Any,
    outcome: Any,
    says: str,
) -> None:
    scheduler.heartbeat = 0.05
    agent()
    scheduler.connected()
    command = [sys.executable, "-c", program]
    if wrapped:
        command = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))}
    scheduler.start(1, *command, environment=environment)
    until((run_directory(state, 1) / "ready").exists, 60)
    scheduler.wait(lambda: any(known.means == means for seen in scheduler.observations[-1:] for known in seen.checkpoints))
    scheduler.stop(1, grace=3 if "600 if" in program else 30)
    save = scheduler.exited(1).save
    assert save.outcome == outcome, save
    assert says in save.detail
    assert save.HasField("step") is (outcome == SAVED)
