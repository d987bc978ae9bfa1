"""Completions of prompts through the ledger, and the few-shot prompts of the base (a policy's: `policy`).

A row of `completions.jsonl` is one sample: who was asked what, in which turn, and what came back. The text is the
model's own; nothing is judged here, so that a mended verifier needs no accelerator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reasoner.config.smart import EngineConfig, FewShotConfig, SamplingConfig
from reasoner.errors import DataError, EngineError
from reasoner.ids import content_hash
from reasoner.ledger.owed import Completed
from reasoner.prompts import ChatRenderer, completion, few_shot_prompt, few_shot_turns, load_exemplars
from reasoner.prompts.solution_end import STOPS
from reasoner.records import Completion, GenerationRequest, Problem, Sampling, Strategy
from reasoner.shards.mirror import open_ledger
from reasoner.stages.completions import completed
from reasoner.store.rows import write_rows
from reasoner.workbench import ModelFolder, Workbench, engine_settings

FILE = "completions.jsonl"
NAME_TOKENS = 40
"""Enough for the longest name at a byte a token."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt of which `n` samples are wanted."""

    problem: Problem
    prompt: str
    add_special_tokens: bool
    strategy: str = ""
    """The strategy that the prompt prescribes; empty where the model chooses."""
    turn: int = 1
    tried: tuple[str, ...] = ()
    tried_solutions: tuple[str, ...] = ()
    forced: tuple[Strategy, ...] = ()
    """Where given, response i is made to begin with the name of `forced[i % len(forced)]`."""
    allowed: tuple[Strategy, ...] = ()
    """Where given, the model itself picks one of these names, and can write no other, before it goes on freely."""


def few_shot_asks(
    problems: Sequence[Problem], strategy: Strategy, config: FewShotConfig, model: Path
) -> list[Ask]:
    """The prompts of step 0: worked examples of one strategy, then the question, as the model at `model` takes them."""
    exemplars = load_exemplars(config.exemplars)
    if config.layout == "plain":
        prompts = [few_shot_prompt(exemplars, strategy, p.question, config.shots) for p in problems]
        return [Ask(p, text, True, str(strategy)) for p, text in zip(problems, prompts, strict=True)]
    renderer = ChatRenderer(model)
    turns = [few_shot_turns(exemplars, strategy, p.question, config.shots) for p in problems]
    rendered = [renderer.render(messages) for messages in turns]
    return [Ask(p, *one, str(strategy)) for p, one in zip(problems, rendered, strict=True)]


def few_shot_decoding(config: FewShotConfig, strategy: Strategy) -> SamplingConfig:
    """The configured decoding; a plain text also stops where a solution of this strategy ends."""
    if config.layout == "chat":
        return config.decoding
    return config.decoding.model_copy(update={"stop": (*config.decoding.stop, *STOPS[strategy])})


def shard_of(problems: Sequence[Problem], shard: int, shards: int) -> list[Problem]:
    """Part `shard` (from 0) of `shards`, by hash of the id: every problem is in exactly one part."""
    return [p for p in problems if int(content_hash(p.id, 8), 16) % shards == shard]


def generate(
    out: Path, bench: Workbench, asks: Sequence[Ask], model: ModelFolder, engine: EngineConfig,
    decoding: SamplingConfig, samples: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Write `samples` completions of each ask; returns counts for the manifest."""
    if not asks:
        write_rows(out / FILE, [])
        return {"asked": 0, "owed": 0, "tokens": 0}
    if any(not ask.problem.question.strip() for ask in asks):
        raise DataError("a question is empty")
    wanted = [(ask, index) for ask in asks for index in range(samples)]
    fingerprint = served_fingerprint(model, engine)
    with open_ledger(bench.home, fingerprint[:32]) as ledger:

        def answers(requests: list[GenerationRequest]) -> Completed:
            return completed(
                bench, requests, ledger=ledger, fingerprint=fingerprint,
                engine=lambda: bench.engine(model, engine), settings=engine_settings(model, engine),
            )  # fmt: skip

        starts = _starts(wanted, decoding, seed, answers)
        made = answers(
            [
                _request(ask, start, decoding.sampling(), seed, index)
                for (ask, index), start in zip(wanted, starts, strict=True)
            ]
        )
    rows = [
        _row(ask, index, start, done)
        for (ask, index), start, done in zip(wanted, starts, made.completions, strict=True)
    ]
    write_rows(out / FILE, rows)
    return {
        "asked": len(wanted), "owed": made.made, "found": made.found,
        "tokens": sum(c.completion_tokens for c in made.completions),
        "prompt_tokens": sum(c.prompt_tokens for c in made.completions),
        "cut": sum(c.finish == "length" for c in made.completions),
    }  # fmt: skip


def served_fingerprint(model: ModelFolder, engine: EngineConfig) -> str:
    """Who answers: the weights, the kind of engine and its precision; of a scripted engine, the script too."""
    return content_hash([model.fingerprint, engine.kind, engine.dtype, engine.options.get("script")])


def _starts(
    wanted: Sequence[tuple[Ask, int]],
    decoding: SamplingConfig,
    seed: int,
    completed: Callable[[list[GenerationRequest]], Completed],
) -> list[str]:
    """What each response is made to begin with: nothing, a forced name, or a name that the model picks now."""
    starts = [_name(ask.forced[index % len(ask.forced)]) if ask.forced else "" for ask, index in wanted]
    open_ = [i for i, (ask, _) in enumerate(wanted) if ask.allowed]
    if not open_:
        return starts
    names = [
        replace(
            decoding.sampling(),
            stop=(),
            max_tokens=NAME_TOKENS,
            choices=tuple(map(_name, wanted[i][0].allowed)),
        )
        for i in open_
    ]
    picked = completed(
        [_request(wanted[i][0], "", name, seed, wanted[i][1]) for i, name in zip(open_, names, strict=True)]
    )
    for i, name, done in zip(open_, names, picked.completions, strict=True):
        if done.text not in name.choices:
            raise EngineError(f"the engine wrote {done.text[:40]!r} where only {name.choices} were allowed")
        starts[i] = done.text
    return starts


def _name(strategy: Strategy) -> str:
    return completion(strategy, "").rstrip()


def _request(ask: Ask, start: str, sampling: Sampling, seed: int, index: int) -> GenerationRequest:
    return GenerationRequest(
        ask.problem.id, ask.prompt + start, sampling, seed, index, "", ask.add_special_tokens
    )


def _row(ask: Ask, index: int, start: str, done: Completion) -> dict[str, Any]:
    return {
        "problem_id": ask.problem.id, "gold": ask.problem.gold, "strategy": ask.strategy, "turn": ask.turn,
        "tried": list(ask.tried), "tried_solutions": list(ask.tried_solutions), "index": index,
        "prompt_hash": content_hash(ask.prompt, 16), "text": start + done.text, "finish": done.finish,
        "prompt_tokens": done.prompt_tokens, "completion_tokens": done.completion_tokens,
    }  # fmt: skip
