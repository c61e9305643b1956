"""The files that a sweep keeps in its folder: a folder for each case, and a list of the cases of the last sweep."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from scheduler_service.sim.experiments.cases import FORMAT, Case

Keep = Literal["summary", "jobs", "all"]
MANIFEST = "sweep.json"
END = b"PAR1"
"""The end of a complete Parquet file."""


@dataclass(frozen=True)
class Summary:
    """The summary that is always kept of a case."""

    case: Case
    numbers: dict[str, float]
    curves: dict[str, list[float]]
    took_s: float
    """Seconds of one core to simulate it and to compute the metrics."""
    engine: str
    """The version of the code that made it, see `digests.engine`."""
    skipped: dict[str, int]
    """How many jobs of the workload were left out, by reason."""
    folder: Path
    files: Mapping[str, str]
    """Digests of the files that the case names, see `Case.files`."""


class Results(NamedTuple):
    """The results of the last sweep into a folder."""

    complete: list[Summary]
    of: int
    """The number of cases of that sweep."""


def load(folder: Path) -> Results:
    """Load the results of a sweep. Raises FileNotFoundError, ValueError."""
    manifest = read_json(folder / MANIFEST)
    if manifest["format"] != FORMAT:
        raise ValueError(f"{folder} has results of format {manifest['format']}, and this version reads {FORMAT}")
    cases = manifest["cases"]
    found = [entry for entry in cases if (folder / entry["digest"] / "summary.json").exists()]
    complete = [
        summary_of(Case.model_validate(entry["case"]), folder / entry["digest"], entry.get("files", {})) for entry in found
    ]
    return Results(complete, len(cases))


def differences(folder: Path, cases: Sequence[Case]) -> list[str]:
    """Settings in which the results in a folder are of another cluster, or of other jobs, than these cases. Other policies and
    seeds do not count: the folder is for all that were tried. Empty if the folder has no results.

    Raises ValueError if the folder's list of results cannot be read.
    """
    if not (folder / MANIFEST).exists():
        return []
    listed = read_json(folder / MANIFEST).get("cases", [])
    there = [entry for entry in listed if (folder / entry["digest"] / "summary.json").exists()]
    ours = [_shared_part(case.model_dump(mode="json"), case.files()) for case in cases[:1]]
    theirs = [
        _shared_part(Case.model_validate(entry["case"]).model_dump(mode="json"), entry.get("files", {})) for entry in there
    ]
    return sorted({name for mine in ours for other in theirs for name in mine if mine[name] != other[name]})


def _shared_part(case: dict[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """The part of a case that all cases of a run have in common."""
    own = ("policy", "seed", "repeat", "folder")
    return {name: value for name, value in case.items() if name not in own} | {"what a file holds": dict(files)}


def summary_of(case: Case, folder: Path, files: Mapping[str, str]) -> Summary:
    told, curves = read_json(folder / "summary.json"), read_json(folder / "curves.json")
    return Summary(case, told["numbers"], curves, told["took_s"], told["engine"], told["skipped"], folder, files)


def read_json(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise ValueError(f"{file} cannot be read: it is no JSON object")
    return told


def tables_of(keep: Keep, case: Case) -> tuple[str, ...]:
    whole = ("jobs", "runs", "exchanges") if case.exchanges_cells else ("jobs", "runs")
    return {"summary": (), "jobs": ("jobs",), "all": whole}[keep]


def is_complete(folder: Path, case: Case, keep: Keep, as_csv: bool, recorded: bool) -> bool:
    """Whether a case's folder has everything that is to be kept. `recorded`: with the submit times, for others."""
    needed = ["summary.json", "curves.json", *(["times.parquet"] if recorded else [])]
    for name in tables_of(keep, case):
        needed += [f"{name}.parquet", *([f"{name}.csv"] if as_csv else [])]
    return all(_is_whole(folder / name) for name in needed)


def list_cases(folder: Path, asked: Iterable[tuple[str, Case]], files: Mapping[str, Mapping[str, str]]) -> None:
    """Write the list of cases of the sweep, each with its digest; `files` are theirs, by their digests."""
    listed = [{"digest": digest, "case": case.model_dump(mode="json"), "files": files[digest]} for digest, case in asked]
    folder.mkdir(parents=True, exist_ok=True)
    being_made = folder / f".{MANIFEST}.{os.getpid()}"  # another sweep may be at work here
    being_made.write_text(json.dumps({"format": FORMAT, "cases": listed}, indent=1))
    being_made.replace(folder / MANIFEST)


def _is_whole(file: Path) -> bool:
    """Whether a file is complete. A file that a crashed machine left incomplete is made again."""
    try:
        if file.suffix == ".json":
            return bool(read_json(file))
        if file.suffix == ".parquet":
            with file.open("rb") as content:
                content.seek(-len(END), os.SEEK_END)
                return content.read() == END
        return file.exists()
    except (OSError, ValueError):
        return False
