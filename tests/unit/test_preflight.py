"""The gates before a training, each with what it must catch.

Each test fails without its gate: it gives the gate exactly the fault that the gate is there for, through the function
that the run calls, and looks at the line that says what to do.
"""

from pathlib import Path
from typing import Any

import pytest

from reasoner.config.training import TrainConfig
from reasoner.errors import InfrastructureError, ModelError, TrainingError
from reasoner.onpolicy.gate import Gate, OffPolicyError
from reasoner.preflight import room
from reasoner.preflight.check import examine
from reasoner.preflight.mask import IGNORED, check_batches
from reasoner.preflight.rewards import require_one_each
from reasoner.preflight.template import require_prefix, require_stop
from reasoner.prompts import ChatRenderer
from reasoner.records import TrainingExample
from reasoner.training import packing
from reasoner.training.examples import Encoder
from tests.support.tiny_llama import END, TEMPLATE, make_model, make_tokenizer

BASE = {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True}  # fmt: skip


def renderer(tmp_path: Path, template: str) -> ChatRenderer:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path)
    return ChatRenderer(tmp_path)


def test_a_prefix_preserving_template_passes(tmp_path: Path) -> None:
    require_prefix(renderer(tmp_path, TEMPLATE))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (TEMPLATE.replace("{{ m['content'] }}",
                          "{% if m['role'] == 'assistant' %}<t></t>{% endif %}{{ m['content'] }}"),
         "before the answer"),
        (TEMPLATE.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\nThink:{% endif %}"),
         "does not begin with its prompt"),
        ("{{ messages | length }}" + TEMPLATE, "does not begin with its prompt"),
        (TEMPLATE.replace("{{ m['content'] }}", "{% if m['role'] == 'assistant' and not loop.last %}…"
                          "{% else %}{{ m['content'] }}{% endif %}"), "a second question changes"),
    ],
)  # fmt: skip
def test_a_template_that_rewrites_what_it_has_shown_is_refused(
    tmp_path: Path, template: str, words: str
) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        require_prefix(renderer(tmp_path, template))
    assert "set a template for training" in str(caught.value)


def test_an_end_token_that_stops_nothing_is_refused() -> None:
    require_stop("m", END, 2, {2, 0})
    with pytest.raises(ModelError, match=r"does not stop generating.*eos_token_id"):
        require_stop("m", END, 2, {0})


def batches(spoil: Any = lambda batch: batch) -> None:
    tokenizer = make_tokenizer()
    encoder = Encoder(tokenizer, END, add_special_tokens=False)
    kept = encoder.encode_all([TrainingExample("p", "Ann has 3 pens.", f"The answer is 3.{END}")], 200).kept
    rows = [{"input_ids": list(e.input_ids), "labels": e.labels} for e in kept]

    def collate(chosen: list[dict[str, Any]]) -> Any:
        from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

        return spoil(DataCollatorForLanguageModeling(pad_token_id=encoder.end_id)(chosen))

    check_batches(kept, rows, collate, encoder, 1)


def empty(batch: Any) -> Any:
    batch["labels"][:] = IGNORED
    return batch


def without_end(batch: Any) -> Any:
    batch["labels"][0, -1] = IGNORED
    return batch


def with_prompt(batch: Any) -> Any:
    batch["labels"][0, 0] = batch["input_ids"][0, 0]
    return batch


