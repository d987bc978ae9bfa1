"""Constrained decoding for the transformers engine: a text must be one of a few choices.

A choice is spelled by the tokens that the tokenizer gives it alone, and by no other. vLLM's grammar admits every
spelling, so the probabilities of the two engines may differ a little; the set of texts does not.
"""

from collections.abc import Sequence
from typing import Any

Trie = dict[int, "Trie"]


class ChoiceLimit:
    """A logits processor: leaves only the tokens that go on towards a choice, then only the end token."""

    def __init__(self, tokenizer: Any, choices: Sequence[str], width: int, end_id: int) -> None:
        """`width` is the padded length of the prompts; every row of the batch has the same choices."""
        self._width, self._end = width, end_id
        self._trie: Trie = {}
        for choice in choices:
            node = self._trie
            for token in tokenizer.encode(choice, add_special_tokens=False):
                node = node.setdefault(token, {})
            node[end_id] = {}

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """[B, V] scores with -inf wherever no choice goes on."""
        import torch

        limited = torch.full_like(scores, float("-inf"))
        for row, ids in enumerate(input_ids[:, self._width :].tolist()):
            allowed = self.allowed(ids)
            limited[row, allowed] = scores[row, allowed]
        return limited

    def allowed(self, ids: Sequence[int]) -> list[int]:
        """The tokens that may follow `ids`; the end token after a whole choice."""
        node = self._trie
        for token in ids:
            node = node.get(token, {})
        return list(node) or [self._end]
