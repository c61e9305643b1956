"""The rights by which jobs preempt others. The table in `state/preemption_rights.py` says which runs each claim reaches."""

from enum import Enum


class Claim(Enum):
    """The right by which a job preempts others."""

    GUARANTEED = 1
    """Work in cells that its virtual cluster owns."""
    TRIAL = 2
    """A trial inside its virtual cluster's guarantee, or on a site without virtual clusters."""
    OPPORTUNISTIC_TRIAL = 3
    """A trial that runs in idle cells of other virtual clusters."""
    PRIORITY = 4
    """A job of a virtual cluster whose policy preempts by priority."""
    REORDER = 5
    """A job under a policy that reorders running jobs, such as least attained service."""
