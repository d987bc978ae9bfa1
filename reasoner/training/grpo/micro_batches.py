"""Micro-batches of a GRPO step that compute no more than the step needs.

TRL pads every completion of a step to the longest prompt and the longest completion of all, and computes those, too,
whose advantage is 0 and which therefore move nothing: groups that are all right, all wrong, or without a reward. Here
each micro-batch is cut to what its own rows fill, rows of like length come together, the widest first, and rows that
move nothing are left out: a micro-batch of such rows has one of them, since the trainer and the processes beside it
count micro-batches.

The gradient is that of TRL's own micro-batches, but for rounding and for what dropout draws. `dapo` divides by the
tokens of the whole step, `grpo` and `dr_grpo` by the rows of a micro-batch, so that each which moves something stays
full. `bnpo` divides by the tokens of a micro-batch: its rows stay where they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Mapping[str, Any]
"""Tensors by TRL's names, rows in the first dimension; numbers that belong to the whole step have none."""
ANY_ORDER = ("dapo", "grpo", "dr_grpo")
PROMPT = ("prompt_ids", "prompt_mask")


def needed(batches: Sequence[Rows]) -> int:
    """How many micro-batches the rows fill that move something."""
    size = len(batches[0]["advantages"])
    return -(-sum(int((batch["advantages"] != 0).sum()) for batch in batches) // size)


def regrouped(batches: Sequence[Rows], loss: str, full: int | None = None) -> list[dict[str, Any]]:
    """As many micro-batches of the same rows, of which `full` ones (at least `needed`) have all of theirs.

    Unset is all of them, for a loss in which rows without an advantage count, too, as they do in the KL of `beta`. The
    processes of a training must give the same number: TRL gathers a number a row.
    """
    import torch

    if loss not in ANY_ORDER:
        return [cut(batch) for batch in batches]
    size = len(batches[0]["advantages"])
    whole = {
        name: torch.cat([b[name] for b in batches]) if _has_rows(v) else v for name, v in batches[0].items()
    }
    lengths = whole["prompt_mask"].sum(1) + whole["completion_mask"].sum(1)
    order = torch.argsort(lengths, descending=True, stable=True)
    if full is not None:
        moves = whole["advantages"][order] != 0
        # The shortest fill up the last micro-batch that moves something.
        order = torch.cat([order[moves], order[~moves].flip(0)])
    groups = list(order.split(size))
    if full is not None:
        groups = groups[:full] + [rows[:1] for rows in groups[full:]]
    made = [cut({name: v[rows] if _has_rows(v) else v for name, v in whole.items()}) for rows in groups]
    return sorted(made[:full], key=_width, reverse=True) + made[len(made[:full]) :]


def shares(batches: Sequence[Rows], full: int | None = None) -> Any:
    """Tokens of each micro-batch that counts in a mean over the step, (batches,): all, or the `full` ones if any."""
    import torch

    tokens = torch.stack([batch["completion_mask"].sum() for batch in batches]).float()
    if full:
        tokens[full:] = 0.0
    return tokens


def cut(rows: Rows) -> dict[str, Any]:
    """Without the columns that are padding in every row: prompts are padded on the left, completions on the right."""
    started, width = int(rows["prompt_mask"].any(0).int().argmax()), rows["completion_mask"].shape[1]
    ended = max(1, int(rows["completion_mask"].sum(1).max()))
    found = {}
    for name, value in rows.items():
        if name in PROMPT:
            found[name] = value[:, started:]
        elif getattr(value, "ndim", 0) == 2 and value.shape[1] == width:
            found[name] = value[:, :ended]
        else:
            found[name] = value
    return found


def _width(rows: Rows) -> int:
    return int(rows["prompt_ids"].shape[1] + rows["completion_ids"].shape[1])


def _has_rows(value: Any) -> bool:
    return getattr(value, "ndim", 0) > 0
