"""The engine does with kept inputs what it did: orders, replies, changes and story lines are the same to the last value.

Where a behaviour is changed on purpose, `python -m tests.evidence` writes the digests anew, and the commit says which stream
changed, and why.
"""

import json
from pathlib import Path

import pytest

from tests.evidence.digests import Evidence
from tests.evidence.scenarios import SCENARIOS

KEPT = Path(__file__).with_name("digests.json")


def test_there_is_a_digest_of_each_scenario() -> None:
    assert sorted(json.loads(KEPT.read_text())) == sorted(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_done_is_what_was_done(name: str) -> None:
    evidence = Evidence()
    SCENARIOS[name](evidence)
    assert evidence.result() == json.loads(KEPT.read_text())[name]
