"""Intervals, paired tests and estimates from several samples. Loads scipy where a distribution needs it."""

from reasoner.statistics.intervals import Estimate, estimate, wilson
from reasoner.statistics.paired import holm, mcnemar_exact, paired_interval
from reasoner.statistics.power import mcnemar_power, minimal_difference, minimal_mean_difference
from reasoner.statistics.samples import majority, pass_at_k

__all__ = [
    "Estimate",
    "estimate",
    "holm",
    "majority",
    "mcnemar_exact",
    "mcnemar_power",
    "minimal_difference",
    "minimal_mean_difference",
    "paired_interval",
    "pass_at_k",
    "wilson",
]
