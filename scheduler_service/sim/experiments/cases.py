"""A case: everything that one simulation depends on, as data, and its outcome.

A case is JSON, so that it can be sent to another machine and kept next to its results. A digest of its content tells a sweep
which results it already has.
"""

import gc
import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from scheduler_service.core.errors import Refused
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import ZERO, Micros, Vector, add
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.sim.exchange import Exchange
from scheduler_service.sim.experiments.digests import digest_of_file, paths
from scheduler_service.sim.experiments.history import History, Phase, Span
from scheduler_service.sim.experiments.metrics import POINTS, curves, numbers
from scheduler_service.sim.experiments.results import Lives, exchange_table
from scheduler_service.sim.experiments.runner_port import Tell
from scheduler_service.sim.failures import NO_OUTAGES
from scheduler_service.sim.jobs import ClosedLoop
from scheduler_service.sim.limits import LONGEST_S, in_time
from scheduler_service.sim.node_failures import Torn
from scheduler_service.sim.searching import curves as search_curves
from scheduler_service.sim.searching import numbers as search_numbers
from scheduler_service.sim.searching import searching_in
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.sharing.metrics import curves as shared_curves
from scheduler_service.sim.sharing.metrics import numbers as shared_numbers
from scheduler_service.sim.site import Cluster, Failures, Nodes, Policy, Times, micros
from scheduler_service.sim.virtual_clusters import Pool, VirtualCluster, at_submit, check_pools, check_users, of_known
from scheduler_service.sim.workloads import (
    GandivaShared,
    Generated,
    Hived,
    Skipped,
    Workload,
    arrivals_of,
    jobs_of,
    times_from,
    whole_trace,
)
from scheduler_service.sim.workloads.arriving import NEVER_CAME, Timed
from scheduler_service.sim.workloads.distributions import Model
from scheduler_service.sim.world import Site, World

__all__ = ["Case", "Failures", "Nodes", "Outcome", "Policy", "Times", "preview", "simulate"]

FORMAT = 2
"""Version of the format of results. An increment makes all kept results out of date."""
OF_HOLDERS = ("gpu_h.", "utilisation.gpu")
"""Metrics that assume that each run holds its devices alone, and that have no meaning if devices are shared."""
SELDOM = 50_000
"""The garbage collector's threshold: a collection for this many new objects. Python's own number is 700."""
SEEDS = 2**31
"""The number of seeds, which count from 0."""


