"""The multi-turn gate: narrow by precision at first, then a stop on drift, each with its likely cause.

Wrong if a run goes on whose engine no longer gets the adapters, if an ordinary run is stopped, if a fault passes the
limit of its precision, or if it is named as another.
"""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from reasoner.engines.start import open_engine
from reasoner.methods.multiturn.episode import Episode, Judged
from reasoner.onpolicy.diagnosis import UNKNOWN
from reasoner.onpolicy.gate import DRIFT_STOP, THRESHOLDS, OffPolicyError
from reasoner.onpolicy.memory import MicroBatches
from reasoner.records import Outcome, Verdict
from reasoner.store.rows import read_rows
from reasoner.training.multiturn import sampling
from reasoner.training.multiturn.gate import GATED, UNSENT, LoopGate
from reasoner.training.multiturn.loop import METRICS, Loop
from reasoner.training.multiturn.scoring import score, turns_of
from tests.support.signal import write_templates
from tests.unit.training.multiturn.conftest import PROBLEMS, REWARDS, build, change, config, sampled

STALE = 3
"""The iteration, from 1, from which on the engine samples with old adapters."""
EXACT: dict[str, Any] = {"engine": {"kind": "transformers", "dtype": "float32"}, "precision": "fp32"}


def rewarded(episodes: Sequence[Episode]) -> list[Episode]:
    """Every other episode is told to be right, so that there is something to learn."""
    found = []
    for i, e in enumerate(episodes):
        judged = Judged(Verdict(Outcome.CORRECT if i % 2 else Outcome.INCORRECT, "test"))
        second = e.refinement and replace(e.refinement, judged=judged)
        found.append(replace(e, attempt=replace(e.attempt, judged=judged), refinement=second))
    return found


