"""Rolls out episodes: B problems times G trajectories, all of a turn in one engine call (METHODS 3.1).

Feedback is written for every attempt, right or wrong; the writer is told which only as `show_error` says. Attempts are
judged while the feedback is being written, and feedback is searched for the answer while refinements are.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from types import TracebackType
from typing import Literal, Self, TypeVar

from reasoner.environments import Environment
from reasoner.errors import ConfigurationError, UsageError
from reasoner.ids import derived_seed
from reasoner.methods.multiturn.episode import MAX_NOTE, Episode, Judged, Kind, Turn
from reasoner.methods.multiturn.speaker import Speaker
from reasoner.onpolicy.parts import Part, Parts
from reasoner.prompts.policy import Message
from reasoner.prompts.turns import TurnTemplates
from reasoner.records import Problem

ShownError = Literal["none", "shown", "all"]
"""What the writer is told of the attempt's tests: MultiTurnConfig.show_error."""
Advice = Literal["model", "fixed", "empty", "shuffled"]
"""Where the advice comes from: the writer; SCoRe's fixed text; nothing; the writer's advice on another problem."""
MARGIN = 32
"""Prompt tokens left free when lengths are checked."""

Progress = Callable[[str, int, int], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempted:
    """First turns and what is known of them; `judged` may still be on its way."""

    problems: list[Problem]
    indices: list[int]
    turns: list[Turn]
    judged: "Future[list[Judged]]"

    def verdicts(self) -> list[Turn]:
        """The turns with their verdicts."""
        return [replace(t, judged=j) for t, j in zip(self.turns, self.judged.result(), strict=True)]


class Rollouts:
    """Episodes of one solver and one writer in one environment. A context manager: its judging threads end with it."""

    def __init__(
        self,
        environment: Environment,
        templates: TurnTemplates,
        solver: Speaker,
        writer: Speaker | None = None,
        *,
        show_error: ShownError = "none",
        progress: Progress | None = None,
        parts: Parts | None = None,
    ) -> None:
        """`parts` counts as `verdict` what is waited for the judge: not what it does while turns are written."""
        self.environment, self.templates = environment, templates
        self.solver, self.writer = solver, writer
        self._show_error, self._progress = show_error, progress
        self._parts = parts or Parts()
        self._judge = ThreadPoolExecutor(environment.callers, thread_name_prefix="verdicts")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error what is still judged is not waited for: its environment, which is left next, ends it."""
        self._judge.shutdown(wait=kind is None, cancel_futures=True)

    def episodes(
        self, problems: Sequence[Problem], group_size: int, seed: int, advice: Advice = "model"
    ) -> list[Episode]:
        """`group_size` independent episodes a problem, the episodes of a problem beside each other."""
        return self.second_turns(self.attempts(problems, group_size, seed), seed, advice)

    def single_turns(self, problems: Sequence[Problem], group_size: int, seed: int) -> list[Episode]:
        """Episodes of an attempt alone."""
        made = self.attempts(problems, group_size, seed)
        self._known(made.judged)
        return [Episode(t.problem_id, i, t) for t, i in zip(made.verdicts(), made.indices, strict=True)]

    def drawn(self, problems: Sequence[Problem], seed: int, judge: bool) -> list[Episode]:
        """One attempt a given problem, in order; a problem may come more than once. Unjudged ones have no verdict."""
        rows = list(enumerate(problems))
        turns = self._say(self.solver, Kind.ATTEMPT, [self._attempt(p, i) for i, p in rows], seed)
        if judge:
            judged = self._known(self._judged(problems, turns))
            turns = [replace(t, judged=j) for t, j in zip(turns, judged, strict=True)]
        return [Episode(t.problem_id, i, t) for i, t in enumerate(turns)]

    def _attempt(self, problem: Problem, index: int) -> tuple[str, int, list[Message]]:
        return problem.id, index, self.templates.attempt_turn(self.environment.facts(problem))

    def attempts(self, problems: Sequence[Problem], group_size: int, seed: int) -> Attempted:
        """Turn 1; the verdicts are computed meanwhile."""
        rows = [(problem, index) for problem in problems for index in range(group_size)]
        wanted = [self._attempt(problem, index) for problem, index in rows]
        turns = self._say(self.solver, Kind.ATTEMPT, wanted, seed)
        owners, indices = [problem for problem, _ in rows], [index for _, index in rows]
        return Attempted(owners, indices, turns, self._judged(owners, turns))

    @staticmethod
    def attempted(problems: Sequence[Problem], turns: Sequence[Turn]) -> Attempted:
        """First turns that were made and judged before, one a problem."""
        judged: Future[list[Judged]] = Future()
        judged.set_result([t.judged for t in turns if t.judged is not None])
        return Attempted(list(problems), [0] * len(turns), list(turns), judged)

    def second_turns(self, first: Attempted, seed: int, advice: Advice = "model") -> list[Episode]:
        """Feedback and refinement of given first turns. Raises UsageError for advice that needs a writer."""
        feedback = self._feedback(first, seed) if advice in ("model", "shuffled") else None
        leaks = self._leaks(first, feedback) if feedback is not None and advice == "model" else None
        texts = self._advice(first, feedback, advice, seed)
        wanted: list[tuple[str, int, list[Message]]] = []
        for problem, index, turn, text in zip(first.problems, first.indices, first.turns, texts, strict=True):
            attempt = self.solver.clipped(turn.text, self.solver.sampling.max_tokens)
            messages = self.templates.refine_turn(self.environment.facts(problem), attempt, text)
            wanted.append((problem.id, index, messages))
        refined = self._say(self.solver, Kind.REFINEMENT, wanted, seed)
        judged = self._known(self._judged(first.problems, refined))
        done = [replace(t, judged=j) for t, j in zip(refined, judged, strict=True)]
        told = self._known(leaks) if leaks is not None else [(None, None)] * len(done)
        return [
            Episode(
                problem.id, first.indices[i], turn, feedback[i] if feedback else None, done[i], texts[i], *told[i]
            )
            for i, (problem, turn) in enumerate(zip(first.problems, first.verdicts(), strict=True))
        ]  # fmt: skip

    def check_lengths(self, problems: Sequence[Problem], max_model_len: int) -> None:
        """Raises ConfigurationError where the longest episode might not fit into the engine's context."""
        solver = self.solver.sampling.max_tokens
        feedback = self.writer.sampling.max_tokens if self.writer else 0
        advice = "x" if self.writer else self.templates.correction
        error = None if self._show_error == "none" else "1 " * (MAX_NOTE // 2)
        need, longest = 0, ""
        for problem in problems:
            facts = self.environment.facts(problem)
            filled = self.solver.count(self.templates.refine_turn(facts, "x", advice))
            total = filled + 2 * solver + feedback + MARGIN
            if self.writer is not None and self.writer.tokenizer is not None:
                asked = self.writer.count(self.templates.feedback_turn(facts, "x", error))
                total = max(total, asked + solver + feedback + MARGIN)
            if total > need:
                need, longest = total, problem.id
        if need > max_model_len:
            raise ConfigurationError(
                f"problem {longest} may need {need} tokens for prompt, attempt, feedback and refinement, and the "
                f"engine holds {max_model_len}: raise engine.options.max_model_len or lower max_tokens"
            )

    def _feedback(self, first: Attempted, seed: int) -> list[Turn]:
        if self.writer is None:
            raise UsageError("feedback by a model needs a writer")
        errors: list[str | None] = [None] * len(first.turns)
        if self._show_error == "all":
            errors = [judged.note or None for judged in self._known(first.judged)]
        elif self._show_error == "shown":
            asked = _paired(first.problems, first.turns)
            errors = self._known(self._judge.submit(self.environment.tried, asked))
        wanted = []
        for problem, index, turn, error in zip(
            first.problems, first.indices, first.turns, errors, strict=True
        ):
            attempt = self.writer.clipped(turn.text, self.solver.sampling.max_tokens)
            facts = self.environment.facts(problem)
            wanted.append((problem.id, index, self.templates.feedback_turn(facts, attempt, error)))
        return self._say(self.writer, Kind.FEEDBACK, wanted, seed)

    def _advice(self, first: Attempted, feedback: list[Turn] | None, advice: Advice, seed: int) -> list[str]:
        if feedback is None:
            return [self.templates.correction.strip() if advice == "fixed" else ""] * len(first.turns)
        assert self.writer is not None
        texts = [self.solver.clipped(turn.text, self.writer.sampling.max_tokens) for turn in feedback]
        return exchanged(texts, [p.id for p in first.problems], seed) if advice == "shuffled" else texts

    def _leaks(self, first: Attempted, feedback: list[Turn]) -> "Future[list[tuple[bool, bool]]]":
        """Whether each feedback holds the answer, and whether nothing before it did; known while turn 2 is written."""
        asked = [(p, p.question) for p in first.problems]
        texts = [*_paired(first.problems, feedback), *_paired(first.problems, first.turns), *asked]
        count = len(asked)

        def look() -> list[tuple[bool, bool]]:
            found = self.environment.reveals(texts)
            parts = found[:count], found[count : 2 * count], found[2 * count :]
            return [(g, g and not z and not x) for g, z, x in zip(*parts, strict=True)]

        return self._judge.submit(look)

    def _known(self, coming: "Future[T]") -> T:
        """What the judging thread finds."""
        with self._parts.part(Part.VERDICT):
            return coming.result()

    def _judged(self, problems: Sequence[Problem], turns: Sequence[Turn]) -> "Future[list[Judged]]":
        return self._judge.submit(self.environment.judge, _paired(problems, turns))

    def _say(
        self, speaker: Speaker, kind: Kind, wanted: Sequence[tuple[str, int, list[Message]]], seed: int
    ) -> list[Turn]:
        def heard(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(kind, done, total)

        return speaker.say(kind, wanted, derived_seed(seed, kind.value), heard)


def exchanged(texts: Sequence[str], owners: Sequence[str], seed: int) -> list[str]:
    """Every text given to another problem than its own. Raises UsageError for texts of one problem alone."""
    if len(set(owners)) < 2:
        raise UsageError("shuffled feedback needs two problems or more")
    by_owner: dict[str, list[int]] = {}
    for i, owner in enumerate(owners):
        by_owner.setdefault(owner, []).append(i)
    names = sorted(by_owner)
    Random(seed).shuffle(names)
    following = dict(zip(names, names[1:] + names[:1], strict=True))
    found = []
    for i, owner in enumerate(owners):
        others = by_owner[following[owner]]
        found.append(texts[others[by_owner[owner].index(i) % len(others)]])
    return found


def _paired(problems: Sequence[Problem], turns: Sequence[Turn]) -> list[tuple[Problem, str]]:
    return [(problem, turn.text) for problem, turn in zip(problems, turns, strict=True)]
