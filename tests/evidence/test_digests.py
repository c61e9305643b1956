"""The engine does with kept inputs what it did: orders, replies, changes and story lines are the same to the last value.

If a behavior is changed on purpose, `python -m tests.evidence` writes digests and texts again, and the commit says which stream
changed, and why.
"""

import hashlib
import json
from pathlib import Path

import pytest

from tests.evidence.digests import STREAMS, Evidence, first_difference, kept
from tests.evidence.scenarios import SCENARIOS

KEPT = Path(__file__).with_name("digests.json")


def test_there_is_a_digest_of_each_scenario() -> None:
    assert sorted(json.loads(KEPT.read_text())) == sorted(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_done_is_what_was_done(name: str) -> None:
    evidence = Evidence()
    SCENARIOS[name](evidence)
    if evidence.result() != json.loads(KEPT.read_text())[name]:
        pytest.fail(
            f"what comes of the steps of {name!r} has changed, first here:\n{first_difference(kept(name), evidence.lines)}"
        )


def test_the_texts_are_those_of_the_digests() -> None:
    for name, digests in json.loads(KEPT.read_text()).items():
        found = {stream: hashlib.sha256() for stream in STREAMS}
        for line in kept(name):
            _, _, stream, text = line.split(" ", 3)
            found[stream].update(text.encode() + b"\n")
        assert {stream: digest.hexdigest()[:16] for stream, digest in found.items()} == {one: digests[one] for one in STREAMS}


def test_a_difference_is_shown_where_it_begins() -> None:
    before = ["step 1 orders []", "step 1 story [" + "x" * 1000 + "old]"]
    now = ["step 1 orders []", "step 1 story [" + "x" * 1000 + "new]", "step 2 orders []"]
    shown = first_difference(before, now).splitlines()
    assert shown[0].startswith("step 1 story, from its character")
    assert [line[-4:] for line in shown[1:3]] == ["old]", "new]"]
    assert shown[-1] == "  is  step 2 orders []"
