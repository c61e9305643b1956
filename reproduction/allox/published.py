"""The numbers that the AlloX paper prints (EuroSys 2020), and those in its authors' published simulator outputs."""

from typing import NamedTuple


class Printed(NamedTuple):
    """The numbers of one policy. Times are mean completion times in seconds."""

    experiment_s: float | None = None
    """Figure 11, the cluster."""
    whole_s: float | None = None
    """Mean of all jobs (figure 13), from the authors' outputs."""
    slice_s: float | None = None
    """Mean of the jobs of the first 3,000 s, from the authors' outputs."""
    less: float | None = None
    """How much less AlloX takes, according to the text (5.2.2)."""


PRINTED = {
    "allox": Printed(2601, None, 99.6),
    "allox-plus": Printed(None, 158.8, 107.6),
    "drfa": Printed(3326, 293.7, 170.9, 0.53),
    "drfs": Printed(3689, 851.4, 189.0, 0.84),
    "es": Printed(3336, 1148.8, 258.1, 0.88),
    "drff": Printed(3810, 2967.7, 435.6, 0.95),
    "srpt": Printed(None, 96.6, 77.0, -0.30),
}
"""The numbers by the policies' names."""
ALLOX_WHOLE_S = (136, 148)
"""The authors' outputs have no AlloX with all jobs; this range follows from the others and from the text."""
IF_ALL_USERS = 0.09
"""How much longer AlloX takes than SRPT with alpha = 1 (5.2.4)."""
