"""The settings of a configuration for the speed of jobs by their placement, and for the costs of sharing devices."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.sim.limits import LONGEST_S
from scheduler_service.sim.sharing.measured import Measured, tables
from scheduler_service.sim.sharing.model import Rates, gandiva
from scheduler_service.sim.sharing.setup import Setup, Switching
from scheduler_service.sim.workloads.distributions import Model

Seconds = Annotated[float, Field(ge=0, le=LONGEST_S)]


class Sharing(Model):
    """Settings for jobs that share devices. Durations are in seconds."""

    rates: Literal["gandiva", "gavel"] = Field(
        default="gandiva",
        description="what is known of kinds of jobs: the Gandiva paper's tables, or what Gavel's authors measured",
    )
    throughputs: Path | None = Field(default=None, description="of gavel: the table of rates alone")
    pairs: Path | None = Field(default=None, description="of gavel: the table of pairs on one device")
    reference: str = Field(default="p100", description="of gavel: the model of GPU on which jobs take the time that they name")
    assume_use: bool = Field(
        default=False, description="of gavel: assume what the tables lack, the utilisation and the memory of each kind"
    )
    interference: bool = Field(default=True, description="of gandiva: jobs on other GPUs of a node slow each other down")
    slices: Literal["fluid", "exact"] = Field(
        default="fluid", description="fluid: a job works at the mean rate of its turns; exact: only while it has its turn"
    )
    park: Seconds = Field(default=0.05, description="until a job is parked, beside copying")
    resume: Seconds = Field(default=0.05, description="until a parked job works again, beside copying")
    copy_per_gib: Seconds = Field(default=0.1, description="between GPU and host, of what a job has at a mini-batch boundary")
    save: Seconds = Field(
        default=0.2, description="until a job has saved its work, beside copying; `delays.checkpoint` takes its place"
    )
    transfer_per_gib: Seconds = Field(default=1, description="to go on from a checkpoint on another node")
    start: Seconds = Field(default=0.3, description="from the checkpoint to the first mini-batch, beside copying")
    measure_every: Annotated[float, Field(ge=1, le=LONGEST_S)] | None = Field(
        default=60, description="nodes tell the time of mini-batches as often, if the policy asks for it; null: never"
    )
    noise: float = Field(default=0.02, ge=0, le=1, description="relative standard deviation of measured times")
    stable: tuple[Seconds, Seconds] | None = Field(
        default=None, description="from when to when utilisation is averaged apart, as [1200, 12000]"
    )

    @model_validator(mode="after")
    def _files(self) -> "Sharing":
        if self.rates == "gavel" and (self.throughputs is None or self.pairs is None):
            raise ValueError("rates of gavel are in files: give throughputs and pairs")
        if self.rates != "gavel" and (self.throughputs is not None or self.pairs is not None or self.assume_use):
            raise ValueError("throughputs, pairs and assume_use are for rates: gavel")
        if self.stable is not None and self.stable[0] >= self.stable[1]:
            raise ValueError(f"stable: {self.stable[1]:g} s is not after {self.stable[0]:g} s")
        return self

    def model(self, folder: Path) -> Rates:
        """The model of rates. Raises BadTrace and OSError."""
        if self.rates == "gandiva":
            return gandiva(self.interference)
        assert self.throughputs is not None  # `_files` has checked it
        assert self.pairs is not None
        return Measured(tables(folder / self.throughputs, folder / self.pairs), self.reference, self.assume_use)

    def switching(self) -> Switching:
        return Switching(
            park_us=_micros(self.park),
            resume_us=_micros(self.resume),
            copy_us=_micros(self.copy_per_gib),
            save_us=_micros(self.save),
            transfer_us=_micros(self.transfer_per_gib),
            start_us=_micros(self.start),
        )

    def setup(self, folder: Path, models: Iterable[str]) -> Setup:
        """The setup for GPUs of these models. Raises BadTrace and OSError, and ValueError if a model is unknown."""
        every = None if self.measure_every is None else _micros(self.measure_every)
        rates = self.model(folder)
        if isinstance(rates, Measured) and (unknown := sorted(set(models) - rates.models())):
            raise ValueError(
                f"sharing: {self.throughputs} has no rates of GPUs of the model {unknown[0]!r}; "
                f"it has {', '.join(sorted(rates.models()))}"
            )
        return Setup(rates, self.switching(), self.slices == "exact", every, self.noise)


def _micros(seconds: float) -> Micros:
    return round(seconds * SECOND)
