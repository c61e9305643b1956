"""Processes that can be parked, without PyTorch: the agent's side is tested with them, and the hook's side elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import ebb_inject
from node_agent.processes.process_groups import start_ticks, stat_fields
from tests.agent.conftest import until

PROGRAM = """
import os, pathlib, signal, sys, time
from ebb_hook import control, step_file
from ebb_hook.step_file_lock import claim

mood = sys.argv[1] if len(sys.argv) > 1 else ""
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.002
moving = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
me = control.Control(os.environ["EBB_PARK_DIR"])
steps = claim(os.environ["EBB_STEPS_FILE"])
began, step, seen, parked, busy, squares = time.monotonic_ns(), 0, 0, False, 0, 0.0
writes, segments, numbers = open("steps.txt", "w"), open("segments.txt", "a"), open("numbers.txt", "a")
since = time.monotonic()


def leaves(number, frame):
    if not parked:
        print(since, time.monotonic(), file=segments)
    segments.close()
    pathlib.Path(os.environ["EBB_YIELD_FILE"]).touch()
    sys.exit(0)


signal.signal(signal.SIGTERM, leaves)


def publish():
    record = step_file.Record(os.getpid(), 0, 1, began, began, 1, 0, 0, time.monotonic_ns(), step - 1, busy, squares)
    if steps is not None:
        steps.writer.write(record)


while True:
    if parked:
        me.wait(1.0)
    else:
        begin = time.monotonic_ns()
        time.sleep(pause)
        step += 1
        if step == 1:
            began = time.monotonic_ns()
        else:
            took = time.monotonic_ns() - begin
            busy, squares = busy + took, squares + (took * 1e-9) ** 2
        publish()
        writes.seek(0)
        writes.write(str(step))
        writes.flush()
    request = me.request()
    if request is None or request.number == seen or mood == "deaf":
        continue
    if request.command == control.PARK and not parked and step < request.at_step:
        continue
    seen, executed = request.number, not parked
    if request.command == control.PARK_TOGETHER:
        print(request.at_step, file=numbers, flush=True)
    answer = {"request": seen, "pid": os.getpid(), "step": step, "bytes": 64 << 20, "residue": 5, "seconds": {"copy": 0.001}}
    if request.command == control.PARK and mood == "refuses":
        state, answer["reason"] = control.REFUSED, "CUDA graphs hold the addresses of tensors"
    elif request.command == control.PARK and (64 << 20) > request.most_bytes:
        state, answer["reason"] = control.REFUSED, "64 MiB would be moved"
    elif request.command == control.PARK_TOGETHER and mood == "old":
        state, answer["reason"] = control.REFUSED, "the command 6 is unknown to this version of the hook"
    elif request.command == control.RESUME and mood == "stuck" and parked:
        state, answer["reason"] = control.PARKED, "out of memory"
    else:
        states = {control.RESUME: control.RUNNING, control.PREPARE: control.PREPARED}
        state = states.get(request.command, control.PARKED)
        parked = parked if state == control.PREPARED else state == control.PARKED
    if state == control.PARKED and request.command in (control.PARK, control.PARK_TOGETHER) and executed:
        print(since, time.monotonic(), file=segments)
        segments.flush()
        time.sleep(moving)
        answer["seconds"] = {"copy": 0.001 + moving}
    elif state == control.RUNNING:
        since = time.monotonic()
    me.answer(answer | {"state": state})
"""
"""Counts steps of `pause` seconds, and parks between two of them, which takes `moving` seconds. Its mood: refuses, deaf (it
never looks), stuck (it parks and does not resume), old (its hook knows of no agreement with ranks on other nodes)."""


class Program:
    """A session of its own, in the folder of a run."""

    def __init__(self, folder: Path, *command: str, mood: str = "", pause: float = 0.002) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        variables = {
            "PYTHONPATH": ebb_inject.FOLDER,
            "EBB_PARK_DIR": str(folder / "park"),
            "EBB_STEPS_FILE": str(folder / "steps"),
        }
        argv = command or (sys.executable, "-S", "-c", PROGRAM, mood, str(pause))
        self.process = subprocess.Popen(argv, cwd=folder, env=os.environ | variables, start_new_session=True)
        self.pid = self.process.pid
        self.ticks = start_ticks(self.pid)
        if not command:
            self.goes_on()

    @property
    def steps(self) -> int:
        file = self.folder / "steps.txt"
        return int(file.read_text() or 0) if file.exists() else 0

    def goes_on(self) -> None:
        """Waits for a step more."""
        before = self.steps
        until(lambda: self.steps > before)

    def state(self) -> str:
        """As the kernel says; empty when it is gone."""
        fields = stat_fields(self.pid)
        return fields[0] if fields else ""

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
