"""Gate: the loss falls on the completion and its end token, on all of them and on nothing else.

Looked at are the collated batches themselves, since that is what a trainer's version can change.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from reasoner.errors import TrainingError

IGNORED = -100
"""The label of a token that the loss leaves out."""


def check_batches(
    encoded: Sequence[Any],
    rows: Sequence[dict[str, Any]],
    collate: Callable[[list[dict[str, Any]]], Any],
    encoder: Any,
    batch_size: int,
) -> None:
    """Prove on the collated batches themselves that the loss sees what it must, and nothing else.

    Every row of every batch: the tokens before the mask are the prompt as generation tokenises it, all that
    follow are in the mask, the last of them is the end token, and padding is outside. `encoded` and `encoder` are
    `training.examples`' own. Raises `TrainingError`.
    """
    if len(rows) != len(encoded):
        raise TrainingError(f"The trainer holds {len(rows)} of {len(encoded)} records; none may be lost")
    for start in range(0, len(rows), batch_size):
        chosen = range(start, min(start + batch_size, len(rows)))
        batch = collate([dict(rows[i]) for i in chosen])
        columns = _records_of(batch)
        if len(columns[0]) != len(chosen):
            raise TrainingError(f"A batch of {len(chosen)} records holds {len(columns[0])}")
        for i, ids, labels, attended in zip(chosen, *columns, strict=True):
            problem = _fault(
                ids, labels, attended, encoder.prompt_ids(encoded[i].example.prompt), encoder.end_id
            )
            if problem:
                raise TrainingError(
                    f"Bad loss mask in record {encoded[i].example.problem_id}: {problem}; look at the chat template "
                    "and the versions of trl and transformers (reasoner doctor)"
                )


def _records_of(batch: Any) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Tokens, labels and attended positions of a collated batch, record by record, padded or packed."""
    ids, labels = batch["input_ids"].tolist(), batch["labels"].tolist()
    if "attention_mask" in batch:
        return ids, labels, batch["attention_mask"].tolist()
    starts = batch["cu_seq_lens_q"].tolist()
    places = [slice(a, b) for a, b in itertools.pairwise(starts)]
    positions = batch["position_ids"].tolist()[0]
    attended = [[int(p == i) for i, p in enumerate(positions[place])] for place in places]
    return [ids[0][place] for place in places], [labels[0][place] for place in places], attended


def _fault(
    ids: list[int], labels: list[int], attended: Iterable[int], prompt: list[int], end_id: int
) -> str | None:
    """What is wrong with one collated row, or None."""
    length = sum(attended)
    boundary = len(prompt)
    if all(label == IGNORED for label in labels):
        return "the mask is empty: no token would be learnt"
    if any(label != IGNORED for label in labels[length:]):
        return "padding is inside the mask"
    if ids[:boundary] != prompt:
        return "its prompt's tokens are not those that generation would see"
    if any(label != IGNORED for label in labels[:boundary]):
        return "a token of the prompt is inside the mask"
    if labels[boundary:length] != ids[boundary:length]:
        return "a token of the completion is outside the mask"
    if length <= boundary or labels[length - 1] != end_id:
        return "the end token is not the last token in the mask"
    return None
