"""A case is all that a simulation depends on: it survives JSON, its digest tells cases apart, and it gives the same again."""

import inspect
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.experiments import config
from scheduler_service.sim.experiments.cases import Case, Failures, Policy, preview, simulate
from scheduler_service.sim.experiments.config import ConfigError
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.experiments.results import OutOfTime
from scheduler_service.sim.failures import BadSchedule
from scheduler_service.sim.workloads import arrivals_of
from scheduler_service.sim.workloads.arriving import NEVER_CAME
from scheduler_service.sim.world import Site, World

PHILLY = Path(__file__).parent / "data" / "philly_slice_1000.csv.gz"
SMALL: dict[str, Any] = {
    "cluster": [{"nodes": 3, "cpus": 32, "memory_gib": 256, "gpus": 8}],
    "workload": {"kind": "fitgpp", "jobs": 200},
    "decide_every": 60,
}


def case(name: str = "fitgpp", **other: Any) -> Case:
    return Case.model_validate({**SMALL, "policy": {"name": name}, **other})


def test_a_case_survives_json() -> None:
    full = case(
        delays={"start": 2, "checkpoint": {"kind": "uniform", "low": 1, "high": 9}, "checkpoint_every": 600},
        failures={"mtbf_h": 100, "mttr_h": 1, "until_h": 24},
        seed=7,
        repeat=2,
    )
    assert Case.model_validate_json(full.model_dump_json()) == full
    assert Case.model_validate_json(full.model_dump_json()).digest() == full.digest()


def test_the_digest_tells_apart_what_gives_other_results(tmp_path: Path) -> None:
    shutil.copy(PHILLY, tmp_path / "trace.csv.gz")
    (tmp_path / "sub").mkdir()
    shutil.copy(PHILLY, tmp_path / "sub" / "trace.csv.gz")
    philly = {"kind": "philly", "file": "trace.csv.gz"}
    base = case(workload=philly, folder=tmp_path)
    same = [
        case(workload=philly, folder=tmp_path / "sub"),
        case(workload=philly, folder=tmp_path, policy={"name": "fitgpp", "label": "ours"}),
    ]
    assert {made.digest() for made in same} == {base.digest()}
    others = [
        case(workload=philly, folder=tmp_path, seed=2),
        case(workload=philly, folder=tmp_path, repeat=1),
        case(workload=philly, folder=tmp_path, decide_every=0),
        case("fifo", workload=philly, folder=tmp_path),
        case(workload={**philly, "jobs": 10}, folder=tmp_path),
    ]
    assert len({made.digest() for made in [base, *others]}) == len(others) + 1
    with (tmp_path / "trace.csv.gz").open("ab") as trace:
        trace.write(b"\0")
    assert base.digest() != same[0].digest()


def test_what_comes_is_what_the_world_gives() -> None:
    """Nothing lies between a case and the World but columns."""
    made = case(workload={"kind": "fitgpp", "jobs": 300, "times_from": None}, seed=3)
    policy = stages("fitgpp", PreemptionSettings()).policy
    site = Site(made.inventories(), policy, made.policy.engine_settings(), decide_every_us=60 * SECOND, seed=3)
    world = World(site, arrivals_of(made.workload, 3, Path()))
    world.run()
    lives = sorted(world.lives.values(), key=lambda life: life.id)
    rows = simulate(made).jobs.to_pylist()
    assert [(row["submit_us"], row["start_us"], row["end_us"], row["slowdown"]) for row in rows] == [
        (life.submit_us, life.start_us(), life.end_us, life.slowdown()) for life in lives
    ]
    assert len(rows) == 300
    assert any(row["preemptions"] for row in rows)


def test_the_same_case_gives_the_same_and_a_repeat_other_draws() -> None:
    delays = {"start": {"kind": "uniform", "low": 0, "high": 20}}
    first, again = simulate(case("rand", delays=delays)), simulate(case("rand", delays=delays))
    assert first.jobs.equals(again.jobs)
    assert first.runs.equals(again.runs)
    assert first.summary == again.summary
    repeat = simulate(case("rand", delays=delays, repeat=1))
    assert not repeat.runs.equals(first.runs)
    assert repeat.jobs.select(["work_us", "gpus", "submit_us"]).equals(first.jobs.select(["work_us", "gpus", "submit_us"]))


