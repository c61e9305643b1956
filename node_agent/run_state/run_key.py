"""The agent's name of a run."""

from typing import NamedTuple


class RunKey(NamedTuple):
    """Identifies one task of one launch of a job. `str` is for people."""

    job_id: int
    run: int
    task: int = 0
    """The rank within a gang; 0 for a job of one task."""

    def __str__(self) -> str:
        return f"{self.job_id}.{self.run}/{self.task}" if self.task else f"{self.job_id}.{self.run}"

    @property
    def name(self) -> str:
        """Name for folders and the launcher."""
        return f"{self.job_id}.{self.run}.{self.task}" if self.task else f"{self.job_id}.{self.run}"

    @classmethod
    def parse(cls, name: str) -> "RunKey":
        return cls(*map(int, name.split(".")))
