"""Asks a model every problem of a data set, judges the answers and measures them; owed completions only.

`rows.jsonl` holds one judged sample a row, as `compare` takes them; `evaluation.json` the measures. Golds are numbers
(METHODS 1.1.1); LaTeX golds and programs with tests are evaluated by the multi-turn flow.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from reasoner.config.evaluate import EvaluateConfig
from reasoner.config.smart import AskConfig, FewShotConfig, PromptConfig
from reasoner.errors import InfrastructureError
from reasoner.evaluation.measure import measure
from reasoner.evaluation.target import Target, find_target
from reasoner.methods.smart.attempts import Attempt
from reasoner.problems.loading import load_problems
from reasoner.prompts import few_shot_turns, load_exemplars, load_template
from reasoner.prompts.policy import Message
from reasoner.records import Completion, GenerationRequest, Outcome, Problem, Strategy, Verdict
from reasoner.serving.client import render_messages
from reasoner.shards.mirror import open_ledger
from reasoner.stages import policy
from reasoner.stages.completions import completed
from reasoner.stages.generation import Ask, few_shot_asks, few_shot_decoding
from reasoner.stages.smart import write_json
from reasoner.stages.verdicts import judged
from reasoner.store.rows import write_rows
from reasoner.verifiers import solutions
from reasoner.workbench import Workbench

ROWS, FACTS = "rows.jsonl", "evaluation.json"


def evaluate(out: Path, bench: Workbench, config: EvaluateConfig) -> dict[str, Any]:
    """Write rows.jsonl and evaluation.json into `out`; returns what was made now, for the manifest."""
    loaded = load_problems(config.data)
    target = find_target(config, bench)
    asks = _asks(loaded.problems, target, config)
    completions, counts = _complete(asks, target, bench, config)
    rows = [
        {
            "problem_id": ask.problem.id, "gold": ask.problem.gold, "strategy": ask.strategy, "turn": 1, "tried": [],
            "index": index, "text": done.text, "finish": done.finish,
        }
        for (ask, index), done in zip(_wanted(asks, config.samples), completions, strict=True)
    ]  # fmt: skip
    attempts = judged(rows, config.verify, bench.child_progress)
    _write(out, config, target, loaded.problems, attempts, completions)
    return {**counts, "data": loaded.fingerprint, "left_out": loaded.counts(), "verifier": solutions.VERSION}


def _wanted(asks: Sequence[Ask], samples: int) -> list[tuple[Ask, int]]:
    return [(ask, index) for ask in asks for index in range(samples)]


def _asks(problems: Sequence[Problem], target: Target, config: EvaluateConfig) -> list[Ask]:
    """The prompts: worked examples as one text or as turns, or the turn of a policy."""
    if config.strategy == "policy":
        template = load_template(config.template)
        if target.folder is None:
            return [_served_ask(p, template.messages(p.question), "") for p in problems]
        how = AskConfig(
            decoding=config.decoding, samples=config.samples, choice="policy", strategies=tuple(Strategy),
            prompt=PromptConfig(template=config.template), engine=config.engine,
        )  # fmt: skip
        return policy.asks(problems, None, how, target.folder, config.seed)
    strategy, few_shot = Strategy(config.strategy), _few_shot(config)
    if target.folder is not None or few_shot.layout == "plain":
        return few_shot_asks(problems, strategy, few_shot, target.folder or Path())
    exemplars = load_exemplars(few_shot.exemplars)
    return [
        _served_ask(p, few_shot_turns(exemplars, strategy, p.question, few_shot.shots), str(strategy))
        for p in problems
    ]


def _few_shot(config: EvaluateConfig) -> FewShotConfig:
    layout: Literal["plain", "chat"] = "chat" if config.as_chat else "plain"
    return FewShotConfig(
        exemplars=config.exemplars, shots=config.shots, layout=layout, decoding=config.decoding
    )


def _served_ask(problem: Problem, messages: list[Message], strategy: str) -> Ask:
    """A conversation that a server renders."""
    return Ask(problem, *render_messages(messages), strategy)


def _complete(
    asks: Sequence[Ask], target: Target, bench: Workbench, config: EvaluateConfig
) -> tuple[list[Completion], dict[str, int]]:
    """Completions through the ledger, and how many were made now."""
    decoding = config.decoding
    if config.strategy != "policy":
        decoding = few_shot_decoding(_few_shot(config), Strategy(config.strategy))
    requests = [
        GenerationRequest(
            ask.problem.id, ask.prompt, decoding.sampling(), config.seed, index, target.adapter, ask.add_special_tokens
        )
        for ask, index in _wanted(asks, config.samples)
    ]  # fmt: skip
    with open_ledger(bench.home, target.fingerprint[:32]) as ledger:
        made = completed(
            bench, requests, ledger=ledger, fingerprint={target.adapter: target.fingerprint}, engine=target.start,
            settings=target.settings, adapters=target.adapters,
        )  # fmt: skip
    tokens = sum(c.completion_tokens for c in made.completions)
    return made.completions, {
        "asked": len(requests),
        "owed": made.made,
        "found": made.found,
        "tokens": tokens,
    }


def _write(
    out: Path, config: EvaluateConfig, target: Target, problems: Sequence[Problem], attempts: Sequence[Attempt],
    completions: Sequence[Completion],
) -> None:  # fmt: skip
    texts = {p.id: p for p in problems}
    verdicts: dict[str, list[Verdict]] = {}
    rows = []
    for attempt in attempts:
        verdict, problem = attempt.verdict, texts[attempt.problem_id]
        verdicts.setdefault(problem.id, []).append(verdict)
        rows.append({
            "dataset": problem.dataset, "problem_id": problem.id, "question": problem.question, "gold": problem.gold,
            "index": attempt.index, "answer": verdict.extracted, "outcome": verdict.outcome.value,
            "reason": verdict.reason, "finish": attempt.finish, "text": attempt.text,
        })  # fmt: skip
    unscored = [v for vs in verdicts.values() for v in vs if v.outcome is Outcome.UNSCORED]
    if len(unscored) > config.verify.max_unscored * len(attempts):
        reasons = Counter(v.reason for v in unscored).most_common(2)
        raise InfrastructureError(
            f"{len(unscored)} of {len(attempts)} verdicts are unscored ({reasons}), more than verify.max_unscored="
            f"{config.verify.max_unscored}; mend the cause and run the same command again"
        )
    found = measure(verdicts, sum(c.finish == "length" for c in completions), config.confidence, config.seed)
    write_rows(out / ROWS, rows)
    facts = {
        "model": target.name, "made_by": target.fingerprint, "dataset": config.data.name, "strategy": config.strategy,
        "decoding": config.decoding.model_dump(), "seed": config.seed, "confidence": config.confidence,
        "shots": 0 if config.strategy == "policy" else config.shots, "chat": config.as_chat, **found.to_row(),
    }  # fmt: skip
    write_json(out / FACTS, facts)