def test_others_are_given_the_times_that_were_recorded_under_fifo() -> None:
    """FitGpp, section 4.1: the load is 2.0 if they were scheduled by FIFO."""
    fifo = case("fifo", policy={"name": "fifo", "in_order": True})
    ours = case("fitgpp")
    assert fifo.recording() is None
    assert ours.recording() == fifo
    assert case("fifo", policy={"name": "fifo", "in_order": True, "label": "first come"}).recording() is None
    preempts_nobody = {"name": "fifo", "in_order": True, "trials_in_flight": 1, "cap": None}
    assert case("fifo", policy=preempts_nobody).recording() is None
    assert case("fifo").recording() == fifo
    assert case("fitgpp", policy={"name": "fitgpp", "trials_in_flight": 1}).recording() == fifo
    assert case("fifo", policy={"name": "fifo", "backfill": True}).recording() == fifo
    recorded = simulate(fifo)
    assert simulate(ours).times_us() == recorded.times_us() == simulate(ours, recorded.times_us()).times_us()
    alone = simulate(case("fitgpp", workload={"kind": "fitgpp", "jobs": 200, "times_from": None}))
    assert alone.times_us() != recorded.times_us()


def test_a_closed_loop_that_comes_to_a_stop_stops_for_all_and_is_told(tmp_path: Path) -> None:
    """All nodes die for good: what is there stays, and no more comes. The others are given the same jobs."""
    (tmp_path / "failures.csv").write_text("".join(["node,at_s,back_s\n", *(f"{node},9000,\n" for node in (1, 2, 3))]))
    fifo, ours = (simulate(case(name, failures={"file": "failures.csv"}, folder=tmp_path)) for name in ("fifo", "fitgpp"))
    assert 0 < len(fifo.jobs) < 200
    assert fifo.times_us() == ours.times_us()
    assert fifo.skipped == ours.skipped == {NEVER_CAME: 200 - len(fifo.jobs)}


def test_progress_is_told_to_its_end() -> None:
    heard: list[tuple[int, int | None]] = []
    simulate(case("fifo"), tell=lambda over, total: heard.append((over, total)))
    assert heard == [(0, 200), (64, 200), (128, 200), (192, 200), (200, 200)]


def test_nodes_of_several_kinds() -> None:
    made = case(cluster=[{"nodes": 2, "gpus": 4}, {"nodes": 1, "cpus": 1.5, "memory_gib": 0.5}])
    assert [node.capacity for node in made.inventories()] == [Vector(0, 0, 4), Vector(0, 0, 4), Vector(1500, 512, 0)]
    assert made.capacity() == Vector(1500, 512, 8)
    uuids = [device.uuid for node in made.inventories() for device in node.devices]
    assert len(set(uuids)) == 8


def test_settings_reach_the_policy_and_the_engine() -> None:
    """Each is one that changes what happens here, so one that got lost would be seen."""
    jobs = {"workload": {"kind": "fitgpp", "jobs": 250}}
    times = simulate(case("fifo", **jobs)).times_us()
    base = simulate(case(**jobs), times).runs
    for setting in (
        {"s": 0},
        {"cap": 0},
        {"cap": None},
        {"trials_in_flight": 1},
        {"backfill": True},
        {"min_run": 1800},
        {"aging": 1},
    ):
        changed = simulate(case(**jobs, policy={"name": "fitgpp", **setting}), times).runs
        if setting != {"aging": 1}:  # all jobs are alike in priority: waiting changes nothing
            assert not changed.equals(base), setting
    assert Policy(name="fitgpp", cap=None).victims().cap > 10**9


