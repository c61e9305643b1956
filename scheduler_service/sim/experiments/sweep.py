"""A sweep: many cases, each simulated once, in a folder that keeps the results.

Each case has a folder named by its digest. It appears whole or not at all, so a sweep that was interrupted continues with the
missing cases, and so does one to which cases were added. Cases that are submitted at recorded times wait for their recording,
which is simulated once for all of them.
"""

import io
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet

from scheduler_service.sim.experiments.cases import Case, simulate
from scheduler_service.sim.experiments.digests import engine
from scheduler_service.sim.experiments.kept_results import Keep, Summary, is_complete, list_cases, summary_of, tables_of
from scheduler_service.sim.experiments.results import csv, parquet, write
from scheduler_service.sim.experiments.runner_port import Done, Failed, Runner, Tell, Told
from scheduler_service.sim.experiments.runners import runner

LOG = ".error.txt"
"""Suffix after a digest: the file with the error of that case in the last sweep."""


class SweepFailed(Exception):
    """Some cases failed; the others are done."""

    def __init__(self, failures: Sequence[tuple[Case, str]], summaries: list[Summary]) -> None:
        super().__init__("\n".join(f"{name_of(case)}: {error}" for case, error in failures))
        self.failures = failures
        self.summaries = summaries


class Stopped(KeyboardInterrupt):
    """The sweep was interrupted; complete results are kept."""

    def __init__(self, complete: int, of: int) -> None:
        super().__init__(f"{complete} of {of} simulations are complete")
        self.complete, self.of = complete, of


class Watch:
    """Observes the progress of a sweep. This one does nothing."""

    def begin(self, cases: int, kept: int, workers: int) -> None:
        """Called with the number of cases to simulate, of those that were kept, and of workers."""

    def report_progress(self, number: int, over: int, total: int | None) -> None: ...

    def report_end(self, number: int, name: str, error: str | None) -> None: ...

    def say(self, line: str) -> None: ...


class Work(NamedTuple):
    """The work for a worker."""

    case: Case
    times: bytes | None
    """The recorded submit times, as the content of the recording's file."""
    recorded: bool
    """Other cases need its submit times."""
    keep: Keep
    as_csv: bool
    engine: str
    elsewhere: bool
    """The worker has another installation of Ebb, perhaps of another version."""


def name_of(case: Case) -> str:
    return f"{case.policy.title}, seed {case.seed}{f', repeat {case.repeat}' if case.repeat else ''}"


def perform(work: Work, tell: Tell) -> dict[str, bytes]:
    """Simulate a case in a worker; return its files."""
    if work.elsewhere and work.engine != engine():
        raise RuntimeError("this worker has another version of Ebb than the sweep")
    began = time.process_time()
    outcome = simulate(work.case, None if work.times is None else _read_times(work.times), tell)
    files = {"case.json": work.case.model_dump_json(indent=1).encode(), "curves.json": json.dumps(outcome.curves).encode()}
    if work.recorded:
        files["times.parquet"] = parquet(outcome.jobs.select(["submit_us"]))
    tables = {"jobs": outcome.jobs, "runs": outcome.runs, "exchanges": outcome.exchanges}
    for name in tables_of(work.keep, work.case):
        files[f"{name}.parquet"] = parquet(tables[name])
        if work.as_csv:
            files[f"{name}.csv"] = csv(tables[name])
    took = round(time.process_time() - began, 3)
    summary = {"engine": work.engine, "took_s": took, "skipped": outcome.skipped, "numbers": outcome.summary}
    return {**files, "summary.json": json.dumps(summary, indent=1).encode()}


def _read_times(packed: bytes) -> list[int]:
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
    """Simulate the cases that are not in the folder yet; return all summaries in the order of `cases`.

    `on` is local (all cores), local[N], or a Dask scheduler's address. Raises BadAddress, Stopped on Ctrl-C, and SweepFailed
    after all other cases are done.
    """
    return _Sweep(cases, folder, watch or Watch(), keep, as_csv).run(on, fresh)


class _Sweep:
    def __init__(self, cases: Sequence[Case], folder: Path, watch: Watch, keep: Keep, as_csv: bool) -> None:
        self.asked = [(case.digest(), case) for case in cases]
        self.files = {digest: case.files() for digest, case in self.asked}
        self.folder, self.watch, self.keep, self.as_csv = folder, watch, keep, as_csv
        self.cases: dict[str, Case] = {}
        """Cases by digest, recordings first: each is simulated once, even if it is listed several times."""
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
            list_cases(self.folder, self.asked, self.files)
            for log in self.folder.glob(f"*{LOG}"):
                log.unlink()
            self.watch.begin(len(missing), len(self.cases) - len(missing), workers.workers)
            try:
                self._simulate(missing, workers)
            except KeyboardInterrupt:
                done = sum(map(self._is_complete, self.cases))
                raise Stopped(done, len(self.cases)) from None
        summaries = [
            summary_of(case, self.folder / digest, self.files[digest])
            for digest, case in self.asked
            if digest not in self.errors
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
                self.watch.report_progress(*report)
            elif isinstance(report, Done):
                write(self.folder / digest, report.value)
                self.watch.report_end(report.number, name_of(self.cases[digest]), None)
                for follower in waiting.pop(digest, ()):
                    self._submit(workers, follower)
            else:
                self._note_failed(digest, report, waiting.pop(digest, ()))

    def _submit(self, workers: Runner, digest: str) -> None:
        recording = self.recording_of.get(digest)
        times = (self.folder / recording / "times.parquet").read_bytes() if recording is not None else None
        recorded = digest in self.recordings
        work = Work(self.cases[digest], times, recorded, self.keep, self.as_csv, engine(), self.elsewhere)
        workers.submit(list(self.cases).index(digest), work)

    def _note_failed(self, digest: str, report: Failed, followers: Iterable[str]) -> None:
        log = self.folder / f"{digest}{LOG}"
        if report.trace:
            log.write_text(report.trace)
        self._note(digest, report.error + (f" (see {log})" if report.trace else ""))
        for follower in followers:
            self._note(follower, f"its submit times are recorded under {self.cases[digest].policy.name}, which failed")

    def _note(self, digest: str, error: str) -> None:
        self.errors[digest] = error
        self.watch.report_end(list(self.cases).index(digest), name_of(self.cases[digest]), error)

    def _is_complete(self, digest: str) -> bool:
        recorded = digest in self.recordings
        return is_complete(self.folder / digest, self.cases[digest], self.keep, self.as_csv, recorded)

    def _mention_others(self, summaries: Sequence[Summary]) -> None:
        others = sum(summary.engine != engine() for summary in summaries)
        if others:
            self.watch.say(f"{others} of the results were made by another version of Ebb's engine; --fresh makes all anew")
