"""Jobs of about a second each, on a live cluster as in the simulator: the same list for both, and the same kind of history."""

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from client_sdk import JobClass
from scheduler_service.core import model as core
from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.experiments.job_outcomes import Launch, Life
from scheduler_service.sim.jobs import SimJob
from tests.harness import WHOLE_NODE, Database, Site

SCRIPT = Path(__file__).with_name("paced.sh")
NODES = ("n1", "n2", "n3", "n4")
POLICY = PreemptionSettings(trials_in_flight=1)
"""That of the live service, whose preset is the paper's."""
RESTORE: Micros = SECOND // 10
"""What a run that goes on from a checkpoint needs to load it."""
ARRIVALS_A_SECOND = 14.0
"""More than four nodes can serve, so that a queue builds up and trials have to preempt."""


def workload(seed: int, count: int = 200) -> list[SimJob]:
    """Two jobs in five are trials. Best-effort jobs are of up to a whole node, and of different grace periods."""
    rng = Random(f"{seed}:paced")
    at, made = 0.0, []
    for _ in range(count):
        at += rng.expovariate(ARRIVALS_A_SECOND)
        trial = rng.random() < 0.4
        work = rng.uniform(0.3, 1.0) if trial else rng.uniform(0.5, 2.3)
        devices = rng.choice((1, 2, 4, 4) if trial else (1, 1, 2, 2, 4, 4, 8))
        checkpoint, grace = rng.uniform(0.05, 0.4), rng.choice((2, 4, 8, 16))
        work_us, checkpoint_us = round(work * SECOND), round(checkpoint * SECOND)
        command = ("bash", str(SCRIPT), str(work_us), str(checkpoint_us), str(RESTORE))
        job_class = core.JobClass.TRIAL if trial else core.JobClass.BEST_EFFORT
        spec = core.JobSpec(command, Vector(1000, 64, devices), job_class, grace * SECOND)
        made.append(SimJob(spec, work_us, round(at * SECOND)))
    return made


def nodes() -> tuple[Inventory, ...]:
    """As the agents of `Site` report them; the devices' names make no difference."""
    capacity = Vector(128_000, 1 << 20, WHOLE_NODE)
    return tuple(
        Inventory(capacity, (), tuple(Device(d, f"{name}/{d}", "simulated", 80 << 10) for d in range(WHOLE_NODE)))
        for name in NODES
    )


def play(site: Site, jobs: Sequence[SimJob]) -> None:
    """Submits each at its time, in their order, so that their ids count from 1 in that order; waits until all have ended."""
    began, submitted = time.monotonic(), []
    for number, job in enumerate(jobs, 1):
        time.sleep(max(began + job.submit_us / SECOND - time.monotonic(), 0))
        demand, job_class = job.spec.demand, JobClass(job.spec.job_class)
        made = site.submit(
            job.spec.command,
            devices=demand.devices,
            job_class=job_class,
            cpus=demand.cpu_milli / 1000,
            memory=demand.memory_mib,
            grace=job.spec.grace_us / SECOND,
        )
        assert made.id == number
        submitted.append(made)
    site.succeeded(*submitted, limit=120)
    site.check_all_ended()


def lives(database: Database, jobs: Sequence[SimJob]) -> list[Life]:
    """What became of them, by the scheduler's clock, which begins with the first submit."""
    rows = {row["id"]: row for row in database.ask("SELECT id, submitted_us, ended_us FROM job")}
    origin = rows[1]["submitted_us"]
    made = []
    for number, job in enumerate(jobs, 1):
        at, end = rows[number]["submitted_us"] - origin, rows[number]["ended_us"] - origin
        made.append(Life(job._replace(submit_us=at), number, at, end, job.work_us))
    query = "SELECT job_id, node, placed_us, started_us, stop_us, ended_us, phases FROM run ORDER BY job_id, run"
    for row in database.ask(query):
        times = [None if at is None else at - origin for at in (row["started_us"], row["stop_us"], row["ended_us"])]
        launch = Launch((row["node"],), row["placed_us"] - origin, *times)
        note_parks(launch, row["phases"] or [], origin)
        made[row["job_id"] - 1].launches.append(launch)
    return made


def note_parks(launch: Launch, phases: Sequence[Sequence[Any]], origin: Micros) -> None:
    """What the phases of a run's parks took (`core.model.parking.PhaseTime`). Those that were given up do not count."""
    took: dict[core.OperationPhase, Micros] = {}
    for kind, number, began_us, took_us, text in phases:
        phase = core.OperationPhase(number)
        if kind != core.OperationKind.PARK:
            continue
        took[phase] = took_us
        if phase is core.OperationPhase.PARKED:
            launch.park_delays += (took[core.OperationPhase.PARKING],)
            launch.parked += (began_us - origin,)
        elif phase is core.OperationPhase.RESUMING and not text.startswith("the job is stopped"):
            launch.unpark_delays += (took_us,)
            launch.parked += (began_us + took_us - origin,)
    launch.parked = launch.parked[: len(launch.parked) // 2 * 2]
