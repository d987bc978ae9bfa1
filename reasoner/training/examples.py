"""Supervised examples as tokens; `reasoner.preflight.mask` proves what the loss falls on.

The prompt is tokenised alone, as generation does it, and the completion after it, so that no token reaches
over the boundary and the model is trained on exactly the prompt tokens that it will see. A record longer
than the limit is left out and counted; nothing is ever cut (METHODS 2.6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.errors import DataError, ModelError, TrainingError
from reasoner.preflight.mask import IGNORED
from reasoner.records import TrainingExample
from reasoner.store.rows import iter_rows


@dataclass(frozen=True, slots=True)
class Encoded:
    """One example as tokens: `input_ids` [T], of which the first `prompt_length` are the prompt."""

    example: TrainingExample
    input_ids: tuple[int, ...]
    prompt_length: int

    @property
    def labels(self) -> list[int]:
        """[T]: the token itself where the loss is taken, `IGNORED` on the prompt."""
        return [IGNORED] * self.prompt_length + list(self.input_ids[self.prompt_length :])


@dataclass(frozen=True, slots=True)
class EncodedSet:
    """The examples that are kept, and how many of those given were too long."""

    kept: tuple[Encoded, ...]
    given: int
    too_long: int

    def counts(self) -> dict[str, int]:
        """Numbers for the record of a training."""
        prompt = sum(e.prompt_length for e in self.kept)
        return {
            "given": self.given,
            "kept": len(self.kept),
            "too_long": self.too_long,
            "prompt_tokens": prompt,
            "completion_tokens": sum(len(e.input_ids) for e in self.kept) - prompt,
            "longest": max((len(e.input_ids) for e in self.kept), default=0),
        }


def read_examples(path: Path) -> list[TrainingExample]:
    """The examples of a JSON Lines file. Raises `DataError` naming the first bad row."""
    examples = []
    for number, row in enumerate(iter_rows(path), start=1):
        try:
            examples.append(TrainingExample.from_row(row))
        except TypeError as error:
            raise DataError(f"{path}: row {number} is not a training example: {error}") from error
    return examples


class Encoder:
    """Turns examples into tokens. `tokenizer` is a transformers tokenizer."""

    def __init__(self, tokenizer: Any, end_token: str, *, add_special_tokens: bool) -> None:
        end_id = tokenizer.convert_tokens_to_ids(end_token)
        if not isinstance(end_id, int) or tokenizer.encode(end_token, add_special_tokens=False) != [end_id]:
            raise ModelError(f"The end token {end_token!r} is not one token of this tokenizer")
        self.tokenizer = tokenizer
        self.end_token = end_token
        self.end_id: int = end_id
        self.add_special_tokens = add_special_tokens

    def prompt_ids(self, prompt: str) -> list[int]:
        """The prompt as generation tokenises it."""
        ids = self.tokenizer.encode(prompt, add_special_tokens=self.add_special_tokens)
        bos = self.tokenizer.bos_token_id
        if self.add_special_tokens and bos is not None and ids[:2] == [bos, bos]:
            raise TrainingError(
                "A prompt begins with two start tokens: it holds its special tokens already, "
                "so add_special_tokens must be false"
            )
        return list(ids)

    def encode(self, example: TrainingExample) -> Encoded:
        """One example as tokens. Raises `TrainingError` where prompt and completion cannot be told apart."""
        prompt = self.prompt_ids(example.prompt)
        if not prompt:
            raise TrainingError(
                f"Record {example.problem_id} has an empty prompt; there is nothing to learn from"
            )
        completion = self._completion_ids(example, prompt)
        if completion[-1:] != [self.end_id]:
            raise TrainingError(
                f"Record {example.problem_id}: the completion does not end with {self.end_token!r}; "
                "a model trained on it would not learn to stop"
            )
        if self.end_id in completion[:-1]:
            raise TrainingError(
                f"Record {example.problem_id}: {self.end_token!r} stands inside the completion"
            )
        return Encoded(example, (*prompt, *completion), len(prompt))

    def _completion_ids(self, example: TrainingExample, prompt: list[int]) -> list[int]:
        """Tokens that, after the prompt's, spell the completion.

        Tokenised alone first. A tokenizer that puts a space before every text it is given would then spell
        another text; there the completion's tokens are those that follow the prompt's in the joined text.
        """
        alone = self._plain(example.completion)
        joined = self.tokenizer.encode(
            example.prompt + example.completion, add_special_tokens=self.add_special_tokens
        )
        spelled = self.tokenizer.decode(joined)
        if self.tokenizer.decode([*prompt, *alone]) == spelled:
            return alone
        if joined[: len(prompt)] == prompt:
            return list(joined[len(prompt) :])
        raise TrainingError(
            f"Record {example.problem_id}: tokens merge across the end of the prompt "
            f"(…{example.prompt[-20:]!r} + {example.completion[:20]!r}…)"
        )

    def _plain(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def encode_all(self, examples: Sequence[TrainingExample], max_length: int) -> EncodedSet:
        """All examples of at most `max_length` tokens; the others are counted and left out."""
        encoded = [self.encode(example) for example in examples]
        kept = tuple(e for e in encoded if len(e.input_ids) <= max_length)
        return EncodedSet(kept, len(encoded), len(encoded) - len(kept))
