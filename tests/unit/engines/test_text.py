"""The text of sampled tokens behind their prompt.

Wrong if a space at the start of a text is lost, whatever the prompt ends with, or if half a character is text.
"""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from reasoner.engines.text import finished, text_behind

WORDS = ("<s>", "▁one", "▁two", "<0xC3>", "<0xA9>")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """As sentencepiece: a space before each word, none at the start of a text; bytes for what is no word."""
    plain = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<s>"))
    plain.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", unk_token="<s>")


@pytest.mark.parametrize("specials", [0, 1, 8, 9, 40])
def test_a_space_before_the_first_word_stays(tokenizer: Any, specials: int) -> None:
    assert tokenizer.decode([2]) == "two"
    assert text_behind(tokenizer, [1] + [0] * specials, [2, 0, 1]) == " two one"


def test_behind_nothing_a_text_begins(tokenizer: Any) -> None:
    assert text_behind(tokenizer, [], [2]) == text_behind(tokenizer, [0] * 20, [2]) == "two"
    assert text_behind(tokenizer, [1], []) == ""


def test_half_a_character_at_the_end_is_no_text(tokenizer: Any) -> None:
    assert finished(text_behind(tokenizer, [1], [2, 3, 4])) == " twoé"
    assert finished(text_behind(tokenizer, [1], [2, 3])) == " two"
