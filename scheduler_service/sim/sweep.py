"""A sweep: many cases, each simulated once, in a folder that knows what is there already.

Each case has a folder named by its digest. It appears whole or not at all, so a sweep that was interrupted goes on with
what is missing, and so does one to which cases were added. Cases that are submitted at recorded times wait for their
recording, which is simulated once for all of them.
"""

import io
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from scheduler_service.sim.cases import FORMAT, Case, engine, simulate
from scheduler_service.sim.results import csv, parquet, write
from scheduler_service.sim.runner_port import Done, Failed, Runner, Tell, Told
from scheduler_service.sim.runners import runner

Keep = Literal["summary", "jobs", "all"]
MANIFEST = "sweep.json"
END = b"PAR1"
"""Of a Parquet file that is whole."""
LOG = ".error.txt"
"""After a digest: how that case failed in the last sweep."""


@dataclass(frozen=True)
class Summary:
    """What is always kept of a case."""

    case: Case
    numbers: dict[str, float]
    curves: dict[str, list[float]]
    took_s: float
    """Of one core, to simulate it and to work out the figures."""
    engine: str
    """Which code made it, see `cases.engine`."""
    skipped: dict[str, int]
    """How many jobs of the workload were left out, by the reason."""
    folder: Path
    files: Mapping[str, str]
    """What the files held that the case names, see `Case.files`."""


class SweepFailed(Exception):
    """Some cases failed; the others are done."""

    def __init__(self, failures: Sequence[tuple[Case, str]], summaries: list[Summary]) -> None:
        super().__init__("\n".join(f"{name_of(case)}: {error}" for case, error in failures))
        self.failures = failures
        self.summaries = summaries


class Stopped(KeyboardInterrupt):
    """The sweep was interrupted; what was complete then is kept."""

    def __init__(self, complete: int, of: int) -> None:
        super().__init__(f"{complete} of {of} simulations are complete")
        self.complete, self.of = complete, of


class Watch:
    """Sees how a sweep goes on. This one tells nobody."""

    def begin(self, cases: int, kept: int, workers: int) -> None:
        """So many are to be simulated, and so many were there already."""

    def told(self, number: int, over: int, total: int | None) -> None: ...

    def ended(self, number: int, name: str, error: str | None) -> None: ...

    def say(self, line: str) -> None: ...


class Work(NamedTuple):
    """What goes to a worker."""

    case: Case
    times: bytes | None
    """The recorded submit times, as a file of the recording has them."""
    recorded: bool
    """Others need its submit times."""
    keep: Keep
    as_csv: bool
    engine: str
    elsewhere: bool
    """The worker is of another installation, which may be of another version."""


def name_of(case: Case) -> str:
    return f"{case.policy.title}, seed {case.seed}{f', repeat {case.repeat}' if case.repeat else ''}"


def perform(work: Work, tell: Tell) -> dict[str, bytes]:
    """In a worker: the files of one case."""
    if work.elsewhere and work.engine != engine():
        raise RuntimeError("this worker has another version of Ebb than the sweep")
    began = time.process_time()
    outcome = simulate(work.case, None if work.times is None else _read_times(work.times), tell)
    files = {"case.json": work.case.model_dump_json(indent=1).encode(), "curves.json": json.dumps(outcome.curves).encode()}
    if work.recorded:
        files["times.parquet"] = parquet(outcome.jobs.select(["submit_us"]))
    tables = {"jobs": outcome.jobs, "runs": outcome.runs, "exchanges": outcome.exchanges}
    for name in _tables(work.keep, work.case):
        files[f"{name}.parquet"] = parquet(tables[name])
        if work.as_csv:
            files[f"{name}.csv"] = csv(tables[name])
    took = round(time.process_time() - began, 3)
    summary = {"engine": work.engine, "took_s": took, "skipped": outcome.skipped, "numbers": outcome.summary}
    return {**files, "summary.json": json.dumps(summary, indent=1).encode()}


