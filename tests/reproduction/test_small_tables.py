"""Tables of the documents, at a small size: what they come to is kept, and made again before a release.

A difference means that the tables in the documents are out of date, too: `make reproduce` makes those, and
`make reproduce ARGS=--small` what is kept here.
"""

import os
from pathlib import Path

import pytest

from scripts.reproduce import HERE, PARTS, SMALL_TABLES, Part, chosen, small_file, small_table

TRACES = Path(os.environ.get("EBB_TRACES", HERE / "traces"))


def test_every_table_of_the_documents_is_made_by_some_part() -> None:
    """And each part fills in a document that has places for tables."""
    documents = {HERE / part.document for part in PARTS}
    with_places = {path for path in (HERE / "docs").glob("*.md") if "<!-- begin: " in path.read_text()}
    assert documents == with_places


def test_a_part_is_chosen_by_its_name_or_by_its_study() -> None:
    assert list(map(str, chosen(["gandiva/slicing", "packing"]))) == ["gandiva/slicing", "packing"]
    assert {part.study for part in chosen(["scores"])} == {"scores"}
    assert chosen([]) == PARTS
    with pytest.raises(ValueError, match=r"there is no part 'gandiva/slice'; there are fitgpp/tables"):
        chosen(["gandiva/slice"])


def test_what_is_kept_is_of_parts_that_there_are() -> None:
    assert {path.name for path in SMALL_TABLES.glob("*.md")} <= {small_file(part).name for part in PARTS}


KEPT = [part for part in PARTS if small_file(part).exists()]


@pytest.mark.long
@pytest.mark.parametrize("part", KEPT, ids=str)
def test_the_small_tables_are_what_they_were(part: Part) -> None:
    if part.traces and not TRACES.exists():
        pytest.skip(f"the traces are not in {TRACES}; EBB_TRACES names another folder")
    assert small_table(part, TRACES) == small_file(part).read_text(encoding="utf-8"), f"make reproduce ONLY={part}"
