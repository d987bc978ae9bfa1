"""Prompts as token ids, checked against the context length before anything is generated."""

from array import array
from collections.abc import Sequence
from typing import Any

from reasoner.errors import EngineError
from reasoner.records import GenerationRequest

PIECE = 1024
"""Prompts that the tokenizer gets at once; fast tokenizers spread them over the cores."""


def encode_prompts(tokenizer: Any, requests: Sequence[GenerationRequest], max_model_len: int) -> list[array]:
    """Token ids of every request's prompt (4 bytes a token); equal prompts share one array.

    Raises EngineError for an empty prompt and for one that leaves no room for a generated token.
    """
    known: dict[tuple[str, bool], array] = {}
    for special in (True, False):
        texts = list(dict.fromkeys(r.prompt for r in requests if r.add_special_tokens is special))
        for start in range(0, len(texts), PIECE):
            piece = texts[start : start + PIECE]
            encoded = tokenizer(piece, add_special_tokens=special, return_attention_mask=False, verbose=False)
            for text, ids in zip(piece, encoded["input_ids"], strict=True):
                known[text, special] = array("i", ids)
    prompts = [known[r.prompt, r.add_special_tokens] for r in requests]
    for request, ids in zip(requests, prompts, strict=True):
        if not ids:
            raise EngineError(f"problem {request.problem_id}: the prompt has no tokens")
        if len(ids) >= max_model_len:
            raise EngineError(
                f"problem {request.problem_id}: the prompt has {len(ids)} tokens and max_model_len is "
                f"{max_model_len}, which must hold the prompt and a token more; raise "
                "engine.options.max_model_len or shorten the prompt"
            )
    return prompts