def run(
    base: Path, tokenizer: Any, processes: Any, work: Path, monkeypatch: pytest.MonkeyPatch, stale: bool,
    **fields: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Six iterations at a high rate; with `stale` the engine gets no adapter from iteration `STALE` on."""
    monkeypatch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))
    prompts = str(write_templates(work / "prompts.yaml", "hint"))
    rate = {"lm_lr": 3e-2, "guidance_lr": 3e-2}
    fields = {**EXACT, **rate, "iterations": 6, "eval_freq": 9, "prompts": prompts, **fields}
    settings, problems = config(**fields), list(PROBLEMS.values())
    learned = build(base, tokenizer, processes, **fields)
    loop = Loop(
        settings, work, learned, processes, problems, problems, None, lambda **_: None, lambda _: None
    )
    with sampling.open_sampler(settings, base, None, work, 512, loop.parts) as sampler:
        rollout, sync = sampler.rollout, sampler.sync
        monkeypatch.setattr(sampler, "rollout", lambda p, seed: rewarded(rollout(p, seed)))
        if (
            stale
        ):  # the adapters of an iteration are sent by the one before, of which `state.step` are finished
            monkeypatch.setattr(sampler, "sync", lambda p: sync(p) if loop.state.step < STALE - 2 else None)
        loop.sampler = sampler
        loop.run()
    return read_rows(work / METRICS)


def test_an_engine_that_no_longer_gets_the_adapters_ends_the_run(
    base: Path, tokenizer: Any, processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OffPolicyError) as caught:
        run(base, tokenizer, processes, tmp_path, monkeypatch, stale=True)
    head, _, cause = str(caught.value).partition(": was the adapter sent after the last step? ")
    assert re.fullmatch(
        r"iteration 3: sampler and trainer differ by \d\.\d{3} nats a token \(limit 0\.5\)", head
    )
    assert cause == UNKNOWN, "a stale adapter is neither the base nor a fault of tokens"
    assert len(read_rows(tmp_path / METRICS)) == STALE - 1


def test_an_ordinary_run_at_the_same_rate_goes_to_its_end(
    base: Path, tokenizer: Any, processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = run(base, tokenizer, processes, tmp_path, monkeypatch, stale=False)
    assert len(rows) == 6 and max(row["attempt_kl"] for row in rows) > 0.5, "the policy moved"


def limits(fresh: bool, **fields: Any) -> float:
    return LoopGate(config(**{**EXACT, **fields}), "cpu").threshold(fresh)


def test_the_limit_goes_by_the_coarser_precision_unless_it_is_given() -> None:
    half = {"engine": {"kind": "transformers", "dtype": "bfloat16"}}
    assert limits(True) == THRESHOLDS["float32"]
    assert limits(False) == THRESHOLDS["bfloat16"], "adapters that have changed travel in bfloat16"
    assert limits(True, **half) == limits(True, precision="bf16") == THRESHOLDS["bfloat16"]
    assert limits(True, engine={"kind": "transformers", "dtype": "float16"}) == THRESHOLDS["float16"]
    assert limits(True, precision="auto") == THRESHOLDS["float32"]
    assert (
        limits(True, max_logprob_difference=0.2, **half) == limits(False, max_logprob_difference=0.2) == 0.2
    )
    served = {"engine": {"kind": "vllm"}, "compute": {"server": {"url": "http://localhost:1", "model": "m"}}}
    assert limits(True, **served) == THRESHOLDS["bfloat16"], "what a server computes in is not known"
    assert LoopGate(config(max_logprob_difference=0.7), "cpu").stop == 0.7 > DRIFT_STOP


def test_small_faults_are_refused_in_the_first_updates_and_only_there(
    base: Path, tokenizer: Any, processes: Any
) -> None:
    learned = build(base, tokenizer, processes)
    scored = score(
        learned.policy, turns_of(sampled(learned, tokenizer, REWARDS)), 1.0, MicroBatches(4), processes
    )
    faulty = replace(scored, difference=2 * THRESHOLDS["float32"])
    with pytest.raises(
        OffPolicyError, match=r"iteration 1: .*limit 0\.005 for float32\).*max_logprob_difference sets"
    ):
        LoopGate(config(**EXACT), "cpu").check(faulty, 1, fresh=True)
    begun = LoopGate(config(**EXACT), "cpu")
    for _ in range(GATED):
        begun.check(scored, 1, fresh=True)
    begun.check(faulty, 3, fresh=False)
    for wrong in (DRIFT_STOP + 0.1, float("nan")):
        with pytest.raises(OffPolicyError, match=r"iteration 4: .*limit 0\.5\): was the adapter sent"):
            begun.check(replace(scored, difference=wrong), 4, fresh=False)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(OffPolicyError, match=rf"iteration 4: the mean ratio .* is {wrong}\."):
            begun.check(replace(scored, ratio=wrong), 4, fresh=False)
        with pytest.raises(OffPolicyError, match=rf"iteration 1: the mean ratio .* is {wrong} \(within"):
            LoopGate(config(**EXACT), "cpu").check(replace(scored, ratio=wrong), 1, fresh=True)
    with pytest.raises(
        OffPolicyError, match=r"mean ratio .* 1\.0200 \(within 0\.01 of 1\).*max_ratio_difference"
    ):
        LoopGate(config(**EXACT), "cpu").check(replace(scored, ratio=1.02), 1, fresh=True)


def test_the_cause_is_named(base: Path, tokenizer: Any, processes: Any) -> None:
    learned = build(base, tokenizer, processes)
    turns = turns_of(sampled(learned, tokenizer, REWARDS))
    late = {k: replace(t, logprobs=(-9.0, *t.logprobs[:-1])) for k, t in turns.items()}
    with pytest.raises(OffPolicyError, match="shifted by one token"):
        gate(learned).check(score(learned.policy, late, 1.0, MicroBatches(4), processes), 1, fresh=True)
    gate(learned).check(score(learned.policy, turns, 1.0, MicroBatches(4), processes), 1, fresh=True)
    for adapter in learned.policy.adapters:
        change(learned, adapter)
    with pytest.raises(OffPolicyError, match=re.escape(UNSENT)):
        gate(learned).check(score(learned.policy, turns, 1.0, MicroBatches(4), processes), 2, fresh=False)


def test_an_adapter_with_nan_ends_the_run_in_every_update(base: Path, tokenizer: Any, processes: Any) -> None:
    learned = build(base, tokenizer, processes)
    turns = turns_of(sampled(learned, tokenizer, REWARDS))
    begun = gate(learned)
    for step in range(GATED):
        begun.check(score(learned.policy, turns, 1.0, MicroBatches(4), processes), step + 1, fresh=True)
    with torch.no_grad():
        learned.policy.parameters("solver")[1].fill_(float("nan"))
    broken = score(learned.policy, turns, 1.0, MicroBatches(4), processes)
    assert math.isnan(broken.difference) and math.isnan(broken.ratio)
    for watching, fresh in ((begun, False), (gate(learned), True)):
        with pytest.raises(OffPolicyError, match=r"differ by nan nats .* not a number: look for overflow"):
            watching.check(broken, 4, fresh=fresh)


def gate(learned: Any) -> LoopGate:
    return LoopGate(config(**EXACT), learned.policy.device.type)
