"""Settings of the scheduler: flags win over the environment (EBB_SCHEDULER_*), that over the file, that over defaults."""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ByteSize, Field, ValidationError, field_validator, model_validator
from pydantic_settings import SettingsConfigDict, SettingsError

from ebb_common.settings import FileSettings, UnreadableFile, misspelt, read, with_file
from ebb_common.unique_keys import UniqueNames
from scheduler_service import addresses, presets, secret_arguments
from scheduler_service.addresses import DEFAULT_LISTEN, without_password
from scheduler_service.certificates import TlsFiles
from scheduler_service.policies.registry import for_sites
from scheduler_service.pools_config import PoolConfig, check_pools

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Seconds = Annotated[float, Field(le=1e8)]
"""Three years: the database's times, and the sums of such, are far from their ends. For those without a bound of their own,
which this one would take the place of."""
TimeLimit = Annotated[float, Field(ge=1, le=31_622_400)]
"""As in the API: of at least a second, and at most 366 days."""
TimeLimited = Literal["trial", "best-effort"]
"""The classes of jobs, for settings of each."""
MOST = 1_000_000
"""For counts: as good as no limit, and far below what the database can count to."""


class ConfigError(Exception):
    """A setting is missing or wrong; the message says which, and what it may be."""


class Config(FileSettings):
    """Every setting, with its default. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="EBB_SCHEDULER_", extra="forbid", allow_inf_nan=False)

    database: str | None = Field(None, description="URL of a PostgreSQL >= 15, such as postgresql://user@host/ebb")
    embedded: Path | None = Field(None, description="folder of an embedded PostgreSQL, made when it is not there")
    listen: str = Field(DEFAULT_LISTEN, description="address and port to serve on; port 0 takes a free one")
    advertise: str | None = Field(None, description="where clients and agents reach it, if that is not `listen`")
    address_file: Path | None = Field(None, description="where to write HOST:PORT once this scheduler leads")
    tls_certificate: Path | None = Field(None, description="PEM file: the service's certificate, and those up to the CA")
    tls_key: Path | None = Field(None, description="PEM file: the certificate's key")
    tls_client_ca: Path | None = Field(None, description="PEM file: callers must show a certificate of this CA, too")
    auth: Literal["none", "token"] = Field("none", description="whether callers show a token; none is for loopback alone")
    secret_arguments: list[str] = Field(
        [], description="arguments of commands that only the owner of a job and operators see, such as [--token, '*_KEY=*']"
    )
    preset: presets.Preset = Field("site", description="the defaults of the policy's settings: a site's, or the FitGpp paper's")
    policy: Literal[tuple(for_sites())] = "fitgpp"  # type: ignore[valid-type]  # a choice that the registry gives
    policy_settings: dict[str, float] = Field({}, description="that only this policy knows, such as {threshold: 3600} of las")
    fitgpp_s: float = Field(4.0, ge=0, le=MOST, description="s of FitGpp: the weight of the grace period against the size")
    fitgpp_cap: int = Field(
        1, ge=0, le=MOST, description="P of FitGpp, for every policy: how often a job may be preempted for trials"
    )
    fitgpp_trials_in_flight: int | None = Field(None, ge=1, le=MOST, description="how many trials may wait for victims at once")
    default_grace: float = Field(30, ge=0, le=86400, description="grace period of jobs that name none")
    grace_limit: Seconds = Field(
        300, ge=0, description="the longest grace period that a job without one of its own gets for the sake of its saves"
    )
    default_time_limit: dict[TimeLimited, TimeLimit] = Field(
        {}, description="time limit of jobs that name none, by class, such as {trial: 600, best-effort: 86400}"
    )
    longest_time_limit: dict[TimeLimited, TimeLimit] = Field(
        {},
        description="the longest time limit that jobs may have, by class; without a default, jobs get it that name none",
    )
    backfill: bool = Field(True, description="let jobs behind the first start where that does not delay it")
    aging: Seconds = Field(0, ge=0, description="how much waiting is worth a step of priority; 0: none")
    min_run: Seconds = Field(60, ge=0, description="how long a run may not be preempted for a trial after its start")
    gang_start: Seconds = Field(60, gt=0, description="in which all tasks of a gang must have started")
    park_limit: Seconds = Field(60, gt=0, description="in which a node must have parked a run")
    retry_pause: Seconds = Field(
        1, ge=0, description="before the first retry of a failed run; twice as long before each further one"
    )
    fault_retries: int = Field(
        2, ge=0, le=MOST, description="how often a run that vanished is tried again, whatever retries its job has"
    )
    blame_nodes: int = Field(3, ge=0, le=MOST, description="a job that failed on so many nodes is not tried again; 0: no limit")
    bad_node_strikes: int = Field(
        3,
        ge=0,
        le=MOST,
        description="a node with so many faults, or users whose jobs fail there alone, is drained; 0: never",
    )
    earmark_ttl: Seconds = Field(60, gt=0, description="how long freed resources are kept for a trial that does not come")
    virtual_clusters: bool = Field(False, description="guarantee cells to tenants: every job then belongs to a virtual cluster")
    pools: list[PoolConfig] = Field([], description="nodes that make a pool by name, with levels above them")
    exchange: Literal["balanced", "auction", "none"] = Field(
        "balanced", description="how offers and requests of cells are matched; none: tenants make every deal themselves"
    )
    host_percent: int = Field(
        0, ge=0, le=90, description="of the CPUs and memory of nodes with devices what goes with none, but to jobs without any"
    )
    reclaim_grace: Seconds = Field(30, ge=0, description="the longest grace period of an opportunistic run that is reclaimed")
    cpus_per_device: float = Field(
        0, ge=0, le=MOST, description="CPUs for each device of a job that names none; 0: its share of its node, less one"
    )
    memory_per_device: ByteSize = Field(
        ByteSize(0), description="memory for each device of a job that names none, such as 16GiB; 0: as for cpus_per_device"
    )
    device_memory_limit_percent: int = Field(
        92, ge=1, le=100, description="of the memory of a device, what jobs may use that share it"
    )
    parked_residue_mib: int = Field(
        512, ge=0, le=MOST, description="MiB that a parked job leaves on each of its devices, such as a CUDA context"
    )
    pack_other_users: bool = Field(
        False, description="let packed jobs of several users share a device; a fault of one may end the others"
    )
    heartbeat: Seconds = Field(2, gt=0, description="how often each agent gives a sign of life")
    silent_after: Seconds = Field(10, gt=0, description="a node is silent when nothing was heard of it for so long")
    connections_per_address: int = Field(
        64, ge=0, le=MOST, description="connections of one address that `ebb-scheduler firewall` lets in; 0: no limit"
    )
    lease: float = Field(4, ge=0.5, le=60, description="how long a dead scheduler keeps the lease, at most")
    accept_clock: bool = Field(
        False, description="lead although the last commit is from the future: a leader's clock was ahead"
    )
    snapshot_mib: int = Field(100, ge=0, le=MOST, description="MiB of a snapshot, packed, at most; 0: none are taken")
    result_mib: int = Field(16, ge=0, le=MOST, description="MiB of what a job leaves as its result, at most")
    files_of_user_mib: int = Field(
        2048,
        ge=0,
        le=MOST,
        description="MiB that a user's snapshots and results may have before snapshots are refused; 0: any number",
    )
    keep_files: float = Field(
        30, gt=0, le=36500, description="days after the end of the last job that uses it until a snapshot or result is deleted"
    )
    record: Path | None = Field(None, description="file to record the engine's input in; packed if it ends with .gz")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("embedded", "address_file", "record", mode="before")
    @classmethod
    def _require_name(cls, value: object) -> object:
        if value == "":
            raise ValueError("it is empty: name a file or folder, or leave the setting out")
        return value

    @field_validator("secret_arguments")
    @classmethod
    def _patterns(cls, value: list[str]) -> list[str]:
        if wrong := next(filter(None, map(secret_arguments.problem, value)), ""):
            raise ValueError(wrong)
        return value

    @model_validator(mode="after")
    def _settings_of_the_policy(self) -> "Config":
        if self.policy_settings:  # else no policy need be loaded to read the settings
            from scheduler_service.policies.chosen_stages import stages
            from scheduler_service.policies.options import PreemptionSettings

            try:
                stages(self.policy, PreemptionSettings(), own=self.policy_settings)
            except ValueError as error:
                raise ValueError(f"policy_settings: {error}") from None
        return self

    @field_validator("memory_per_device")
    @classmethod
    def _whole_mib(cls, value: ByteSize) -> ByteSize:
        if 0 < value < 1 << 20:
            raise ValueError(f"{int(value)} bytes are less than 1 MiB; write a unit, such as 16GiB")
        return value

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        addresses.check_listen(value)
        return value

    @field_validator("advertise")
    @classmethod
    def _reachable(cls, value: str | None) -> str | None:
        if value:
            addresses.check_advertise(value)
        return value

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, told: Any) -> Any:
        return presets.fill_from_preset(told, presets.SERVICE)

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        self._check_access()
        if (self.database is None) == (self.embedded is None):
            raise ValueError("name one database: either database (--database URL) or embedded (--embedded DIR)")
        if self.database is not None:
            addresses.check_url(self.database)
        self._check_paths()
        check_pools(self.pools)
        if self.pools and not self.virtual_clusters:
            raise ValueError("pools are for a site with virtual clusters: set `virtual_clusters: true`, or leave them out")
        if self.exchange != Config.model_fields["exchange"].default and not self.virtual_clusters:
            raise ValueError("exchange is for a site with virtual clusters: set `virtual_clusters: true`, or leave it out")
        for name, limit in self.default_time_limit.items():
            longest = self.longest_time_limit.get(name, limit)
            if limit > longest:
                raise ValueError(
                    f"default_time_limit: {name} jobs that name no time limit would get {limit:g} s, which is more than "
                    f"their longest_time_limit of {longest:g} s; make the default shorter, or the longest limit longer"
                )
        if self.silent_after < 2 * self.heartbeat:
            raise ValueError("silent_after must be at least twice heartbeat, else one late heartbeat makes a node silent")
        if self.advertise is None and addresses.is_wildcard(self.listen):
            raise ValueError(f"nobody can connect to {self.listen}: say in `advertise` where clients and agents reach it")
        return self

    @property
    def tls(self) -> TlsFiles | None:
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key, self.tls_client_ca)

    def _check_paths(self) -> None:
        """A folder that is not there yet may be made until it serves; what is of the other kind stays so."""
        for name, path in (("address_file", self.address_file), ("record", self.record)):
            if path is not None and os.path.isdir(path):  # noqa: PTH112 (where it cannot be looked at, that is said later)
                raise ValueError(f"{name}: {path} is a folder, and no file")
        if self.embedded is not None and os.path.isfile(self.embedded):  # noqa: PTH113
            raise ValueError(f"embedded: {self.embedded} is a file, and no folder")

    def _check_access(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together: give both, or neither")
        if self.tls_client_ca is not None and self.tls is None:
            raise ValueError("tls_client_ca needs TLS: give tls_certificate and tls_key, too")
        if self.tls is not None:
            self.tls.check()
        lacking = [] if self.tls is not None else ["TLS (tls_certificate and tls_key)"]
        lacking += [] if self.auth == "token" else ["tokens (auth: token)"]
        if lacking and not addresses.is_loopback(self.listen):
            host = addresses.host_of(self.listen)
            raise ValueError(
                f"listen: {host} is not a loopback address, and what others can reach needs TLS and tokens. "
                f"Set {' and '.join(lacking)}, or listen on loopback, such as {DEFAULT_LISTEN}"
            )


def lacking_folders(config: Config) -> list[str]:
    """Return why files that `serve` writes cannot be written. Other commands do not write them."""
    lacking = []
    for name, given in (("address_file", config.address_file), ("record", config.record)):
        if given is not None:
            path = given.absolute()
            if not path.parent.is_dir():
                lacking.append(f"{name}: there is no folder {path.parent} to write {path.name} in")
                continue
            try:
                TemporaryFile(dir=path.parent).close()
            except OSError as error:
                lacking.append(f"{name}: {path.name} cannot be written in {path.parent}: {error.strerror}")
    return lacking


def load(file: Path | None, flags: dict[str, Any]) -> Config:
    """Reads the settings; `flags` holds those given on the command line.

    Raises ConfigError, naming each setting that is wrong.
    """
    told = {} if file is None else _read_settings(file)

    try:
        return with_file(Config, told)(**flags)
    except ValidationError as error:
        raise ConfigError("; ".join(map(_explain, error.errors()))) from None
    except SettingsError as error:  # a variable of the environment; those that are no plain text are JSON
        name = str(error).partition('"')[2].partition('"')[0]
        raise ConfigError(f"EBB_SCHEDULER_{name.upper()} in the environment is not JSON: {error.__cause__}") from None


def origins(file: Path | None, flags: Mapping[str, Any]) -> dict[str, str]:
    """Return the source of each setting that `load` accepted: flag, environment, file, preset or default."""
    told = {} if file is None else _read_settings(file)
    there = {name.upper() for name in os.environ}
    sources: dict[str, Collection[str]] = {
        "flag": flags,
        "environment": [name for name in Config.model_fields if f"EBB_SCHEDULER_{name.upper()}" in there],
        "file": told,
        "preset": presets.SERVICE[load(file, dict(flags)).preset],
    }
    return {name: next((of for of, names in sources.items() if name in names), "default") for name in Config.model_fields}


def _read_settings(file: Path) -> dict[str, Any]:
    """The settings in a file, which may be none. Raises ConfigError."""
    try:
        if not file.is_file():
            raise ConfigError(f"there is no configuration file {file}")
        told = read(file, UniqueNames, "policy: fifo") or {}
    except UnreadableFile as error:
        raise ConfigError(str(error)) from None
    except OSError as error:  # the folder is closed to us
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    if not isinstance(told, dict):
        raise ConfigError(f"{file} has no lines such as `policy: fifo`")
    return told


def _explain(error: "ErrorDetails") -> str:
    name = ".".join(map(str, error["loc"])) or "settings"
    if error["type"] == "extra_forbidden":
        return f"{name}: there is no such setting"
    if error["type"] == "value_error":  # ours, which shows the value where that helps
        return f"{name}: {error['msg'].removeprefix('Value error, ')}"
    return f"{name}: {error['msg']}; is {without_password(str(error['input']))[:60]!r}"


def load_or_exit(file: Path | None, flags: dict[str, Any]) -> Config:
    """For commands, whose flags are None where they were not given: a wrong setting ends them with status 2."""
    for warning in misspelt(os.environ, "EBB_SCHEDULER_", Config.model_fields):
        sys.stderr.write(f"ebb-scheduler: {warning}\n")
    try:
        return load(file, {name: value for name, value in flags.items() if value is not None})
    except ConfigError as error:
        sys.stderr.write(f"ebb-scheduler: {error}\n")
        sys.exit(2)