class Case(Model):
    """One simulation. The same case gives the same history, byte for byte. Durations are in seconds."""

    cluster: Cluster
    workload: Workload
    policy: Policy = Policy(name="fitgpp")
    seed: int = Field(default=1, ge=0, lt=SEEDS, description="of the workload, and of whatever else is drawn")
    repeat: int = Field(
        default=0, ge=0, lt=2**16, description="the same jobs again, with other draws in the policy and on the nodes"
    )
    decide_every: float = Field(
        default=0, ge=0, le=LONGEST_S, description="decisions wait for the next multiple of this; 0: they are taken at once"
    )
    delays: Times = Times()
    failures: Failures | None = Field(default=None, description="of nodes; null: none fails")
    virtual_clusters: tuple[VirtualCluster, ...] = Field(default=(), description="none: all is everybody's")
    pools: tuple[Pool, ...] = Field(default=(), description="for virtual clusters, beside those that follow from the nodes")
    guarantee: Literal["guaranteed", "overflow", "opportunistic"] = Field(
        default="overflow", description="what jobs of virtual clusters are content with"
    )
    exchange: Exchange | None = Field(
        default=None, description="of cells, between virtual clusters; null: none is, and the results are as they were before"
    )
    sharing: Sharing | None = Field(default=None, description="of devices; null: each run works at its full rate")
    folder: Path = Field(default=Path(), description="from where relative paths count")

    @model_validator(mode="after")
    def _check_tenants(self) -> "Case":
        check_exchange(self.exchange, self.virtual_clusters)
        if isinstance(self.workload, GandivaShared) and not self.virtual_clusters:
            raise ValueError("searches and others are virtual clusters: give virtual_clusters, too")
        check_pools(self.pools, sum(group.nodes for group in self.cluster))
        return self

    def digest(self) -> str:
        """A digest of everything the results depend on: files by content, not by path, and the policy without its label."""
        content = self.model_dump(mode="json", exclude={"folder": True, "policy": {"label"}})
        if not self.policy.settings:
            del content["policy"]["settings"]  # added later, like those below; earlier results remain valid
        for vc in content["virtual_clusters"]:
            if not vc["settings"]:
                del vc["settings"]  # added later
        if self.exchange is None:
            del content["exchange"]  # added later
        if self.sharing is None:
            del content["sharing"]  # added later
        elif not self.sharing.assume_use:
            del content["sharing"]["assume_use"]  # added later
        if isinstance(self.workload, Hived):
            for name in ("durations", "nodes", "models"):
                if content["workload"][name] == Hived.model_fields[name].default:
                    del content["workload"][name]  # added later
        if content["workload"].get("job_gpus") == 1 and not content["workload"]["job_kind"]:
            del content["workload"]["job_gpus"], content["workload"]["job_kind"]  # added later
        if content["workload"].get("rate") == 1:
            del content["workload"]["rate"]  # added later
        if not content["workload"].get("samples"):
            content["workload"].pop("samples", None)  # added later
        for kind in content["workload"].get("kinds", ()):
            for name in ("gpu_fraction", "gpu_memory_gib", "sharing"):
                if not kind[name]:
                    del kind[name]  # added later
        told = json.dumps([FORMAT, content, self.files()], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def files(self) -> dict[str, str]:
        """The files that it names, and a digest of each one's content. Raises OSError."""
        return {str(path): digest_of_file(self.folder / path) for path in paths([self.workload, self.failures, self.sharing])}

    @property
    def exchanges_cells(self) -> bool:
        """Whether cells are exchanged. The option may be set for several policies, only some of which have cells."""
        return self.exchange is not None and self.policy.name == "cells"

    def inventories(self) -> tuple[Inventory, ...]:
        made: list[Inventory] = []
        for group in self.cluster:
            made += group.inventories(len(made))
        return tuple(made)

    def capacity(self) -> Vector:
        return reduce(add, (inventory.capacity for inventory in self.inventories()), ZERO)

    def recording(self) -> "Case | None":
        """The case whose submit times this one takes (FitGpp: "a load of 2.0 if they were scheduled by FIFO"). It has no
        virtual clusters, and the order of the queue is strict, as in the paper."""
        name = times_from(self.workload)
        if name is None:
            return None
        shared = {"virtual_clusters": (), "pools": (), "exchange": None, "sharing": None}
        recording = self.model_copy(update={"policy": Policy(name=name, in_order=True).in_effect, "repeat": 0, **shared})
        return None if recording == self.model_copy(update={"policy": self.policy.in_effect}) else recording


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    case: Case
    jobs: Any
    """A pyarrow Table with a row for each job, in the order of submission."""
    runs: Any
    """A pyarrow Table with a row for each run of all the job's tasks."""
    exchanges: Any | None
    """A pyarrow Table with a row for each exchange of cells; None if there could be none."""
    summary: dict[str, float]
    curves: dict[str, list[float]]
    skipped: Mapping[str, int]
    """How many jobs of the workload were left out, by reason."""

    def times_us(self) -> list[Micros]:
        """The time at which each job was submitted."""
        times: list[Micros] = self.jobs["submit_us"].to_pylist()
        return times


def simulate(case: Case, times_us: Sequence[Micros] | None = None, tell: Tell = lambda _over, _of: None) -> Outcome:
    """Simulate a case. `times_us` are the submit times of its recording; without them the recording is simulated, too."""
    recording = case.recording()
    if recording is not None and times_us is None:
        times_us = simulate(recording).times_us()
    with _collecting_seldom():
        return _simulate(case, times_us, tell)


def _simulate(case: Case, times_us: Sequence[Micros] | None, tell: Tell) -> Outcome:
    nodes, skipped = case.inventories(), Skipped()
    change = at_submit(Guarantee[case.guarantee.upper()], case.policy.name) if case.virtual_clusters else None
    search = searching_in(case.workload, case.seed)
    arrivals = (
        search if search is not None else arrivals_of(case.workload, case.seed, case.folder, times_us, nodes, skipped, change)
    )
    total = len(times_us) if times_us is not None else jobs_in(case.workload)
    tell(0, total)
    lives = Lives(lambda over: tell(over, total) if over % 64 == 0 else None)
    world = World(site_of(case, nodes), arrivals, lives.add, search)
    world.run()
    if isinstance(arrivals, ClosedLoop) and (left := arrivals.drop_rest()):
        skipped[NEVER_CAME] += left
    for life in world.unfinished_lives():
        lives.add(life)
    tell(lives.count, lives.count)
    jobs, runs = lives.tables()
    down = (Span(at, back, nodes[number - 1].capacity) for number, at, back in world.site.outages.failures)
    less = [*_left_early(world.agents.torn), *((Phase.PARKED, span) for span in lives.released)]
    history = History(jobs, runs, case.capacity(), down, less)
    exchanges = None
    if world.site.tenants is not None:
        exchanges = exchange_table(world.exchanges.values(), {row.id: row.name for row in world.state.vcs.rows.values()})
    summary, drawn = numbers(history), curves(history)
    if case.sharing is not None:
        usage = world.agents.executing.usage
        summary = {name: value for name, value in summary.items() if not name.startswith(OF_HOLDERS)}
        summary |= shared_numbers(usage, history, case.sharing.stable)
        drawn = {name: curve for name, curve in drawn.items() if not name.startswith(OF_HOLDERS)}
        drawn |= shared_curves(usage, history, POINTS)
    if search is not None:
        summary |= search_numbers(search)
        drawn |= search_curves(search, POINTS)
    return Outcome(case, jobs, runs, exchanges, summary, drawn, skipped)


def _left_early(torn: Iterable[Torn]) -> Iterator[tuple[Phase, Span]]:
    """Resources of tasks from their end until the last task of their gang has ended, and the phase of the run to charge."""
    for launch, at, demand in torn:
        broken = launch.ended_us if launch.lost_us is None else launch.lost_us
        whole = Phase.STARTING if launch.began_us is None else Phase.GRACE
        if broken is None or at < broken:
            yield whole, Span(at, broken, demand)
        if broken is not None and broken != launch.ended_us:
            yield Phase.HANGING, Span(max(at, broken), launch.ended_us, demand)


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Collect garbage less often: next to none of it is in cycles, and to look for those takes a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], SELDOM) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def preview(case: Case) -> tuple[int, Skipped]:
    """Count the jobs of a case, and those that are skipped. It reads the files that the case names and looks at all jobs.
    Raises BadTrace, BadSchedule, or ValueError if such jobs are impossible or could last for too long, or if a virtual cluster
    is invalid. It also checks that the virtual clusters of the jobs exist, for those that any seed could draw."""
    nodes, skipped = case.inventories(), Skipped()
    if case.failures is not None:
        case.failures.outages(len(nodes), case.seed, case.folder)
    if case.sharing is not None:
        case.sharing.setup(case.folder, models_of(case.cluster))
    if case.virtual_clusters:
        try:
            World(site_of(case, nodes), Timed(()))  # with no jobs
        except Refused as refusal:
            raise ValueError(f"virtual_clusters: {refusal}") from refusal
    jobs = jobs_of(case.workload, case.seed, case.folder, nodes, skipped)
    if case.virtual_clusters:
        names = [vc.name for vc in case.virtual_clusters]
        if isinstance(case.workload, Generated):
            check_users(case.workload, names)
        elif (whole := whole_trace(case.workload)) is not case.workload:
            deque(of_known(jobs_of(whole, case.seed, case.folder, nodes), names), 0)
        else:
            jobs = of_known(jobs, names)
    jobs = in_time(jobs, case.delays.least_us() + micros(case.decide_every))
    return sum(1 for _ in jobs), skipped


