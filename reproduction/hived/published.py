"""The numbers that the HiveD paper prints (section 5), to be shown next to those of Ebb's engine.

Figures 6 to 12 are pictures; the sentences that it prints about them are in `CLAIMS`.
"""

from typing import NamedTuple

UTILISATION, UTILISATION_LOADED = 0.70, 0.90
"""The share of the paper's 279 nodes, and of 200, that regular jobs use: "around" (5.2.2)."""
LOADED_NODES = 200


class Default(NamedTuple):
    """A row of table 4, in percent."""

    effective: float
    increased: float
    gain: float


class Balanced(NamedTuple):
    """A row of table 5, the first three in percent."""

    effective: float
    increased: float
    gain: float
    fluctuation: float


DEFAULT: dict[str, Default] = {
    "res-e": Default(52.3, 13.5, 25.8),
    "prod-a": Default(25.3, 2.9, 11.5),
    "res-d": Default(16.1, 1.5, 9.2),
    "prod-e": Default(60.0, 5.3, 8.8),
    "res-c": Default(74.9, 5.2, 7.0),
    "res-a": Default(57.6, 4.0, 6.9),
    "prod-b": Default(44.8, 2.5, 5.6),
    "prod-c": Default(78.6, 2.9, 3.6),
    "res-b": Default(74.8, 0.9, 1.2),
    "res-f": Default(45.1, 0.4, 0.9),
    "prod-d": Default(47.0, 0.4, 0.8),
}
"""Table 4: the cells as assigned by default."""

BALANCED: dict[str, Balanced] = {
    "res-d": Balanced(24.80, 14.27, 57.53, 1.58),
    "prod-a": Balanced(48.39, 18.39, 38.00, 0.85),
    "res-c": Balanced(50.58, 13.17, 26.04, 0.82),
    "res-b": Balanced(55.03, 13.24, 24.06, 0.65),
    "res-e": Balanced(57.14, 9.77, 17.10, 0.70),
    "res-a": Balanced(60.49, 8.99, 14.87, 0.36),
    "prod-b": Balanced(62.53, 6.06, 9.69, 0.44),
    "prod-c": Balanced(68.32, 6.57, 9.61, 0.41),
    "res-f": Balanced(65.74, 6.07, 9.23, 0.38),
    "prod-d": Balanced(55.38, 4.10, 7.41, 0.41),
    "prod-e": Balanced(55.07, 2.64, 4.79, 0.38),
}
"""Table 5: cells assigned by the GPU time that each tenant asks for."""


class Claim(NamedTuple):
    """A sentence with a number."""

    figure: str
    said: str
    number: float
    unit: str


CLAIMS: dict[str, Claim] = {
    "yarn-excess": Claim("6", "prod-a's queueing delay above its private cluster's, YARN-CS by quota: over", 1_000, "min"),
    "gandiva-excess": Claim("6", "the same, Gandiva: up to", 700, "min"),
    "tiresias-excess": Claim("6", "the same, Tiresias: up to", 1_300, "min"),
    "excess": Claim("7a", "prod-a above its private cluster on days 11 and 12, 279 nodes, quota", 200, "min"),
    "excess-loaded": Claim("7b", "prod-a above its private cluster on days 9 to 19, 200 nodes, quota: over", 8_000, "min"),
    "fragmentation": Claim("7a", "the most of all nodes that no 8-GPU job could have, 279 nodes, quota", 100, "%"),
    "res-f-jobs": Claim("7b", "res-f's multi-GPU jobs delayed in quota, 200 nodes", 365, "jobs"),
    "res-f-share": Claim("7b", "the same", 14, "%"),
    "prod-a-jobs": Claim("7b", "prod-a's multi-GPU jobs delayed in quota, 200 nodes", 315, "jobs"),
    "prod-a-share": Claim("7b", "the same", 23, "%"),
    "hived-jobs": Claim("7", "regular jobs delayed above their private cluster under HiveD", 0, "jobs"),
    "used-more": Claim("7a", "more of the cluster in use than under quota, 279 nodes: up to", 14, "points"),
    "used-more-loaded": Claim("7b", "more of the cluster in use than under quota, 200 nodes: up to", 20, "points"),
    "preempted": Claim("8", "fewer GPUs preempted, dynamic against static binding", 55, "%"),
    "multi-level": Claim("9", "lower fragmentation with multi-level cells, most of the time: over", 10, "points"),
    "multi-level-most": Claim("9", "the same, at best: up to", 20, "points"),
    "idle-10h-low": Claim("10", "cells that stay idle for 10 hours and more after day 20, from", 22, "%"),
    "idle-10h-high": Claim("10", "the same, to", 60, "%"),
    "idle-100h": Claim("10", "cells that may stay idle for 100 hours and more: over", 30, "%"),
}
"""Claims by names that the study's own numbers also have."""
