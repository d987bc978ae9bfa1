"""Estimates of SMART's stages, by the stage's name. Each takes the scene and the stage's arguments.

Lengths come from what will be imitated: a few-shot solution is taken as long as the exemplars' solutions, a policy's as
its records'. Where nothing is known yet a strategy is taken to be right in half of the cases, and the estimate says so.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from reasoner.config.grpo import GrpoConfig
from reasoner.config.smart import AskConfig, FewShotConfig
from reasoner.planning import grpo
from reasoner.planning.estimate import Estimate, Scene
from reasoner.prompts import few_shot_prompt, load_exemplars, load_template
from reasoner.prompts.policy import COMPLETION
from reasoner.records import Strategy

Arguments = dict[str, Any]
CHAT = 30
"""Tokens that a chat template puts around a question: roles and a system turn."""
QUESTION = 60
"""Tokens of a question that nobody has seen yet."""
ANSWER = 120
"""Tokens of an answer that nothing tells the length of."""
MODEL_PASSES = 2
"""How often the base's files are read before anything else: hashed, and looked at by the store."""
CHOICES = 2.6
"""Strategies that a policy uses on one question, over all of its samples."""
RIGHT = 0.5
"""How often a few-shot strategy is taken to be right."""


def rows_of(scene: Scene, arguments: Arguments, split: str) -> float:
    """Questions of a split; `pool` is training and validation."""
    counts: Mapping[str, int] = scene.facts(arguments["problems"]).get("splits", {})
    if split == "pool":
        return float(counts.get("train", 0) + counts.get("validation", 0))
    return float(counts.get(split, 0))


def question_tokens(scene: Scene, arguments: Arguments) -> float:
    return scene.tokens.mean(list(scene.facts(arguments["problems"]).get("questions", [])), QUESTION)


def problems(scene: Scene, arguments: Arguments) -> Estimate:
    """Loading and splitting; what it will hold is counted by whoever walks the flow."""
    return Estimate(2.0, disk_bytes=1 << 20)


def model(scene: Scene, arguments: Arguments) -> Estimate:
    """Nothing for a folder; a download is not counted, since nobody knows the network; a conversion is."""
    weights = scene.arch.weights
    if str(arguments["model"].path).lower().endswith(".gguf"):
        return Estimate(weights * scene.speed.seconds("conversion"), disk_bytes=2 * weights)
    hashed = MODEL_PASSES * 2 * weights * scene.speed.seconds("byte")
    return Estimate(hashed, notes=("without a download of the base",))


def few_shot(scene: Scene, arguments: Arguments) -> Estimate:
    config: FewShotConfig = arguments["few_shot"]
    count = rows_of(scene, arguments, arguments["split"]) / config.shards
    return _few_shot(scene, arguments, arguments["strategy"], config, count, 1)


def few_shot_samples(scene: Scene, arguments: Arguments) -> Estimate:
    control = arguments["control"]
    strategy = Strategy.COT if control.strategy == "best" else Strategy(control.strategy)
    count = rows_of(scene, arguments, "pool")
    return _few_shot(scene, arguments, strategy, arguments["few_shot"], count, control.samples)


def _few_shot(
    scene: Scene, arguments: Arguments, strategy: Strategy, config: FewShotConfig, count: float, samples: int
) -> Estimate:
    exemplars = load_exemplars(config.exemplars)
    shared = scene.tokens.count(few_shot_prompt(exemplars, strategy, "", config.shots)) if config.shots else 0
    texts = [e.solution(strategy) or "" for e in exemplars.exemplars[: config.shots]]
    new = min(config.decoding.max_tokens, scene.tokens.mean(texts, ANSWER) + 2)
    return scene.generation(
        arguments["model"], arguments["engine"], sequences=count * samples, groups=count, shared=shared,
        own=question_tokens(scene, arguments) + 3, new=new, programs=float(strategy is Strategy.POT),
    )  # fmt: skip


def verify(scene: Scene, arguments: Arguments) -> Estimate:
    facts = scene.facts(arguments["completions"])
    rows, share = float(facts.get("rows", 0)), float(facts.get("programs", 1 / 3))
    done = scene.judging(rows, rows * share)
    return _with(done, rows=round(rows), programs=share, new_tokens=facts.get("new_tokens", ANSWER))