def test_a_right_mask_passes() -> None:
    batches()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (empty, "the mask is empty"),
        (without_end, "outside the mask"),
        (with_prompt, "prompt is inside the mask"),
    ],
)
def test_a_wrong_mask_is_refused(spoil: Any, words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        batches(spoil)


def test_packing_without_a_kernel_is_refused() -> None:
    with pytest.raises(
        InfrastructureError, match=r"packing=on needs variable-length attention.*train\.packing=auto"
    ):
        packing.choose("on", "cpu", "fp32", BASE, lambda line: None)


@pytest.mark.parametrize(
    ("given", "words"),
    [([1.0], "1 rewards for 2"), ([1.0, 2.0, 3.0], "3 rewards for 2"), ([1.0, float("nan")], "completion 1"),
     ([float("inf"), 1.0], "completion 0"), (["1", 1.0], "completion 0")],
)  # fmt: skip
def test_rewards_that_are_not_one_each_are_refused(given: list[Any], words: str) -> None:
    require_one_each([None, 0.5], 2, "reward")
    with pytest.raises(TrainingError, match=words):
        require_one_each(given, 2, "reward")


def test_samples_of_another_policy_are_refused() -> None:
    with pytest.raises(OffPolicyError, match="step 0"):
        Gate("float32").check([[-1.0, -2.0]], [[-1.5, -2.5]])


def require(config: TrainConfig, folder: Path, free: int | None, longest: int = 200) -> None:
    room.require_room(BASE, config, longest=longest, nf4=False, device_bytes=free, folder=folder)


def test_a_card_with_too_little_memory_is_refused_with_what_fits(tmp_path: Path) -> None:
    config = TrainConfig(batch_size=8, grad_accum=1)
    require(config, tmp_path, 40 << 30)
    require(config, tmp_path, 3 << 29, 500)  # one record fits, and the run halves the micro-batch itself
    with pytest.raises(TrainingError, match=r"on the card.*(compute\.micro_batch=|take a smaller model)"):
        require(config, tmp_path, 1 << 29, 500)


def test_main_memory_and_disk_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(batch_size=64, grad_accum=1)
    monkeypatch.setattr(room, "host_memory", lambda: (64 << 30, 2 << 30))
    with pytest.raises(TrainingError, match=r"main memory.*compute\.micro_batch="):
        require(config, tmp_path, None, 500)
    require(replace_batch(config, 1), tmp_path, None, 500)
    few = room.fit.shutil.disk_usage(tmp_path)._replace(free=1 << 20)  # type: ignore[attr-defined]
    monkeypatch.setattr(room.fit.shutil, "disk_usage", lambda path: few)  # type: ignore[attr-defined]
    with pytest.raises(TrainingError, match="REASONER_HOME"):
        require(replace_batch(config, 1), tmp_path, None, 500)


def replace_batch(config: TrainConfig, size: int) -> TrainConfig:
    return config.model_copy(update={"batch_size": size})


def test_a_model_of_another_shape_is_not_counted(tmp_path: Path) -> None:
    room.require_room({"n_layer": 2}, TrainConfig(), longest=9, nf4=False, device_bytes=1, folder=tmp_path)


def test_all_gates_of_a_pipeline_are_tried_and_a_failed_one_is_a_line(tmp_path: Path) -> None:
    from reasoner.config.compose import load
    from reasoner.config.planner import PlannerConfig
    from reasoner.config.smart import SmartConfig

    folder = make_model(tmp_path / "model")
    words = [f"model.path={folder}", "engine=scripted", "engine.options.script=a:b"]
    config = load("smart-demo", [*words, "train.max_length=512"], SmartConfig)
    found = {f.gate: f for f in examine(config, folder, "cpu", [])}
    assert list(found) == ["memory and disk", "chat template", "loss mask", "packing"]
    assert all(f.passed for f in found.values()), found

    planner = load("planner-demo", [f"model.path={folder}", "grpo.gate=0.01"], PlannerConfig)
    found = {f.gate: f for f in examine(planner, folder, "cpu", ["no room"])}
    assert not found["memory and disk"].passed and found["one reward a completion"].passed
    assert "0.01 nats" in found["log-probability drift"].line

    packed = load("smart-demo", [*words, "train.packing=on", "train.max_length=8"], SmartConfig)
    failed = {f.gate: f.line for f in examine(packed, folder, "cpu", []) if not f.passed}
    assert set(failed) == {"packing", "loss mask"} and all("\n" not in line for line in failed.values())
    (missing,) = [f for f in examine(config, None, "cpu", []) if not f.passed]
    assert missing.gate == "base model"


def test_the_gate_that_is_tried_is_the_one_that_the_run_holds(tmp_path: Path) -> None:
    """A limit goes by the precision of engine and trainer, and of an adapter that has been trained before."""
    from reasoner.config.compose import load
    from reasoner.config.multiturn import MultiTurnConfig
    from reasoner.config.planner import PlannerConfig

    folder = make_model(tmp_path / "model")

    def told(name: str, kind: Any, *words: str) -> str:
        model = "policy_lm" if kind is MultiTurnConfig else "model.path"
        config = load(name, [f"{model}={folder}", "engine.dtype=float32", *words], kind)
        (found,) = [f for f in examine(config, folder, "cpu", []) if f.gate == "log-probability drift"]
        assert found.passed, found
        return found.line

    assert told("planner-demo", PlannerConfig, "sft.enabled=false").endswith("above 0.005 nats a token")
    assert told("planner-demo", PlannerConfig).endswith("above 0.05 nats a token")
    assert told("planner-demo", PlannerConfig, "grpo.warm_start=false").endswith("above 0.005 nats a token")
    assert told("mlmt-math", MultiTurnConfig).endswith("above 0.005 nats a token")
    assert told("mlmt-math", MultiTurnConfig, "precision=bf16").endswith("above 0.05 nats a token")
    assert told("mlmt-math", MultiTurnConfig, "max_logprob_difference=0.03").endswith(
        "above 0.03 nats a token"
    )
