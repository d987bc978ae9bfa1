"""Questions with gold answers: reading them, splitting them, keeping training and evaluation apart."""

from reasoner.problems.loading import LeftOut, Loaded, load_problems, merge
from reasoner.problems.preparing import Prepared, prepare
from reasoner.problems.splitting import split

__all__ = ["LeftOut", "Loaded", "Prepared", "load_problems", "merge", "prepare", "split"]
