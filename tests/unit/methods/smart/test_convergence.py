"""When another epoch follows and when not."""

import pytest

from reasoner.errors import DataError
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.convergence import Convergence, convergence
from tests.unit.methods.smart.build import COT, attempt, problem

N = 1000


def solving(share: float) -> list[Attempt]:
    right = round(share * N)
    return [attempt(problem(n), COT, "+" if n < right else "-") for n in range(N)]


@pytest.mark.parametrize(
    ("accuracies", "stop", "best"),
    [
        ([0.5], False, 1),
        ([0.5, 0.503], False, 2),
        ([0.5, 0.502], True, 2),
        ([0.5, 0.5], True, 1),
        ([0.5, 0.4], True, 1),
        ([0.5, 0.6, 0.7], False, 3),
        ([0.5, 0.6, 0.6], True, 2),
        ([0.5, 0.4, 0.45], True, 1),
        ([0.5, 0.6, 0.7, 0.8], True, 4),
    ],
)
def test_it_stops_where_nothing_is_gained_and_at_the_maximum(
    accuracies: list[float], stop: bool, best: int
) -> None:
    found = convergence([solving(share) for share in accuracies], 0.003, 4)
    assert (found.stop, found.best) == (stop, best)
    assert [e.value for e in found.accuracy] == accuracies
    assert Convergence.from_row(found.to_row()) == found


def test_it_says_why() -> None:
    assert "converged: 0.500, 0.501; epoch 2" in convergence([solving(0.5), solving(0.501)], 0.003, 4).reason
    assert "not converged" in convergence([solving(0.5), solving(0.6)], 0.003, 2).reason
    assert convergence([solving(0.5)], 0.003, 1).stop, "a maximum of one is one"


def test_without_scored_answers_there_is_nothing_to_go_by() -> None:
    for nothing in ([], [attempt(problem(), COT, "?")]):
        with pytest.raises(DataError, match=r"data\.validation"):
            convergence([nothing], 0.003, 4)
