"""Runs the state machine of cell exchange."""

import pytest
from hypothesis import HealthCheck, settings

from tests.policies.exchange_machine import ExchangeMachine
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)
TestExchange = ExchangeMachine.TestCase
TestExchange.settings = settings(
    max_examples=examples(10),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
