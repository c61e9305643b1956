"""What came to real clusters: read as it was, or refused with the place and the rule."""

import gzip
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.sim_philly import counting_gpus
from scheduler_service.core.model import Array, JobClass, JobSpec, ShareMode, TaskGroup
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim import workloads
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads import BadTrace, Csv, Openb, Philly, Sacct, Skipped, Unwritable, jobs_of, write
from scheduler_service.sim.workloads.assuming import COMMAND, Trials, spread
from scheduler_service.sim.workloads.sacct import COMMAND as SACCT

DATA = Path(__file__).parent / "data"
PHILLY, OPENB, ACCOUNTING = Path("philly_slice_1000.csv.gz"), Path("openb_made_up.csv"), Path("sacct_made_up.txt")
TRIAL, BEST_EFFORT = JobClass.TRIAL, JobClass.BEST_EFFORT


def read(model: workloads.Workload, seed: int = 1, **more: Any) -> tuple[list[SimJob], Skipped]:
    skipped = Skipped()
    return list(jobs_of(model, seed, DATA, skipped=skipped, **more)), skipped


# -- Philly --------------------------------------------------------------------------------------------------------------


def test_a_slice_of_philly() -> None:
    jobs, skipped = read(counting_gpus(PHILLY))
    assert (len(jobs), skipped) == (1000, {})
    assert jobs[0] == SimJob(JobSpec(COMMAND, Vector(0, 0, 1)), 66 * SECOND, 0, "11cb48", "11cb48")
    assert [job.submit_us for job in jobs] == sorted(job.submit_us for job in jobs)
    assert Counter(job.spec.demand.devices for job in jobs).keys() <= {1, 2, 4, 8, 16, 32}
    assert min(job.work_us for job in jobs) >= SECOND
    assert not any(job.spec.gang or job.spec.grace_us for job in jobs)


def test_what_is_kept_of_philly() -> None:
    from_s = 3_024_000 + 3600
    late, skipped = read(Philly(file=PHILLY, from_s=from_s, gpus=(2, 8), jobs=5))
    assert len(late) == 5
    assert late[0].submit_us == 0
    assert {job.spec.demand.devices for job in late} == {2, 8}
    assert list(skipped) == [
        f"submitted before second {from_s}",
        "asks for another number of GPUs than those that are kept",
        "came after the first 5",
    ]
    assert skipped.total() == 995


def test_the_virtual_clusters_with_the_most_jobs_are_kept() -> None:
    counts = Counter(job.vc for job in read(counting_gpus(PHILLY))[0])
    most = {vc for vc, _ in counts.most_common(2)}
    assert len(set(sorted(counts.values())[-3:])) == 3, "no two are as large"
    jobs, skipped = read(counting_gpus(PHILLY, vcs=2))
    assert {job.vc for job in jobs} == most
    assert len(jobs) + skipped["is not of one of the virtual clusters with the most jobs"] == 1000


def test_what_is_assumed_of_philly() -> None:
    jobs, _ = read(Philly(file=PHILLY, cpus_per_gpu=2.5, memory_gib_per_gpu=0.5, gang_of=4))
    gangs = {job.spec.demand.devices: job.spec.gang for job in jobs}
    assert (gangs[2], gangs[8]) == ((), (TaskGroup(2, Vector(10_000, 2048, 4)),))
    assert all(job.spec.demand == Vector(2500 * gpus, 512 * gpus, gpus) for job in jobs for gpus in [job.spec.demand.devices])
    trials = [job for job in jobs if job.spec.job_class is TRIAL]
    assert len(trials) == pytest.approx(300, rel=0.15)
    assert all(0 < job.spec.grace_us <= 1200 * SECOND for job in jobs)
    assert read(Philly(file=PHILLY), seed=2)[0] != read(Philly(file=PHILLY))[0] == read(Philly(file=PHILLY))[0]
    rest, _ = read(Philly(file=PHILLY, gang_of=3))
    assert {job.spec.gang for job in rest if job.spec.demand.devices == 8} == {
        (TaskGroup(2, Vector(12_000, 3 << 15, 3)), TaskGroup(1, Vector(8000, 2 << 15, 2)))
    }


