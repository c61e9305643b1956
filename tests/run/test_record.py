"""Recording a live service, and replaying it."""

import json
import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from scheduler_service.commands.main import main
from scheduler_service.core.engine import Policy, Proposals, step
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import Accepted, Delegate, Order, Rng, Step, Stopped, Submitted, Wait
from scheduler_service.core.model import Cluster, EventKind, Job, JobEvent, JobSpec, Reason, RunKey, StopReason
from scheduler_service.core.model.values import ZERO
from scheduler_service.core.state.state import State
from scheduler_service.policies.stages import Stages
from scheduler_service.run.engine_thread import EngineThread
from scheduler_service.run.ports import LeadershipLost
from scheduler_service.run.recording.codec import canonical
from scheduler_service.run.recording.record import digest
from scheduler_service.run.recording.replay import Difference, Summary, replay
from scheduler_service.store import memory
from tests.run.live import Site
from tests.run.recorded import again, lead, recorder, replayed


def draws(state: State, rng: Rng) -> Proposals:
    """A policy out of which other numbers come each time."""
    for job_id in list(state.jobs.rows):
        yield (Wait(job_id, Reason.NO_ROOM, str(rng.randrange(2**60))),)


def tells(state: State, _rng: Rng) -> Proposals:
    """A policy that does something else where the board has changed."""
    for job_id in list(state.jobs.rows):
        yield (Wait(job_id, Reason.NO_ROOM, f"{state.pending.market} {state.cluster.clock_us}"),)


def differs(path: Path) -> Difference:
    found = replay(path, again, Summary())
    assert found is not None
    return found