def site_of(case: Case, nodes: tuple[Inventory, ...]) -> Site:
    exchange = case.exchange if case.exchanges_cells else None
    match = "balanced" if exchange is None else exchange.policy
    policy = case.policy
    made = stages(policy.name, policy.victims(), policy.backfill, match, policy.promotes, dict(policy.settings))
    settings, failures = case.policy.engine_settings(), case.failures
    if case.virtual_clusters:
        plans = tuple(pool.plan() for pool in case.pools)
        settings = settings._replace(pools=plans)
    site = Site(
        nodes,
        made.policy,
        settings,
        order_of(made),
        case.delays.delays(),
        micros(case.decide_every),
        case.seed + (case.repeat << 32),
        NO_OUTAGES if failures is None else failures.outages(len(nodes), case.seed, case.folder),
        tuple(vc.creation_request(exchange) for vc in case.virtual_clusters),
        None if exchange is None else exchange.tenants(),
        sharing=None if case.sharing is None else case.sharing.setup(case.folder, models_of(case.cluster)),
    )
    if case.policy.name != "quota" or not case.virtual_clusters:
        return site
    from scheduler_service.sim.policies.quota_site import quota_site  # like every policy, loaded when it is made

    return quota_site(site, overflows=case.guarantee != "guaranteed")


def models_of(cluster: Cluster) -> set[str]:
    """The models of a cluster's GPUs."""
    return {group.model for group in cluster if group.gpus}


def check_policy(name: str, tenants: Sequence[VirtualCluster]) -> None:
    """Raises ValueError if there are virtual clusters that the policy does not support, or none although it needs them."""
    knows = name in ("cells", "quota")
    if tenants and not knows:
        raise ValueError(
            f"the policy {name} knows no virtual clusters: take cells or quota, or simulate it by itself, without any"
        )
    if knows and not tenants:
        raise ValueError(f"the policy {name} is for virtual clusters: give virtual_clusters, too")


def check_exchange(exchange: Exchange | None, tenants: Sequence[VirtualCluster]) -> None:
    """Raises ValueError if cells are to be exchanged without virtual clusters."""
    if exchange is not None and not tenants:
        raise ValueError("cells are exchanged between virtual clusters: give virtual_clusters, too")


def jobs_in(workload: BaseModel) -> int | None:
    """The number of jobs, if the workload gives it."""
    count = workload.expected_jobs() if isinstance(workload, Hived) else getattr(workload, "jobs", None)
    return count if isinstance(count, int) else None
