"""The generated card: figures with intervals, hashes, commands; nothing is claimed that was not measured."""

import pytest
import yaml

from reasoner.hub.card import CardFacts, planner_card
from tests.unit.methods.planner.test_evaluation import measured

TRAINING = {
    "method": "grpo", "steps": 100, "seed": 3, "prompts": {"name": "planner", "hash": "cafe"},
    "grpo": {"lr": 1e-5, "batch_size": 8, "grad_accum": 8, "num_generations": 8, "temperature": 1.0, "loss": "dapo",
             "lora": {"r": 16, "alpha": 32}},
    "reward": {"mode": "gated"},
}  # fmt: skip


def header(card: str) -> dict:
    return yaml.safe_load(card.split("---")[1])


def test_figures_intervals_hashes_and_commands() -> None:
    found = measured([True] * 100)
    card = planner_card(
        CardFacts("me/planner", "org/base", digests={"manifest of the model": "d" * 64}, training=TRAINING,
                  parity={"prompts": 8, "merged_float32": {"max_difference": 1e-4}, "saved": {"same_token": 0.98}},
                  evaluations=(found,), commands=("reasoner run planner-grpo",), versions={"trl": "1.16.0"})
    )  # fmt: skip
    meta = header(card)
    assert meta["base_model"] == "org/base" and "grpo" in meta["tags"]
    assert meta["model-index"][0]["results"][0]["metrics"][0]["value"] == 1.0
    assert found.sentence in card and "(a) trained planner" in card and "0.963–1.000" in card
    assert "d" * 64 in card and "    reasoner run planner-grpo" in card and "- trl 1.16.0" in card
    assert "completions a step: 64" in card and "98.0 %" in card


@pytest.mark.parametrize("base", ["./a-folder", "/data/model", "~/model", "org/base merged 0123456789abcdef"])
def test_without_an_evaluation_nothing_is_claimed(base: str) -> None:
    card = planner_card(CardFacts("me/planner", base, kind="adapter"))
    assert (
        "nothing is claimed" in card
        and "base_model" not in header(card)
        and "model-index" not in header(card)
    )
    assert header(card)["library_name"] == "peft"


def test_a_name_cannot_break_the_page() -> None:
    card = planner_card(CardFacts("me/a|b`<x>", "org/base"))
    assert "<x>" not in card.split("---")[2]