def test_a_preempted_job_with_no_cap_may_be_so_again() -> None:
    jobs = {"workload": {"kind": "fitgpp", "jobs": 1000, "trials": 0.5}}
    times = simulate(case("fifo", **jobs)).times_us()
    capped, free = (simulate(case(**jobs, policy={"name": "fitgpp", "cap": cap}), times).summary for cap in (1, None))
    assert capped["preempted.twice"] == capped["preempted.more"] == 0 < capped["preempted.once"]
    assert free["preempted.twice"] > 0


def test_delays_and_failures_cost_what_they_cost() -> None:
    times, failures = simulate(case("fifo")).times_us(), {"mtbf_h": 10, "mttr_h": 1, "until_h": 20}
    quiet = simulate(case(), times).summary
    assert quiet["gpu_h.starting"] == quiet["gpu_h.lost"] == 0
    slow = simulate(case(delays={"start": 30}), times).summary
    assert slow["gpu_h.starting"] > 0
    broken = simulate(case(failures=failures), times).summary
    assert broken["gpu_h.lost"] > 0
    saved = simulate(case(failures=failures, delays={"checkpoint_every": 60}), times).summary
    assert saved["gpu_h.lost"] < broken["gpu_h.lost"]
    assert broken["unfinished"] == saved["unfinished"] == 0


def test_a_dead_node_is_no_idle_one_and_a_gang_that_hangs_does_not_start(tmp_path: Path) -> None:
    """Two tasks of four GPUs, on two nodes. One node is away from 40 to 100 s; the other task hangs until it was told to leave,
    and its grace period is over, at 110 s. Then they work for 100 s, of which is heard after 5 more."""
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,tasks,gpus,grace_s\n0,100,2,4,10\n")
    (tmp_path / "failures.csv").write_text("node,at_s,back_s\n1,40,100\n2,500,600\n")
    outcome = simulate(
        Case.model_validate(
            {
                "cluster": [{"nodes": 2, "gpus": 4}],
                "workload": {"kind": "csv", "file": "jobs.csv"},
                "policy": {"name": "fifo"},
                "delays": {"end": 5},
                "failures": {"file": "failures.csv"},
                "folder": tmp_path,
            }
        )
    )
    spent = {"useful": 800, "lost": 320, "starting": 0, "ending": 40, "grace": 0, "hanging": 280, "down": 240, "idle": 40}
    told = outcome.summary
    assert {name: round(told[f"gpu_h.{name}"] * 3600, 6) for name in spent} == spent
    assert told["gpu_h.capacity"] * 3600 == pytest.approx(sum(spent.values()))
    assert told["utilisation.gpu"] == pytest.approx(1440 / 1480)
    assert max(outcome.curves["utilisation.gpu"]) == 1


def test_a_task_that_left_before_the_others_of_its_gang_holds_nothing(tmp_path: Path) -> None:
    """Each of two tasks takes 1 or 3600 s for its checkpoint; on the device of the first that leaves a trial goes on."""
    rows = "0,3600,2,1,best-effort,3600", "10,3590,1,1,trial,0", "10,3590,1,1,trial,0"
    (tmp_path / "jobs.csv").write_text("\n".join(("submit_s,work_s,tasks,gpus,class,grace_s", *rows)))
    told = {
        "cluster": [{"nodes": 2, "gpus": 1}],
        "workload": {"kind": "csv", "file": "jobs.csv"},
        "policy": {"name": "fitgpp"},
        "delays": {"checkpoint": {"kind": "choice", "values": [1, 3600]}},
        "folder": tmp_path,
    }
    graces = set()
    for seed in range(8):
        outcome = simulate(Case.model_validate({**told, "seed": seed}))
        assert [row["preemptions"] for row in outcome.jobs.to_pylist()] == [1, 0, 0]
        spent = {name: round(value * 3600) for name, value in outcome.summary.items() if name.startswith("gpu_h.")}
        assert spent.pop("gpu_h.capacity") == sum(spent.values())
        assert min(spent.values()) >= 0
        assert max(outcome.curves["utilisation.gpu"]) <= 1
        graces.add(spent["gpu_h.grace"])
    assert graces == {1 + 1, 1 + 3600, 3600 + 3600}


