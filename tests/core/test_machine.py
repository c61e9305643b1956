"""Runs the state machine."""

import pytest
from hypothesis import HealthCheck, settings

from tests.core.machine import EngineMachine
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)
TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(
    max_examples=examples(15),
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
)
