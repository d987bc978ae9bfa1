"""Why sampler and trainer disagree: the likely cause, in a sentence with what to do.

First the causes that can be tried: a probe computes the trainer's log-probabilities as they would be if that were the
cause, and the one that brings the difference under the limit is it. Then what the numbers alone show.
"""

from collections.abc import Callable, Mapping
from typing import Any

Probe = Callable[[], Any]
"""Computes [B, T] log-probabilities."""
ONE_SIDED = 0.99
"""The share of tokens on one side that tells a cut distribution from noise."""


def likely_cause(
    sampler_BT: Any, trainer_BT: Any, mask_BT: Any, limit: float, probes: Mapping[str, Probe]
) -> str:
    """A sentence; it is a guess, and says so where nothing fits."""
    mask = mask_BT.bool()
    if not bool((sampler_BT - trainer_BT)[mask].isfinite().all()):
        return "log-probabilities that are not finite; lower the learning rate or compute in float32"
    for cause, probe in probes.items():
        if _mean(sampler_BT, probe(), mask) <= limit:
            return cause
    for check in (_shifted, _first_token, _some_rows, _one_sided):
        cause_found = check(sampler_BT, trainer_BT, mask, limit)
        if cause_found:
            return cause_found
    return (
        "other weights or arithmetic: compare the base's revision and quantisation, the precision of both sides, "
        "and dropout"
    )


def _mean(a_BT: Any, b_BT: Any, mask: Any) -> float:
    return float((a_BT - b_BT)[mask].abs().double().mean()) if bool(mask.any()) else float("inf")


def _shifted(sampler: Any, trainer: Any, mask: Any, limit: float) -> str:
    both = mask[:, 1:] & mask[:, :-1]
    late, early = (
        _mean(sampler[:, 1:], trainer[:, :-1], both),
        _mean(sampler[:, :-1], trainer[:, 1:], both),
    )
    return (
        "the two are shifted by one token: check which logits score a token"
        if min(late, early) <= limit
        else ""
    )


def _first_token(sampler: Any, trainer: Any, mask: Any, limit: float) -> str:
    rest = mask.clone()
    rest[:, 0] = False
    if rest.any() and _mean(sampler, trainer, rest) <= limit:
        return (
            "only first tokens differ, so the prompts end differently: check the chat template, the generation prompt "
            "and add_special_tokens"
        )
    return ""


def _some_rows(sampler: Any, trainer: Any, mask: Any, limit: float) -> str:
    bad = [
        row
        for row in range(mask.shape[0])
        if mask[row].any() and _mean(sampler[row], trainer[row], mask[row]) > limit
    ]
    rows = int(mask.any(dim=1).sum())
    if len(bad) <= rows // 2:
        return f"{len(bad)} of {rows} rows differ and the others do not: rows are mixed up, cut, or of another policy"
    return ""


def _one_sided(sampler: Any, trainer: Any, mask: Any, limit: float) -> str:
    above = float(((sampler - trainer)[mask] > -limit).double().mean())
    if above >= ONE_SIDED:
        return "the sampler is surer of nearly every token: it cuts its distribution (top_p, top_k, min_p) or cools it"
    return ""
