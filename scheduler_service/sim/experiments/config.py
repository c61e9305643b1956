"""The configuration of `ebb-sim run`: one cluster, one workload, and the policies to compare on it."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from ebb_common.unique_keys import UniqueNames
from scheduler_service import presets
from scheduler_service.sim.exchange import Exchange
from scheduler_service.sim.experiments.cases import SEEDS, Case, Failures, Policy, Times, check_exchange, check_policy
from scheduler_service.sim.limits import LONGEST_S
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.site import Cluster
from scheduler_service.sim.virtual_clusters import Pool, VirtualCluster, check_pools
from scheduler_service.sim.workloads import Workload
from scheduler_service.sim.workloads.distributions import Model

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Metrics = Literal["slowdown", "wait", "completion", "preemptions", "queue", "utilisation", "cost", "fairness", "vcs", "sharing"]
DEFAULT_METRICS: tuple[Metrics, ...] = ("slowdown", "preemptions", "queue", "utilisation", "cost", "fairness")


class ConfigError(Exception):
    """The configuration cannot be used; the message names each wrong setting and its allowed values."""


class Candidate(Policy):
    """A policy to compare, with the service's defaults; a randomized one should be repeated on the same jobs."""

    preset: presets.Preset = Field(default="site", description="the defaults of what is not given: a site's, or as published")
    repeats: int = Field(default=1, ge=1, le=1000, description="simulations of each workload; their mean counts as one")

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, told: Any) -> Any:
        return presets.fill_from_preset(told, presets.SIMULATED)

    @property
    def usual(self) -> Mapping[str, Any]:
        return {**super().usual, **presets.SIMULATED[self.preset]}

    @property
    def title(self) -> str:
        """The title, with the preset if it is not the default one."""
        return super().title if self.label or self.preset == "site" else f"{super().title} ({self.preset})"

    def policy(self) -> Policy:
        """The policy in effect: a FIFO whose submit times others replay is the same simulation with any preset."""
        made = Policy.model_validate(self.model_dump(exclude={"repeats", "preset"}))
        return made.in_effect.model_copy(update={"label": self.title})


MOST_SEEDS = 10_000
MOST_SIMULATIONS = 100_000


