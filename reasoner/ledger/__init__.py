"""The journal of completions (`ledger.Ledger`) and making only what it lacks (`owed.complete`)."""

from reasoner.ledger.ledger import Entry, Ledger
from reasoner.ledger.owed import Completed, LazyEngine, complete

__all__ = ["Completed", "Entry", "LazyEngine", "Ledger", "complete"]