def change_lines(path: Path, change: Callable[[list[Any]], None]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("name", ["recording.jsonl", "recording.jsonl.gz"])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_recording_of_random_load_over_two_leaderships_comes_out_the_same(tmp_path: Path, seed: int, name: str) -> None:
    site, path = Site(seed), tmp_path / name

    def take_over(_service: EngineThread) -> None:
        assert memory.take(site.store, "other", 60, force=True)
        site.often = 0.0  # so that it is the commit that is fenced
        memory.release(site.store, site.store.epoch)

    assert isinstance(await lead(site, path, 40, take_over), LeadershipLost)
    site.often = 0.1
    assert await lead(site, path, 40) is None
    summary = replayed(path)
    assert (summary.sections, summary.unended, summary.torn) == (2, 0, False)
    assert summary.outcomes["lost"] == 1
    assert summary.outcomes["undone"] > 5
    assert summary.outcomes["adopted"] > 100
    assert summary.commit_no == site.store.commit_no
    assert set(summary.events) == {"Submitted", "CancelRequested", "NodeSeen", "NodeSilent", "RunStarted", "RunExited"}
    assert any(event.decision for job in range(1, 99) for event, _ in memory.story(site.store, job)), "nothing was preempted"


async def test_secrets_are_not_in_it_and_nobody_else_reads_it(tmp_path: Path) -> None:
    site, path = Site(4), tmp_path / "recording"
    os.umask(os.umask(0))
    await lead(site, path, 10)
    await lead(site, path, 10)
    text = path.read_text()
    assert "secret-" not in text
    assert "/root" not in text
    assert "PASSWORD" in text
    assert path.stat().st_mode & 0o777 == 0o600
    values = {
        line[1]["row"][1]["spec"][1]["environment"][0][1]
        for line in map(json.loads, text.splitlines())
        if line[0] == "Row" and line[1]["table"] == "job"
    }
    assert 1 <= len(values) <= 3, "equal values have equal digests"
    assert all(value.startswith("digest:") for value in values)


async def test_a_changed_event_is_found(tmp_path: Path) -> None:
    site, path = Site(5, often=0.0), tmp_path / "recording"
    await lead(site, path, 20)

    def change(lines: list[Any]) -> None:
        steps = [line[1] for line in lines if line[0] == "Stepped"]
        submits = [event for step in steps for event in step["events"] if event[0] == "Submitted"]
        submits[7][1]["spec"][1]["demand"][0] += 1

    change_lines(path, change)
    found = differs(path)
    assert any("Submitted" in str(event) for event in found.recorded.events)
    result = CliRunner().invoke(main, ["record", "replay", str(path)])
    assert result.exit_code == 1
    assert f"line {found.line}: another outcome" in result.output
    assert "recorded:" in result.output
    assert "replayed:" in result.output


async def test_another_time_is_found(tmp_path: Path) -> None:
    site, path = Site(6, often=0.0), tmp_path / "recording"
    await lead(site, path, 5)

    def change(lines: list[Any]) -> None:
        next(line for line in lines if line[0] == "Stepped" and line[1]["did"])[1]["now"] += 1

    change_lines(path, change)
    assert differs(path).did == differs(path).recorded.did
    result = CliRunner().invoke(main, ["record", "replay", str(path)])
    assert "the whole is not" in result.output


async def test_other_random_numbers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They follow from the seed and the number of the commit."""

    def drawing_policy(*_: object) -> Stages:
        return Stages(draws)

    monkeypatch.setattr("tests.run.live.stages_of", drawing_policy)
    site, path = Site(10, often=0.2), tmp_path / "recording"
    await lead(site, path, 10)
    assert replay(path, drawing_policy, Summary()) is None

    def change(lines: list[Any]) -> None:
        [line for line in lines if line[0] == "Stepped"][-1][1]["commit"] += 1

    change_lines(path, change)
    assert replay(path, drawing_policy, Summary()) is not None


@pytest.mark.parametrize("policy", [draws, tells])
def test_what_a_question_in_between_leaves_behind_is_in_it(tmp_path: Path, policy: Policy) -> None:
    """Whoever takes a step only to undo it leaves a state at which the policy looks again, with other random numbers."""

    path, state = tmp_path / "recording", State(Cluster("c", 1))
    recording = recorder(path)(state, 0)
    for commit, question in enumerate((False, False, True, False, True), 1):
        if question:
            state.undo()
        events = [Submitted("ada", "", JobSpec(("true",), ZERO))] if commit == 1 else []
        recording.taking(commit, commit, (state.pending.policies, state.pending.market), events)
        recording.note_taken(step(state, events, commit, Random(f"1:{commit}"), policy))
        state.adopt()
        recording.note_adopted()
    recording.close()
    summary = Summary()
    assert replay(path, lambda *_: Stages(policy), summary) is None
    assert summary.steps == 5


def test_the_digest_is_of_all_that_came_out() -> None:
    spec, jobs = JobSpec(("true",), ZERO), State(Cluster("c", 1)).jobs
    came_out = Step(
        ((jobs, 1, None, Job(1, spec, "ada", "", 0)),),
        (Accepted(1), Refused("WHY", "because", job_id="1")),
        (Order(1, RunKey(1, 1), 2, Stopped(0, StopReason.CANCELLED)),),
        (JobEvent(1, 0, EventKind.SUBMITTED),),
        ("a plan",),
        (Delegate("policy", "/plan", tuple),),
    )
    whole = digest(came_out, canonical())
    assert whole == digest(replace(came_out), canonical())
    for field in fields(Step):
        if field.name == "enacted":  # what came of plans is in the rest
            continue
        assert digest(replace(came_out, **{field.name: ()}), canonical()) != whole, field.name
    other = replace(came_out, replies=(Accepted(1), Refused("WHY", "because", job_id="2")))
    assert digest(other, canonical()) != whole


async def test_words_and_undone_steps(tmp_path: Path) -> None:
    site, path = Site(7, often=0.5), tmp_path / "recording"
    await lead(site, path, 5)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    said = [word for line in lines if line[0] == "Stepped" for word in line[1]["did"]]
    assert any(word.startswith("SUBMITTED 1.0") for word in said)
    assert any(word.startswith("order Running ") for word in said)
    assert "undone" in {line[1]["outcome"] for line in lines if line[0] == "Stepped"}
    result = CliRunner().invoke(main, ["record", "show", str(path)])
    assert result.exit_code == 0
    assert "leaderships: 1 (policy fitgpp)" in result.output
    assert "undone" in result.output
    assert "NodeSeen" in result.output


async def test_a_step_that_raises_can_be_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_state: State, _rng: Rng) -> Proposals:
        raise RuntimeError("a fault")
        yield ()

    def broken_policy(*_: object) -> Stages:
        return Stages(broken)

    monkeypatch.setattr("tests.run.live.stages_of", broken_policy)
    site, path = Site(8, often=0.0), tmp_path / "recording"
    assert isinstance(await lead(site, path, 3), RuntimeError)
    summary = Summary()
    assert replay(path, broken_policy, summary) is None
    assert summary.outcomes == {"failed": 1}
    found = differs(path)
    assert found.recorded.did == ("raised RuntimeError: a fault",)