def _with(estimate: Estimate, **expected: Any) -> Estimate:
    row = {name: getattr(estimate, name) for name in Estimate.__dataclass_fields__}
    return Estimate(**{**row, "expected": {**estimate.expected, **expected}})


def policy_prompt(scene: Scene, arguments: Arguments, template: str) -> float:
    """Tokens of a policy's prompt."""
    return (
        scene.tokens.count(load_template(template).user_turn("")) + question_tokens(scene, arguments) + CHAT
    )


def solution_tokens(scene: Scene, arguments: Arguments) -> float:
    """How long a policy answers: as its records do, which its model's facts hold; else unknown."""
    return float(scene.facts(arguments["model"]).get("answer_tokens", ANSWER))


def _ask(scene: Scene, arguments: Arguments, prompts: float, extra: float = 0.0) -> Estimate:
    how: AskConfig = arguments["how"]
    name = scene.tokens.count(COMPLETION.format(title=Strategy.COT.title, solution=""))
    new = min(how.decoding.max_tokens, solution_tokens(scene, arguments) + name)
    return scene.generation(
        arguments["model"], how.engine, sequences=prompts * how.samples, groups=prompts, shared=0,
        own=policy_prompt(scene, arguments, how.prompt.template) + extra, new=new, programs=1 / 3,
    )  # fmt: skip


def answer(scene: Scene, arguments: Arguments) -> Estimate:
    return _ask(scene, arguments, rows_of(scene, arguments, arguments["split"]))


def answer_again(scene: Scene, arguments: Arguments) -> Estimate:
    return _ask(scene, arguments, rows_of(scene, arguments, arguments["split"]), _context(scene, arguments))


def sample(scene: Scene, arguments: Arguments) -> Estimate:
    return _ask(scene, arguments, rows_of(scene, arguments, "pool"))


def retry(scene: Scene, arguments: Arguments) -> Estimate:
    """A second turn is asked for each strategy that failed."""
    asked = rows_of(scene, arguments, "pool") * CHOICES * (1 - RIGHT)
    most = arguments["config"].max_turn2
    found = _ask(scene, arguments, min(asked, most or asked), _context(scene, arguments))
    return (
        found
        if most and most < asked
        else _noted(found, f"{CHOICES * (1 - RIGHT):.1f} second turns a question")
    )


def _context(scene: Scene, arguments: Arguments) -> float:
    full = arguments["how"].prompt.refine_context == "full"
    return solution_tokens(scene, arguments) if full else 4.0


def _noted(estimate: Estimate, note: str) -> Estimate:
    row = {name: getattr(estimate, name) for name in Estimate.__dataclass_fields__}
    return Estimate(**{**row, "notes": (*estimate.notes, note)})


def records_epoch1(scene: Scene, arguments: Arguments) -> Estimate:
    """Expected records a question of strategies that are right independently of each other (METHODS 2.5)."""
    config, given = arguments["config"], [scene.facts(ref) for ref in arguments["attempts"]]
    right = [float(facts.get("right", RIGHT)) for facts in given]
    none, every = math.prod(1 - p for p in right), math.prod(right)
    direct = sum(right) if config.direct == "all_correct" else 1 - none
    refine = 0.0
    if config.refine:
        pairs = sum(right) * sum(1 - p for p in right) - sum(p * (1 - p) for p in right)
        refine = pairs if config.refine_pairs == "all" else 1 - none - every
    each = direct * config.direct_subsample + refine
    lengths = [float(facts.get("new_tokens", ANSWER)) for facts in given]
    mean = sum(lengths) / len(lengths) if lengths else ANSWER
    known = all("right" in facts for facts in given)
    made = _records(scene, arguments, each, config.max_records, mean)
    return made if known else _noted(made, "strategies taken to be right in half of the cases")


def records_later(scene: Scene, arguments: Arguments) -> Estimate:
    """Records a question: of each strategy that is right as many as are kept, and one for each second turn."""
    config, first, second = arguments["config"], arguments["turn1"], arguments["turn2"]
    new = float(scene.facts(first).get("new_tokens", ANSWER))
    pool = rows_of(scene, arguments, "pool")
    turns = float(scene.facts(second).get("rows", 0)) / config.samples / pool if pool else 0.0
    each = CHOICES * RIGHT * config.keep_per_strategy + turns
    made = _records(scene, arguments, each, config.max_records, new)
    return _noted(made, f"{each:.1f} records a question")


