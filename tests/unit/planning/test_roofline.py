"""The estimates' arithmetic.

Wrong if a published figure of the roofline table is missed, if more work or a smaller share takes less time, or if an
architecture's weights differ from those of a real model's files.
"""

import json
from pathlib import Path

import pytest

from reasoner.config.smart import ModelConfig
from reasoner.config.training import LoraConfig
from reasoner.errors import ModelError, UsageError
from reasoner.planning import device, roofline
from reasoner.planning.architecture import KNOWN, Architecture, architecture_of
from reasoner.training.runtime import count_weights
from tests.support.tiny_llama import make_model

H100 = device.find("h100")
TABLE = {  # weights in GB, bytes of cache a token, decode at B=1 and B=64, prefill at 50 %, LoRA at 40 %, one H100
    "smollm2-135m": (0.27, 23_040, None, 123e3, 1.84e6, 735e3),
    "qwen2.5-0.5b": (0.99, 12_288, None, 121e3, 500e3, 200e3),
    "qwen2.5-1.5b": (3.08, 28_672, 1080, 44e3, 161e3, 64e3),
    "llama-3.1-8b": (16.1, 131_072, 207, 8.8e3, 31e3, 12.3e3),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_published_limits_of_one_h100(name: str) -> None:
    arch, (size, cache, alone, many, prefill, lora) = KNOWN[name], TABLE[name]
    assert 2 * arch.weights / 1e9 == pytest.approx(size, rel=0.03)
    assert 2 * arch.cache_numbers == cache
    for batch, rate in ((1, alone), (64, many)):
        if rate is not None and 1 / rate * batch > 2 * H100.step_floor:
            step = roofline.decode_step(arch, H100, batch, 1000, "bfloat16", 1.0)
            assert batch / step == pytest.approx(rate, rel=0.06)
    assert 1e6 / roofline.prefill(arch, H100, 1e6, 0.5) == pytest.approx(prefill, rel=0.1)
    seconds = roofline.training(arch, H100, tokens=1e6, seen_only=0, recompute=False, share=0.4)
    assert 1e6 / seconds == pytest.approx(lora, rel=0.1)


def test_a_small_model_alone_is_bound_by_its_launches() -> None:
    assert roofline.decode_step(KNOWN["smollm2-135m"], H100, 1, 100, "bfloat16", 1.0) == H100.step_floor


def test_more_work_and_a_smaller_share_take_longer() -> None:
    arch, cpu = KNOWN["qwen2.5-0.5b"], device.find("cpu")

    def seconds(sequences: int = 64, tokens: int = 50, batch: int = 32, share: float = 0.5) -> float:
        return roofline.decode(
            arch, cpu, sequences=sequences, tokens=tokens, context=100, batch=batch, dtype="float32", share=share
        )  # fmt: skip

    plain = seconds()
    assert seconds(sequences=128) > plain and seconds(tokens=100) > plain and seconds(share=0.25) > plain
    assert seconds(batch=8) >= plain and seconds(sequences=0) == 0 == seconds(tokens=0)
    both = [
        roofline.training(arch, cpu, tokens=1e4, seen_only=0, recompute=r, share=0.4) for r in (True, False)
    ]
    assert both[0] == pytest.approx(1.5 * both[1])


def test_an_architecture_counts_the_weights_of_a_real_model(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "tiny")
    arch = architecture_of(ModelConfig(path=str(folder)), tmp_path)
    norms = (2 * arch.layers + 1) * arch.hidden
    assert arch.weights + norms == count_weights(folder)


def test_an_adapter_counts_its_weights() -> None:
    arch, lora = KNOWN["qwen2.5-0.5b"], LoraConfig(r=8, modules=("q_proj", "down_proj"))
    query, down = 896 + 14 * 64, 4864 + 896
    assert arch.lora_weights(lora) == 24 * 8 * (query + down)


def test_a_model_is_known_by_its_folder_by_its_name_or_not_at_all(tmp_path: Path) -> None:
    assert architecture_of(ModelConfig(path="Qwen/Qwen2.5-Coder-1.5B-Instruct"), tmp_path).hidden == 1536
    with pytest.raises(ModelError, match="fetch it first"):
        architecture_of(ModelConfig(path="nobody/knows-this"), tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps({"vocab_size": 3}))
    with pytest.raises(ModelError, match="does not describe a decoder"):
        architecture_of(ModelConfig(path=str(tmp_path / "m")), tmp_path)
    converted = tmp_path / "models" / "Some.Q4-abc"
    converted.mkdir(parents=True)
    row = {
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 5,
    }
    (converted / "config.json").write_text(json.dumps(row))
    found = architecture_of(ModelConfig(path="package:some_pack/Some.Q4.gguf"), tmp_path)
    assert found == Architecture(1, 8, 2, 2, 4, 16, 5, False)


def test_devices_are_found_by_name_and_by_their_drivers_name() -> None:
    assert device.find("4090").bandwidth == 1.008e12
    for text, name in {
        "NVIDIA A100-SXM4-80GB": "a100", "NVIDIA GeForce RTX 4090": "4090", "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA L4": "l4",
    }.items():  # fmt: skip
        card = device.card_named(text)
        assert card is not None and card.name == name
    assert device.card_named("Tesla T4") is None
    with pytest.raises(UsageError, match="there are: cpu"):
        device.find("h1000")