def _tables(keep: Keep, case: Case) -> tuple[str, ...]:
    whole = ("jobs", "runs", "exchanges") if case.exchanges_cells else ("jobs", "runs")
    return {"summary": (), "jobs": ("jobs",), "all": whole}[keep]


def _read_times(packed: bytes) -> list[int]:
    import pyarrow.parquet

    times: list[int] = pyarrow.parquet.read_table(io.BytesIO(packed))["submit_us"].to_pylist()
    return times


def sweep(
    cases: Sequence[Case],
    folder: Path,
    on: str = "local",
    *,
    keep: Keep = "all",
    as_csv: bool = False,
    fresh: bool = False,
    watch: Watch | None = None,
) -> list[Summary]:
    """Simulates those that are not in the folder yet; returns their summaries in the order of `cases`.

    `on` is local (all cores), local[N], or a Dask scheduler's address. Raises BadAddress, Stopped on Ctrl-C, and SweepFailed
    when all that can be done is done.
    """
    return _Sweep(cases, folder, watch or Watch(), keep, as_csv).run(on, fresh)


class Results(NamedTuple):
    """Of the last sweep into a folder."""

    complete: list[Summary]
    of: int
    """So many were asked for."""


def load(folder: Path) -> Results:
    """Raises FileNotFoundError, ValueError."""
    manifest = _read(folder / MANIFEST)
    if manifest["format"] != FORMAT:
        raise ValueError(f"{folder} has results of format {manifest['format']}, and this version reads {FORMAT}")
    cases = manifest["cases"]
    found = [entry for entry in cases if (folder / entry["digest"] / "summary.json").exists()]
    complete = [
        _summary(Case.model_validate(entry["case"]), folder / entry["digest"], entry.get("files", {})) for entry in found
    ]
    return Results(complete, len(cases))


def differences(folder: Path, cases: Sequence[Case]) -> list[str]:
    """In which settings the results in a folder are of another cluster, or of other jobs, than these cases. Other policies and
    seeds are none: the folder is for all that were tried. Empty where the folder has no results.

    Raises ValueError where the folder's list of them cannot be read."""
    if not (folder / MANIFEST).exists():
        return []
    listed = _read(folder / MANIFEST).get("cases", [])
    there = [entry for entry in listed if (folder / entry["digest"] / "summary.json").exists()]
    ours = [_shared(case.model_dump(mode="json"), case.files()) for case in cases[:1]]
    theirs = [_shared(Case.model_validate(entry["case"]).model_dump(mode="json"), entry.get("files", {})) for entry in there]
    return sorted({name for mine in ours for other in theirs for name in mine if mine[name] != other[name]})


