"""How training questions are looked for in the evaluation sets."""

from typing import Literal

from pydantic import Field

from reasoner.config.base import Section


class ContaminationConfig(Section):
    """Training questions that are evaluation questions, word for word or nearly. docs/contamination.md has what the
    numbers were chosen by."""

    mode: Literal["off", "warn", "fail"] = "warn"
    """`warn` shows the matches and a score without them in the report; `fail` stops the run before it trains."""
    max_share: float = Field(default=0.0, ge=0, le=1)
    """`fail` stops where a larger share of an evaluation set's questions is matched."""
    threshold: float = Field(default=0.5, gt=0, le=1)
    """Likeness from which two questions are one; see `numbers`."""
    threshold_of_words: float = Field(default=0.66, gt=0, le=1)
    """The same of two questions without any number, which only their text can tell apart."""
    numbers: float = Field(default=0.6, ge=0, lt=1)
    """Weight (an exponent) of the numbers in the likeness; the text has the rest."""
    ngram: int = Field(default=13, ge=3)
    """Words in a row that two questions must share to be an n-gram match."""
    ngram_numbers: float = Field(default=0.7, ge=0, le=1)
    """Share of the numbers of one that the other must hold, too, for an n-gram match."""
    permutations: int = Field(default=128, ge=16)
    """Hash functions of MinHash."""
    candidates: float = Field(default=0.45, gt=0, lt=1)
    """Jaccard similarity for which MinHash's bands are laid out; what they propose is then measured exactly."""
