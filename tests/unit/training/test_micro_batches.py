"""How the rows of a GRPO step come into micro-batches.

Wrong if a row that moves something is lost, doubled or changed, if padding is kept that every row has, or if two
processes disagree about the rows of a micro-batch, which hangs what they gather. (Gradients: test_active.py.)
"""

import random
from typing import Any

import pytest
import torch

from reasoner.training.grpo.micro_batches import needed, regrouped, shares


def step(seed: int, batches: int, size: int, moving: float) -> list[dict[str, Any]]:
    """Micro-batches as TRL makes them: prompts padded on the left, completions on the right, to the longest of all."""
    rng, count = random.Random(seed), batches * size
    lengths = [(rng.randint(2, 9), rng.randint(1, 30)) for _ in range(count)]
    widths = [max(pair[i] for pair in lengths) + 3 for i in (0, 1)]
    rows: dict[str, Any] = {
        "prompt_ids": torch.zeros(count, widths[0], dtype=torch.long),
        "prompt_mask": torch.zeros(count, widths[0], dtype=torch.long),
        "completion_ids": torch.zeros(count, widths[1], dtype=torch.long),
        "completion_mask": torch.zeros(count, widths[1], dtype=torch.long),
        "sampling_per_token_logps": torch.rand(
            count, widths[1], generator=torch.Generator().manual_seed(seed)
        ),
        "advantages": torch.tensor(
            [rng.uniform(-1, 1) if rng.random() < moving else 0.0 for _ in range(count)]
        ),
    }
    for row, (prompt, completion) in enumerate(lengths):
        rows["prompt_ids"][row, -prompt:] = torch.tensor([rng.randint(1, 99) for _ in range(prompt)])
        rows["prompt_mask"][row, -prompt:] = 1
        rows["completion_ids"][row, :completion] = torch.tensor(
            [rng.randint(1, 99) for _ in range(completion)]
        )
        rows["completion_mask"][row, :completion] = 1
    whole = torch.tensor(float(count))
    parts = [{name: value[i * size : (i + 1) * size] for name, value in rows.items()} for i in range(batches)]
    return [{**part, "num_items_in_batch": whole} for part in parts]


def contents(batches: list[dict[str, Any]], *, moving: bool) -> list[tuple[Any, ...]]:
    """What every row holds, without padding."""
    found = []
    for batch in batches:
        for row, advantage in enumerate(batch["advantages"].tolist()):
            prompt, completion = (batch[f"{name}_mask"][row].bool() for name in ("prompt", "completion"))
            if advantage or not moving:
                found.append((
                    tuple(batch["prompt_ids"][row][prompt].tolist()),
                    tuple(batch["completion_ids"][row][completion].tolist()),
                    tuple(batch["sampling_per_token_logps"][row][completion].tolist()), advantage,
                ))  # fmt: skip
    return sorted(found)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo", "bnpo"])
def test_every_row_that_moves_something_is_there_once_and_as_it_was(loss: str, seed: int) -> None:
    rng = random.Random(seed)
    given = step(seed, rng.randint(1, 5), rng.randint(1, 6), rng.choice([0.0, 0.3, 0.9, 1.0]))
    every = regrouped(given, loss)
    assert contents(every, moving=False) == contents(given, moving=False)
    some = regrouped(given, loss, needed(given))
    assert len(some) == len(given) and contents(some, moving=True) == contents(given, moving=True)
    for batch in (*every, *some):
        assert float(batch["num_items_in_batch"]) == len(given) * len(given[0]["advantages"])
        assert batch["prompt_mask"][:, 0].any() and batch["completion_mask"][:, -1].any(), (
            "no column of padding alone"
        )
        for name in ("completion_ids", "sampling_per_token_logps"):
            assert batch[name].shape == batch["completion_mask"].shape
    if loss != "bnpo":
        widths = [b["prompt_ids"].shape[1] + b["completion_ids"].shape[1] for b in every]
        assert widths == sorted(widths, reverse=True), (
            "a memory that is too small for a step is found at its begin"
        )
        assert [len(b["advantages"]) for b in some[needed(given) :]] == [1] * (len(given) - needed(given))


def test_two_processes_agree_about_the_rows_of_a_micro_batch() -> None:
    busy, idle = step(1, 6, 4, 0.8), step(2, 6, 4, 0.1)
    full = max(needed(busy), needed(idle))
    assert needed(idle) < full < 6
    rows = [[len(batch["advantages"]) for batch in regrouped(given, "dapo", full)] for given in (busy, idle)]
    assert rows[0] == rows[1] == [4] * full + [1] * (6 - full)
    assert contents(regrouped(idle, "dapo", full), moving=True) == contents(idle, moving=True)


def test_a_mean_over_a_step_counts_tokens() -> None:
    given = step(4, 4, 2, 0.4)
    tokens = [float(batch["completion_mask"].sum()) for batch in given]
    assert shares(given).tolist() == shares(given, 0).tolist() == tokens
    assert shares(given, 2).tolist() == [*tokens[:2], 0.0, 0.0]


def test_a_step_in_which_nothing_moves_needs_no_micro_batch() -> None:
    given = step(3, 3, 2, 0.0)
    assert needed(given) == 0
    assert [len(batch["advantages"]) for batch in regrouped(given, "dapo", 0)] == [1, 1, 1]