def test_which_jobs_are_trials() -> None:
    short, _ = read(Philly(file=PHILLY, trials=Trials(shorter_than_s=600)))
    assert {(job.spec.job_class is TRIAL, job.work_us < 600 * SECOND) for job in short} == {(True, True), (False, False)}
    named, _ = read(Philly(file=PHILLY, trials=Trials(column="vc", values=("11cb48", "6214e9"))))
    assert all((job.spec.job_class is TRIAL) == (job.vc in ("11cb48", "6214e9")) for job in named)
    with pytest.raises(BadTrace, match=r"philly_slice_1000.csv.gz, line 2, column user: is not there, and is to say which"):
        read(Philly(file=PHILLY, trials=Trials(column="user", values=("x",))))
    for wrong in ({}, {"share": 0.1, "shorter_than_s": 1}, {"share": 2}, {"column": "vc"}, {"share": 1, "values": ["x"]}):
        with pytest.raises(ValidationError):
            Trials.model_validate(wrong)


def test_a_trace_on_a_cluster_that_is_too_small() -> None:
    nodes = [Inventory(Vector(0, 0, 1))] * 3
    jobs, skipped = read(counting_gpus(PHILLY, gang_of=1), nodes=nodes)
    assert max(job.spec.demand.devices for job in jobs) == 2
    assert skipped == {workloads.TOO_LARGE: 3}


def test_a_trace_drawn_anew() -> None:
    model = Philly.model_validate(
        {"file": PHILLY, "jobs": 3000, "resample": True, "arrivals": {"kind": "poisson", "per_hour": 10}}
    )
    jobs, _ = read(model)
    pool = {(job.spec, job.work_us, job.vc) for job in read(Philly(file=PHILLY))[0]}
    assert len(jobs) == 3000
    assert {(job.spec, job.work_us, job.vc) for job in jobs} <= pool
    assert jobs[-1].submit_us == pytest.approx(300 * 3600 * SECOND, rel=0.1)
    for wrong in ({"jobs": 9}, {"arrivals": {"kind": "closed_loop"}}):
        with pytest.raises(ValidationError, match="resample needs jobs"):
            Philly.model_validate({"file": PHILLY, "resample": True} | wrong)


# -- openb ---------------------------------------------------------------------------------------------------------------