def records_rejected(scene: Scene, arguments: Arguments) -> Estimate:
    given = [scene.facts(ref) for ref in arguments["attempts"]]
    rows = sum(float(facts.get("rows", 0)) for facts in given)
    pool = rows_of(scene, arguments, "pool")
    each = min(arguments["config"].keep, RIGHT * rows / pool) if pool else 0.0
    new = float(given[0].get("new_tokens", ANSWER)) if given else ANSWER
    return _records(scene, arguments, each, arguments["config"].max_records, new)


def records_given(scene: Scene, arguments: Arguments) -> Estimate:
    return _records(scene, arguments, 1.0, arguments["max_records"], ANSWER)


def shuffle_labels(scene: Scene, arguments: Arguments) -> Estimate:
    return Estimate(0.2, expected=dict(scene.facts(arguments["records"])))


def _records(scene: Scene, arguments: Arguments, each: float, most: int | None, solution: float) -> Estimate:
    counts: Mapping[str, int] = scene.facts(arguments["problems"]).get("splits", {})
    number = {s: round(min(each * counts.get(s, 0), most or math.inf)) for s in ("train", "validation")}
    expected = {**number, "solution_tokens": solution, "question_tokens": question_tokens(scene, arguments)}
    return Estimate(0.5, disk_bytes=1000 * sum(number.values()), expected=expected)


def train(scene: Scene, arguments: Arguments) -> Estimate:
    facts = scene.facts(arguments["records"])
    template = load_template(arguments["prompt"].template)
    prompt = scene.tokens.count(template.user_turn("")) + facts.get("question_tokens", QUESTION) + CHAT
    name = scene.tokens.count(COMPLETION.format(title=Strategy.COT.title, solution=""))
    done = scene.training(
        arguments["config"], records=facts.get("train", 0), validation=facts.get("validation", 0), prompt=prompt,
        completion=facts.get("solution_tokens", ANSWER) + name + 1,
    )  # fmt: skip
    return _with(done, answer_tokens=facts.get("solution_tokens", ANSWER))


def train_grpo(scene: Scene, arguments: Arguments) -> Estimate:
    """Every step generates for all of its completions; a third of them is taken to be programs."""
    scene.engine = ""
    config: GrpoConfig = arguments["grpo"]
    engine = grpo.engine_of(config, arguments["engine"])
    start = scene.started(arguments["model"], engine)
    each = config.batch_size * config.grad_accum
    prompt = policy_prompt(scene, arguments, arguments["prompt"].template)
    answered = solution_tokens(scene, arguments)
    sampled = scene.generation(
        arguments["model"], engine, sequences=each,
        groups=each / config.num_generations, shared=0, own=prompt,
        new=min(answered, config.max_completion_length), programs=1 / 3,
    )  # fmt: skip
    judged = scene.judging(each, each / 3)
    return grpo.training(scene, config, prompt, answered, start, (sampled, judged), ())


def merge(scene: Scene, arguments: Arguments) -> Estimate:
    facts = scene.facts(arguments["records"])
    return _with(scene.merging(), answer_tokens=facts.get("solution_tokens", ANSWER))


def contamination(scene: Scene, arguments: Arguments) -> Estimate:
    """Every question's MinHash."""
    counts: Mapping[str, int] = scene.facts(arguments["problems"]).get("splits", {})
    each = scene.speed.seconds("compared-question")
    return Estimate(1.0 + each * sum(counts.values()), disk_bytes=50_000)


def small(seconds: float) -> Callable[[Scene, Arguments], Estimate]:
    """A stage that only counts."""
    return lambda scene, arguments: Estimate(seconds, disk_bytes=50_000)


ESTIMATORS: dict[str, Callable[[Scene, Arguments], Estimate]] = {
    "problems": problems, "model": model, "few-shot": few_shot, "few-shot-samples": few_shot_samples,
    "verify": verify, "analysis": small(0.8), "sample": sample, "retry": retry, "answer": answer,
    "answer-again": answer_again, "records-epoch1": records_epoch1, "records-later": records_later,
    "records-rejected": records_rejected, "records-given": records_given, "shuffle-labels": shuffle_labels,
    "train": train, "telling-questions": grpo.telling_questions, "grpo": train_grpo, "merge": merge,
    "gate": small(0.1), "convergence": small(0.1),
    "evaluation": small(0.5), "report": small(0.5), "contamination": contamination, "clean-scores": small(0.3),
}  # fmt: skip
