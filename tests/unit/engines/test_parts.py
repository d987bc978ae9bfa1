"""Options, adapters, seeds, prompts, wire and vLLM's arguments, without any model."""

import dataclasses
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoner.engines import vllm_settings
from reasoner.engines.adapters import check_adapter
from reasoner.engines.options import check_options
from reasoner.engines.prompts import encode_prompts
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.seeds import generation_seed
from reasoner.engines.wire import (
    LENGTH,
    Wire,
    completion_from_row,
    error_from_row,
    error_row,
    request_from_row,
)
from reasoner.errors import ConfigurationError, EngineError, ModelError, UsageError
from reasoner.records import Completion, GenerationRequest, Sampling

KNOWN = {"max_model_len", "gpu_memory_utilization", "block_size", "load_format", "seed", "max_loras"}


def asked(**more: Any) -> GenerationRequest:
    return GenerationRequest(more.pop("problem_id", "p"), more.pop("prompt", "text"), Sampling(), **more)


def test_a_mistyped_option_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r"'max_modellen'.*'max_model_len'"):
        check_options("vllm", {"max_modellen": 1}, KNOWN)
    with pytest.raises(ConfigurationError, match="it knows block_size"):
        check_options("vllm", {"qqqqqq": 1}, KNOWN)


def test_vllm_arguments_on_the_cpu_are_the_fast_ones_and_can_be_overridden() -> None:
    settings = EngineSettings("vllm", Path("m"), seed=7, options={"block_size": 64})
    arguments = vllm_settings.vllm_arguments(settings, True, KNOWN)
    assert (arguments["distributed_executor_backend"], arguments["enforce_eager"]) == ("uni", True)
    assert arguments["block_size"] == 64
    assert arguments["seed"] == 7
    assert arguments["trust_remote_code"] is False
    assert "enable_lora" not in arguments
    assert "enforce_eager" not in vllm_settings.vllm_arguments(settings, False, KNOWN)


@pytest.mark.parametrize(("rank", "served"), [(1, 8), (8, 8), (9, 16), (300, 320)])
def test_vllm_serves_the_next_rank_that_it_knows(rank: int, served: int) -> None:
    settings = EngineSettings("vllm", Path("m"), adapters=True, max_lora_rank=rank, options={"max_loras": 12})
    arguments = vllm_settings.vllm_arguments(settings, True, KNOWN)
    assert (arguments["enable_lora"], arguments["max_lora_rank"], arguments["max_cpu_loras"]) == (
        True,
        served,
        12,
    )


@pytest.mark.parametrize(
    ("options", "rank", "words"),
    [
        ({"seed": 1}, 8, "not an option"),
        ({"load_format": "pt"}, 8, "load_format must be one of safetensors"),
        ({"blocksize": 1}, 8, "nearest is 'block_size'"),
        ({}, 1000, "ranks up to 512"),
    ],
)
def test_bad_vllm_options(options: dict[str, Any], rank: int, words: str) -> None:
    settings = EngineSettings("vllm", Path("m"), adapters=True, max_lora_rank=rank, options=options)
    with pytest.raises(ConfigurationError, match=words):
        vllm_settings.vllm_arguments(settings, True, KNOWN)


def test_the_environment_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "3")
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "TORCHDYNAMO_DISABLE", "VLLM_NO_USAGE_STATS"):
        monkeypatch.setenv(name, "x")  # so that monkeypatch takes them back
        monkeypatch.delenv(name)
    vllm_settings.set_environment(cpu=True)
    assert vllm_settings.os.environ["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert vllm_settings.os.environ["TORCHDYNAMO_DISABLE"] == "1"


def adapter(folder: Path, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, **config}))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


def test_adapter_folders(tmp_path: Path) -> None:
    good = adapter(tmp_path / "good", rank_pattern={"q_proj": 12})
    assert check_adapter("a", good, 16, enabled=True).rank == 12
    with pytest.raises(UsageError, match="adapters=True"):
        check_adapter("a", good, 16, enabled=False)
    with pytest.raises(UsageError, match="needs a name"):
        check_adapter("", good, 16, enabled=True)
    with pytest.raises(ModelError, match="rank 12; start the engine with max_lora_rank=12"):
        check_adapter("a", good, 8, enabled=True)
    with pytest.raises(ModelError, match="type IA3"):
        check_adapter("a", adapter(tmp_path / "ia3", peft_type="IA3"), 8, enabled=True)
    with pytest.raises(ModelError, match="not readable"):
        check_adapter("a", adapter(tmp_path / "odd", r=None), 8, enabled=True)
    (good / "adapter_model.safetensors").rename(good / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"no adapter_model\.safetensors"):
        check_adapter("a", good, 16, enabled=True)