def test_openb() -> None:
    jobs, skipped = read(Openb(file=OPENB))
    assert [(job.submit_us // SECOND, job.work_us // SECOND, job.spec.demand, job.spec.job_class) for job in jobs] == [
        (0, 600, Vector(8000, 4096, 1), BEST_EFFORT),
        (200, 1, Vector(64_000, 262_144, 8), BEST_EFFORT),
        (300, 60, Vector(1500, 100, 0), TRIAL),
        (600, 3600, Vector(12_000, 16_384, 1), TRIAL),
    ]
    assert skipped == {"was never placed": 1}
    whole, skipped = read(Openb(file=OPENB, parts_of_gpus="skip", from_s=600))
    assert [job.spec.demand.devices for job in whole] == [8, 0, 1]
    assert skipped == {"was never placed": 1, "submitted before second 600": 1}
    _, skipped = read(Openb(file=OPENB, parts_of_gpus="skip"))
    assert skipped == {"was never placed": 1, "asks for a part of a GPU": 1}
    parts, _ = read(Openb(file=OPENB, parts_of_gpus="packed"))
    assert [(job.spec.share, job.spec.gpu_fraction_ppm) for job in parts if job.spec.shares] == [(ShareMode.PACKED, 460_000)]


def test_openbs_demands_with_other_times() -> None:
    jobs, _ = read(Openb.model_validate({"file": OPENB, "trial_work_s": 5, "work_s": 7, "trials": {"share": 0.5}}))
    assert {(job.spec.job_class, job.work_us) for job in jobs} <= {(TRIAL, 5 * SECOND), (BEST_EFFORT, 7 * SECOND)}


# -- sacct ---------------------------------------------------------------------------------------------------------------


def test_sacct() -> None:
    jobs, skipped = read(Sacct(file=ACCOUNTING, trials=Trials(column="QOS", values=("high",))))
    assert [(job.submit_us // SECOND, job.work_us // SECOND, job.user, job.vc) for job in jobs] == [
        (0, 90, "bob", "speech"),
        (60, 3600, "ada", "vision"),
        (960, 101, "eve", "vision"),
        (1260, 1, "ada", "vision"),
        (1860, 86400, "ada", "vision"),
        (1980, 7, "eve", "vision"),
    ]
    assert [(job.spec.demand, job.spec.gang) for job in jobs] == [
        (Vector(2000, 4000, 0), ()),
        (Vector(8000, 65536, 2), ()),
        (Vector(20_000, 3072, 8), (TaskGroup(1, Vector(4000, 1024, 0)), TaskGroup(2, Vector(8000, 1024, 4)))),
        (Vector(1000, 0, 0), ()),
        (
            Vector(20_000, 1 << 20, 7),
            (
                TaskGroup(1, Vector(6667, 349_526, 3)),
                TaskGroup(1, Vector(6667, 349_525, 2)),
                TaskGroup(1, Vector(6666, 349_525, 2)),
            ),
        ),
        (Vector(2_048_000, 2560, 16), (TaskGroup(2, Vector(1_024_000, 1280, 8)),)),
    ]
    assert [job.spec.job_class for job in jobs] == [TRIAL, *[BEST_EFFORT] * 5]
    assert [job.spec.estimate_us // (60 * SECOND) for job in jobs] == [0, 120, 5, 0, 1440, 5]
    assert skipped == {"never ran": 2, "waits still": 1, "runs still": 1}


def test_what_was_asked_of_slurm_and_not_what_it_gave() -> None:
    jobs, _ = read(Sacct(file=ACCOUNTING, demand="requested", vc="Partition"))
    assert [(job.spec.demand, job.vc) for job in jobs] == [
        (Vector(1000, 4000, 0), "cpu"),
        (Vector(8000, 65536, 2), "gpu"),
        (Vector(20_000, 3072, 8), "cpu"),
        (Vector(1000, 0, 0), "cpu"),
        (Vector(20_000, 1 << 20, 7), "gpu"),
        (Vector(2_048_000, 2048, 0), "gpu"),  # ReqCPUS, and 1Gn on 2 nodes
    ]
    assert {job.vc for job in read(Sacct(file=ACCOUNTING, vc="none"))[0]} == {""}


def test_memory_for_each_cpu_and_times_since_1970(tmp_path: Path) -> None:
    lines = [
        "JobID|User|Submit|Start|ElapsedRaw|State|ReqTRES|AllocTRES|ReqCPUS|ReqMem",
        "1||100|200|5|COMPLETED|cpu=4|cpu=4|4|1536Kc",
        "2||50|200|5|COMPLETED|cpu=4|cpu=4|4|",
    ]
    (tmp_path / "s").write_text("\n".join(lines))
    jobs, _ = read(Sacct(file=tmp_path / "s", demand="requested", vc="none"))
    assert [(job.submit_us, job.spec.demand.memory_mib, job.user) for job in jobs] == [
        (0, 0, "unknown"),
        (50 * SECOND, 8, "unknown"),
    ]


def test_users_may_know_how_long_their_jobs_run(tmp_path: Path) -> None:
    head = "JobID|User|Submit|Start|ElapsedRaw|State|ReqTRES|AllocTRES|Account|TimelimitRaw"
    (tmp_path / "s").write_text(f"{head}\n1|ann|100|200|9|COMPLETED|cpu=4|cpu=4|lab|60\n")
    told = [read(Sacct.model_validate({"file": tmp_path / "s", "estimates": how}))[0][0] for how in ("none", "right")]
    assert [job.spec.estimate_us for job in told] == [3600 * SECOND, 9 * SECOND]


def test_the_account_of_a_job_is_its_project(tmp_path: Path) -> None:
    head = "JobID|User|Submit|Start|ElapsedRaw|State|ReqTRES|AllocTRES"
    (tmp_path / "s").write_text(f"{head}|Account\n1|ann|100|200|9|COMPLETED|cpu=4|cpu=4|lab\n")
    (tmp_path / "without").write_text(f"{head}\n1|ann|100|200|9|COMPLETED|cpu=4|cpu=4\n")
    told = [read(Sacct(file=tmp_path / name, vc="none"))[0][0] for name in ("s", "without")]
    assert [job.spec.project for job in told] == ["lab", ""]


def test_a_job_that_is_in_the_lists_of_two_months_counts_once(tmp_path: Path) -> None:
    """The first list had it running. What was put back into the queue came again, and counts again."""
    head = "JobID|User|Submit|Start|ElapsedRaw|State|ReqTRES|AllocTRES|Account"
    told = [(1, 100, "COMPLETED"), (2, 100, "RUNNING"), (1, 100, "COMPLETED"), (2, 100, "TIMEOUT"), (1, 300, "COMPLETED")]
    lines = [f"{number}|ann|{submit}|{submit}|9|{state}|cpu=4|cpu=4|lab" for number, submit, state in told]
    (tmp_path / "s").write_text("\n".join([head, *lines]))
    jobs, skipped = read(Sacct(file=tmp_path / "s"))
    assert [job.submit_us // SECOND for job in jobs] == [0, 0, 200]
    assert skipped == {"runs still": 1, "is there twice, with the same Submit": 1}


def test_a_state_that_slurm_has_not_told_of_is_no_run(tmp_path: Path) -> None:
    """A job that is COMPLETING runs still; of one in a state that nobody knows it is said in which."""
    head = "JobID|User|Submit|Start|ElapsedRaw|State|ReqTRES|AllocTRES|Account"
    states = ["COMPLETED", "CANCELLED by 1001", "COMPLETING", "PONDERING", "SPECIAL_EXIT", "NODE_FAIL", "DEADLINE", ""]
    lines = [f"{number}|ann|100|200|9|{state}|cpu=4|cpu=4|lab" for number, state in enumerate(states, 1)]
    (tmp_path / "s").write_text("\n".join([head, *lines]))
    jobs, skipped = read(Sacct(file=tmp_path / "s"))
    assert len(jobs) == 4
    unknown = "is in a state that is not known: "
    assert skipped == {"runs still": 1, "waits still": 1, f"{unknown}PONDERING": 1, f"{unknown}none": 1}


def test_the_command_names_every_column() -> None:
    header = (DATA / ACCOUNTING).read_text().splitlines()[0]
    assert SACCT.partition("--format=")[2] == header.replace("|", ",")


@pytest.mark.parametrize("tasks", [1, 3, 7])
@pytest.mark.parametrize("total", [Vector(1000, 64, 8), Vector(0, 0, 0), Vector(7, 8, 9)])
def test_an_even_spread(total: Vector, tasks: int) -> None:
    groups = spread(total, tasks)
    assert sum(group.size for group in groups) == tasks
    assert Vector(*(sum(group.size * group.demand[i] for group in groups) for i in range(3))) == total
    for amounts in zip(*(group.demand for group in groups), strict=True):
        assert max(amounts) - min(amounts) <= 1


# -- Ebb's own CSV -------------------------------------------------------------------------------------------------------

micros = st.integers(0, 2**50)
demands = st.builds(Vector, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 1000))
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
gangs = st.lists(st.builds(TaskGroup, st.integers(1, 9), demands, st.just(())), min_size=1, max_size=3)


@st.composite
def sim_jobs(draw: st.DrawFn) -> SimJob:
    groups = tuple(draw(gangs))
    total = Vector(*(sum(group.size * group.demand[i] for group in groups) for i in range(3)))
    spec = JobSpec(
        COMMAND,
        total,
        draw(st.sampled_from(JobClass)),
        draw(micros),
        draw(texts),
        priority=draw(st.integers(-(2**31), 2**31)),
        time_limit_us=draw(micros),
        estimate_us=draw(micros),
        gang=groups if sum(group.size for group in groups) > 1 else (),
        project=draw(texts),
    )
    part = draw(st.sampled_from((None, (500_000, 0, ShareMode.SLICED), (0, 1536, ShareMode.PACKED), (1, 7, ShareMode.PACKED))))
    if part is not None and not spec.gang:
        demand = spec.demand._replace(devices=1)
        spec = replace(spec, demand=demand, gpu_fraction_ppm=part[0], gpu_memory_mib=part[1], share=part[2])
    return SimJob(spec, draw(st.integers(1, 2**50)), draw(micros), draw(texts.filter(bool)), draw(texts))


@given(jobs=st.lists(sim_jobs(), max_size=5), packed=st.booleans())
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, jobs: list[SimJob], packed: bool) -> None:
    file = tmp_path_factory.mktemp("csv") / ("jobs.csv.gz" if packed else "jobs.csv")
    assert write(jobs, file) == len(jobs)
    first = min((job.submit_us for job in jobs), default=0)
    expected = sorted((job._replace(submit_us=job.submit_us - first) for job in jobs), key=lambda job: job.submit_us)
    assert read(Csv(file=file)) == (expected, {})
    before = file.read_bytes()
    write(jobs, file)
    assert file.read_bytes() == before
    assert before[:2] == b"\x1f\x8b" if packed else before.startswith(b"submit_s,work_s,user,")


def test_a_csv_by_hand(tmp_path: Path) -> None:
    text = (
        "\ufeffsubmit_s, work_s,gpus,tasks,cpus,class,memory_gib\r\n10,1.5,8+4,2+1,4,trial,0.5\r\n\r\n0,60,,,,,\r\n5,0,,,,,\r\n"
    )
    (tmp_path / "jobs.csv").write_text(text, encoding="utf-8", newline="")
    jobs, skipped = read(Csv(file=tmp_path / "jobs.csv"))
    groups, grace = (TaskGroup(2, Vector(4000, 512, 8)), TaskGroup(1, Vector(4000, 512, 4))), 30 * SECOND
    assert jobs == [
        SimJob(JobSpec(COMMAND, Vector(), grace_us=grace), 60 * SECOND),
        SimJob(JobSpec(COMMAND, Vector(12_000, 1536, 20), TRIAL, grace, gang=groups), 1_500_000, 10 * SECOND),
    ]
    assert skipped == {"never ran (work_s is 0)": 1}


def test_what_has_no_column_is_not_written(tmp_path: Path) -> None:
    array = SimJob(JobSpec(("x",), Vector(), array=Array(3)), 1)
    with pytest.raises(Unwritable, match="a job of user has an array, for which the CSV has no column"):
        write([array], tmp_path / "jobs.csv")
    assert list(tmp_path.iterdir()) == [], "no half of a file"
    other = replace(array.spec, array=None, environment=(("A", "b"),))
    assert write([array._replace(spec=other)], tmp_path / "jobs.csv") == 1, "what nobody simulates does not matter"


# -- what is no trace ----------------------------------------------------------------------------------------------------

PHILLY_HEAD = "submit_s,duration_s,num_gpus,vc"
OPENB_HEAD = "qos,submit_s,sched_s,end_s,cpu_milli,mem_mib,num_gpus,gpu_milli"
SACCT_HEAD = "JobID|User|Submit|Start|ElapsedRaw|State|ReqTRES|AllocTRES|Account"
RAN = "2025-01-01T00:00:00|2025-01-01T00:00:00|9|COMPLETED||"


@pytest.mark.parametrize(
    ("model", "text", "line", "column", "rule"),
    [
        (Csv, "", 1, "submit_s", "is not there; needed are submit_s, work_s"),
        (Csv, "submit_s,work_s,grace\n", 1, "grace", "is not known; there may be submit_s, work_s, user"),
        (Csv, "submit_s,work_s,submit_s\n", 1, "submit_s", "is there twice"),
        (Csv, "submit_s,work_s\n1,2\n1\n", 3, "", "has 1 values, where the header names 2 columns"),
        (Csv, "submit_s,work_s\n1,\n", 2, "work_s", "must be a number, and is ''"),
        (Csv, "submit_s,work_s\n\n\n1,x\n", 4, "work_s", "must be a number, and is 'x'"),
        (Csv, "submit_s,work_s\n-1,1\n", 2, "submit_s", "must be a number from 0 on, and is '-1'"),
        (Csv, "submit_s,work_s\nnan,1\n", 2, "submit_s", "must be a number from 0 on"),
        (Csv, "submit_s,work_s\n1e99,1\n", 2, "submit_s", "must be 4.61169e+12 at most, and is '1e99'"),
        (Csv, "submit_s,work_s\n1,2\n2000000000000,1\n", 3, "submit_s", "must be 1e+12 at most, and is '2000000000000'"),
        (Csv, "submit_s,work_s\n1,999999999999999\n", 2, "work_s", "must be 4.61169e+12 at most, and is '999999999999999'"),
        (Csv, "submit_s,work_s,grace_s\n1,1,1e12\n1,1,1.1e12\n", 3, "grace_s", "must be 1e+12 at most, and is '1.1e12'"),
        (
            Csv,
            "submit_s,work_s,gpus\n1,1,1.5\n",
            2,
            "gpus",
            "must be 1 or less than that for a job that shares a device, and is '1.5'",
        ),
        (Csv, "submit_s,work_s,gpus,tasks\n1,1,0.5,2\n", 2, "tasks", "must be 1 for a job that asks for a part of a device"),
        (Csv, "submit_s,work_s,gpus,share\n1,1,1,sliced\n", 2, "share", "is 'sliced', and the job asks for whole devices"),
        (
            Csv,
            "submit_s,work_s,gpu_memory_gib,share\n1,1,4,sliced\n",
            2,
            "share",
            "must be packed for this part of a device, and is 'sliced'",
        ),
        (Csv, "submit_s,work_s,class\n1,1,te\n", 2, "class", "must be trial or best-effort, and is 'te'"),
        (Csv, "submit_s,work_s,tasks\n1,1,0\n", 2, "tasks", "must be from 1 to 100000 in all, and is '0'"),
        (Csv, "submit_s,work_s,tasks\n1,1,60000+50000\n", 2, "tasks", "must be from 1 to 100000 in all, and is '60000+50000'"),
        (Csv, "submit_s,work_s,gpus\n1,1,1+2\n", 2, "gpus", "has 2 values joined by +, and tasks has 1"),
        (Csv, "submit_s,work_s,cpus,tasks\n1,1,1e15,99\n", 2, "tasks", "more in all than a 64-bit number holds"),
        (Csv, "submit_s,work_s,priority\n1,1,high\n", 2, "priority", "must be a whole number, and is 'high'"),
        (Philly, f"{PHILLY_HEAD}\n0,long,1,a\n", 2, "duration_s", "must be a number, and is 'long'"),
        (Philly, f"{PHILLY_HEAD}\n0,1,-1,a\n", 2, "num_gpus", "must be a number from 0 on"),
        (Philly, f"{PHILLY_HEAD}\n{'0,1e12,1,a;' * 9}".replace(";", "\n"), 6, "duration_s", "the jobs so far work for 5e+12 s"),
        (Openb, f"{OPENB_HEAD}\n{'LS,0,0,1e12,1,1,1,1000;' * 9}".replace(";", "\n"), 6, "end_s", "the jobs so far work for"),
        (
            Sacct,
            f"{SACCT_HEAD}\n{f'1|a|{RAN}cpu=1|x;' * 9}".replace(";", "\n").replace("|9|", "|1e12|"),
            6,
            "ElapsedRaw",
            "the jobs so far work for 5e+12 s",
        ),
        (Philly, f"{PHILLY_HEAD}\n0,1,900000000,a\n", 2, "num_gpus", "makes a gang of more than 100000 tasks"),
        (Philly, "submit_s,duration_s,vc\n", 1, "num_gpus", "is not there; needed are submit_s, duration_s, num_gpus, vc"),
        (Openb, f"{OPENB_HEAD}\nLS,9,9,8,1,1,1,1000\n", 2, "end_s", "must not be before sched_s, and is 8"),
        (Openb, f"{OPENB_HEAD}\nLS,9,9,9,1.5,1,1,1000\n", 2, "cpu_milli", "must be a whole number"),
        (Sacct, f"{SACCT_HEAD}\n1|a|yesterday{RAN[19:]}cpu=1|x\n", 2, "Submit", "must be a time such as 2025-01-31T08:00:00"),
        (Sacct, f"{SACCT_HEAD}\n1|a|2025-02-30{RAN[10:]}cpu=1|x\n", 2, "Submit", "is no time: '2025-02-30T00:00:00'"),
        (Sacct, f"{SACCT_HEAD}\n1|a|Unknown{RAN[19:]}cpu=1|x\n", 2, "Submit", "must be a time, and is 'Unknown'"),
        (Sacct, f"{SACCT_HEAD}\n1|a|{RAN}8 CPUs|x\n", 2, "AllocTRES", "must be name=amount,..., and is '8 CPUs'"),
        (Sacct, f"{SACCT_HEAD}\n1|a|{RAN}node=1000000000|x\n", 2, "AllocTRES", "is on more than 100000 nodes"),
        (Sacct, f"{SACCT_HEAD}\n1|a|{RAN}cpu=x|x\n", 2, "AllocTRES", "must be a number, and is 'x'"),
        (Sacct, f"{SACCT_HEAD}\n1|a|{RAN}cpu=1,mem=9Q|x\n", 2, "AllocTRES", "must be an amount of memory, such as 64G"),
    ],
)
def test_a_trace_that_is_none(tmp_path: Path, model: Any, text: str, line: int, column: str, rule: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(BadTrace) as refused:
        read(model(file=file))
    bad = refused.value
    assert (bad.file, bad.line, bad.column) == (file, line, column)
    assert rule in bad.rule
    assert str(bad) == f"{file}, line {line}{f', column {column}' if column else ''}: {bad.rule}"
    assert str(pickle.loads(pickle.dumps(bad))) == str(bad)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    rows = b"submit_s,work_s,name\n" + b"1,1,a\n" * 10_000
    whole = gzip.compress(rows)
    files = {
        "not there": (None, [0]),
        "torn.csv.gz": (gzip.compress(rows, 0)[:50_000], range(5_000, 8_332)),  # text is read some KiB at a time
        "spoilt.csv.gz": (whole[:30] + b"\0\0\0\0" + whole[34:], [1]),
        "end.csv.gz": (whole[:-5] + b"\0" + whole[-4:], [10_002]),
        "plain.csv.gz": (b"submit_s,work_s\n", [0]),
        "latin.csv": (rows + b"1,1,\xe9\n" + rows, [10_002]),
        "latin.csv.gz": (gzip.compress(rows + b"1,1,\xe9\n"), [10_002]),
        "unclosed.csv": (b'submit_s,work_s,name\n1,1,"a\nb"\n1,1,"a\n2,2,b\n', [4]),
        "quoted.csv": (rows + b'1,1,"a"b\n' + rows, [10_002]),
    }
    for name, (content, lines) in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(BadTrace, match=f"{name}.*: cannot be read: .") as refusal:
            read(Csv(file=tmp_path / name))
        assert refusal.value.line in lines, name
