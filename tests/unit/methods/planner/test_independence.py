"""Independence by formula and by the real sentence embedder.

Wrong if identical sub-problems are independent, if the clipped value leaves [0, 1], or if the packaged model
is not used.
"""

import importlib.util
import math
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoner.errors import ModelError
from reasoner.methods.planner.independence import PACKAGE, THREADS, SentenceEmbedder, independence
from reasoner.methods.planner.pipeline import PipelineExecutor
from tests.unit.methods.planner.world import Script, worker


def unit(angle: float) -> list[float]:
    return [math.cos(angle), math.sin(angle)]


def test_the_formula() -> None:
    assert independence([unit(0.3)] * 3) == pytest.approx(0)
    assert independence([unit(0), unit(math.pi / 2)]) == pytest.approx(1)
    assert (
        independence([unit(0), unit(math.pi)]) == 1
        and independence([unit(0), unit(math.pi)], clip=False) == 2
    )
    assert independence([unit(0), unit(0), unit(math.pi / 2)]) == pytest.approx(1 - 1 / 3)
    assert independence([]) == independence([unit(1)]) == 0.5


@given(st.lists(st.floats(0, 7), min_size=2, max_size=6))
def test_clipped_is_in_the_unit_interval(angles: list[float]) -> None:
    assert 0 <= independence([unit(a) for a in angles]) <= 1


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"the package {PACKAGE}, which holds all-MiniLM-L6-v2, is not installed")
    return SentenceEmbedder()


def test_the_real_embedder(embedder: SentenceEmbedder) -> None:
    executor = PipelineExecutor(worker(Script(str)), embedder)
    same = executor.compute_independence(["Find the cost of the pens"] * 2)
    near = executor.compute_independence(["Find the cost of the pens", "Compute the price of the pens"])
    far = executor.compute_independence(["Find the cost of the pens", "How far did the train travel?"])
    assert same == pytest.approx(0, abs=1e-6) and 0 < near < 0.5 < far <= 1
    assert executor.compute_independence(["one"]) == 0.5
    assert len(embedder(["a text"])[0]) == 384 and sum(
        x * x for x in embedder(["a text"])[0]
    ) == pytest.approx(1)


def test_a_steps_plans_are_embedded_in_one_call_and_nothing_is_kept(embedder: SentenceEmbedder) -> None:
    """A resumed training must embed in the batches of one that was not interrupted."""
    calls: list[list[str]] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        calls.append(list(texts))
        return embedder(texts)

    plans = [("the pens", "the train"), (), ("alone",), ("the train", "the pens", "the cost of pens")]
    executor = PipelineExecutor(worker(Script(str)), embed)
    found = executor.compute_independences(plans)
    assert calls == [[*plans[0], *plans[3]]]
    assert found == pytest.approx([executor.compute_independence(plan) for plan in plans], abs=1e-6)
    assert found[1] == found[2] == 0.5 and 0 < found[0] <= 1
    assert not any(isinstance(held, dict | list) and held for held in vars(embedder).values())


MANY_CORES = """
import torch
from reasoner.methods.planner.independence import SentenceEmbedder

embedder, threads = SentenceEmbedder(), []
model = embedder._load()
encode = model.encode
model.encode = lambda *a, **k: threads.append(torch.get_num_threads()) or encode(*a, **k)
torch.set_num_threads(16)
embedder(["the pens"])
print(*threads, torch.get_num_threads())
"""


@pytest.mark.usefixtures("embedder")  # which skips where it is missing
def test_many_cores_are_left_to_others() -> None:
    """In a process of its own: an engine that was in this one may have decided on the threads of all."""
    done = subprocess.run([sys.executable, "-c", MANY_CORES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(THREADS), "16"]


def test_a_missing_embedder_is_told_in_a_line(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelError, match=r"can't be loaded.*reward.embedder"):
        SentenceEmbedder(str(tmp_path / "none"))(["x"])
