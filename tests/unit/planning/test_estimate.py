"""What an estimate counts. Wrong if calculations are taken for prose, or a warm engine for a cold one."""

import pytest

from reasoner.config.smart import EngineConfig, PromptConfig, SmartGrpoConfig
from reasoner.planning import calibration, device, smart
from reasoner.planning.architecture import KNOWN
from reasoner.planning.calibration import SECONDS, Calibration, Speed
from reasoner.planning.estimate import Scene, Tokens
from reasoner.planning.roofline import ON_CPU, ON_CPU_BF16
from reasoner.prompts import load_exemplars
from reasoner.records import ArtifactRef, Strategy


def pieces(text: str) -> int:
    """How a byte-level tokenizer with single digits cuts a text before it joins anything: no token spans two pieces."""
    from tokenizers import pre_tokenizers

    cut = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])  # fmt: skip
    return len(cut.pre_tokenize_str(text))


@pytest.mark.parametrize("name", ["demo", "gsm"])
@pytest.mark.parametrize("strategy", [Strategy.COT, Strategy.SUB])
def test_without_a_tokenizer_calculations_are_counted_by_their_digits(name: str, strategy: Strategy) -> None:
    texts = [one.solution(strategy) or "" for one in load_exemplars(name).exemplars]
    counted = sum(map(Tokens(None).count, texts))
    assert counted == pytest.approx(sum(map(pieces, texts)), rel=0.15)
    assert sum(map(len, texts)) / 3.6 < 0.85 * counted, "letters would not do"


def scene(name: str) -> Scene:
    return Scene(Speed(device.find(name)), KNOWN["smollm2-135m"], Tokens(None), lambda ref: {}, 2, 1 << 34)


def models() -> list[ArtifactRef]:
    return [ArtifactRef("model", digit * 64, "") for digit in "123"]


def test_only_the_first_engine_reads_its_libraries_from_the_disk() -> None:
    first, second, third = models()
    engine, cpu = EngineConfig(kind="vllm"), scene("cpu")
    starts = [cpu.started(model, engine) for model in (first, first, second, third)]
    cold, warm = SECONDS["engine-vllm-cpu"], SECONDS["engine-vllm-cpu-again"]
    assert starts == [cold, 0.0, warm, warm] and warm < cold
    card, eager = scene("h100"), EngineConfig(kind="vllm", options={"enforce_eager": True})
    cold, warm = SECONDS["engine-vllm"], SECONDS["engine-vllm-again"]
    assert [card.started(model, eager) for model in (first, first, second)] == [
        cold,
        0.0,
        warm,
    ] and warm < cold


def test_a_card_s_engine_takes_longer_to_capture_graphs_and_to_compile() -> None:
    whole = {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL"}}
    engines = [EngineConfig(kind="vllm", options=o) for o in ({"enforce_eager": True}, whole, {})]
    eager, captured, compiled = (scene("h100").started(models()[0], engine) for engine in engines)
    assert (captured - eager, compiled - captured) == (SECONDS["graphs"], SECONDS["compilation"])


def test_a_measured_start_is_taken_as_it_is() -> None:
    """Its engine had the graphs of the configuration; wrong if they are counted once more."""
    h100, engine = device.find("h100"), EngineConfig(kind="vllm")
    measured = Calibration(h100, "2026-01-01T00:00", {}, seconds={"engine-vllm": 48.0})
    card = Scene(Speed.of(h100, measured), KNOWN["smollm2-135m"], Tokens(None), lambda ref: {}, 2, 1 << 34)
    assert card.started(models()[0], engine) == 48.0


@pytest.mark.parametrize("instructions", [True, False])
def test_bfloat16_is_fast_only_where_the_processor_has_it(
    instructions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "cpu_computes_bf16", lambda: instructions)
    speed = Speed(device.find("cpu"))
    wanted = ON_CPU_BF16 if instructions else ON_CPU
    assert speed.share("decode", "vllm", "bfloat16") == wanted.decode
    assert speed.share("decode", "vllm", "float32") == ON_CPU.decode


def test_on_policy_training_starts_its_engine_once() -> None:
    """Wrong if a hundred steps cost a hundred starts."""
    engine = EngineConfig(kind="vllm", options={"enforce_eager": True})
    h200 = Scene(
        Speed(device.find("h200")),
        KNOWN["qwen2.5-1.5b"],
        Tokens(None),
        lambda ref: {"splits": {}},
        16,
        1 << 40,
    )
    seconds = []
    for steps in (1, 101):
        h200.engine, h200.engines = "", 0
        config = SmartGrpoConfig(max_steps=steps, batch_size=16, grad_accum=4, max_completion_length=320)
        arguments = {"model": models()[0], "engine": engine, "grpo": config, "problems": models()[1]}
        seconds.append(smart.train_grpo(h200, {**arguments, "prompt": PromptConfig()}).seconds)
    assert (seconds[1] - seconds[0]) / 100 < 15 < SECONDS["engine-vllm"] < seconds[0]
