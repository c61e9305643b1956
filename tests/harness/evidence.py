"""What jobs themselves wrote of how they ran."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from client_sdk import Job, JobState
from tests.harness.database import Database
from tests.harness.limits import LIMIT
from tests.store.waiting import wait_for


class Evidence:
    """The lines that jobs wrote, in the order in which they did."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, job: Job | int | None = None, event: str | None = None) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        every = [json.loads(line) for line in text.splitlines()]
        job_id = job.id if isinstance(job, Job) else job
        return [line for line in every if job_id in (None, line["job"]) and event in (None, line["event"])]

    def wait(self, job: Job, event: str, run: int | None = None) -> dict[str, Any]:
        """The first such line, once it is there."""
        found = wait_for(lambda: [line for line in self.lines(job, event) if run in (None, line["run"])], LIMIT)
        return found[0]

    def count(self, event: str) -> int:
        return self.path.read_text().count(f'"{event}"') if self.path.exists() else 0

    def check(self, database: "Database") -> None:
        """No run took place twice, none overlapped the next, and every job that succeeded completed once."""
        by_job: dict[int, list[dict[str, Any]]] = {}
        for line in self.lines():
            by_job.setdefault(line["job"], []).append(line)
        jobs = {row["id"]: row for row in database.ask("SELECT id, state, run FROM job")}
        assert set(by_job) <= set(jobs), "something ran that the database does not know"
        requeues = Counter(row["job_id"] for row in database.ask("SELECT job_id FROM job_event WHERE kind = 7"))
        for job_id, row in jobs.items():
            lines = by_job.get(job_id, [])
            starts = [line["run"] for line in lines if line["event"] == "start"]
            assert len(starts) == len(set(starts)), f"a run of job {job_id} was executed twice: {lines}"
            order = [line["run"] for line in lines]
            assert order == sorted(order), f"runs of job {job_id} overlapped: {lines}"
            assert row["run"] <= 1 + requeues[job_id], f"job {job_id} was launched more often than it was sent back"
            ends = [line["run"] for line in lines if line["event"] == "end"]
            wanted = [row["run"]] if row["state"] == JobState.SUCCEEDED else []
            if starts:  # else it is a job that leaves no evidence
                assert ends == wanted, f"job {job_id} completed {len(ends)} times: {lines}"
