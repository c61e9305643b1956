"""The measurements of AlloX's evaluation: completion times, users' progress over time, and who is served when."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from reproduction.allox.srpt import Slots, srpt
from scheduler_service.core.model import JobSpec
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.history import Floats, Ints
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads import jobs_of

LONGEST = 0.01
"""The share of the jobs that counts as the longest, by the shortest time of each."""
NEVER = 1 << 60
"""The time of a job in a configuration that it lacks."""
POINTS = 100
"""Number of points of a curve."""


class Seen(NamedTuple):
    """The outcome of all jobs. Times are in microseconds, with one row for each job in order of arrival."""

    submit: Ints
    end: Ints
    times: Ints
    """Times, as (jobs, configurations)."""
    user: Ints
    users: list[str]
    needs: Ints
    """How many slots of its kind each configuration takes, as (jobs, configurations)."""
    slots: Ints
    """How many slots of its kind there are, by configuration."""
    run_job: Ints
    """The row of the job, by run."""
    run_configuration: Ints
    run_begin: Ints
    run_end: Ints


class Measures(NamedTuple):
    completion_s: float
    median_s: float
    longest_s: float
    """Mean completion time of the longest jobs."""
    disparity: float
    """The standard deviation of users' progress, averaged over the time in which jobs arrive."""
    worst_user_s: float
    """The longest mean completion time of any user."""
    long_user_s: float
    """The mean completion time of the user whose jobs take longest."""
    long_user_done: float
    """The share of this user's jobs that have completed when the last job of all arrives."""
    utilisation: tuple[float, ...]
    """Slots in use by configuration: the mean while jobs arrive or, if all arrive together, until all are done."""


def job_list(case: Case) -> list[SimJob]:
    return list(jobs_of(case.workload, case.seed, case.folder, case.inventories()))


def slots_of(case: Case, jobs: Sequence[SimJob]) -> list[Slots]:
    """Slots of each configuration: devices of its model or, without devices, how many such jobs fit on empty nodes. Jobs may
    lack the last configurations."""
    specs = [job.spec.in_each_configuration() for job in jobs]
    most = max(specs, key=len)
    needs = [[of[at].demand.devices or 1 if at < len(of) else 1 for of in specs] for at in range(len(most))]
    return [Slots(_count(case, spec), theirs) for spec, theirs in zip(most, needs, strict=True)]


