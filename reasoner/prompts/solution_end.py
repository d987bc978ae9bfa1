"""Where a few-shot solution ends.

A base model that is shown worked examples does not stop after its own: it explains, checks, or invents the next
problem. Measured on Qwen2.5-Coder-1.5B-Instruct, GSM8K test, 8 shots: 83 % of the chain-of-thought and all of the
sub-question responses ran on to the token limit, mostly on the line of the answer itself, and the last number of such a
text is not the answer. So each strategy has stop strings, and what follows the end of a solution is cut off.
"""

import re

from reasoner.records import ADDED, Strategy

STOPS: dict[Strategy, tuple[str, ...]] = {
    Strategy.COT: ("\n\n",),
    Strategy.SUB: ("\n\n",),
    Strategy.POT: ("\n```\n",),
    **{Strategy(added.value): added.ends for added in ADDED},
}
"""Strings that end a solution as the exemplars write it: an empty line, or the end of the program."""

_ANSWER = re.compile(r"The answer is:?\s*[-−]?\$?\s?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?\.?")
_OPENING = re.compile(r"```[a-z]*\n")
_CLOSING = "\n```"


def whole_solution(strategy: Strategy, text: str, finish: str) -> tuple[str, bool]:
    """The solution in a continuation, and whether it is whole.

    Prose ends with the first "The answer is N", a program with its closing fence. `finish` is the engine's: a program
    that ended at a stop string gets its fence back, which the engine took away.
    """
    if strategy is not Strategy.POT:
        found = _ANSWER.search(text)
        return (text[: found.end()], True) if found else (text, finish == "stop")
    opening = _OPENING.search(text)
    if opening is None:
        return text, finish == "stop"
    closing = text.find(_CLOSING, opening.end() - 1)
    if closing >= 0:
        return text[: closing + len(_CLOSING)], True
    return (text.rstrip() + _CLOSING, True) if finish == "stop" else (text, False)