def test_the_stream_depends_on_everything_that_is_asked() -> None:
    base = generation_seed(0, [asked()])
    others = [
        generation_seed(1, [asked()]),
        generation_seed(0, [asked(index=4)]),
        generation_seed(0, [asked(seed=1)]),
        generation_seed(0, [asked(adapter="a")]),
        generation_seed(0, [asked(prompt="other")]),
        generation_seed(0, [asked(problem_id="q")]),
        generation_seed(0, [asked(), asked(index=1)]),
    ]
    assert base == generation_seed(0, [asked()])
    assert 0 <= base < 2**31 - 1
    assert len({base, *others}) == len(others) + 1


def words(texts: list[str], *, add_special_tokens: bool, **_: Any) -> dict[str, list[list[int]]]:
    """A tokenizer: a token a word, token 1 in front where special tokens are added."""
    return {"input_ids": [[1] * add_special_tokens + [len(w) for w in t.split()] for t in texts]}


def test_prompts_are_encoded_once_and_checked() -> None:
    calls = []

    def counted(texts: list[str], **options: Any) -> Any:
        calls.append(texts)
        return words(texts, **options)

    requests = [
        asked(prompt="a bb"),
        asked(prompt="a bb", index=1),
        asked(prompt="a bb", add_special_tokens=False),
    ]
    encoded = encode_prompts(counted, requests, max_model_len=4)
    assert [list(ids) for ids in encoded] == [[1, 1, 2], [1, 1, 2], [1, 2]]
    assert calls == [["a bb"], ["a bb"]]
    with pytest.raises(EngineError, match=r"problem long: the prompt has 4 tokens.*max_model_len"):
        encode_prompts(counted, [asked(), asked(problem_id="long", prompt="a b c")], max_model_len=4)
    with pytest.raises(EngineError, match="no tokens"):
        encode_prompts(counted, [asked(prompt="", add_special_tokens=False)], max_model_len=4)


@given(
    text=st.text(),
    stop=st.lists(st.text(), max_size=3),
    logprobs=st.lists(st.floats(allow_nan=False), max_size=4),
    seed=st.integers(0, 2**31),
)
def test_records_cross_the_wire_unchanged(
    text: str, stop: list[str], logprobs: list[float], seed: int
) -> None:
    near, far = socket.socketpair()
    with near, far:
        one, other = Wire(near), Wire(far)
        request = GenerationRequest(
            text, text, Sampling(0.5, 0.9, 3, 7, tuple(stop), tuple(stop)), seed, 3, "a", False
        )
        completion = Completion(text, "stop", 1, len(logprobs), tuple(range(len(logprobs))), tuple(logprobs))
        one.send({"request": request.to_row(), "completion": completion.to_row()})
        message = other.receive()
        assert message is not None
        assert request_from_row(message["request"]) == request
        assert completion_from_row(message["completion"]) == completion
        for record in (request, completion):  # journals keep the order of the fields, too
            assert list(record.to_row().items()) == list(dataclasses.asdict(record).items())


def test_a_broken_or_mad_peer_is_noticed() -> None:
    near, far = socket.socketpair()
    wire = Wire(near)
    far.sendall(LENGTH.pack(10) + b"{}")
    far.close()
    assert wire.receive() is None
    near, far = socket.socketpair()
    far.sendall(LENGTH.pack(2**31))
    with pytest.raises(EngineError, match="2147483648 bytes"):
        Wire(near).receive()


def test_closing_wakes_a_waiting_receive() -> None:
    near, far = socket.socketpair()
    wire, got = Wire(near), []
    thread = threading.Thread(target=lambda: got.append(wire.receive()))
    thread.start()
    wire.close()
    thread.join(timeout=5)
    assert got == [None]
    far.close()


def test_errors_cross_the_wire_as_what_they_are() -> None:
    assert isinstance(error_from_row(error_row(ModelError("bad base"))), ModelError)
    for error, expected in [
        (EngineError("died"), "died (log)"),
        (ValueError("odd"), "ValueError: odd (log)"),
    ]:
        back = error_from_row(error_row(error), " (log)")
        assert type(back) is EngineError
        assert str(back) == expected
    assert type(error_from_row({"type": "SCHEMA", "message": "no class"})) is EngineError