def _count(case: Case, spec: JobSpec) -> int:
    model = spec.cells.model
    if spec.demand.devices:
        return sum(group.nodes * group.gpus for group in case.cluster if group.gpus and model in ("", group.model))
    return sum(group.nodes * int(group.cpus * 1000 // spec.demand.cpu_milli) for group in case.cluster)


def outcome_of(case: Case, folder: Path | None) -> Seen:
    """Return the outcome of a case that was simulated into the folder; if there is no folder, that of SRPT, computed here."""
    jobs = job_list(case)
    slots = slots_of(case, jobs)
    users = sorted({job.user for job in jobs})
    if folder is None:
        bound = srpt(jobs, slots)
        ends, runs = np.array(bound.ends_us, np.int64), np.array(bound.pieces, np.int64).reshape(-1, 4).T
    else:
        table, kept = pq.read_table(folder / "jobs.parquet"), pq.read_table(folder / "runs.parquet")
        if len(table) != len(jobs):
            raise ValueError(f"{folder} has {len(table)} jobs, and the case has {len(jobs)}")
        ends = table["end_us"].to_numpy().astype(np.int64)
        chosen = kept["configuration"].to_numpy() if "configuration" in kept.column_names else np.zeros(len(kept), np.int64)
        rows = np.searchsorted(table["job"].to_numpy(), kept["job"].to_numpy())
        runs = np.stack([rows, chosen, kept["placed_us"].to_numpy(), kept["ended_us"].to_numpy()]).astype(np.int64)
    return Seen(
        np.array([job.submit_us for job in jobs], np.int64),
        ends,
        np.array([job.times_us + (NEVER,) * (len(slots) - len(job.times_us)) for job in jobs], np.int64),
        np.array([users.index(job.user) for job in jobs], np.int64),
        users,
        np.array([of.needs for of in slots], np.int64).T,
        np.array([of.total for of in slots], np.int64),
        *runs,
    )


def measures(of: Seen) -> Measures:
    completion = (of.end - of.submit) / 1e6
    shortest = of.times.min(axis=1)
    longest = np.argsort(-shortest, kind="stable")[: max(round(LONGEST * len(shortest)), 1)]
    last = float(of.submit.max())
    theirs = of.user == long_user(of)
    begin, until = int(of.submit.min()), int(of.submit.max())
    if begin == until:
        until = int(of.end.max())
    held = np.maximum(np.minimum(of.run_end, until) - of.run_begin, 0)
    busy = [
        float((held * of.needs[of.run_job, at])[of.run_configuration == at].sum()) / ((until - begin) * slots)
        for at, slots in enumerate(of.slots.tolist())
    ]
    return Measures(
        float(completion.mean()),
        float(np.median(completion)),
        float(completion[longest].mean()),
        float(progress(of, edges(of)).std(axis=0).mean()) if last else 0.0,
        float(max(completion[of.user == user].mean() for user in range(len(of.users)))),
        float(completion[theirs].mean()),
        float((of.end[theirs] <= last).mean()),
        tuple(busy),
    )


def long_user(of: Seen) -> int:
    """The user whose jobs' shortest times are longest on average."""
    shortest = of.times.min(axis=1)
    return int(np.argmax([shortest[of.user == user].mean() for user in range(len(of.users))]))


def edges(of: Seen) -> Floats:
    """The edges of equal parts of the time in which jobs arrive."""
    return np.linspace(float(of.submit.min()), float(of.submit.max()), POINTS + 1)


def progress(of: Seen, at: Floats) -> Floats:
    """Return (users, parts): each user's progress (section 3.3.2), averaged between consecutive times. A running job counts its
    share of the slots of its fastest configuration, and less if it runs in a slower one."""
    best = of.times.argmin(axis=1)
    rows = np.arange(len(best))
    share = of.needs[rows, best] / of.slots[best]
    job = of.run_job
    value = of.times.min(axis=1)[job] / of.times[job, of.run_configuration] * share[job]
    found = np.zeros((len(of.users), len(at) - 1))
    for user in range(len(of.users)):
        mine = of.user[job] == user
        found[user] = _means(of.run_begin[mine], of.run_end[mine], value[mine], at)
    return found


def _means(begins: Ints, ends: Ints, values: Floats, at: Floats) -> Floats:
    """The sum of the values that are present, averaged between consecutive times."""
    times = np.concatenate((begins, ends))
    order = np.argsort(times, kind="stable")
    times = times[order].astype(np.float64)
    level = np.cumsum(np.concatenate((values, -values))[order])
    area = np.concatenate(([0.0], np.cumsum(np.diff(times) * level[:-1]))) if len(times) else np.zeros(1)
    found: Floats = np.diff(np.interp(at, times if len(times) else np.zeros(1), area)) / np.maximum(np.diff(at), 1)
    return found


def curves(of: Seen) -> Mapping[str, list[float]]:
    """Curves over the time in which jobs arrive: arrivals, completion times by arrival, disparity, and how many jobs of the
    user with the longest jobs have completed."""
    at = edges(of)
    part = np.clip(np.searchsorted(at, of.submit, side="right") - 1, 0, POINTS - 1)
    count = np.bincount(part, minlength=POINTS)
    whole = np.bincount(part, (of.end - of.submit) / 1e6, POINTS)
    mine = np.sort(of.end[of.user == long_user(of)])
    return {
        "seconds": ((at[:-1] + at[1:]) / 2e6).tolist(),
        "arrivals": count.tolist(),
        "completion_s": np.divide(whole, count, out=np.full(POINTS, np.nan), where=count > 0).tolist(),
        "disparity": progress(of, at).std(axis=0).tolist(),
        "long_user": np.searchsorted(mine, at[1:], side="right").tolist(),
    }
