"""The description of a site in a case, as data: its nodes, its policy, how long things take there, and its failures."""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from scheduler_service.core.model.inventory import Device, Inventory
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.policies import registry
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.csv_rows import not_utf8
from scheduler_service.sim.failures import BadSchedule, Exponential, Failure, Outages, read_schedule
from scheduler_service.sim.limits import LONGEST_H, LONGEST_S
from scheduler_service.sim.node_delays import Delay, Delays
from scheduler_service.sim.workloads.distributions import Amount, Model, pairs

NO_CAP = 2**31 - 1
MOST = 1_000_000
"""The maximum number of nodes or GPUs of a cluster, which take a gigabyte, and of failures of nodes."""


class Nodes(Model):
    """Nodes of the same kind."""

    nodes: int = Field(default=1, ge=1, le=MOST, description="how many")
    cpus: float = Field(default=0, ge=0, le=1e6, description="of each; none and no memory: only GPUs count")
    memory_gib: float = Field(default=0, ge=0, le=1e9, description="of each")
    gpus: int = Field(default=0, ge=0, le=1024, description="of each")
    gpu_memory_gib: float = Field(default=16, gt=0, le=1e6, description="of each GPU")
    model: str = Field(default="gpu", min_length=1, max_length=64, description="of each GPU; pools are named after it")
    tree: Annotated[tuple[tuple[str, Annotated[int, Field(ge=1, le=1024)]], ...], BeforeValidator(pairs)] = Field(
        default=(), description="levels between node and GPU, outermost first, and how many there are in each of the one before"
    )

    @model_validator(mode="after")
    def _check_even(self) -> "Nodes":
        if self.gpus % prod(fan for _, fan in self.tree):
            raise ValueError(f"{self.gpus} GPUs do not go evenly into {dict(self.tree)}")
        return self

    def inventories(self, first: int) -> Iterator[Inventory]:
        capacity = Vector(round(self.cpus * 1000), round(self.memory_gib * 1024), self.gpus)
        memory = round(self.gpu_memory_gib * 1024)
        paths = [self._path(device) for device in range(self.gpus)]
        for node in range(first, first + self.nodes):
            devices = (Device(d, f"{node}/{d}", self.model, memory, path) for d, path in enumerate(paths))
            yield Inventory(capacity, tuple(level for level, _ in self.tree), tuple(devices))

    def _path(self, device: int) -> tuple[int, ...]:
        path, rest = [], self.gpus
        for _, fan in self.tree:
            rest //= fan
            path.append(device // rest % fan)
        return tuple(path)


def _not_too_many(cluster: tuple[Nodes, ...]) -> tuple[Nodes, ...]:
    for what, count in (("nodes", sum(n.nodes for n in cluster)), ("GPUs", sum(n.nodes * n.gpus for n in cluster))):
        if count > MOST:
            raise ValueError(f"there are {count:,} {what}, and {MOST:,} is the most that can be simulated")
    return cluster


Cluster = Annotated[tuple[Nodes, ...], Field(min_length=1), AfterValidator(_not_too_many)]


class Policy(Model):
    """The policy, with the settings that the scheduler has by the same names. Durations are in seconds.

    By default optional mechanisms are off, so that a case means the same forever; `ebb-sim run` has the
    service's (`presets`).
    """

    name: str = Field(description="fifo, fitgpp, lrtp, rand ...: as the scheduler's `policy`")
    label: str = Field(default="", description="what tables call it")
    s: float = Field(default=4, ge=0, description="of FitGpp: the weight of the grace period against the size")
    cap: int | None = Field(
        default=1, ge=0, description="P: how often a job may be preempted for trials; null: as often as you like"
    )
    trials_in_flight: int | None = Field(
        default=None, ge=1, description="how many trials may wait for victims at once; null: all"
    )
    sparing: bool = Field(
        default=True, description="of runs drawn for a trial only those leave that make its room; false: all that were drawn"
    )
    in_order: bool = Field(
        default=False,
        description="as in the FitGpp paper: a job that waits holds up all behind it, and each gets the first node with room",
    )
    backfill: bool = Field(default=False, description="let jobs behind the first start where that does not delay it")
    promotes: bool = Field(
        default=True,
        description="of cells: what runs beyond a quota becomes guaranteed where it is, once there are cells for it; false: as "
        "in HiveD's paper",
    )
    settings: Annotated[tuple[tuple[str, float], ...], BeforeValidator(pairs)] = Field(
        default=(), description="that only this policy knows: {threshold: 3600} of las"
    )
    default_grace: float = Field(default=30, ge=0, le=LONGEST_S, description="of jobs that name no grace period")
    aging: float = Field(default=0, ge=0, le=LONGEST_S, description="how much waiting is worth a step of priority; 0: none")
    min_run: float = Field(
        default=0, ge=0, le=LONGEST_S, description="how long a run may not be preempted for a trial after its start"
    )
    earmark_ttl: float = Field(
        default=60, ge=1e-3, le=LONGEST_S, description="how long freed resources are kept for a trial that does not come"
    )
    gang_start: float = Field(default=60, ge=1e-3, le=LONGEST_S, description="in which all tasks of a gang must have started")

    @field_validator("name")
    @classmethod
    def _check_known(cls, name: str) -> str:
        if name not in (known := registry.for_simulations()):
            raise registry.unknown(name, known)
        return name

    @property
    def usual(self) -> Mapping[str, Any]:
        """The settings that the title does not mention."""
        return {name: field.default for name, field in Policy.model_fields.items() if name not in ("name", "label")}

    @property
    def title(self) -> str:
        """The label, or the name with the settings that differ from the usual ones."""
        changed = {name: value for name, usual in self.usual.items() if (value := getattr(self, name)) != usual}
        return self.label or " ".join([self.name, *(_setting_text(name, value) for name, value in changed.items())])

    @property
    def in_effect(self) -> "Policy":
        """The policy without settings that have no effect: its label, and the choice of victims if it never preempts."""
        preempts = stages(self.name, self.victims(), self.backfill).victims is not None
        idle = {"label"} if preempts else {"label", "s", "cap", "trials_in_flight", "sparing", "in_order", "min_run"}
        if self.name == "fifo":
            idle.discard("in_order")
        if self.name != "cells":
            idle.add("promotes")
        return self.model_copy(update={name: Policy.model_fields[name].default for name in idle})

    def engine_settings(self) -> Settings:
        return Settings(
            default_grace_us=micros(self.default_grace),
            aging_us=micros(self.aging),
            min_run_us=micros(self.min_run),
            earmark_ttl_us=micros(self.earmark_ttl),
            gang_start_us=micros(self.gang_start),
        )

    def victims(self) -> PreemptionSettings:
        cap = NO_CAP if self.cap is None else self.cap
        return PreemptionSettings(self.s, cap, self.trials_in_flight, self.sparing, self.in_order)


class Times(Model):
    """How long a node's actions take, in seconds. By default no time, but a run uses all of its grace period to exit."""

    start: Amount | None = Field(default=None, description="from the order to the process")
    resume: Amount | None = Field(default=None, description="until a run that goes on from a checkpoint works again")
    checkpoint: Amount | None = Field(
        default=None, description="from the signal until the run has left; not longer than its grace"
    )
    end: Amount | None = Field(default=None, description="from the end of the work until the scheduler hears of it")
    park: Amount | None = Field(default=None, description="from the order to park until a run is parked")
    unpark: Amount | None = Field(default=None, description="until a parked run that is told to go on works again")
    warm: Amount | None = Field(default=None, description="until the destination of a migration is ready")
    transfer: Amount | None = Field(default=None, description="until a migrated job begins, beside what its checkpoint takes")
    checkpoint_mb: float = Field(default=0, ge=0, le=1e9, description="what a migration moves; needs bandwidth_mb")
    bandwidth_mb: float = Field(default=0, ge=0, le=1e9, description="MB a second between nodes; 0: moving takes no time")
    checkpoint_every: float | None = Field(
        default=None, ge=1e-3, le=LONGEST_S, description="work between the checkpoints that jobs make by themselves"
    )

    def least_us(self) -> Micros:
        """The least delay of each job."""
        return sum(micros(amount.least()) for amount in (self.start, self.end) if amount is not None)

    def delays(self) -> Delays:
        given = {name: getattr(self, name) for name in ("start", "resume", "checkpoint", "end", "park", "unpark", "warm")}
        every = None if self.checkpoint_every is None else micros(self.checkpoint_every)
        moves = _moving(self.transfer, self.checkpoint_mb / self.bandwidth_mb if self.bandwidth_mb else 0)
        return Delays(
            transfer=moves,
            **{name: _delay(amount) for name, amount in given.items() if amount is not None},
            checkpoint_every_us=every,
        )


class Failures(Model):
    """Nodes that die and come back: from a file, or drawn. They are the same for every policy."""

    file: Path | None = Field(default=None, description="a CSV with the columns node, at_s and back_s")
    mtbf_h: float | None = Field(default=None, ge=0.001, le=LONGEST_H, description="how long a node is up on average, in hours")
    mttr_h: float | None = Field(default=None, ge=0.001, le=LONGEST_H, description="how long it is away on average, in hours")
    until_h: float | None = Field(default=None, gt=0, le=LONGEST_H, description="no node dies after so many hours")
    silent_after: float = Field(default=10, ge=0, le=LONGEST_S, description="when the scheduler knows that a node is away")
    fence_after: float | None = Field(
        default=None, gt=0, le=LONGEST_S, description="when somebody says that a node is dead; null: nobody does"
    )

    @model_validator(mode="after")
    def _one(self) -> "Failures":
        drawn = [self.mtbf_h, self.mttr_h, self.until_h]
        if (self.file is None) == all(part is None for part in drawn) or (self.file is None and None in drawn):
            raise ValueError("give file; or mtbf_h, mttr_h and until_h, all three")
        return self

    def outages(self, nodes: int, seed: int, folder: Path) -> Outages:
        fence_after = None if self.fence_after is None else micros(self.fence_after)
        return Outages(self._schedule(nodes, seed, folder), micros(self.silent_after), fence_after)

    def _schedule(self, nodes: int, seed: int, folder: Path) -> Iterable[Failure]:
        if self.file is not None:
            try:
                with (folder / self.file).open(encoding="utf-8-sig", newline="") as lines:
                    failures = read_schedule(lines)
            except BadSchedule as error:
                raise BadSchedule(f"{folder / self.file}: {error}") from error
            except UnicodeDecodeError as error:
                where = f"{folder / self.file}: line {not_utf8(folder / self.file)}"
                raise BadSchedule(f"{where}: cannot be read: it is not UTF-8 ({error.reason})") from error
            if (last := max((failure.node for failure in failures), default=1)) > nodes:
                raise BadSchedule(f"{folder / self.file}: there is no node {last}: the cluster has {nodes}")
            return failures
        assert self.mtbf_h is not None  # `_one` has checked it
        assert self.mttr_h is not None
        assert self.until_h is not None
        if nodes * self.until_h > MOST * (every := self.mtbf_h + self.mttr_h):
            dies = f"a node dies every {every:g} hours until hour {self.until_h:g}"
            too_often = f"{dies}, which with {nodes:,} is more than {MOST:,} times"
            raise BadSchedule(f"failures: {too_often}: give a longer mtbf_h, or an earlier until_h")
        mtbf, mttr, until = (micros(3600 * hours) for hours in (self.mtbf_h, self.mttr_h, self.until_h))
        return Exponential(nodes, mtbf, mttr, until, seed)


def _setting_text(name: str, value: float | tuple[tuple[str, float], ...] | None) -> str:
    if isinstance(value, bool):
        return name if value else f"not {name}"
    if isinstance(value, tuple):  # the policy's own settings
        return " ".join(_setting_text(*setting) for setting in value)
    return f"{name}={'none' if value is None else f'{value:g}'}"


def micros(seconds: float) -> Micros:
    return round(seconds * SECOND)


def _moving(seconds: Amount | None, sending: float) -> Delay:
    """The time for a checkpoint to reach its destination: sending, and other steps until the process begins."""
    return lambda rng: micros(sending + (0 if seconds is None else seconds.draw(rng)))


def _delay(seconds: Amount) -> Delay:
    return lambda rng: micros(seconds.draw(rng))
