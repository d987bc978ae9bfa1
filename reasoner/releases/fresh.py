"""A home folder whose ledger is empty: what is asked here is asked of the model, whatever was answered before."""

from dataclasses import dataclass
from pathlib import Path

from reasoner.home import Home


@dataclass(frozen=True, slots=True)
class FreshHome(Home):
    """A home with a ledger of its own in `answers`, such as a stage's working folder.

    There it survives a crash of the stage, and goes with the folder when the stage has ended.
    """

    answers: Path

    @property
    def ledger(self) -> Path:
        return self.answers

    @property
    def shared_ledger(self) -> str:
        return ""
