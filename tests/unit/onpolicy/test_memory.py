"""Out of memory: smaller pieces, the same gradient; and what time is counted."""

import time
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reasoner.errors import TrainingError
from reasoner.onpolicy.memory import WITHOUT_GRADIENT, MicroBatches
from reasoner.onpolicy.parts import Parts
from reasoner.training.multiturn.batching import longest_first

ROWS = [1.0, 2.0, 3.0, 5.0, 7.0]


def gradient(size: int, room: int, tokens: int | None = None) -> tuple[float, MicroBatches, int]:
    """d/dw of mean(w·x²) over ROWS, each a token long, on a device that holds `room` rows; a failure leaves half a
    gradient behind."""
    weight, calls = torch.tensor(2.0, requires_grad=True), [0]

    def backward(rows: Any, share: float) -> None:
        calls[0] += 1
        loss = share * (weight * torch.tensor([ROWS[i] for i in rows]) ** 2).mean()
        loss.backward()
        if len(rows) > room:
            raise torch.OutOfMemoryError("full")

    def reset() -> None:
        weight.grad = None

    batches = MicroBatches(size, lambda line: None, tokens)
    batches.accumulate(range(5), [1] * 5, backward, reset)
    assert weight.grad is not None
    return float(weight.grad), batches, calls[0]


def test_the_gradient_does_not_depend_on_the_pieces() -> None:
    whole, _, calls = gradient(8, room=8)
    assert calls == 1 and whole == pytest.approx(sum(x * x for x in ROWS) / 5)
    halved, batches, _ = gradient(8, room=2)
    assert halved == pytest.approx(whole)
    assert (batches.size, batches.halvings) == (2, 2)
    by_tokens, batches, _ = gradient(1, room=2, tokens=5)
    assert by_tokens == pytest.approx(whole)
    assert (batches.tokens, batches.tokens_without_gradient, batches.size) == (2, 20, 1)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 200), st.booleans(), st.booleans()
)
def test_no_piece_has_more_tokens_than_it_may_but_one_of_a_single_row(
    lengths: list[int], tokens: int, ordered: bool, with_gradient: bool
) -> None:
    """And none could have taken the next row, so that pieces are as few as they can be in this order."""
    rows = longest_first(range(len(lengths)), lengths) if ordered else list(range(len(lengths)))
    room = tokens if with_gradient else WITHOUT_GRADIENT * tokens
    pieces = MicroBatches(3, tokens=tokens).pieces(rows, lengths, with_gradient)
    assert [row for piece in pieces for row in piece] == rows

    def padded(piece: list[int]) -> int:
        return len(piece) * max(lengths[row] for row in piece)

    assert all(len(piece) == 1 or padded(piece) <= room for piece in pieces)
    assert all(padded([*piece, after[0]]) > room for piece, after in pairwise(pieces))


def test_without_tokens_a_piece_has_so_many_rows() -> None:
    for with_gradient in (True, False):
        assert MicroBatches(2).pieces([4, 1, 3], [9] * 5, with_gradient) == [[4, 1], [3]]


def test_a_pass_without_gradient_is_halved_apart_and_begun_anew() -> None:
    said: list[str] = []
    batches, sizes = MicroBatches(1, said.append, tokens=2), []

    def seen(rows: Any, share: float) -> list[int]:
        sizes.append(len(rows))
        if len(rows) > 4:
            raise torch.OutOfMemoryError("full")
        return list(rows)

    found = batches.accumulate(range(10), [1] * 10, seen, lambda: None, gradient=False)
    assert [row for piece in found for row in piece] == list(range(10)) and sizes == [8, 4, 4, 2]
    assert (batches.tokens, batches.tokens_without_gradient, batches.halvings) == (2, 4, 1)
    assert said == ["out of memory: the micro-batch is now of 4 tokens where there is no gradient"]


def test_one_row_that_does_not_fit_ends_the_run() -> None:
    with pytest.raises(TrainingError, match="one sequence a micro-step"):
        gradient(4, room=0)
    with pytest.raises(TrainingError, match="one sequence a micro-step"):
        gradient(4, room=0, tokens=3)


def test_a_single_row_that_is_left_over_is_tried_again_behind_smaller_pieces() -> None:
    """The last piece of three rows is one row: it fails beside what the others have left, not by its own size."""
    failed: list[list[int]] = []

    def compute(rows: Any, share: float) -> int:
        if list(rows) == [2] and not failed:
            failed.append(list(rows))
            raise torch.OutOfMemoryError("full")
        return len(rows)

    assert MicroBatches(2, lambda line: None).accumulate(range(3), [3, 2, 1], compute, lambda: None) == [
        1,
        1,
        1,
    ]


def test_parts_add_up_and_start_anew() -> None:
    waits: list[None] = []
    parts = Parts(lambda: waits.append(None))
    for _ in range(2):
        with parts.part("generate"):
            time.sleep(0.01)
    with pytest.raises(RuntimeError), parts.part("sync"):
        raise RuntimeError
    taken = parts.take()
    assert taken["generate"] >= 0.02 and set(taken) == {"generate", "sync"}
    assert len(waits) == 7 and parts.take() == {}
