"""By what right a job has others stopped. Which runs each claim reaches is a table: `state/eligibility.py`."""

from enum import Enum


class Claim(Enum):
    """By what right a job has others stopped."""

    GUARANTEED = 1
    """Work in cells that its virtual cluster owns."""
    TRIAL = 2
    """A trial inside its virtual cluster's guarantee, or on a site without virtual clusters."""
    OPPORTUNISTIC_TRIAL = 3
    """A trial that runs in others' idle cells."""
    PRIORITY = 4
    """A job of a virtual cluster whose policy goes by priority."""
    REORDER = 5
    """A job under a policy that re-orders work that runs, such as least attained service."""