def _shared(case: dict[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Of a case, what all cases of a run have in common."""
    own = ("policy", "seed", "repeat", "folder")
    return {name: value for name, value in case.items() if name not in own} | {"what a file holds": dict(files)}


def _summary(case: Case, folder: Path, files: Mapping[str, str]) -> Summary:
    told, curves = _read(folder / "summary.json"), _read(folder / "curves.json")
    return Summary(case, told["numbers"], curves, told["took_s"], told["engine"], told["skipped"], folder, files)


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise ValueError(f"{file} cannot be read: it is no JSON object")
    return told


class _Sweep:
    def __init__(self, cases: Sequence[Case], folder: Path, watch: Watch, keep: Keep, as_csv: bool) -> None:
        self.asked = [(case.digest(), case) for case in cases]
        self.files = {digest: case.files() for digest, case in self.asked}
        self.folder, self.watch, self.keep, self.as_csv = folder, watch, keep, as_csv
        self.cases: dict[str, Case] = {}
        """By digest, recordings first: each is simulated once, however often it is asked for."""
        self.recording_of: dict[str, str] = {}
        for digest, case in self.asked:
            if (recording := case.recording()) is not None:
                self.recording_of[digest] = recording.digest()
                self.cases.setdefault(self.recording_of[digest], recording)
        for digest, case in self.asked:
            self.cases[digest] = case  # this one has the label
        self.recordings = set(self.recording_of.values())
        self.errors: dict[str, str] = {}
        self.elsewhere = False

    def run(self, on: str, fresh: bool) -> list[Summary]:
        self.elsewhere = not on.startswith("local")
        missing = [digest for digest in self.cases if fresh or not self._is_complete(digest)]
        with runner(on, perform) as workers:
            self._write_manifest()
            for log in self.folder.glob(f"*{LOG}"):
                log.unlink()
            self.watch.begin(len(missing), len(self.cases) - len(missing), workers.workers)
            try:
                self._simulate(missing, workers)
            except KeyboardInterrupt:
                done = sum(map(self._is_complete, self.cases))
                raise Stopped(done, len(self.cases)) from None
        summaries = [
            _summary(case, self.folder / digest, self.files[digest]) for digest, case in self.asked if digest not in self.errors
        ]
        self._mention_others(summaries)
        if self.errors:
            raise SweepFailed([(self.cases[digest], error) for digest, error in self.errors.items()], summaries)
        return summaries

    def _simulate(self, missing: Sequence[str], workers: Runner) -> None:
        waiting: dict[str, list[str]] = {}
        for digest in missing:
            recording = self.recording_of.get(digest)
            if recording is not None and recording in missing:
                waiting.setdefault(recording, []).append(digest)
            else:
                self._submit(workers, digest)
        names = list(self.cases)
        for report in workers.reports():
            digest = names[report.number]
            if isinstance(report, Told):
                self.watch.told(*report)
            elif isinstance(report, Done):
                write(self.folder / digest, report.value)
                self.watch.ended(report.number, name_of(self.cases[digest]), None)
                for follower in waiting.pop(digest, ()):
                    self._submit(workers, follower)
            else:
                self._failed(digest, report, waiting.pop(digest, ()))

    def _submit(self, workers: Runner, digest: str) -> None:
        recording = self.recording_of.get(digest)
        times = (self.folder / recording / "times.parquet").read_bytes() if recording is not None else None
        recorded = digest in self.recordings
        work = Work(self.cases[digest], times, recorded, self.keep, self.as_csv, engine(), self.elsewhere)
        workers.submit(list(self.cases).index(digest), work)

    def _failed(self, digest: str, report: Failed, followers: Iterable[str]) -> None:
        log = self.folder / f"{digest}{LOG}"
        if report.trace:
            log.write_text(report.trace)
        self._note(digest, report.error + (f" (see {log})" if report.trace else ""))
        for follower in followers:
            self._note(follower, f"its submit times are recorded under {self.cases[digest].policy.name}, which failed")

    def _note(self, digest: str, error: str) -> None:
        self.errors[digest] = error
        self.watch.ended(list(self.cases).index(digest), name_of(self.cases[digest]), error)

    def _is_complete(self, digest: str) -> bool:
        needed = ["summary.json", "curves.json", *(["times.parquet"] if digest in self.recordings else [])]
        for name in _tables(self.keep, self.cases[digest]):
            needed += [f"{name}.parquet", *([f"{name}.csv"] if self.as_csv else [])]
        place = self.folder / digest
        return all(map(_is_whole, (place / name for name in needed)))

    def _write_manifest(self) -> None:
        listed = [
            {"digest": digest, "case": case.model_dump(mode="json"), "files": self.files[digest]} for digest, case in self.asked
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        being_made = self.folder / f".{MANIFEST}.{os.getpid()}"  # another sweep may be at work here
        being_made.write_text(json.dumps({"format": FORMAT, "cases": listed}, indent=1))
        being_made.replace(self.folder / MANIFEST)

    def _mention_others(self, summaries: Sequence[Summary]) -> None:
        others = sum(summary.engine != engine() for summary in summaries)
        if others:
            self.watch.say(f"{others} of the results were made by another version of Ebb's engine; --fresh makes all anew")


def _is_whole(file: Path) -> bool:
    """What a machine that went down left of it is not: then it is made anew."""
    try:
        if file.suffix == ".json":
            return bool(_read(file))
        if file.suffix == ".parquet":
            with file.open("rb") as content:
                content.seek(-len(END), os.SEEK_END)
                return content.read() == END
        return file.exists()
    except (OSError, ValueError):
        return False
