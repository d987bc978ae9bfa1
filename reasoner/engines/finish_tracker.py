"""Where each row of a batch ends: end token, stop string or its own limit. Used by the transformers engine
only.

transformers pads a finished row until the whole batch is finished, and padding may look like generated
tokens; so the end of each row is recorded when it happens. A stop string is looked for in text, as vLLM
does, and is cut off; the tokens that it took count.
"""

from array import array
from collections.abc import Sequence
from typing import Any

from reasoner.engines.text import decode, finished, text_behind
from reasoner.records import Completion


class FinishTracker:
    """A stopping criterion for `generate` that remembers each row's length and reason."""

    def __init__(
        self,
        tokenizer: Any,
        prompts: Sequence[array],
        width: int,
        limits: Sequence[int],
        end_ids: Sequence[int],
        stop: Sequence[str],
    ) -> None:
        """`width` is the padded length of the prompts, `limits[b]` the most new tokens of row b."""
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._width = width
        self._limits = limits
        self._end_ids = frozenset(end_ids)
        self._stop = tuple(stop)
        # A token may be a single byte of a stop string, and the last ones may be halves of a character.
        self._window = max((len(s.encode()) for s in stop), default=0) + 8
        self._ends: dict[int, tuple[int, str]] = {}

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """[B] booleans: which rows are finished."""
        import torch

        count = input_ids.shape[1] - self._width
        last = input_ids[:, -1].tolist()
        for row in range(len(self._prompts)):
            if row in self._ends:
                continue
            if last[row] in self._end_ids or self._stopped(input_ids[row, self._width :].tolist()):
                self._ends[row] = (count, "stop")
            elif count >= self._limits[row]:
                self._ends[row] = (count, "length")
        done = [row in self._ends for row in range(len(self._prompts))]
        return torch.tensor(done, dtype=torch.bool, device=input_ids.device)

    def completion(self, row: int, new_T: list[int], logprobs_T: list[float] | None) -> Completion:
        """The completion of a row from all its new tokens, padding included."""
        count, finish = self._ends.get(row, (len(new_T), "length"))
        ids = new_T[:count]
        kept = () if logprobs_T is None else tuple(logprobs_T[:count])
        return Completion(
            text=self._text(row, ids),
            finish=finish,
            prompt_tokens=len(self._prompts[row]),
            completion_tokens=count,
            token_ids=tuple(ids) if logprobs_T is not None else (),
            logprobs=kept,
        )

    def _stopped(self, new_T: list[int]) -> bool:
        if not self._stop:
            return False
        tail = decode(self._tokenizer, new_T[-self._window :])
        return any(s in tail for s in self._stop)

    def _text(self, row: int, ids: list[int]) -> str:
        text = text_behind(self._tokenizer, self._prompts[row], ids)
        ends = [at for s in self._stop if (at := text.find(s)) >= 0]
        return text[: min(ends)] if ends else finished(text)
