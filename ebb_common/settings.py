"""Settings of a program: flags win over its environment, that over a file in YAML, that over defaults.

For programs that have pydantic, which the SDK does not need.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_origin

import yaml
from pydantic import ValidationInfo, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

S = TypeVar("S", bound=BaseSettings)


class FileSettings(BaseSettings):
    """Settings that may come from YAML: a truth value is refused wherever something else is meant."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value(cls, value: object, info: ValidationInfo) -> object:
        """YAML makes truth values of on, off, yes and no, and a number would take them for 1 and 0."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and kind is not bool and get_origin(kind) is not Literal:
            raise ValueError(f"it is {str(value).lower()}, and must not be a truth value")
        return value


def with_file(kind: type[S], told: Mapping[str, Any]) -> type[S]:
    """Return a settings class that also reads a file. Constructor arguments (the flags) override the environment."""

    class WithFile(kind):  # type: ignore[valid-type, misc]  # mypy wants a class that it knows by name
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (the caller passes it by name)
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (init_settings, env_settings, InitSettingsSource(settings_cls, dict(told)))

    return WithFile


class UnreadableFile(Exception):
    """A file cannot be read; the message says which file, and why."""


def read(file: Path, loader: type[yaml.SafeLoader], example: str) -> Any:
    """Return the contents of a YAML file; None if it is empty. `example` is a valid line. Raises UnreadableFile."""
    try:
        with file.open(encoding="utf-8") as text:
            return yaml.load(text, loader)
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{file} cannot be read as YAML with lines such as `{example}`: {error}") from error


def misspelt(environment: Iterable[str], prefix: str, names: Iterable[str]) -> list[str]:
    """Return messages for variables that look like misspelled settings. (Kubernetes sets others with the same prefix.)"""
    known = [f"{prefix}{name.upper()}" for name in names]
    found = []
    for name in sorted(name for name in environment if name.upper().startswith(prefix) and name.upper() not in known):
        if close := get_close_matches(name.upper(), known, 1, 0.85):
            found.append(f"{name} in the environment is no setting; {close[0]} is")
    return found
