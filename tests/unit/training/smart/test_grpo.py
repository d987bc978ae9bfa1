"""GRPO steps of a tiny policy through TRL on the on-policy loop, paid by real verdicts.

Wrong if a reward is not the verdict that `verify` gives the same text, if the prompt is not that of an evaluation, if
base and adapter are confused, if a resumed run differs from one that was not interrupted, or if the policy does not
learn what is paid.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.smart import AskConfig, SamplingConfig, SmartVerifyConfig
from reasoner.engines.prompts import encode_prompts
from reasoner.engines.start import open_engine
from reasoner.errors import InfrastructureError
from reasoner.ids import file_hash
from reasoner.records import GenerationRequest, Problem, Sampling, Strategy
from reasoner.sandbox import Sandbox
from reasoner.stages import policy as asking
from reasoner.stages import verdicts
from reasoner.store.rows import write_rows
from reasoner.training.adapter import WEIGHTS
from reasoner.training.grpo import program, sampling
from reasoner.training.grpo.journal import EXAMPLES, METRICS, read_rows
from reasoner.training.smart import grpo
from reasoner.training.smart.spec import SmartGrpoSpec
from tests.unit.training.smart.policy import PROMPT, learnt_to_choose, make_grpo, problems

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def base(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learnt_to_choose(tmp_path_factory.mktemp("policy"))


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same engine without a process of its own, which costs seconds."""
    monkeypatch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))


def run(spec: SmartGrpoSpec, report: Callable[..., Any] = lambda **_: None) -> list[str]:
    lines: list[str] = []
    grpo.train(spec, report, lines.append)
    return lines


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / WEIGHTS)


class Killed(Exception):
    pass


def test_rewards_are_the_verdicts_of_verify_and_a_killed_run_ends_as_a_whole_one(
    base: Path, tmp_path: Path
) -> None:
    import torch

    before = {p.name: file_hash(p) for p in base.iterdir()}
    spec = make_grpo(base, tmp_path / "whole", max_steps=4, example_rows=16)
    run(spec)
    assert {p.name: file_hash(p) for p in base.iterdir()} == before
    new = weights(spec.output)
    assert all(torch.isfinite(w).all() for w in new.values())
    assert any(w.any() for name, w in new.items() if "lora_B" in name), "B begins as zero"

    examples, numbers = read_rows(spec.output / EXAMPLES), read_rows(spec.output / METRICS)
    assert len(examples) == 64 and [row["step"] for row in numbers] == [1, 2, 3, 4]
    rows = [
        {"problem_id": e["problem_id"], "gold": e["gold"], "strategy": "", "turn": 1, "tried": [],
         "tried_solutions": [], "index": i, "prompt_hash": "h", "text": e["response"], "finish": e["finish"],
         "prompt_tokens": 1, "completion_tokens": e["tokens"]}
        for i, e in enumerate(examples)
    ]  # fmt: skip
    write_rows(tmp_path / "completions.jsonl", rows)
    verdicts.judge(tmp_path, tmp_path, SmartVerifyConfig())
    judged = verdicts.read([tmp_path])
    assert {a.right for a in judged} == {True, False}
    for attempt, example in zip(judged, examples, strict=True):
        assert example["reward"] == float(attempt.right and example["finish"] == "stop")
        assert example["strategy"] == attempt.strategy and example["reason"] == attempt.verdict.reason
    for number in numbers:
        own = [a for a, e in zip(judged, examples, strict=True) if e["step"] == number["step"]]
        assert number["smart/correct"] == pytest.approx(sum(a.right for a in own) / 16)
        assert number["smart/pot"] == pytest.approx(sum(a.strategy is Strategy.POT for a in own) / 16)
    assert numbers[0]["sampler_trainer_difference"] < 0.02
    training = json.loads((spec.output / "training.json").read_text())
    assert {"reward", "correct", "pot", "tokens", "sampler_trainer_difference"} <= training["curves"][
        0
    ].keys()
    times = json.loads((spec.work / "metrics.json").read_text())
    assert min(times["time/generate"], times["time/verdict"], times["time/sync"]) > 0

    def die(**facts: Any) -> None:
        if facts["done"] == 4:
            raise Killed

    other = make_grpo(base, tmp_path / "resumed", max_steps=4, example_rows=16)
    with pytest.raises(Killed):
        run(other, die)
    assert "going on from step 3" in run(other), "in the second epoch"
    for name in (WEIGHTS, METRICS, EXAMPLES, "training.json"):
        assert file_hash(other.output / name) == file_hash(spec.output / name), name


