"""Recordings of this service: where its settings meet `run.recording`."""

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any, cast, get_args

from scheduler_service.config import Config
from scheduler_service.core.state.state import State
from scheduler_service.policies.stages import Stages
from scheduler_service.run.recording.record import Recorder, Recording
from scheduler_service.run.recording.replay import Unreadable

log = logging.getLogger(__name__)


class _Noting:
    """Settings, which notes those that are asked for."""

    def __init__(self, config: Config) -> None:
        self._values = config.model_dump(mode="json")
        self.noted: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        self.noted[name] = self._values[name]
        return self.noted[name]


def parameters(config: Config, stages_of: Callable[[Config], Stages]) -> dict[str, Any]:
    """The settings from which the policy is made: no list of them can be wrong."""
    memo_updates = _Noting(config)
    stages_of(cast(Config, memo_updates))
    return memo_updates.noted


def stages_from(stages_of: Callable[[Config], Stages], name: str, given: Mapping[str, Any]) -> Stages:
    """The stages of the policy of a recording. Raises Unreadable."""
    if name not in get_args(Config.model_fields["policy"].annotation):
        raise Unreadable(f"it was recorded under the policy {name!r}, which this version does not have")
    try:
        later: dict[str, Any] = {"policy_settings": {}}  # what recordings of before do not have
        return stages_of(cast(Config, SimpleNamespace(**{**later, **given, "policy": name})))
    except AttributeError as missing:
        raise Unreadable(f"policy {name}: this version needs the setting {missing.name!r}, which was not recorded") from None


def begin(config: Config, stages_of: Callable[[Config], Stages], state: State, commit_no: int) -> Recorder:
    """The recorder of a leadership that is about to begin. A file that cannot be written keeps nobody from leading."""
    if config.record is None:
        return Recorder()
    try:
        made = Recording(config.record, state, commit_no, config.policy, parameters(config, stages_of), _version())
    except Exception as error:
        log.error("this leadership is not recorded: %s", error)
        return Recorder()
    log.info("recording to %s", config.record)
    return made


def _version() -> str:
    try:
        return version("ebb-cluster")
    except PackageNotFoundError:
        return "unknown"