def test_what_a_job_did_to_its_time_limit_is_done_and_not_lost(tmp_path: Path) -> None:
    """Two jobs one after the other, each with 1000 s to do and 400 s for it. The first is killed, the second leaves in 20 s and
    has saved its work. Neither is done again: the first never waited, the second for 400 s and its grace period."""
    rows = ["submit_s,work_s,gpus,grace_s,time_limit_s", "0,1000,4,0,400", "0,1000,4,20,400"]
    (tmp_path / "jobs.csv").write_text("\n".join(rows))
    told: dict[str, Any] = {"cluster": [{"gpus": 4}], "workload": {"kind": "csv", "file": "jobs.csv"}, "folder": tmp_path}
    outcome = simulate(Case.model_validate({**told, "policy": {"name": "fifo"}}))
    jobs = outcome.jobs.to_pylist()
    seconds = [tuple(row[name] / SECOND for name in ("end_us", "wait_us", "done_us", "lost_us")) for row in jobs]
    assert seconds == [(400, 0, 400, 0), (820, 420, 400, 0)]
    assert [row["slowdown"] for row in jobs] == [1, 1 + 420 / 400]
    assert outcome.summary["best_effort.slowdown.max"] == 1 + 420 / 400
    hours = {name: round(outcome.summary[f"gpu_h.{name}"] * 3600) for name in ("useful", "lost", "grace", "idle")}
    assert hours == {"useful": 4 * 800, "lost": 0, "grace": 4 * 20, "idle": 0}


def test_failures_from_a_file(tmp_path: Path) -> None:
    schedule = tmp_path / "failures.csv"
    schedule.write_text("node,at_s,back_s\n1,600,1200\n")
    made = case("fifo", failures={"file": "failures.csv"}, folder=tmp_path)
    before = made.digest()
    assert simulate(made).summary["gpu_h.lost"] > 0
    schedule.write_text("node,at_s,back_s\n1,600,1300\n")
    assert made.digest() != before


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "line 1: it must name the columns node, at_s and back_s"),
        ("node,at_s\n1,2\n", "line 1: it must name the columns node, at_s and back_s"),
        ("node,at_s,back_s,at_s\n1,2,3,4\n", "line 1: it must name the columns node, at_s and back_s, each once"),
        ("node,at_s,back_s\n1,2,3,4\n", "line 2: has more values than the three columns"),
        ("node,at_s,back_s\n1,soon,3\n", "line 2: node must be a whole number"),
        ("node,at_s,back_s\n5,600,1200\n", "there is no node 5: the cluster has 2"),
    ],
)
def test_failures_that_cannot_happen_are_told_with_their_file(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "failures.csv").write_text(content)
    with pytest.raises(BadSchedule, match=f"failures.csv: {told}"):
        Failures(file=Path("failures.csv")).outages(2, 1, tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"node,at_s,back_s\n1,2,3\n2,\xff,4\n", "line 3: cannot be read: it is not UTF-8 (invalid start byte)"),
        (b"n\xf8de,at_s,back_s\n", "line 1: cannot be read: it is not UTF-8 (invalid start byte)"),
        (b'node,at_s,back_s\n1,2,3\n1,4,"5\n1,6,7\n', "line 3: cannot be read: unexpected end of data"),
        (b'"node,at_s,back_s\n', "line 1: cannot be read: unexpected end of data"),
    ],
)
def test_failures_that_cannot_be_read_are_told_with_their_line(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "failures.csv").write_bytes(content)
    with pytest.raises(BadSchedule) as refused:
        Failures(file=Path("failures.csv")).outages(2, 1, tmp_path)
    assert str(refused.value) == f"{tmp_path / 'failures.csv'}: {told}"


def test_failures_without_end_are_refused() -> None:
    with pytest.raises(
        BadSchedule, match=r"a node dies every 0\.002 hours .*, which with 4 is more than 1,000,000 times: give"
    ):
        Failures(mtbf_h=0.001, mttr_h=0.001, until_h=1e4).outages(4, 1, Path())


