"""Out of memory: smaller pieces, the same gradient; and what time is counted."""

import time
from typing import Any

import pytest
import torch

from reasoner.errors import TrainingError
from reasoner.onpolicy.memory import MicroBatches
from reasoner.onpolicy.parts import Parts

ROWS = [1.0, 2.0, 3.0, 5.0, 7.0]


def gradient(size: int, room: int) -> tuple[float, MicroBatches, int]:
    """d/dw of mean(w·x²) over ROWS, on a device that holds `room` rows; a failure leaves half a gradient behind."""
    weight, calls = torch.tensor(2.0, requires_grad=True), [0]

    def backward(rows: Any, share: float) -> None:
        calls[0] += 1
        loss = share * (weight * torch.tensor(list(rows)) ** 2).mean()
        loss.backward()
        if len(rows) > room:
            raise torch.OutOfMemoryError("full")

    def reset() -> None:
        weight.grad = None

    batches = MicroBatches(size, log=lambda line: None)
    batches.accumulate(ROWS, backward, reset)
    assert weight.grad is not None
    return float(weight.grad), batches, calls[0]


def test_the_gradient_does_not_depend_on_the_pieces() -> None:
    whole, _, calls = gradient(8, room=8)
    assert calls == 1 and whole == pytest.approx(sum(x * x for x in ROWS) / 5)
    halved, batches, _ = gradient(8, room=2)
    assert halved == pytest.approx(whole)
    assert (batches.size, batches.halvings) == (2, 2)


def test_one_row_that_does_not_fit_ends_the_run() -> None:
    with pytest.raises(TrainingError, match="one sequence a micro-step"):
        gradient(4, room=0)


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
