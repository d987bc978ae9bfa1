"""Why sampler and trainer disagree: the likely cause, in a sentence with what to do.

First the causes that can be tried: a probe computes the trainer's log-probabilities as they would be if that were the
cause, and the one that brings the difference under the limit is it. Then what the numbers alone show.
"""

from collections.abc import Callable, Mapping, Sequence

Rows = Sequence[Sequence[float]]
"""Log-probabilities [T] of each sample."""
Probe = Callable[[], Rows]
ONE_SIDED = 0.99
"""The share of tokens on one side that tells a cut distribution from noise."""
PROPORTIONAL = 0.3
"""The share of the difference that may be left after a common factor is taken out."""
UNKNOWN = "Check that the sampler has this adapter, and that both use one tokenizer, template and precision."


def likely_cause(sampler: Rows, trainer: Rows, limit: float, probes: Mapping[str, Probe]) -> str:
    """A sentence; it is a guess, and only says what to check where nothing fits."""
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(sampler, trainer, strict=True)]
    if not abs(sum(x - y for row in pairs for x, y in row)) < float("inf"):
        return "A log-probability is not a number: look for overflow or an adapter with NaN."
    for cause, probe in probes.items():
        tried = probe()
        if _mean([list(zip(a, b, strict=True)) for a, b in zip(sampler, tried, strict=True)]) <= limit:
            return cause
    for check in (_shifted, _first_token, _some_rows, _proportional, _one_sided):
        found = check(pairs, limit)
        if found:
            return found
    return UNKNOWN


Pairs = list[list[tuple[float, float]]]
"""(sampler, trainer) of each token, by row."""


def _mean(pairs: Pairs) -> float:
    values = [abs(x - y) for row in pairs for x, y in row]
    return sum(values) / len(values) if values else float("inf")


def _shifted(pairs: Pairs, limit: float) -> str:
    late = [[(row[t + 1][0], row[t][1]) for t in range(len(row) - 1)] for row in pairs]
    early = [[(row[t][0], row[t + 1][1]) for t in range(len(row) - 1)] for row in pairs]
    if min(_mean(late), _mean(early)) <= limit:
        return "The two are shifted by one token: check which logits score a token."
    return ""


def _first_token(pairs: Pairs, limit: float) -> str:
    first, rest = _mean([row[:1] for row in pairs]), _mean([row[1:] for row in pairs])
    if rest <= limit or first > 10 * max(rest, 1e-3):
        return (
            "Only first tokens differ: the prompts end differently (chat template, generation prompt, "
            "add_special_tokens, begin or end token)."
        )
    return ""


def _some_rows(pairs: Pairs, limit: float) -> str:
    rows = [row for row in pairs if row]
    bad = sum(_mean([row]) > limit for row in rows)
    if bad <= len(rows) // 2:
        return f"{bad} of {len(rows)} rows differ and the others do not: they are mixed up, cut, or of another policy."
    return ""


def _proportional(pairs: Pairs, limit: float) -> str:
    ratios = sorted(x / y for row in pairs for x, y in row if y < -0.5)
    if len(ratios) < 8:
        return ""
    factor = ratios[len(ratios) // 2]
    left = _mean([[(x, factor * y) for x, y in row] for row in pairs])
    if left < PROPORTIONAL * _mean(pairs) and not 0.9 < factor < 1.1:
        return "The differences are proportional: the trainer's temperature is not the sampler's."
    return ""


def _one_sided(pairs: Pairs, limit: float) -> str:
    values = [x - y for row in pairs for x, y in row]
    if sum(value > -limit for value in values) >= ONE_SIDED * len(values):
        return "The sampler is surer of nearly every token: it cuts its distribution (top_p, top_k, min_p) or cools it."
    return ""
