"""The training questions as TRL takes them: the rendered prompt and the columns that the reward reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.errors import DataError
from reasoner.ids import content_hash
from reasoner.records import Problem


@dataclass(frozen=True, slots=True)
class Questions:
    """Rows for training, and how many were left out because their prompt is too long."""

    rows: tuple[dict[str, str], ...]
    add_special_tokens: bool
    given: int
    too_long: int

    def counts(self) -> dict[str, int]:
        return {"given": self.given, "kept": len(self.rows), "too_long": self.too_long}


def choose(problems: Sequence[Problem], limit: int | None, seed: int) -> list[Problem]:
    """At most `limit` problems, chosen by hash of the id and the seed, in a shuffled order that depends on
    those alone."""
    order = sorted(problems, key=lambda p: content_hash([seed, p.id], 16))
    return order if limit is None else order[:limit]


def prompted(
    problems: Sequence[Problem],
    render: Callable[[Problem], tuple[str, bool]],
    tokenizer: Any,
    max_prompt_length: int,
) -> Questions:
    """Render every problem's prompt. Raises DataError where none is short enough.

    A prompt is never cut: the end of a question, which is what is asked, would be lost.
    """
    rows, special = [], False
    for problem in problems:
        text, special = render(problem)
        if len(tokenizer.encode(text, add_special_tokens=special)) <= max_prompt_length:
            rows.append(
                {"prompt": text, "question": problem.question, "gold": problem.gold, "problem_id": problem.id}
            )
    if not rows:
        raise DataError(
            f"none of {len(problems)} training questions has a prompt of at most {max_prompt_length} tokens; "
            "raise grpo.max_prompt_length"
        )
    return Questions(tuple(rows), special, len(problems), len(problems) - len(rows))


def require_a_step(found: Questions, groups: int) -> None:
    """DataError where there are fewer questions than a step has groups: TRL would train nothing."""
    if len(found.rows) < groups:
        raise DataError(
            f"{len(found.rows)} training questions ({found.too_long} more are too long); a step takes {groups}. Give "
            "more of them, widen grpo.pass_rate where it is set, or lower grpo.grad_accum"
        )
