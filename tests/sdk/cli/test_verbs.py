"""The verbs that change jobs, and those that tell of them."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from client_sdk import (
    Client,
    Decision,
    Explanation,
    JobReason,
    JobState,
    PreemptionCost,
    Resources,
    RunPhase,
    StartEstimate,
    Victim,
)
from client_sdk.testing import FakeCluster
from tests.sdk.cli.conftest import Run, refused


def test_suspend_and_resume_several(run: Run, client: Client) -> None:
    for _ in range(2):
        run("submit", "-q", "sleep")
    some = run("suspend", "1", "9", "2")
    assert some.exit_code == 1
    assert some.stdout == "job 1 is STOPPING (suspended)\njob 2 is STOPPING (suspended)\n"
    assert some.stderr.startswith("ebb: job 9: there is no job 9")
    assert len(some.stderr.splitlines()) == 1
    assert run("list", "-q", "-s", "S").output == "2\n1\n"
    assert run("resume", "-q", "1").output == "1\n"
    (shown,) = json.loads(run("resume", "2", "-o", "json").output)
    assert (shown["id"], shown["state"]) == (2, "STARTING")
    assert client.get(1).run == 2
    again = run("resume", "1", "2")
    assert (again.exit_code, again.stdout) == (0, "job 1 is RUNNING\njob 2 is RUNNING\n")


def test_hold_release_and_update(run: Run, client: Client) -> None:
    run("submit", "-q", "-g", "2", "sleep")
    run("submit", "-q", "-g", "2", "true")
    assert run("hold", "2").output == "job 2 is QUEUED (held)\n"
    changed = run("update", "2", "--priority", "5", "--time-limit", "2h", "--after-any", "1")
    assert changed.output == "job 2 is QUEUED (held): priority 5, time limit 2:00:00, grace period 0:30\n"
    assert run("update", "2", "--grace", "2m").output.endswith("grace period 2:00\n")
    assert "120 s" in run("show", "2").output
    assert run("update", "2", "--grace", "auto").output.endswith("grace period 0:30\n")
    assert client.get(2).grace_follows
    assert run("update", "2", "--skip-steps", "70").output.endswith(", skips the steps up to 70 from its next start on\n")
    assert client.get(2).skip_steps == 70
    assert run("update", "2", "--skip-steps", "0").output.endswith("grace period 0:30\n")
    assert "'30' has no unit: write 30s" in refused(run, "update", "2", "--grace", "30")
    assert run("release", "2").output == "job 2 is QUEUED (dependency 1)\n"
    assert "submitted to run" not in run("show", "2").output
    assert run("update", "2", "--time-limit", "0", "--no-dependencies", "-q").output == "2\n"
    job = client.get(2)
    assert (job.priority, job.time_limit, job.reason) == (5, None, JobReason.NO_ROOM)
    assert run("update", "2").exit_code == 2
    assert run("update", "2", "--no-dependencies", "--after-ok", "1").exit_code == 2
    assert "'30' has no unit: write 30s" in refused(run, "update", "2", "-t", "30")
    assert "'30' has no unit: write 30s" in refused(run, "wait", "2", "--timeout", "30")
    assert refused(run, "update", "2", "--after-ok", "x").startswith("ebb: --after-ok: 'x'")
    assert refused(run, "update", "1", "--after-ok", "2").startswith("ebb: job 1 is RUNNING and cannot be given")


def test_requeue_and_cancel(run: Run, client: Client) -> None:
    run("submit", "-q", "sleep")
    assert run("requeue", "1").output == "job 1 is STOPPING (requeued)\n"
    assert client.get(1).run == 2
    assert run("cancel", "1").output == "job 1 was asked to stop, and is STOPPING\n"
    assert client.get(1).state is JobState.CANCELLED


def test_migrate(run: Run, client: Client) -> None:
    run("submit", "-q", "-g", "1", "sleep")
    here = client.get(1).node
    assert "only a running job" not in run("migrate", "1", here).output
    assert client.get(1).run == 1
    assert "there is no node n9" in refused(run, "migrate", "1", "n9")
    assert "no list of device indices" in refused(run, "migrate", "1", here, "--devices", "a")


def test_resize(run: Run, client: Client) -> None:
    assert run("submit", "-q", "--tasks", "2", "--max-tasks", "4", "sleep").output == "1\n"
    assert run("resize", "1", "3").output == "job 1 is STOPPING (resized): 2 tasks, 3 in its next run\n"
    assert client.get(1).run == 2
    shown = run("show", "1").output
    assert "elastic" in shown
    assert "1 to 4 tasks" in shown
    assert "tasks 2 -> 3" in run("story", "1").output
    assert refused(run, "resize", "1", "5").startswith("ebb: job 1 has 1 to 4 tasks, and not 5; take a number within")
    run("submit", "-q", "sleep")
    assert "is not elastic" in refused(run, "resize", "2", "2")
    assert "min_tasks=3, tasks=2 and max_tasks=2 are not in order" in refused(
        run, "submit", "--tasks", "2", "--min-tasks", "3", "true"
    )


def test_lists_by_slurms_codes(run: Run, fake: FakeCluster, client: Client) -> None:
    victim, trial = client.submit(["sleep"], devices=2), client.submit(["sleep"], devices=2, job_class="trial")
    fake.preempt(victim, for_=trial)
    behind = client.submit(["sleep"], devices=2)
    assert run("list", "-q", "-s", "PR").output == f"{victim.id}\n"
    assert run("list", "-q", "-s", "PD").output == f"{behind.id}\n{victim.id}\n"
    assert run("list", "-q", "-s", "PR,R").output == f"{trial.id}\n{victim.id}\n"
    assert run("list", "-q", "-s", "TO,OOM").output == ""


def test_a_long_list_begins_with_its_newest_and_says_how_many_more_there_are(run: Run, client: Client) -> None:
    run("submit", "-q", "--devices", "2", "sleep")
    for _ in range(104):
        client.submit(["sleep"], devices=2)

    def listed(*arguments: str) -> tuple[list[str], str]:
        done = run("list", *arguments)
        assert done.exit_code == 0
        return done.stdout.splitlines(), done.stderr

    rows, said = listed("--no-header")
    assert [int(row.split()[0]) for row in rows] == list(range(105, 5, -1))
    assert said == "ebb: 5 more; --limit N or --all-pages shows them\n"
    assert len(listed("--no-header", "--limit", "104")[0]) == 104
    assert listed("--no-header", "--limit", "104")[1].startswith("ebb: 1 more")
    for arguments in (["--all-pages"], ["--limit", "105"], ["--limit", "106"], ["-o", "wide", "--all-pages"]):
        assert (len(listed("--no-header", *arguments)[0]), listed(*arguments)[1]) == (105, "")
    assert listed("--no-header", "-s", "R")[1] == ""
    assert len(listed("-q")[0]) == 105, "programs want all"
    assert len(json.loads("\n".join(listed("-o", "json")[0]))) == 105
    assert len(json.loads("\n".join(listed("-o", "json", "--limit", "3")[0]))) == 3
    assert listed("-q", "--limit", "2")[0] == ["105", "104"]
    title = run("top", "-n", "1").output.splitlines()[0]
    assert title.partition("2 nodes, ")[2].split(", ") == ["104 QUEUED", "1 RUNNING"]


def test_lists_and_shows_arrays_and_limits(run: Run) -> None:
    run("submit", "-q", "--array", "3%1", "--priority", "4", "-t", "90s", "--retries", "1", "sleep")
    wide = run("list", "-o", "wide", "--no-header").output.splitlines()
    assert "  4  1:30  1[0]  " in wide[0]
    assert "  3: 2 pending, 1 live, 0 succeeded, 0 failed  " in wide[1]
    lines = [re.split("  +", line, maxsplit=1) for line in run("show", "1").output.splitlines()]
    assert ["reason", "array limit"] in lines
    assert ["array", "3: 2 pending, 1 live, 0 succeeded, 0 failed"] in lines
    assert ["priority", "4"] in lines
    assert ["time limit", "1:30, of which runs that are over took 0:00"] in lines
    assert ["retries", "0 of 1"] in lines
    assert "array limit: 1 of its elements have begun and not ended" in run("explain", "1").output
    run("submit", "-q", "--task", "2:cpus=2", "sleep")
    gang = run("show", "3").output.splitlines()
    assert gang[-3:] == ["TASK  NODE  DEVICES  HOLDS", "0     n1    -        2 cpus, 1GiB", "1     n1    -        2 cpus, 1GiB"]


def test_explain(run: Run, fake: FakeCluster, client: Client) -> None:
    victim, trial = client.submit(["sleep"], devices=2), client.submit(["sleep"], devices=2, job_class="trial")
    fake.preempt(victim, for_=trial)
    behind = client.submit(["sleep"], devices=1)
    assert run("explain", str(trial.id)).output == (
        "job 2 is RUNNING on n1\nnothing keeps it from running\nits devices: 2 GPUs: same node\n"
    )
    lines = run("explain", str(victim.id)).output.splitlines()
    assert lines[0] == "job 1 is QUEUED: preempted for 2"
    assert lines[2].startswith(
        "  no room; it needs 6 cpus, 14GiB, 2 devices, and n1, which comes closest, has 2 cpus, 2GiB free;"
    )
    assert lines[3] == "when it may start is not known: it waits for the end of 1 run of unknown length"
    assert re.match(r"last preempted at [0-9: -]+, for trial 2 of ada: ", lines[4])
    lines = run("explain", str(behind.id)).output.splitlines()
    assert lines[:3] == ["job 3 is QUEUED: behind 1", "what keeps it from starting:", "  behind 1: 1 job is before it"]
    assert "ahead of it: 1" in lines
    told = json.loads(run("explain", "3", "-o", "json").output)
    assert (told["job"]["id"], told["ahead_job_ids"]) == (3, [1])
    assert yaml.safe_load(run("explain", "3", "-o", "yaml").output) == told
    assert refused(run, "explain", "9").startswith("ebb: there is no job 9")


def test_an_explanation_with_everything(run: Run, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(client.submit(["sleep"], devices=2), state=JobState.QUEUED)
    at = datetime(2020, 1, 2, tzinfo=UTC)
    one = Resources(cpus=1, memory_mib=1024, devices=1)
    victim = Victim(job_id=4, user="bob", node="n1", resources=one, grace_period=timedelta(seconds=30), score=0.25)
    decision = Decision(
        trial_job_id=1,
        node="n1",
        demand=one,
        rule="fitgpp",
        s=4,
        cap=1,
        max_size=1,
        max_grace_period=timedelta(seconds=30),
        considered=3,
        candidates=(),
    )
    why = Explanation(
        job=job,
        ahead=20,
        ahead_job_ids=(2, 3),
        victims=(victim,),
        decision=decision,
        estimate=StartEstimate(time=at, basis="guesses", runs_of_unknown_length=2),
        preempted=PreemptionCost(by_job_id=8, by_user="eve", time=at, away=timedelta(seconds=95), device_hours=0.0528),
    )
    monkeypatch.setattr(Client, "explain", lambda _self, _job: why)
    when = at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert run("explain", "1").output.splitlines()[1:] == [
        "ahead of it: 2, 3 and 18 more",
        "these runs leave for it, or would have to:",
        "  JOB  USER  NODE  HOLDS                  GRACE  SCORE",
        "  4    bob   n1    1 cpu, 1GiB, 1 device  30s    0.2500",
        "  by fitgpp: 3 runs considered, s 4, cap 1",
        f"it may start at {when} (by guesses; 2 runs are of unknown length)",
        f"last preempted at {when}, for trial 8 of eve: it was away for 1:35, 0.05 device-hours",
    ]


def test_an_explanation_of_a_job_that_runs(run: Run, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.submit(["sleep"], devices=1)
    job = client.submit(["sleep"], devices=2, alternatives=[{"devices": 1}])
    running = client.get(job)
    compared = "estimated: configuration 0 10 s, configuration 1 100 s"
    why = Explanation(job=running, configuration_reason=compared, sharing_reason="introspection (packing): packing is kept")
    monkeypatch.setattr(Client, "explain", lambda _self, _job: why)
    assert run("explain", str(job.id)).output.splitlines() == [
        "job 2 is RUNNING on n1 in configuration 1: 1 device and 3 CPUs",
        "nothing keeps it from running",
        "why configuration 1: estimated: configuration 0 10 s, configuration 1 100 s",
        "decided last by introspection (packing): packing is kept",
    ]
    assert json.loads(run("explain", str(job.id), "-o", "json").output)["configuration_reason"] == why.configuration_reason


def test_a_story_of_the_new_events(run: Run, client: Client) -> None:
    failed = client.submit(["fail"])
    array = client.submit(["fail"], array=1, after_failed=failed, retries=1)
    told = [line.split("  ", 1)[1] for line in run("story", str(array.id + 1)).output.splitlines()]
    assert told[0] == f"submitted - element 0 of array {array.id}"
    assert told[3] == "back in the queue: retrying - run 1 left with exit code 3; retry 1 of 1"
    assert (
        run("story", str(array.id))
        .output.splitlines()[-1]
        .endswith("  ended, elements failed - 1 of 1 elements did not succeed")
    )


def test_a_parked_job_resumes_on_its_own_devices(run: Run, client: Client) -> None:
    run("submit", "-q", "-g", "2", "-c", "1", "-m", "1GiB", "sleep")
    run("submit", "-q", "-g", "2", "-c", "1", "-m", "1GiB", "sleep")
    assert run("suspend", "--park", "1").output == "job 1 is STOPPING (parked)\n"
    assert client.get(1).parked
    assert client.get(2).state is JobState.RUNNING, "its devices are free"
    shown = run("show", "1").output
    assert re.search("operation +park: parked since", shown)
    assert "n1, on which it resumes" in shown
    assert run("resume", "1").output == "job 1 is SUSPENDED (resumed)\n"
    run("cancel", "2")
    assert client.get(1).state is JobState.RUNNING
    told = run("runs", "1").output
    assert re.search(r"^1 +n1 +0,1 +RUNNING", told, re.MULTILINE)
    assert re.search(r"^1 +park +waiting", told, re.MULTILINE)
    (found,) = json.loads(run("runs", "1", "-o", "json").output)
    assert (found["parks"], [phase["phase"] for phase in found["operations"]]) == (
        1,
        ["PARKING", "PARKED", "WAITING", "RESUMING"],
    )
    assert re.search(r"parked on n1 \(run 1\) - parked in [0-9.]+ s", run("story", "1").output)


def test_what_cannot_be_parked_is_suspended_or_left_alone(run: Run, client: Client) -> None:
    run("submit", "-q", "sleep")
    assert refused(run, "suspend", "--park-only", "1").startswith("ebb: job 1 cannot be parked: run 1.1 has no devices")
    assert client.get(1).state is JobState.RUNNING
    assert run("suspend", "--park", "1").output == "job 1 is STOPPING (suspended)\n"


def test_a_parked_job_is_requeued_or_cancelled(run: Run, client: Client) -> None:
    for _ in range(2):
        run("submit", "-q", "-g", "1", "sleep")
    run("suspend", "--park", "1", "2")
    assert run("requeue", "1").output == "job 1 is STOPPING (requeued)\n"
    assert (client.get(1).run, client.get(1).parked) == (2, False)
    assert run("cancel", "2").output == "job 2 was asked to stop, and is STOPPING\n"
    assert client.get(2).state is JobState.CANCELLED
    assert [each.run for each in client.runs(1)] == [2, 1]
    assert run("runs", "-n", "1", "1").output.splitlines()[1].startswith("2 ")


def test_the_runs_of_a_job_name_their_checkpoints(run: Run, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.submit(["sleep"], devices=1)
    (known,) = client.runs(1)
    over = replace(known, phase=RunPhase.ENDED, end_time=known.place_time, saved=True, checkpoint="c-step-20")
    again = replace(over, run=2, began_from="c-step-20", checkpoint=None)
    monkeypatch.setattr(Client, "runs", lambda _self, _job: iter([again, over]))
    lines = run("runs", "1").output.splitlines()
    assert lines[0].endswith("END              SAVED  BEGAN FROM")
    assert lines[1].endswith("saved its work   saved  c-step-20")
    assert lines[2].endswith("saved c-step-20  saved  -")
    told = json.loads(run("runs", "1", "-o", "json").output)
    assert [(one["began_from"], one["checkpoint"]) for one in told] == [("c-step-20", None), (None, "c-step-20")]
    monkeypatch.setattr(Client, "runs", lambda _self, _job: iter([over]))
    assert run("runs", "1").output.splitlines()[0].endswith("SAVED"), "no column without anything in it"


def test_a_job_shows_the_checkpoints_of_its_run(run: Run, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = client.get(client.submit(["sleep"], devices=1))
    assert not re.search("began from|last saved", run("show", "1").output), "nobody said anything"
    named = replace(job, began_from="c-step-10", checkpoint="c-step-20")
    monkeypatch.setattr(Client, "get", lambda _self, _job: named)
    shown = run("show", "1").output
    assert re.search(r"^began from +c-step-10$", shown, re.MULTILINE)
    assert re.search(r"^last saved +c-step-20$", shown, re.MULTILINE)


STOPS = {
    "suspend": ("suspend",),
    "requeue": ("requeue",),
    "migrate": ("migrate",),
    "drain": ("node", "drain", "--evict"),
}


@pytest.mark.parametrize("verb", STOPS)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("at_risk", [False, True])
def test_what_loses_work_is_done_if_it_is_said_so(
    run: Run, fake: FakeCluster, client: Client, verb: str, force: bool, at_risk: bool
) -> None:
    job = client.submit(["sleep"])
    here = client.get(job.id).node
    if at_risk:
        fake.saves_nothing(job)
    target = {"migrate": ("1", "n2"), "drain": (str(here),)}.get(verb, ("1",))
    done = run(*STOPS[verb], *(("--force",) if force else ()), *target)
    asked = at_risk and not force
    assert done.exit_code == (1 if asked else 0), done.output
    assert ("never saved" in done.output) is at_risk
    assert ("--force" in done.stderr) is asked
    assert fake.calls[verb.capitalize()] == (1 if asked else 2), "one call asks, another acts"
    if asked:
        assert (client.get(job.id).state, client.node(str(here)).drain) == (JobState.RUNNING, None)


def test_of_several_jobs_none_is_touched_before_the_answer(run: Run, fake: FakeCluster, client: Client) -> None:
    for _ in range(2):
        client.submit(["sleep"])
    fake.saves_nothing(2)
    said = refused(run, "suspend", "1", "2")
    assert "job 2 has never saved" in said
    assert "job 1" not in said
    assert [client.get(job).state for job in (1, 2)] == [JobState.RUNNING] * 2
    assert fake.calls["Suspend"] == 2
    assert "loses the work of its run" in run("suspend", "--force", "1", "2").output


def test_a_job_that_can_be_parked_loses_nothing(run: Run, fake: FakeCluster, client: Client) -> None:
    client.submit(["sleep"], devices=1)
    fake.saves_nothing(1)
    assert run("suspend", "--park", "1").exit_code == 0
