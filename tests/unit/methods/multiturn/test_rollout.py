"""Rollouts with a scripted engine and the real grader: who is asked what, and that all turns are of one problem."""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.scripted import ScriptedEngine
from reasoner.environments import Environment, open_environment
from reasoner.errors import ConfigurationError, EngineError, UsageError
from reasoner.methods.multiturn.episode import Judged
from reasoner.methods.multiturn.rollout import Rollouts, exchanged
from reasoner.methods.multiturn.speaker import PlainVoice, SampledVoice, Speaker
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.prompts.chat import Rendered
from reasoner.prompts.turns import load_turns
from reasoner.records import Problem, Sampling
from tests.unit.methods.multiturn.scripts import tokenizer

PROBLEMS = [Problem.make(f"question {i}", "2", "ours") for i in range(3)]
SCRIPTS = "tests.unit.methods.multiturn.scripts"


class Plain:
    def render(self, messages):
        return Rendered(messages[0]["content"], False)


class Counting(ScriptedEngine):
    """Counts the calls of `generate`."""

    batches: list

    def generate(self, requests, *, logprobs=False):
        self.batches = [*getattr(self, "batches", []), list(requests)]
        return super().generate(self.batches[-1], logprobs=logprobs)


@pytest.fixture(scope="module")
def math() -> Iterator[Environment]:
    with open_environment("math", workers=1) as environment:
        yield environment


@pytest.fixture
def engine(tmp_path: Path) -> Counting:
    engine = Counting(
        EngineSettings("scripted", tmp_path, adapters=True, options={"script": f"{SCRIPTS}:answer"})
    )
    for name in ("solver", "feedback"):
        engine.load_adapter(name, tmp_path)
    return engine


def rollouts(engine, math, writer=True, **fields) -> Rollouts:
    voice = SampledVoice(OnPolicySampler(lambda: engine, tokenizer(), 4096))
    speaker = Speaker(voice, Plain(), Sampling(1.0, max_tokens=200), "solver", tokenizer())
    return Rollouts(
        math, load_turns("math"), speaker, speaker.with_adapter("feedback") if writer else None, **fields
    )


def test_three_calls_of_the_engine_whatever_the_number_of_episodes(engine, math):
    with rollouts(engine, math) as room:
        episodes = room.episodes(PROBLEMS, 4, seed=7)
    assert len(episodes) == 12 and [len(batch) for batch in engine.batches] == [12, 12, 12]
    assert [{r.adapter for r in batch} for batch in engine.batches] == [{"solver"}, {"feedback"}, {"solver"}]
    assert [e.index for e in episodes[:5]] == [0, 1, 2, 3, 0]


def test_judging_goes_on_while_the_engine_writes(engine, math, monkeypatch):
    """Attempts are judged under the feedback's call, and feedback is searched for the answer under the refinement's."""
    judged, searched, waited = Event(), Event(), []
    monkeypatch.setattr(math, "judge", after(math.judge, judged))
    monkeypatch.setattr(math, "reveals", after(math.reveals, searched))
    generate = engine.generate

    def slow(requests, *, logprobs=False):
        wanted = [None, judged, searched][len(waited)]
        waited.append(wanted is None or wanted.wait(20))
        return generate(requests, logprobs=logprobs)

    monkeypatch.setattr(engine, "generate", slow)
    with rollouts(engine, math) as room:
        episodes = room.episodes(PROBLEMS, 2, seed=7)
    assert waited == [True, True, True] and all(e.leak is not None for e in episodes)


def test_programs_that_never_end_are_waited_for_side_by_side(tmp_path):
    """Attempt, feedback and refinement hold one each, and the attempt is searched, too: one limit, not four."""
    engine = Counting(
        EngineSettings("scripted", tmp_path, adapters=True, options={"script": f"{SCRIPTS}:endless"})
    )
    problem = Problem.make("Double a number.", json.dumps(["assert double(2) == 4"]), "ours")
    voice = PlainVoice(engine)
    speaker = Speaker(voice, Plain(), Sampling(1.0, max_tokens=200), "", None)
    with (
        open_environment("code", workers=3, timeout=4.0) as code,
        Rollouts(code, load_turns("code"), speaker, speaker) as room,
    ):
        started = time.monotonic()
        (episode,) = room.episodes([problem], 1, seed=7)
        took = time.monotonic() - started
    turns = [episode.attempt, episode.feedback, episode.refinement]
    assert len({turn.text for turn in turns}) == 3 and episode.leak is False
    assert [t.judged and t.judged.verdict.reason for t in turns] == ["timeout", None, "timeout"]
    assert 4.0 <= took < 12.0, "four limits one after another are 16 s"


