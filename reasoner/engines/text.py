"""The text of sampled tokens, as it stands behind its prompt."""

from collections.abc import Sequence
from typing import Any

CONTEXT = 8
"""Prompt tokens decoded before the completion, since some tokenizers drop a leading space at the start of a text; more
where these have no text.
"""


def text_behind(tokenizer: Any, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """What `ids` say behind `prompt`, special tokens left out. Half a character at the end becomes U+FFFD."""
    before = list(prompt[-CONTEXT:])
    lead = decode(tokenizer, before)
    while not lead and len(before) < len(prompt):
        before = list(prompt[-2 * len(before) :])
        lead = decode(tokenizer, before)
    whole = decode(tokenizer, [*before, *ids])
    return whole[len(lead) :] if whole.startswith(lead) else decode(tokenizer, ids)


def finished(text: str) -> str:
    """A text that nothing follows: a character whose last bytes never came is no text, as with vLLM."""
    return text.rstrip("\ufffd")


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The tokens' text, special ones left out, nothing tidied up."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))