class Config(Model):
    """The configuration that `ebb-sim run` reads. Durations are in seconds."""

    cluster: Cluster
    workload: Workload
    policies: tuple[Candidate, ...] = Field(min_length=1)
    seeds: tuple[Annotated[int, Field(ge=0, lt=SEEDS)], ...] = Field(
        default=(1,), min_length=1, description="a number, several, or a range such as 1-8"
    )
    decide_every: float = Field(
        default=0, ge=0, le=LONGEST_S, description="decisions wait for the next multiple of this; 0: they are taken at once"
    )
    delays: Times = Times()
    failures: Failures | None = Field(default=None, description="of nodes; without it none fails")
    virtual_clusters: tuple[VirtualCluster, ...] = Field(default=(), description="tenants, for the policy `cells`")
    pools: tuple[Pool, ...] = Field(default=(), description="for virtual clusters, beside those that follow from the nodes")
    guarantee: Literal["guaranteed", "overflow", "opportunistic"] = Field(
        default="overflow", description="what jobs of virtual clusters are content with"
    )
    exchange: Exchange | None = Field(default=None, description="of cells, between virtual clusters; without it there is none")
    sharing: Sharing | None = Field(
        default=None, description="how fast jobs run that share devices; without it each works at its full rate"
    )
    metrics: tuple[Metrics, ...] = Field(default=DEFAULT_METRICS, min_length=1)

    @field_validator("cluster", mode="before")
    @classmethod
    def _one_kind_of_node(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @field_validator("policies", mode="before")
    @classmethod
    def _bare_names(cls, value: Any) -> Any:
        return [{"name": entry} if isinstance(entry, str) else entry for entry in value] if isinstance(value, list) else value

    @field_validator("seeds", mode="before")
    @classmethod
    def _ranges(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return [value]
        if isinstance(value, str):
            found = re.fullmatch(r"(\d{1,9})\s*-\s*(\d{1,9})", value)
            if not found or int(found[1]) > int(found[2]):
                raise ValueError(f"{value!r} is no range of seeds such as 1-8")
            if int(found[2]) - int(found[1]) >= MOST_SEEDS:
                raise ValueError(f"{value!r} are more than {MOST_SEEDS:,} seeds")
            return list(range(int(found[1]), int(found[2]) + 1))
        return value

    @model_validator(mode="after")
    def _told_apart(self) -> "Config":
        titles = [policy.title for policy in self.policies]
        twice = next((title for title in titles if titles.count(title) > 1), None)
        if twice is not None:
            raise ValueError(f"two policies are called {twice!r}: give them labels")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed is there twice, which gives the same again")
        count = len(self.seeds) * sum(policy.repeats for policy in self.policies)
        if count > MOST_SIMULATIONS:
            raise ValueError(f"these are {count:,} simulations, with seeds and repeats, and {MOST_SIMULATIONS:,} is the most")
        for policy in self.policies:
            check_policy(policy.name, self.virtual_clusters)
        check_exchange(self.exchange, self.virtual_clusters)
        check_pools(self.pools, sum(group.nodes for group in self.cluster))
        return self

    def cases(self, folder: Path) -> list[Case]:
        """The cases of the configuration. Relative paths count from `folder`."""
        common = {name: getattr(self, name) for name in Config.model_fields if name in Case.model_fields}
        return [
            Case(policy=candidate.policy(), seed=seed, repeat=repeat, folder=folder, **common)
            for candidate in self.policies
            for seed in self.seeds
            for repeat in range(candidate.repeats)
        ]


def load(file: Path) -> Config:
    """Load a configuration file. Raises ConfigError."""
    try:
        told = yaml.load(file.read_text(encoding="utf-8"), UniqueNames)  # safe: see UniqueNames
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not YAML: {error}") from None
    if not isinstance(told, dict):
        raise ConfigError(f"{file} must have lines such as `workload: ...`; `ebb-sim init` prints one to begin with")
    return parse(told)


def parse(told: dict[str, Any]) -> Config:
    """Validate a configuration. Raises ConfigError."""
    try:
        return Config.model_validate(told)
    except ValidationError as error:
        one_kind = {"cluster": [told["cluster"]]} if isinstance(told.get("cluster"), dict) else {}
        raise ConfigError("\n".join(_explain(each, told | one_kind) for each in _roots(error.errors()))) from None


def _roots(errors: "list[ErrorDetails]") -> "Iterator[ErrorDetails]":
    """Leave out lists that are too short only because their elements are wrong."""
    for error in errors:
        place = error["loc"]
        inside = any(other["loc"][: len(place)] == place and other is not error for other in errors)
        if not (error["type"] == "too_short" and inside):
            yield error


def _explain(error: "ErrorDetails", told: dict[str, Any]) -> str:
    """One line with the place, the error and the allowed values."""
    models, path = _walk(_by_name(error["loc"], told))
    where = ".".join(path) or "the configuration"
    context = error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        return f"{where}: there is no such setting; {_suggest_name(path[-1], models)}"
    if error["type"] == "union_tag_not_found":
        return f"{where}: say of which `kind` it is: {_kinds(models)}"
    if error["type"] == "union_tag_invalid":
        return f"{where}.kind: there is no {context['tag']!r}; there are {_kinds(models)}"
    if error["type"] == "missing":
        return f"{where}: it must be given{_description_text(path[-1], models)}"
    rule = error["msg"].removeprefix("Value error, ")
    if error["type"] == "tuple_type":
        rule = "it must be a list, such as [a, b]"
    elif error["type"] == "too_short":
        rule = f"it must have {context['min_length']} or more"
    elif error["type"] in ("model_type", "model_attributes_type"):
        rule = "it must be settings, such as {name: value}"
    return f"{where}: {rule}{_description_text(path[-1] if path else '', models)}"


def _by_name(loc: tuple[int | str, ...], told: Any) -> Iterator[int | str]:
    """The place of an error, with each pair of a mapping that is kept as pairs replaced by its name."""
    pair: tuple[Any, Any] | None = None
    for part in loc:
        if pair is not None:
            told, pair = pair[1 if part else 0], None
        elif isinstance(part, int) and isinstance(told, dict):
            pair = list(told.items())[part]
            yield str(pair[0])
        else:
            if isinstance(told, list) and isinstance(part, int):
                told = told[part]
            elif isinstance(told, dict):
                told = told.get(part, told)  # else it is the kind of a model
            yield part


def _walk(loc: Iterable[int | str]) -> tuple[list[type[BaseModel]], list[str]]:
    """The models that may have the last part of an error's place as a field, and the place as a user writes it: pydantic adds
    the kind of a model to it."""
    models: list[type[BaseModel]] = [Config]
    inner: list[type[BaseModel]] = [Config]
    path: list[str] = []
    for part in loc:
        fields = [model for model in inner if part in model.model_fields]
        tagged = [model for model in inner if part in _kind(model)]
        if isinstance(part, int):
            path.append(str(part))
        elif fields or not tagged:
            models = fields or inner
            inner = [found for model in fields for found in _models(model.model_fields[part].annotation)]
            path.append(part)
        else:
            models = inner = tagged
    return (inner if inner and len(inner) > 1 else models), path


def _kind(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field is not None else ()


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _kinds(models: list[type[BaseModel]]) -> str:
    return ", ".join(kind for model in models for kind in _kind(model))


def _suggest_name(name: str, models: list[type[BaseModel]]) -> str:
    names = list(dict.fromkeys(field for model in models for field in model.model_fields))
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def _description_text(name: str, models: list[type[BaseModel]]) -> str:
    described = next((model.model_fields[name].description for model in models if name in model.model_fields), None)
    return f" ({described})" if described else ""