def after(call, event):
    """`call`, which sets `event` when it has ended."""

    def called(rows):
        try:
            return call(rows)
        finally:
            event.set()

    return called


@pytest.mark.parametrize("mode", ["none", "shown", "all"])
def test_the_writer_is_told_of_the_tests_what_was_asked_for(tmp_path, mode):
    """The first program passes the test that the task shows and fails a hidden one, which `shown` must not tell."""
    engine = Counting(
        EngineSettings("scripted", tmp_path, adapters=True, options={"script": f"{SCRIPTS}:hard_coded"})
    )
    tests = json.dumps(["assert double(2) == 4", "assert double(7) == 14"])
    problems = [Problem.make(f"Double the {word} number.", tests, "ours") for word in ("first", "second")]
    speaker = Speaker(PlainVoice(engine), Plain(), Sampling(1.0, max_tokens=200), "", None)
    with (
        open_environment("code", workers=1) as code,
        Rollouts(code, load_turns("code"), speaker, speaker, show_error=mode) as room,
    ):
        room.episodes(problems, 1, seed=7)
    first, second = (request.prompt for request in engine.batches[1])
    hidden, shown = "assert_fail: assert double(7) == 14", "assert_fail: assert double(2) == 4"
    assert (hidden in first, "It passes" in first) == (mode == "all", mode == "shown")
    assert (shown in second, "double(7)" in second) == (mode != "none", False)
    assert all("It failed" not in r.prompt and "It passes" not in r.prompt for r in engine.batches[2])


def test_every_turn_concerns_the_episodes_own_problem(engine, math):
    shuffled = [PROBLEMS[2], PROBLEMS[0], PROBLEMS[1]]
    with rollouts(engine, math) as room:
        episodes = room.episodes(shuffled, 2, seed=7)
    for episode, problem in zip(episodes, [p for p in shuffled for _ in range(2)], strict=True):
        assert {t.problem_id for t in episode.turns} == {problem.id} == {episode.problem_id}
        assert (
            episode.feedback.text == f"advice on {problem.question} number {episode.index}" == episode.advice
        )
        assert f"[{episode.advice}]" in episode.refinement.text
        assert (episode.r1, episode.r2) == (0.0, 1.0)


def test_both_turns_are_judged_by_the_problems_own_gold(engine, math):
    """The scripted attempt says 1 and the refinement 2; each problem has another gold."""
    golds = ["2", "1", "3"]
    problems = [Problem.make(f"question {i}", gold, "ours") for i, gold in enumerate(golds)]
    with rollouts(engine, math) as room:
        episodes = room.episodes(problems, 2, seed=7)
    found = [(e.r1, e.r2) for e in episodes]
    assert found == [(0.0, 1.0)] * 2 + [(1.0, 0.0)] * 2 + [(0.0, 0.0)] * 2


def test_the_stored_ids_are_those_of_the_prompt_and_the_answer(engine, math):
    with rollouts(engine, math) as room:
        (episode,) = room.episodes(PROBLEMS[:1], 1, seed=7)
    for turn, batch in zip(episode.turns, engine.batches, strict=True):
        assert tokenizer().decode(turn.prompt_ids) == batch[0].prompt
        assert tokenizer().decode(turn.token_ids) == turn.text
        assert len(turn.token_ids) == len(turn.logprobs) == turn.tokens > 0


def test_each_turn_draws_from_a_stream_of_its_own(engine, math):
    with rollouts(engine, math) as room:
        room.episodes(PROBLEMS, 1, seed=7)
        room.episodes(PROBLEMS, 1, seed=8)
    assert len({batch[0].seed for batch in engine.batches}) == 6


def test_controls(engine, math):
    with rollouts(engine, math) as room:
        first = room.attempts(PROBLEMS, 2, 7)
        fixed = room.second_turns(first, 7, "fixed")
        empty = room.second_turns(first, 7, "empty")
        shuffled = room.second_turns(first, 7, "shuffled")
    assert all(e.feedback is None and e.advice.startswith("The earlier attempt may") for e in fixed)
    assert all(e.advice == "" and e.r2 == 0.0 and e.leak is None for e in empty)
    for episode, problem in zip(shuffled, [p for p in PROBLEMS for _ in range(2)], strict=True):
        assert problem.question not in episode.advice and "advice on" in episode.advice
        assert episode.feedback.problem_id == problem.id, "the writer's own turn stays with its problem"
    assert [len(b) for b in engine.batches] == [6, 6, 6, 6, 6], "first turns are made once"


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=9), st.integers(0, 5))
def test_exchanged_feedback_never_comes_home(owners, seed):
    texts = [f"{owner}{i}" for i, owner in enumerate(owners)]
    if len(set(owners)) < 2:
        with pytest.raises(UsageError, match="two problems"):
            exchanged(texts, owners, seed)
        return
    assert all(text[0] != owner for text, owner in zip(exchanged(texts, owners, seed), owners, strict=True))