@pytest.mark.parametrize("wrong", [{}, {"mtbf_h": 1}, {"file": "x.csv", "mtbf_h": 1, "mttr_h": 1, "until_h": 1}])
def test_failures_are_said_in_one_way(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="give file; or mtbf_h, mttr_h and until_h, all three"):
        Failures.model_validate(wrong)


def test_jobs_that_can_never_run_are_told() -> None:
    """In a trace they are skipped, and counted; they would stand in the queue for ever."""
    philly = {"kind": "philly", "file": str(PHILLY), "gang_of": None, "cpus_per_gpu": 0, "memory_gib_per_gpu": 0}
    outcome = simulate(Case.model_validate({"cluster": [{"gpus": 4, "nodes": 64}], "workload": philly}))
    assert sum(outcome.skipped.values()) > 0
    assert len(outcome.jobs) + sum(outcome.skipped.values()) == 1000


def test_a_simulation_that_outlasts_its_numbers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody knows beforehand: how long the delays are that it draws. Its times are beyond those of the database."""
    monkeypatch.setattr(State, "adopt", inspect.unwrap(State.adopt))
    delays = {"start": {"kind": "choice", "values": [0, 1e12], "weights": [1, 99]}}
    drawn = {"kind": "generated", "jobs": 20, "kinds": [{"work_s": 1, "gpus": 8}]}
    endless = Case.model_validate({"cluster": [{"gpus": 8}], "workload": drawn, "delays": delays})
    assert preview(endless)[0] == 20
    with pytest.raises(OutOfTime, match=r"it lasts for more than 9\.22e.12 s"):
        simulate(endless)


def test_titles_say_what_is_unusual() -> None:
    assert Policy(name="fifo").title == "fifo"
    assert Policy(name="fitgpp", s=8, cap=None, backfill=True).title == "fitgpp s=8 cap=none backfill"
    assert Policy(name="las", settings=(("threshold", 60), ("patience", 0.5))).title == "las threshold=60 patience=0.5"
    assert Policy(name="rand", sparing=False).title == "rand not sparing"
    assert Policy(name="fitgpp", s=8, label="ours").title == "ours"
    assert Policy(name="cells", promotes=False).in_effect != Policy(name="cells").in_effect
    assert Policy(name="fifo", promotes=False).in_effect == Policy(name="fifo").in_effect


def refused(**other: Any) -> str:
    told: dict[str, Any] = {**SMALL, "policies": ["fifo"], **other}
    with pytest.raises(ConfigError) as refusal:
        config.parse({name: value for name, value in told.items() if value is not None})
    return str(refusal.value)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"polices": []}, "polices: there is no such setting; did you mean policies?"),
        ({"cluster": None}, "cluster: it must be given"),
        ({"cluster": [{"gpu": 8}]}, "cluster.0.gpu: there is no such setting; did you mean gpus?"),
        ({"cluster": [{"gpus": -1}]}, "cluster.0.gpus: Input should be greater than or equal to 0 (of each)"),
        ({"cluster": [{"nodes": 400_000}] * 3}, "cluster: there are 1,200,000 nodes, and 1,000,000 is the most that can be"),
        (
            {"cluster": {"nodes": 1000, "gpus": 1024}},
            "cluster: there are 1,024,000 GPUs, and 1,000,000 is the most that can be",
        ),
        (
            {"policies": ["fifo", "fifi"]},
            "policies.1.name: there is no policy 'fifi'; there are fitgpp, thrifty, lrtp, rand, fifo",
        ),
        ({"policies": [{"name": "fitgpp", "s": "much"}]}, "policies.0.s: Input should be a valid number, unable to parse"),
        ({"policies": ["fifo", {"name": "fifo"}]}, "the configuration: two policies are called 'fifo': give them labels"),
        ({"workload": {"jobs": 3}}, "workload: say of which `kind` it is: fitgpp, philly,"),
        ({"workload": {"kind": "phily"}}, "workload.kind: there is no 'phily'; there are fitgpp, philly,"),
        ({"workload": {"kind": "fitgpp", "jbs": 3}}, "workload.jbs: there is no such setting; did you mean jobs?"),
        ({"workload": {"kind": "fitgpp", "trials": 3}}, "workload.trials: Input should be less than or equal to 1 (share of"),
        ({"delays": {"start": {"kind": "norm"}}}, "delays.start.kind: there is no 'norm'; there are constant, uniform, normal"),
        ({"delays": {"start": -1}}, "delays.start: it can be negative: give it `low: 0`, or more"),
        ({"delays": {"start": "soon"}}, "delays.start: 'soon' is neither a number nor a distribution"),
        ({"delays": {"start": 1e300}}, "delays.start: it is more than 1e+12"),
        ({"delays": {"checkpoint_every": 1e-300}}, "delays.checkpoint_every: Input should be greater than or equal to 0.001"),
        ({"policies": [{"name": "fifo", "default_grace": 1e300}]}, "policies.0.default_grace: Input should be less than or"),
        (
            {"policies": [{"name": "fifo", "aging": 1e11}]},
            "policies.0.aging: Input should be less than or equal to 10000000000",
        ),
        ({"policies": [{"name": "fifo", "gang_start": 1e-9}]}, "policies.0.gang_start: Input should be greater than or equal"),
        ({"seeds": "1-9999", "policies": [{"name": "rand", "repeats": 500}]}, "the configuration: these are 4,999,500 simulat"),
        ({"workload": {"kind": "fitgpp", "grace": 1e-300}}, "workload.grace: it must be from 1e-06 to 1e+06, and is 1e-300"),
        ({"workload": {"kind": "fitgpp", "load": 1e-9}}, "workload.load: it must be from 1e-06 to 1e+09, and is 1e-09"),
        ({"workload": {"kind": "hived", "scale": 1e99}}, "workload.scale: it must be from 1e-06 to 1e+09, and is 1e+99"),
        ({"workload": {"kind": "hived", "days": 1e12}}, "workload.days: it must be from 0.001 to 100000, and is 1e+12"),
        (
            {"workload": {"kind": "csv", "file": "x", "arrivals": {"kind": "recorded", "speed": 1e-300}}},
            "workload.arrivals.speed: it must be from 1e-06 to 1e+09, and is 1e-300",
        ),
        (
            {"workload": {"kind": "philly", "file": "x", "cpus_per_gpu": 1e300}},
            "workload.cpus_per_gpu: Input should be less th",
        ),
        (
            {"workload": {"kind": "csv", "file": "x", "jobs": 10**9}},
            "workload.jobs: Input should be less than or equal to 1000",
        ),
        ({"policies": "fifo"}, "policies: it must be a list, such as [a, b]"),
        (
            {"cluster": {"tree": {"socket": 2, "switch": 0}}},
            "cluster.0.tree.switch: Input should be greater than or equal to 1",
        ),
        (
            {"virtual_clusters": [{"name": "a", "owns": {"p": {"node": 1}, "gpu-8": {"node": -1}}}]},
            "virtual_clusters.0.owns.gpu-8.node: Input should be greater than or equal to 0",
        ),
        (
            {"virtual_clusters": [{"name": "a", "owns": {"gpu-8": 3}}]},
            "virtual_clusters.0.owns.gpu-8: it must be names with their values, such as {name: value}",
        ),
        ({"cluster": {"tree": {"socket": 0}}}, "cluster.0.tree.socket: Input should be greater than or equal to 1"),
        ({"cluster": [{}, {"tree": {"socket": 0}}]}, "cluster.1.tree.socket: Input should be greater than or equal to 1"),
        ({"cluster": {"tree": "socket"}}, "cluster.0.tree: it must be names with their values, such as {name: value} (levels"),
        ({"cluster": {"tree": ["socket", 2]}}, "cluster.0.tree: it must be names with their values, such as {name: value}"),
        ({"policies": []}, "policies: it must have 1 or more"),
        ({"policies": [3]}, "policies.0: it must be settings, such as {name: value}"),
        (
            {"workload": {"kind": "generated", "jobs": 1, "kinds": [{"work_s": 1, "tasks": 1e9}]}},
            "workload.kinds.0: tasks: a job has 100000 at most",
        ),
        ({"seeds": True}, "seeds: it must be a list"),
        ({"seeds": 2**31}, "seeds.0: Input should be less than 2147483648"),
        ({"decide_every": 1e300}, "decide_every: Input should be less than or equal to 10000000000"),
        ({"seeds": "8-1"}, "seeds: '8-1' is no range of seeds such as 1-8"),
        ({"seeds": [1, 1]}, "the configuration: a seed is there twice, which gives the same again"),
        ({"metrics": ["speed"]}, "metrics.0: Input should be 'slowdown', 'wait'"),
        ({"decide_every": "inf"}, "decide_every: Input should be a finite number"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_may_be(other: dict[str, Any], told: str) -> None:
    assert refused(**other).startswith(told)


@pytest.mark.parametrize(
    ("pools", "told"),
    [
        ([{"name": "p", "first": 3, "last": 2}], "p is of the nodes 3 to 2, and there are 1 to 4"),
        ([{"name": "p", "first": 1, "last": 9}], "p is of the nodes 1 to 9, and there are 1 to 4"),
        ([{"name": "p", "first": 1, "last": 2}, {"name": "p", "first": 3, "last": 4}], "two are called 'p'"),
        ([{"name": "q", "first": 2, "last": 4}, {"name": "p", "first": 1, "last": 2}], "node 2 is in p and in q"),
        (
            [{"name": "p", "first": 1, "last": 4, "levels": [{"name": "rack", "of": 3}]}],
            "the 4 nodes of p do not make whole cells of the level rack, which has 3",
        ),
        ([{"name": "p", "first": 1, "last": 4, "levels": [{"name": "node", "of": 2}]}], "two levels of p are called 'node'"),
    ],
)
def test_pools_that_cannot_be_are_told(pools: list[dict[str, Any]], told: str) -> None:
    site = {"virtual_clusters": [{"name": "a"}], "cluster": [{"gpus": 8}, {"nodes": 3, "gpus": 8}], "pools": pools}
    assert refused(**site, policies=["cells"]) == f"the configuration: pools: {told}"
    with pytest.raises(ValidationError, match=f"pools: {told}"):
        Case.model_validate({**SMALL, **site, "policy": {"name": "cells"}})


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert refused(seeds="x", metrics=["speed"]).count("\n") == 1


@pytest.mark.parametrize(("told", "seeds"), [(5, (5,)), ("2-4", (2, 3, 4)), ([9, 1], (9, 1))])
def test_seeds(told: Any, seeds: tuple[int, ...]) -> None:
    assert config.parse({**SMALL, "policies": ["fifo"], "seeds": told}).seeds == seeds


def test_a_configuration_is_so_many_cases() -> None:
    parsed = config.parse({**SMALL, "policies": ["fifo", {"name": "rand", "repeats": 2}], "seeds": "1-2"})
    made = parsed.cases(Path("/somewhere"))
    assert [(case.policy.name, case.seed, case.repeat) for case in made] == [
        *(("fifo", 1, 0), ("fifo", 2, 0)),
        *(("rand", 1, 0), ("rand", 1, 1), ("rand", 2, 0), ("rand", 2, 1)),
    ]
    assert {case.folder for case in made} == {Path("/somewhere")}


def test_lives_are_not_kept() -> None:
    """A World with a sink forgets what is over; else 2^19 jobs would not fit."""
    seen: list[Life] = []
    made = case("fifo")
    world = World(
        Site(made.inventories(), stages("fifo", PreemptionSettings()).policy),
        arrivals_of(made.workload, 1, Path()),
        seen.append,
    )
    world.run()
    assert len(seen) == 200
    assert not world.lives


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """Of two clusters the last would be simulated, and nobody would know."""
    twice = tmp_path / "twice.yaml"
    twice.write_text("workload: {kind: fitgpp, jobs: 5}\ncluster: {gpus: 8}\ncluster: {gpus: 4}\npolicies: [fifo]\n")
    with pytest.raises(ConfigError, match="'cluster' is given twice"):
        config.load(twice)
