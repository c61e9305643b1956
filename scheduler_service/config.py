"""Settings of the scheduler: flags win over the environment (EBB_SCHEDULER_*), that over the file, that over defaults."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

DEFAULT_LISTEN = "127.0.0.1:7737"


class ConfigError(Exception):
    """A setting is missing or wrong; the message says which, and what it may be."""


class Config(BaseSettings):
    """Every setting, with its default. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="EBB_SCHEDULER_", extra="forbid", allow_inf_nan=False)

    database: str | None = Field(None, description="URL of a PostgreSQL >= 15, such as postgresql://user@host/ebb")
    embedded: Path | None = Field(None, description="folder of an embedded PostgreSQL, made when it is not there")
    listen: str = Field(DEFAULT_LISTEN, description="loopback address and port to serve on; port 0 takes a free one")
    address_file: Path | None = Field(None, description="where to write HOST:PORT once this scheduler leads")
    policy: Literal["fitgpp", "fifo"] = "fitgpp"
    fitgpp_s: float = Field(4.0, ge=0, description="s of FitGpp: the weight of the grace period against the size")
    fitgpp_cap: int = Field(1, ge=0, description="P of FitGpp: how often a job may be preempted for trials")
    fitgpp_trials_in_flight: int | None = Field(None, ge=1, description="how many trials may wait for victims at once")
    default_grace: float = Field(30, ge=0, le=86400, description="grace period of jobs that name none")
    earmark_ttl: float = Field(60, gt=0, description="how long freed resources are kept for a trial that does not come")
    heartbeat: float = Field(2, gt=0, description="how often each agent gives a sign of life")
    silent_after: float = Field(10, gt=0, description="a node is silent when nothing was heard of it for so long")
    lease: float = Field(5, ge=0.5, description="how long a dead scheduler keeps the lease, at most")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("listen")
    @classmethod
    def _loopback(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{value!r} is not HOST:PORT, such as {DEFAULT_LISTEN}")
        if host != "localhost" and not _is_loopback(host):
            raise ValueError(f"{host!r} is not a loopback address: Ebb has no TLS yet and serves this machine alone")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        if (self.database is None) == (self.embedded is None):
            raise ValueError("name one database: either database (--database URL) or embedded (--embedded DIR)")
        if self.database is not None and not self.database.startswith(
            ("postgresql://", "postgres://", "postgresql+psycopg://")
        ):
            raise ValueError("database must be a URL that begins with postgresql://")
        if self.silent_after < 2 * self.heartbeat:
            raise ValueError("silent_after must be at least twice heartbeat, else one late heartbeat makes a node silent")
        return self


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load(file: Path | None, flags: dict[str, Any]) -> Config:
    """Reads the settings; `flags` holds those given on the command line.

    Raises ConfigError, naming each setting that is wrong.
    """
    if file is not None and not file.is_file():
        raise ConfigError(f"there is no configuration file {file}")

    class WithFile(Config):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (init_settings, env_settings, YamlConfigSettingsSource(settings_cls, file))

    try:
        return WithFile(**flags)
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()
        ]
        raise ConfigError("; ".join(lines)) from None
    except Exception as error:  # YAML that cannot be read
        raise ConfigError(f"{file}: {error}") from None
