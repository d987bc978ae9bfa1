"""A model's own generation defaults (generation_config.json) change nothing: what is sampled is the policy as it is.

Wrong if a repetition penalty or another default of the model reaches a completion or its log-probabilities: those are
then not the trainer's, and evaluation decodes another distribution than it says.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.transformers_engine import TransformersEngine
from reasoner.onpolicy.logprobs import token_logprobs
from reasoner.onpolicy.served import ServedEngine, ServedSettings
from reasoner.records import GenerationRequest, Sampling
from tests.support.json_server import json_server
from tests.support.tiny_llama import make_adapter

DEFAULTS = {
    "repetition_penalty": 1.8, "no_repeat_ngram_size": 2, "min_p": 0.2, "top_k": 5, "top_p": 0.5, "do_sample": True,
    "max_new_tokens": 3,
}  # fmt: skip


def with_defaults(base: Path, folder: Path) -> Path:
    """The same model with the defaults of a cautious publisher."""
    shutil.copytree(base, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **DEFAULTS}))
    return folder


def asked(adapter: str = "") -> list[GenerationRequest]:
    greedy = [GenerationRequest("g", "ab", Sampling(0.0, max_tokens=24), adapter=adapter)]
    drawn = [
        GenerationRequest("d", "abc", Sampling(1.0, max_tokens=24), 0, i, adapter=adapter) for i in range(4)
    ]
    return greedy + drawn


def test_transformers_samples_the_policy_as_it_is(base: Path, tmp_path: Path) -> None:
    other, adapter = with_defaults(base, tmp_path / "other"), tmp_path / "adapter"
    make_adapter(base, adapter, seed=3)
    found = []
    for folder in (base, other):
        engine = TransformersEngine(EngineSettings("transformers", folder, "float32", adapters=True))
        engine.load_adapter("mine", adapter)
        requests = [*asked(), *asked("mine")]
        found.append([done for _, done in sorted(engine.generate(requests, logprobs=True))])
        engine.close()
    assert [done.token_ids for done in found[0]] == [done.token_ids for done in found[1]]
    assert any(done.completion_tokens > 3 for done in found[1])

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(other), str(adapter)).eval()
    rows = [done for request, done in zip(requests, found[1], strict=True) if request.adapter]
    prompts = [engine_ids(other, r.prompt) for r in requests if r.adapter]
    scored = token_logprobs(model, prompts, [done.token_ids for done in rows])
    for row, mask, done in zip(scored.logprobs, scored.mask, rows, strict=True):
        assert torch.allclose(row[mask], torch.tensor(done.logprobs), atol=2e-3)


def engine_ids(base: Path, prompt: str) -> list[int]:
    from transformers import AutoTokenizer

    return list(AutoTokenizer.from_pretrained(base)(prompt)["input_ids"])


def test_a_server_is_told_what_it_would_fill_in(base: Path) -> None:
    bodies: list[dict[str, Any]] = []

    def answer(path: str, body: Any) -> Any:
        if body is None:
            return {"data": [{"id": "base"}]}
        bodies.append(body)
        choice = {"text": "x", "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}

    with json_server(answer) as url:
        engine = ServedEngine(ServedSettings(url, "base", base))
        list(engine.generate(asked()))
        engine.close()
    assert bodies and all(
        (b["top_p"], b["top_k"], b["min_p"], b["repetition_penalty"]) == (1.0, -1, 0.0, 1.0) for b in bodies
    )