def test_a_leak_is_seen_and_whether_it_is_new(engine, math):
    known = Problem.make("question 1", "1", "ours")  # the feedback names the question's 1; so did the attempt
    new = Problem.make("question 9", "3", "ours")  # "number 3" of index 3
    with rollouts(engine, math) as room:
        found = room.episodes([known, new], 4, seed=1)
    assert (found[0].leak, found[0].new_leak) == (True, False)
    assert (found[7].leak, found[7].new_leak) == (True, True) and found[4].leak is False


def test_single_turns(engine, math):
    with rollouts(engine, math, writer=False) as room:
        found = room.single_turns(PROBLEMS, 2, 3)
        assert [e.r1 for e in found] == [0.0] * 6 and all(len(e.turns) == 1 for e in found)
        with pytest.raises(UsageError, match="needs a writer"):
            room.episodes(PROBLEMS, 1, 3)


def test_an_engine_that_tokenises_otherwise_is_refused(tmp_path, math):
    settings = EngineSettings("scripted", tmp_path, options={"script": f"{SCRIPTS}:miscounting"})
    voice = SampledVoice(OnPolicySampler(lambda: ScriptedEngine(settings), tokenizer(), 4096))
    speaker = Speaker(voice, Plain(), Sampling(1.0), "", tokenizer())
    with (
        Rollouts(math, load_turns("math"), speaker) as room,
        pytest.raises(EngineError, match="tokenizers differ"),
    ):
        room.single_turns(PROBLEMS, 1, 3)


def test_a_context_that_is_too_short_is_named_before_anything_is_generated(engine, math):
    with rollouts(engine, math) as room:
        with pytest.raises(ConfigurationError, match=r"may need \d+ tokens.*max_model_len"):
            room.check_lengths(PROBLEMS, 600)
        room.check_lengths(PROBLEMS, 4096)


def test_a_long_fixed_correction_counts(engine, math):
    long = replace(load_turns("math"), correction="again " * 500)
    for templates, fits in ((load_turns("math"), True), (long, False)):
        with rollouts(engine, math, writer=False) as room:
            room.templates = templates
            if fits:
                room.check_lengths(PROBLEMS, 1200)
                continue
            with pytest.raises(ConfigurationError, match="max_model_len"):
                room.check_lengths(PROBLEMS, 1200)


def test_broken_characters_do_not_overflow_a_prompt(engine):
    speaker = Speaker(PlainVoice(engine), Plain(), Sampling(1.0, max_tokens=20), "", tokenizer())
    broken = "\ufffd" * 20 + " \\boxed{2}"
    clipped = speaker.clipped(broken, 20)
    assert len(tokenizer()(clipped)["input_ids"]) <= 24 and clipped.endswith("{2}")
    assert speaker.clipped("short", 20) == "short"


def test_after_an_error_the_environment_ends_what_is_still_judged(engine: Counting) -> None:
    """Would wait for ever if leaving the rollouts waited for the judge: only leaving the environment lets it go."""
    left = Event()

    class Waiting:
        version, callers = "waiting", 1

        def facts(self, problem: Problem) -> dict[str, Any]:
            return {"question": problem.question, "function": "", "tests": []}

        def judge(self, answers: Sequence[tuple[Problem, str]]) -> list[Judged]:
            left.wait()
            raise CancelledError

        def tried(self, answers: Sequence[tuple[Problem, str]]) -> list[str | None]:
            return [None] * len(answers)

        def reveals(self, texts: Sequence[tuple[Problem, str]]) -> list[bool]:
            return [False] * len(texts)

        def __enter__(self) -> "Waiting":
            return self

        def __exit__(self, *error: object) -> None:
            left.set()

    with (
        pytest.raises(RuntimeError, match="the engine died"),
        Waiting() as environment,
        rollouts(engine, environment) as room,
    ):
        room.attempts(PROBLEMS, 1, 0)
        raise RuntimeError("the engine died")