def test_the_policy_learns_the_strategy_that_is_right(base: Path, tmp_path: Path) -> None:
    """It knows right programs and wrong prose, and begins with about as many of each."""
    spec = make_grpo(base, tmp_path, max_steps=16, save_steps=16, lr=2e-3, scheduler="constant", batch_size=16,
                     num_generations=8)  # fmt: skip
    run(spec)
    numbers = read_rows(spec.output / METRICS)

    def mean(name: str, rows: list[dict[str, Any]]) -> float:
        return sum(row[f"smart/{name}"] for row in rows) / len(rows)

    for name in ("correct", "pot"):
        assert mean(name, numbers[-4:]) > max(0.75, mean(name, numbers[:2]) + 0.15), name


def test_the_prompt_is_that_of_a_first_attempt_at_evaluation(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, tuple[int, ...]] = {}
    plain = sampling.OnPolicySampler.sample

    def watched(self: Any, requests: Any, **named: Any) -> Any:
        found = plain(self, requests, **named)
        seen.update({sample.request.prompt: sample.prompt_ids for sample in found})
        return found

    monkeypatch.setattr(sampling.OnPolicySampler, "sample", watched)
    spec = make_grpo(base, tmp_path)
    run(spec)
    how = AskConfig(decoding=SamplingConfig(), samples=1, choice="policy", strategies=tuple(Strategy), prompt=PROMPT,
                    engine=spec.engine)  # fmt: skip
    asks = asking.asks(problems(), None, how, base, 0)
    from reasoner.training.runtime import load_tokenizer

    requests = [
        GenerationRequest(a.problem.id, a.prompt, Sampling(), 0, 0, "", a.add_special_tokens) for a in asks
    ]
    evaluated = [tuple(ids) for ids in encode_prompts(load_tokenizer(base), requests, 512)]
    assert len(seen) == 8 and sorted(seen.values()) == sorted(evaluated)


def test_without_a_right_answer_nothing_moves_and_unscored_ones_stop_the_run(
    base: Path, tmp_path: Path
) -> None:
    never = [Problem.make(p.question, "-1", "pens") for p in problems()]
    spec = make_grpo(base, tmp_path / "never", max_steps=1, rows_of=never)
    run(spec)
    row = read_rows(spec.output / METRICS)[0]
    assert row["smart/groups_used"] == 0 and row["grad_norm"] == 0
    assert not any(w.any() for name, w in weights(spec.output).items() if "lora_B" in name)

    unreadable = [Problem.make(p.question, "many", "pens") for p in problems()]
    with pytest.raises(InfrastructureError, match=r"verify\.max_unscored"):
        run(make_grpo(base, tmp_path / "unscored", max_steps=1, rows_of=unreadable))


def test_what_is_judged_otherwise_is_another_training(base: Path, tmp_path: Path) -> None:
    """A work folder is taken up again only by the same training."""
    spec = make_grpo(base, tmp_path)
    other = make_grpo(base, tmp_path, verify=SmartVerifyConfig(by_form=True))
    assert SmartGrpoSpec.load(spec.save(tmp_path / "grpo.json")) == spec
    keys = {
        program.identity(s, grpo.smart_method(s), "cpu") for s in (spec, other, make_grpo(base, tmp_path))
    }
    assert len(keys) == 2
