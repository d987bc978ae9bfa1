"""Memory, disk, and what would fit.

Wrong if settings that are named do not fit by the same count, if something cheaper would have, or if a plan that fits
is refused.
"""

import shutil
from pathlib import Path

import pytest

from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.config.training import LoraConfig
from reasoner.planning import device, fit, memory
from reasoner.planning.architecture import KNOWN
from reasoner.planning.device import GIB
from reasoner.planning.memory import TrainingShape

LORA, LARGE = LoraConfig(), KNOWN["meta-llama-3-8b"]


def shape(batch: int = 4, **changes: object) -> TrainingShape:
    return TrainingShape(**{"batch": batch, "length": 1024, "recompute": False, "weights": "bfloat16",
                            "compute": "bfloat16", **changes})  # type: ignore[arg-type]  # fmt: skip


def test_every_way_to_need_less_needs_less() -> None:
    plain = memory.training(LARGE, shape(), LORA, True).device
    for smaller in (shape(2), shape(recompute=True), shape(weights="nf4"), shape(length=512)):
        assert memory.training(LARGE, smaller, LORA, True).device < plain
    assert memory.training(LARGE, shape(), LORA, False).device == 0


def test_what_is_named_for_a_small_card_fits_it() -> None:
    card = device.find("4090")
    words = fit.training_remedy(LARGE, shape(), 4, LORA, card, 64 * GIB)
    assert words.startswith("compute.micro_batch=") or words.startswith("train.gradient_checkpointing=true")
    named = dict(word.split("=") for word in words.partition(" (or")[0].split())
    cut = shape(
        int(named.get("compute.micro_batch", 4)), recompute="train.gradient_checkpointing" in named,
        weights="nf4" if "train.nf4_above_gib" in named else "bfloat16",
    )  # fmt: skip
    assert memory.training(LARGE, cut, LORA, True).device <= card.memory
    assert "compute=gpu" in words


def test_the_cheapest_cut_is_named_first() -> None:
    need = memory.training(LARGE, shape(2), LORA, True).device
    card = device.Device("card", 1, 1, need, 0)
    assert fit.training_remedy(LARGE, shape(4), 4, LORA, card, 64 * GIB).startswith("compute.micro_batch=2")


def test_where_nothing_fits_that_is_said() -> None:
    card = device.Device("card", 1, 1, 2 * GIB, 0)
    assert "take a smaller model" in fit.training_remedy(LARGE, shape(), 4, LORA, card, 64 * GIB)


def test_the_named_settings_are_keys_of_a_configuration() -> None:
    words = ["compute.micro_batch=2", "train.gradient_checkpointing=true", "train.nf4_above_gib=0"]
    config = load("smart-epoch2", [*words, "compute=gpu24gb"], SmartConfig)
    assert config.train.gradient_checkpointing and config.train_for(1).batch_size == 2


@pytest.mark.parametrize("group", fit.compute_groups())
def test_compute_groups_are_read_as_a_run_reads_them(group: str) -> None:
    config = load("smart-epoch2", [f"compute={group}"], SmartConfig)
    cut = fit._of_group(group, shape(config.train.batch_size), config.train.grad_accum, LARGE)
    assert cut.batch == config.train_for(1).batch_size
    assert cut.recompute == config.train.gradient_checkpointing
    assert (cut.weights == "nf4") == (2 * LARGE.weights > config.train.nf4_above_gib * GIB)  # type: ignore[operator]


def test_an_engine_that_does_not_fit_its_share_is_more_than_the_card() -> None:
    card = device.find("l4").memory
    assert memory.serving(KNOWN["qwen2.5-0.5b"], "bfloat16", True, 4096, 0.85, card).device == int(
        0.85 * card
    )
    assert memory.serving(KNOWN["qwen2.5-1.5b"], "bfloat16", True, 4096, 0.1, card).device > card
    line = fit.memory_refusal("sample", card + 1, 0, device.find("l4"), GIB, "lower it")
    assert line.startswith("sample needs about") and line.endswith("lower it") and "\n" not in line


def test_what_fits_is_not_refused() -> None:
    cpu = device.find("cpu")
    assert fit.memory_refusal("train", 0, GIB, cpu, 2 * GIB, "") == ""
    assert "main memory" in fit.memory_refusal("train", 0, 3 * GIB, cpu, 2 * GIB, "smaller")


def test_the_disk_counts_where_the_home_will_be(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    assert fit.disk_refusal(1 << 20, tmp_path / "not" / "there" / "yet") == ""
    line = fit.disk_refusal(2 * free, tmp_path / "home")
    assert "REASONER_HOME" in line and str(tmp_path) in line and "\n" not in line
