"""The only list of policies: the configuration, the command line, virtual clusters and the simulator read it.

A new policy is a file with a function that makes its stages, and an entry here. Nothing is imported until a policy is made, so
that the names alone cost little. Policies for comparison alone are registered by the simulator.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scheduler_service.policies.options import Options
    from scheduler_service.policies.stages import Stages

Factory = Callable[["Options"], "Stages"]


class Entry(NamedTuple):
    about: str
    """One line for people."""
    factory: str | Factory
    """The function that makes its stages, or its location: module:function."""
    site: bool = False
    """A site can choose it, as its setting `policy`."""
    inside: bool = False
    """A virtual cluster can choose it."""


_HERE = "scheduler_service.policies"
POLICIES: dict[str, Entry] = {
    "fitgpp": Entry(
        "trials preempt small best-effort runs with short grace periods (FitGpp)", f"{_HERE}.fitgpp.policy:stages", True, True
    ),
    "thrifty": Entry("FitGpp, and what leaves already is waited for first", f"{_HERE}.fitgpp.thrifty:stages", True),
    "lrtp": Entry("trials preempt the runs with the longest remaining time", f"{_HERE}.fitgpp.lrtp:stages", True, True),
    "rand": Entry("trials preempt random runs", f"{_HERE}.fitgpp.rand:stages", True, True),
    "fifo": Entry("first come, first served; nobody is preempted", f"{_HERE}.fifo:stages", True, True),
    "las": Entry("least attained service first, by queues (Tiresias)", f"{_HERE}.las:stages", True, True),
    "fair": Entry("least usage for its share first (fair share)", f"{_HERE}.fair_share.policy:stages", True, True),
    "allox": Entry(
        "the matching of jobs to devices with the least completion times (AlloX)", f"{_HERE}.allox.policy:stages", True, True
    ),
    "allox-plus": Entry("the shortest first, on whichever device has room (AlloX+)", f"{_HERE}.allox.allox_plus:stages", True),
    "allox-priced": Entry(
        "the shortest first, by what the jobs that wait for a device lose by it", f"{_HERE}.allox.allox_priced:stages", True
    ),
    "gandiva": Entry(
        "jobs take turns on devices, and are packed, moved and resized by what is measured (Gandiva)",
        f"{_HERE}.gandiva.policy:stages",
        True,
        True,
    ),
    "priority": Entry("jobs of higher priority have those of lower stopped", f"{_HERE}.priority:stages", inside=True),
    "cells": Entry("every virtual cluster is served in its own cells (HiveD)", f"{_HERE}.hived.policy:stages"),
}


def register(name: str, entry: Entry) -> None:
    """Adds a policy. Raises ValueError if the name is taken."""
    if name in POLICIES:
        raise ValueError(f"there is a policy {name!r} already: {POLICIES[name].about}")
    POLICIES[name] = entry


def unknown(name: str, known: Iterable[str]) -> ValueError:
    return ValueError(f"there is no policy {name!r}; there are {', '.join(known)}")


def for_sites() -> list[str]:
    """The policies that a site without virtual clusters can choose."""
    return [name for name, entry in POLICIES.items() if entry.site]


def for_virtual_clusters() -> list[str]:
    """The policies that a virtual cluster can choose."""
    return [name for name, entry in POLICIES.items() if entry.inside]


def for_simulations() -> list[str]:
    """The policies with which a whole cluster can be simulated."""
    return [name for name, entry in POLICIES.items() if entry.site or not entry.inside]


def factory(name: str) -> Factory:
    """Return the function that makes the stages of a policy. Raises ValueError for an unknown name."""
    entry = POLICIES.get(name)
    if entry is None:
        raise unknown(name, POLICIES)
    if not isinstance(entry.factory, str):
        return entry.factory
    module, _, function = entry.factory.partition(":")
    made: Factory = getattr(import_module(module), function)
    return made
