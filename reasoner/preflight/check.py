"""`reasoner plan NAME --check`: all gates in seconds, with the functions that the run calls.

What cannot be known before the run (the log-probabilities of sampler and trainer) is tried on made-up numbers: a gate
that lets a wrong policy through is told, and its limit.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.planner import PlannerConfig
from reasoner.config.training import TrainConfig
from reasoner.errors import ReasonerError, TrainingError
from reasoner.preflight import mask, rewards, template
from reasoner.prompts import ChatRenderer
from reasoner.records import Record, TrainingExample


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """One gate: passed, or a line with what to do."""

    gate: str
    passed: bool
    line: str


def examine(config: Any, folder: Path | None, device: str, refusals: Sequence[str]) -> Iterator[Finding]:
    """The gates of a configuration. `folder` holds the base, `refusals` are the plan's on memory and disk."""
    yield Finding("memory and disk", not refusals, "; ".join(refusals) or "fit")
    if folder is None:
        yield Finding(
            "base model", False, f"{config.model.path} is not on this machine; fetch it first (hf download)"
        )
        return
    yield _tried("chat template", lambda: _template(folder))
    train = _training_of(config)
    if train is not None:
        yield _tried("loss mask", lambda: _mask(folder, train))
        yield _tried("packing", lambda: _packing(folder, train, device))
    if isinstance(config, PlannerConfig):
        yield _tried("one reward a completion", lambda: _rewards(config))
    if not hasattr(config, "epoch1") or config.grpo.enabled:
        yield _tried("log-probability drift", lambda: _drift(config, device))


def _tried(gate: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(gate, True, look())
    except ReasonerError as error:
        return Finding(gate, False, str(error))


def _training_of(config: Any) -> TrainConfig | None:
    """The supervised training of a pipeline, if it has one."""
    if hasattr(config, "train_for"):
        found: TrainConfig = config.train_for(1)
        return found
    sft = getattr(config, "sft", None)
    return sft.train if sft is not None and sft.enabled else None


def _template(folder: Path) -> str:
    from reasoner.training import runtime

    renderer = ChatRenderer(folder)
    template.require_prefix(renderer)
    if renderer.end_token_id is None:
        raise TrainingError(f"{folder}: no tokenizer, so nothing can be trained; give a model with one")
    stops = runtime.stop_ids(folder, runtime.load_tokenizer(folder))
    template.require_stop(folder.name, renderer.end_token, renderer.end_token_id, stops)
    return f"prefix-preserving, answers end with {renderer.end_token!r}"


def _mask(folder: Path, train: TrainConfig) -> str:
    """Two records of unlike length through the real tokenizer and TRL's own collator."""
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    from reasoner.training import runtime
    from reasoner.training.examples import Encoder

    renderer, tokenizer = ChatRenderer(folder), runtime.load_tokenizer(folder)
    encoder = Encoder(tokenizer, renderer.end_token, add_special_tokens=not renderer.has_chat_template)
    texts = (
        ("What is 2 + 3?", "The answer is 5."),
        ("How many legs have 3 cats and 2 birds?", "12 + 4 = 16."),
    )
    made = [
        TrainingExample(
            f"probe {i}", renderer.render([{"role": "user", "content": q}]).text, renderer.completion_text(a)
        )
        for i, (q, a) in enumerate(texts)
    ]
    kept = encoder.encode_all(made, train.max_length).kept
    if not kept:
        raise TrainingError(f"train.max_length={train.max_length} leaves no record; raise it")
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else encoder.end_id
    rows = [{"input_ids": list(e.input_ids), "labels": e.labels} for e in kept]
    mask.check_batches(kept, rows, DataCollatorForLanguageModeling(pad_token_id=padding), encoder, len(kept))
    inside = sum(label != mask.IGNORED for e in kept for label in e.labels)
    return f"{inside} tokens of {len(kept)} probes are learnt, each to its end token"


def _packing(folder: Path, train: TrainConfig, device: str) -> str:
    from reasoner.training import packing

    precision = train.precision if train.precision != "auto" else "fp32" if device == "cpu" else "bf16"
    said: list[str] = []
    base = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    chosen = packing.choose(train.packing, "cpu" if device == "cpu" else "cuda", precision, base, said.append)
    return "packed rows" if chosen.packed else (said[0] if said else "padded batches")


def _rewards(config: PlannerConfig) -> str:
    """A step's made-up scores through the reward and its filter."""
    from reasoner.methods.planner.reward import Scored, combine, mask_groups

    group = config.grpo.num_generations
    right = [1.0 if i % 2 else 0.0 for i in range(group)]
    paid = [combine(config.reward, valid=True, correct=c, efficiency=0.5, independence=0.5) for c in right]
    rewards.require_one_each(paid, group, config.reward.function or f"reward.mode={config.reward.mode}")
    scored = [Scored(True, True, c, 0.5, 0.5, 1.0, 1, 0, False, r) for c, r in zip(right, paid, strict=True)]
    masked = mask_groups(scored, group, config.reward)
    rewards.require_one_each(masked, group, "the reward's filter")
    if not any(masked):
        raise TrainingError("every right plan is paid nothing; look at reward.*_weight")
    return f"{group} rewards a group, {sum(r is None for r in masked)} masked"


def _drift(config: Any, device: str) -> str:
    from reasoner.onpolicy.gate import OffPolicyError

    grpo = getattr(config, "grpo", None)
    if grpo is not None and not grpo.enabled:
        return "nothing is sampled from a policy that changes"
    limit, check = _gate_of_grpo(config, device) if grpo is not None else _gate_of_the_loop(config, device)
    check(0.0)
    try:
        check(2 * limit)
    except OffPolicyError:
        return f"step 0 of the run is refused above {limit:g} nats a token"
    raise TrainingError(f"a limit of {limit:g} nats refuses no policy; lower it")


def _gate_of_grpo(config: Any, device: str) -> tuple[float, Callable[[float], Any]]:
    """TRL's hook: its limit, and a trial of a first step whose sampler is so many nats a token off."""
    from reasoner.training.grpo.sampling import gate_of

    fresh = _training_of(config) is None or not getattr(config.grpo, "warm_start", True)

    def gate() -> Any:
        return gate_of(config.engine, config.grpo, device, fresh=fresh)

    return gate().threshold, lambda off: gate().check([[-1.0 - off] * 2], [[-1.0] * 2])


def _gate_of_the_loop(config: Any, device: str) -> tuple[float, Callable[[float], Any]]:
    """The multi-turn loop: as `_gate_of_grpo`."""
    from reasoner.methods.multiturn.episode import Kind
    from reasoner.training.multiturn.gate import LoopGate
    from reasoner.training.multiturn.scoring import Scored

    gate, key = LoopGate(config, device), (0, Kind.ATTEMPT)

    def check(off: float) -> None:
        base, sampler = {key: [-1.0] * 2}, {key: [-1.0 - off] * 2}
        gate.check(Scored({key: 0.0}, base, sampler, base, off, 1.0, 0.0), 1, fresh=True)

    return gate.threshold(fresh=True), check
