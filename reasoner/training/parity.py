"""Whether a merged model says what base and adapter said together (METHODS 4.7).

Everything is computed in float32 arithmetic, one model in memory at a time, on the same token sequences: each
prompt and the greedy continuation that base and adapter give it. Looked at are the positions that choose a
token (the prompt's last and each of the continuation but its last), over the whole vocabulary.

Two questions are kept apart, because weights in bfloat16 cannot hold W + BA exactly:

* Is the merge right? Logits of base + adapter against those of the merged weights before they are rounded:
  the largest absolute difference must stay below 5e-2. Observed for SmolLM2-135M: about 1e-4 (a wrong merge:
  above 1).
* Does rounding do harm? The saved model, read back from the disk, must choose the same token at 95 % of the
  positions. Its largest logit difference is reported, not judged: for the same model it was 1.6 of logits up
  to 43, where bfloat16 arithmetic alone, the weights unchanged, differs from float32 by 1.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.errors import TrainingError

MIN_PROMPTS = 5


@dataclass(frozen=True)
class Sequences:
    """Tokens of each prompt with its greedy continuation, and where the continuation begins."""

    ids: tuple[tuple[int, ...], ...]
    prompt_lengths: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """Two models on the same positions: `positions` of them, logit differences absolute, in natural units."""

    positions: int
    max_difference: float
    mean_difference: float
    same_token: float
    """Share of the positions where both have the same most likely token."""


def greedy_sequences(
    model: Any, prompts: Sequence[Sequence[int]], max_tokens: int, end: set[int]
) -> Sequences:
    """Continue each prompt greedily with `model`, up to `max_tokens` tokens or an end token."""
    import torch

    ids = []
    for prompt in prompts:
        given = torch.tensor([list(prompt)], device=model.device)
        made = model.generate(
            input_ids=given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            num_beams=1,
            max_new_tokens=max_tokens,
            eos_token_id=sorted(end),
            pad_token_id=min(end),
        )
        ids.append(tuple(made[0].tolist()))
    return Sequences(tuple(ids), tuple(len(prompt) for prompt in prompts))


def choosing_logits(model: Any, sequences: Sequences) -> list[Any]:
    """A sequence's logits that choose its continuation: float32 [positions, vocabulary], on the CPU."""
    import torch

    found = []
    for ids, length in zip(sequences.ids, sequences.prompt_lengths, strict=True):
        with torch.no_grad():
            output = model(
                input_ids=torch.tensor([ids[:-1]], device=model.device),
                use_cache=False,
                logits_to_keep=len(ids) - length,
            )
        found.append(output.logits[0].float().cpu())
    return found


def compare(reference: Sequence[Any], other: Sequence[Any]) -> Comparison:
    """Compare logits of two models at the same positions. Raises `TrainingError` if one is not finite."""
    positions, same, total, largest, count = 0, 0, 0.0, 0.0, 0
    for a, b in zip(reference, other, strict=True):
        difference = (a - b).abs()
        if not bool(difference.isfinite().all()):
            raise TrainingError(
                "A logit is not finite; the adapter or the base holds infinite or NaN weights"
            )
        largest = max(largest, float(difference.max()))
        total += float(difference.double().sum())
        count += difference.numel()
        positions += a.shape[0]
        same += int((a.argmax(-1) == b.argmax(-1)).sum())
    return Comparison(positions, largest, total / count, same / positions)
