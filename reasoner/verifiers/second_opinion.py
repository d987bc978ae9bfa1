"""A second opinion on mathematics: math-verify alone, as its documentation shows it.

It shares neither our extraction nor our comparison, so that what both say is worth more than what one says. It is not
right where the two differ: its known mistakes are why ours exists. It runs in the killable workers of `pool.py`.
"""

import logging

from reasoner.records import Outcome, Verdict
from reasoner.verifiers.math import MAX_SHOWN, MathItem


def math_verify_alone(item: MathItem) -> Verdict:
    """math-verify's word on a row; `unscored` where it finds nothing in the gold. Its own alarms are off."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    gold = parse(f"${item.gold}$", parsing_timeout=None) or parse(item.gold, parsing_timeout=None)
    if not gold:
        return Verdict(Outcome.UNSCORED, "gold_unreadable")
    answer = parse(item.prediction, parsing_timeout=None)
    if not answer:
        return Verdict(Outcome.INCORRECT, "unparsed")
    same = verify(gold, answer, timeout_seconds=None)
    return Verdict(Outcome.CORRECT if same else Outcome.INCORRECT, "math_verify", str(answer[-1])[:MAX_SHOWN])
