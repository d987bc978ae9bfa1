"""The machines of the group `compute` that have several cards: what they set, and what they leave as it was."""

import pytest

from reasoner.config.compose import load
from reasoner.config.planner import PlannerConfig
from reasoner.config.smart import SmartConfig


@pytest.mark.parametrize("cards", [2, 4, 8])
@pytest.mark.parametrize("sharding", ["ddp", "fsdp", "deepspeed"])
def test_several_cards_leave_the_effective_batch(sharding: str, cards: int) -> None:
    one = load("smart-epoch2", ["compute=gpu80gb"], SmartConfig)
    many = load("smart-epoch2", [f"compute={sharding}{cards}"], SmartConfig)
    assert (many.compute.processes, many.compute.sharding, many.compute.engines) == (cards, sharding, cards)
    assert many.train_for(1) == one.train_for(1) and many.train_for(2) == one.train_for(2)
    same = {"processes": 1, "sharding": "ddp", "engines": 1}
    assert many.compute.model_copy(update=same) == one.compute
    assert many.engine == one.engine
    whole = many.train_for(1).batch_size * many.train_for(1).grad_accum
    assert whole % cards == 0


def test_the_planner_takes_them_too() -> None:
    assert load("planner-sft", ["compute.processes=2"], PlannerConfig).compute.processes == 2
