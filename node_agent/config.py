"""The agent's settings. A flag wins over the environment (EBB_AGENT_*), which wins over the configuration file."""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ebb_common.settings import FileSettings, UnreadableFile, read, with_file
from ebb_common.settings import misspelt as misspelt_settings
from ebb_common.unique_keys import UniqueKeys
from node_agent.devices.simulated import PROFILES, device_count
from node_agent.runs.rendezvous import address_towards
from node_agent.transport.security import Security, is_loopback


def _targets(value: str) -> str:
    for target in value.split(","):
        host, _, port = target.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{target!r} is not HOST:PORT")
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            raise ValueError(f"{target!r} has an address of IPv6 without brackets: write [{host}]:{port}")
    return value


def _devices(value: str) -> str:
    if value != NVML and value not in PROFILES:
        raise ValueError(
            f"there is no profile {value!r}; known: {', '.join(PROFILES)}; or {NVML}, for the GPUs of this machine"
        )
    return value


def _node_name(value: str) -> str:
    if len(value) > 253 or not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", value):
        raise ValueError(f"{value!r} is not a node name: letters, digits, dots, hyphens and underscores, at most 253")
    return value


def _address(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", value):
        try:
            ip_address(value)
        except ValueError:
            raise ValueError(f"{value!r} is not the name or the address of a machine, without a port") from None
    return value


_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def _labels(value: object) -> object:
    """Labels as a mapping, also from text such as "zone=a,disk=nvme"."""
    if isinstance(value, str):
        pairs = [pair.strip().partition("=") for pair in value.split(",") if pair.strip()]
        value = {name: text for name, _, text in pairs}
    if not isinstance(value, dict):
        raise ValueError("write labels as a mapping of names to values, or as NAME=VALUE,...")
    labels = {str(name): str(text) for name, text in value.items()}
    for name, text in labels.items():
        if len(name) > 63 or len(text) > 63 or not (_LABEL_NAME.fullmatch(name) and _LABEL_VALUE.fullmatch(text)):
            raise ValueError(
                f"{name}={text} is not a label: a name and a value of letters, digits, dots, hyphens and underscores (and "
                "slashes, in the name), at most 63 of each"
            )
    if len(labels) > 64:
        raise ValueError(f"{len(labels)} labels; a node has 64 at most")
    return labels


def _cpu_sets(value: object) -> object:
    """Sets of CPUs, also from text such as "0-1;2,3"; each item of a list is the text of one set."""
    texts = value.split(";") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ValueError('write one set of CPUs for each device, such as "0-1;2,3"')
    here = os.sched_getaffinity(0)
    sets = tuple(each if isinstance(each, frozenset) else _cpu_set(str(each)) for each in texts)
    for cpus in sets:
        if missing := cpus - here:
            raise ValueError(f"CPU {min(missing)} is not one of this machine's: {', '.join(map(str, sorted(here)))}")
    return sets


def _cpu_set(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or not (last or first).isdigit() or int(last or first) < int(first):
            raise ValueError(f"{text!r} is not a set of CPUs: write numbers and ranges, such as 0-1,4")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _absolute(value: Path) -> Path:
    return value.expanduser().absolute()


def _refuse_empty(value: object) -> object:
    if value == "":
        raise ValueError("it is empty: name a file or folder, or leave the setting out")
    return value


FilePath = Annotated[Path, BeforeValidator(_refuse_empty), AfterValidator(_absolute)]

NVML = "nvml"
"""The value of `devices` for this machine's GPUs instead of a simulated profile."""


class DeviceSettings(FileSettings):
    """Settings of what the node offers. Loaded by themselves to inspect devices; the rest of the file is then ignored."""

    model_config = SettingsConfigDict(env_prefix="EBB_AGENT_", extra="ignore", frozen=True, validate_default=True)

    devices: Annotated[str, AfterValidator(_devices)] = NVML
    node: Annotated[str, AfterValidator(_node_name)] = Field(default_factory=socket.gethostname)
    device_tree: FilePath | None = None
    reserve_cpus: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    reserve_memory: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 2.0
    """GiB."""
    memory_rate: Annotated[float, Field(gt=0, le=50)] = 10.0
    """Reads per second of the memory of a device, for the memory cycles of runs."""
    cpus: Annotated[tuple[frozenset[int], ...], NoDecode, BeforeValidator(_cpu_sets)] = ()
    """The host's CPUs of each simulated device; empty: all CPUs, spread evenly."""

    @model_validator(mode="after")
    def _tree_of_gpus(self) -> Self:
        if self.device_tree is not None and self.devices != NVML:
            raise ValueError(f"device_tree goes with --devices {NVML}: the profile {self.devices} has a tree of its own")
        return self

    @model_validator(mode="after")
    def _cpus_of_devices(self) -> Self:
        if self.cpus and self.devices == NVML:
            raise ValueError(f"cpus goes with a simulated profile ({', '.join(PROFILES)}), not with --devices {NVML}")
        if self.cpus and len(self.cpus) != (count := device_count(self.devices)):
            raise ValueError(f"cpus has {len(self.cpus)} sets, and the profile {self.devices} has {count} devices")
        return self


class StateSettings(BaseSettings):
    """The setting that tells which agent is meant. The rest of the file is ignored."""

    model_config = SettingsConfigDict(env_prefix="EBB_AGENT_", extra="ignore", frozen=True)

    state: FilePath


class Settings(DeviceSettings):
    """All settings. Fields have the names of the flags; in the file they are written the same, with underscores."""

    model_config = SettingsConfigDict(extra="forbid")

    scheduler: Annotated[str, AfterValidator(_targets)]
    devices: Annotated[str, AfterValidator(_devices)]
    state: FilePath
    checkpoints: FilePath | None = None
    token_file: FilePath | None = None
    tls_ca: FilePath | None = None
    tls_cert: FilePath | None = None
    tls_key: FilePath | None = None
    allow_root: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    forget_cluster: bool = False
    stop_jobs_on_exit: bool = False
    keep_runs: Annotated[float, Field(ge=1, le=36500)] | None = None
    """Days; None: forever."""
    launcher_idle: Annotated[float, Field(gt=0, le=86400)] = 60.0
    step_window: Annotated[float, Field(ge=1, le=3600)] = 60.0
    """Minimum seconds over which the step rate and the mini-batch time of a run are averaged."""
    address: Annotated[str, AfterValidator(_address)] | None = None
    checkpoint_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port where agents of other nodes fetch checkpoints; 0: a free port, which stays the same after a restart."""
    checkpoint_copies: Literal["auto", "network"] = "auto"
    """Whether files of a source on the same machine are copied; if not, they are also fetched over the network."""
    checkpoint_store: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """fsspec URL to which checkpoints of runs that have left are uploaded; None: nowhere."""
    keep_stored: Annotated[float, Field(ge=1, le=36500)] | None = None
    """Days after the end of a job until its checkpoints are removed from the store; None: never."""
    labels: Annotated[dict[str, str], NoDecode, BeforeValidator(_labels)] = Field(default_factory=dict)
    """Labels by which jobs may ask for this node."""
    memory_limit: Literal["enforce", "off"] = "enforce"
    control_groups: Literal["auto", "require", "off"] = "auto"
    parked_memory_mib: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Host memory for the device memory of parked runs; None: half of the node's memory."""
    mps: Literal["packed", "off"] = "off"
    """Whether runs that execute on one GPU at the same time are clients of NVIDIA's MPS."""
    criu: Literal["on", "off"] = "off"
    """Whether CRIU dumps programs that do not save their work themselves when they are stopped, and restores them."""
    hook: Literal["on", "off"] = "on"
    """Whether jobs find `ebb_inject` on their PYTHONPATH."""

    @model_validator(mode="before")
    @classmethod
    def _convert_words(cls, data: Any) -> Any:
        if isinstance(data, dict):
            if isinstance(data.get("log_level"), str):
                data["log_level"] = data["log_level"].lower()
            for name in ("memory_limit", "control_groups", "hook", "mps", "criu"):
                if data.get(name) is False:
                    data[name] = "off"  # YAML reads it as a boolean
            for name in ("hook", "criu"):
                if data.get(name) is True:
                    data[name] = "on"
        return data

    @model_validator(mode="after")
    def _access(self) -> "Settings":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: give both, or neither")
        if self.tls_cert is not None and self.tls_ca is None:
            raise ValueError("tls_cert needs tls_ca: the certificate of the CA that vouches for the scheduler")
        if self.tls_ca is None and not all(map(is_loopback, self.scheduler.split(","))):
            raise ValueError(
                f"scheduler: {self.scheduler} is not this machine, and what leaves it is encrypted: set tls_ca to the"
                " certificate of the site's CA (or name a scheduler on loopback, such as 127.0.0.1:7737)"
            )
        self.security.check()
        return self

    @model_validator(mode="after")
    def _check_keep_stored(self) -> "Settings":
        if self.keep_stored is not None and self.checkpoint_store is None:
            raise ValueError(f"keep_stored: {self.keep_stored:g} goes with checkpoint_store: set it, or leave keep_stored out")
        return self

    @property
    def security(self) -> Security:
        return Security(self.token_file, self.tls_ca, self.tls_cert, self.tls_key)

    def reachable_address(self) -> str:
        """Return where other nodes reach this one: the set address, or the one facing the first scheduler. Raises OSError."""
        target = self.scheduler.partition(",")[0]
        if self.address is not None:
            return self.address
        return "127.0.0.1" if is_loopback(target) else address_towards(target)

    @property
    def checkpoint_root(self) -> Path:
        return self.checkpoints or self.state / "checkpoints"


class BadSettings(Exception):
    """One line for each setting that is missing or wrong."""


S = TypeVar("S", bound=BaseSettings)
_OTHERS = ("CONFIG",)
"""Other names in the environment: where the file is."""


def misspelt(environment: Iterable[str]) -> list[str]:
    """Return names that look like settings and are not."""
    return misspelt_settings(environment, "EBB_AGENT_", (*Settings.model_fields, *_OTHERS))


def load(flags: Mapping[str, object], file: Path | None = None) -> Settings:
    """Load the settings from flags, environment and file; raises `BadSettings`."""
    return _load(Settings, flags, file)


def load_devices(flags: Mapping[str, object], file: Path | None = None) -> DeviceSettings:
    """Load only the settings about devices; raises `BadSettings`."""
    return _load(DeviceSettings, flags, file)


def load_state(flags: Mapping[str, object], file: Path | None = None) -> Path:
    """Load only the state directory; raises `BadSettings`."""
    return _load(StateSettings, flags, file).state


def _load(kind: type[S], flags: Mapping[str, object], file: Path | None) -> S:
    told = {} if file is None else _read_file(file)
    try:
        given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
        return with_file(kind, told)(**given)
    except ValidationError as error:
        raise BadSettings("\n".join(map(_explain, error.errors()))) from error


def _read_file(file: Path) -> dict[str, Any]:
    """Read the settings of a file, which may be empty. Raises `BadSettings`."""
    try:
        told = read(file, UniqueKeys, "devices: nvml") or {}
    except UnreadableFile as error:
        raise BadSettings(str(error)) from error
    if not isinstance(told, dict):
        raise BadSettings(f"{file} cannot be read as YAML with lines such as `devices: nvml`")
    return {str(name): value for name, value in told.items()}


def _explain(error: Mapping[str, Any]) -> str:
    name = str(error["loc"][0]) if error["loc"] else ""
    flag = "--" + name.replace("_", "-")
    if error["type"] == "missing":
        return f"{flag} is missing; give the flag, EBB_AGENT_{name.upper()}, or {name}: in the file"
    if error["type"] == "extra_forbidden":
        return f"{name}: there is no such setting"
    if not name:  # about several settings, which it names
        return str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error":  # ours, which shows the value where that helps
        return f"{flag}: {str(error['msg']).removeprefix('Value error, ')}"
    return f"{flag}: {error['msg']}; is {str(error['input'])[:60]!r}"
