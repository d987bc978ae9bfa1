"""Where numbers go besides the run's own files: Weights & Biases, off unless it is asked for.

`run` is the only place that speaks to W&B (TRL's own integration, in a training child, finds the run that it began);
`evaluations` and `episodes` say what of a run is shown. Not covered: reading anything back from W&B.
"""

from reasoner.tracking.run import Histogram, Run, Table, Tracking, mode, secrets, tracked

__all__ = ["Histogram", "Run", "Table", "Tracking", "mode", "secrets", "tracked"]
