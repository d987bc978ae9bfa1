"""Intervals, paired tests and estimates from several samples. Loads scipy and statsmodels on first use."""

from reasoner.statistics.intervals import Estimate, estimate, wilson
from reasoner.statistics.paired import holm, mcnemar_exact
from reasoner.statistics.samples import majority, pass_at_k

__all__ = ["Estimate", "estimate", "holm", "majority", "mcnemar_exact", "pass_at_k", "wilson"]
