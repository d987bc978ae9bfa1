"""Few-shot solutions of the base and samples of a policy, both through the completion ledger.

A row of `completions.jsonl` is one sample: who was asked what, in which turn, and what came back. The text is the
model's own; nothing is judged here, so that a mended verifier needs no accelerator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.smart import EngineConfig, FewShotConfig, PromptConfig, SamplingConfig
from reasoner.errors import DataError
from reasoner.ids import content_hash
from reasoner.ledger import Ledger
from reasoner.ledger.owed import complete
from reasoner.prompts import Attempt, ChatRenderer, few_shot_prompt, load_exemplars, load_template
from reasoner.prompts.solution_end import STOPS
from reasoner.records import Completion, GenerationRequest, Problem, Strategy
from reasoner.store.rows import write_rows
from reasoner.workbench import ModelFolder, Workbench

FILE = "completions.jsonl"


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


def few_shot_asks(problems: Sequence[Problem], strategy: Strategy, config: FewShotConfig) -> list[Ask]:
    """The prompts of step 0: worked examples of one strategy, then the question."""
    exemplars = load_exemplars(config.exemplars)
    return [
        Ask(p, few_shot_prompt(exemplars, strategy, p.question, config.shots), True, str(strategy))
        for p in problems
    ]


def few_shot_decoding(decoding: SamplingConfig, strategy: Strategy) -> SamplingConfig:
    """The configured decoding, which also stops where a solution of this strategy ends."""
    return decoding.model_copy(update={"stop": (*decoding.stop, *STOPS[strategy])})


def policy_asks(
    problems: Sequence[Problem],
    tried: dict[str, list[tuple[str, str]]] | None,
    prompt: PromptConfig,
    model: Path,
) -> list[Ask]:
    """The policy's prompts: turn 1 of every problem, or turn 2 of those in `tried`.

    `tried` maps a problem's id to pairs (failed strategy, failed solution), each a turn-2 prompt of its own.
    """
    template, renderer = load_template(prompt.template), ChatRenderer(model)
    asks = []
    for problem in problems:
        pairs: list[tuple[str, str] | None] = [None] if tried is None else [*tried.get(problem.id, [])]
        for pair in pairs:
            failed = [] if pair is None else [pair]
            told = [Attempt(Strategy(strategy), solution) for strategy, solution in failed]
            messages = template.messages(problem.question, told, prompt.refine_context)
            text, special = renderer.render(messages)
            asks.append(Ask(problem, text, special, "", 1 if pair is None else 2,
                            tuple(s for s, _ in failed), tuple(t for _, t in failed)))  # fmt: skip
    return asks


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
    requests = [
        GenerationRequest(
            ask.problem.id, ask.prompt, decoding.sampling(), seed, index, "", ask.add_special_tokens
        )
        for ask in asks
        for index in range(samples)
    ]
    fingerprint = served_fingerprint(model, engine)
    with Ledger(bench.home.ledger / fingerprint[:32]) as ledger:
        made = complete(
            requests, ledger=ledger, fingerprint=fingerprint,
            engine=lambda: bench.engine(model, engine),
            on_progress=bench.child_progress,
        )  # fmt: skip
    owners = [ask for ask in asks for _ in range(samples)]
    rows = [
        _row(ask, request, done)
        for ask, request, done in zip(owners, requests, made.completions, strict=True)
    ]
    write_rows(out / FILE, rows)
    return {
        "asked": len(requests), "owed": made.made, "found": made.found,
        "tokens": sum(c.completion_tokens for c in made.completions),
        "prompt_tokens": sum(c.prompt_tokens for c in made.completions),
        "cut": sum(c.finish == "length" for c in made.completions),
    }  # fmt: skip


def served_fingerprint(model: ModelFolder, engine: EngineConfig) -> str:
    """Who answers: the weights, the kind of engine and its precision; of a scripted engine, the script too."""
    return content_hash([model.fingerprint, engine.kind, engine.dtype, engine.options.get("script")])


def _row(ask: Ask, request: GenerationRequest, done: Completion) -> dict[str, Any]:
    return {
        "problem_id": ask.problem.id, "gold": ask.problem.gold, "strategy": ask.strategy, "turn": ask.turn,
        "tried": list(ask.tried), "tried_solutions": list(ask.tried_solutions), "index": request.index,
        "prompt_hash": content_hash(ask.prompt, 16), "text": done.text, "finish": done.finish,
        "prompt_tokens": done.prompt_tokens, "completion_tokens": done.completion_tokens,
    }  # fmt: skip
