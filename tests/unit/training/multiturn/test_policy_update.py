"""An update's gradient against a plain computation, whatever the micro-batches and optimiser steps."""

import pytest
import torch

from reasoner.methods.multiturn.advantages import Credit
from reasoner.methods.multiturn.episode import Kind
from reasoner.onpolicy.memory import MicroBatches
from reasoner.training.multiturn.batching import longest_first, steps
from reasoner.training.multiturn.policy_update import Settings, update
from reasoner.training.multiturn.scoring import score, turns_of
from tests.unit.training.multiturn.conftest import REWARDS, build, change, sampled


class Recording:
    """An optimiser that keeps the gradients it is given."""

    def __init__(self, parameters):
        self.parameters, self.seen = parameters, []

    def zero(self):
        for p in self.parameters:
            p.grad = None

    def step(self, iteration):
        self.seen.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.parameters])
        self.zero()
        return 1.0


@pytest.fixture
def ready(base, tokenizer, processes):
    learned = build(base, tokenizer, processes)
    change(learned, "solver", scale=0.05)
    episodes = sampled(learned, tokenizer, REWARDS)
    scored = score(learned.policy, turns_of(episodes), 1.0, MicroBatches(2), processes)
    credits = [
        Credit(turn, 0.5 + i - 2 * (turn.kind == "attempt"), 0.3, i)
        for i, e in enumerate(episodes)
        for turn in (e.attempt, e.refinement)
    ]
    return learned, scored, credits, processes


def run(ready, size, step_size=None, norm=4.0, extra=None, tokens=None, beside=None):
    learned, scored, credits, processes = ready
    optimiser = Recording(learned.policy.parameters("solver"))
    settings = Settings(1.0, 0.2, 0.2, norm, step_size)
    metrics = update(
        learned.policy, "solver", optimiser, credits, scored.reference, settings, processes,
        MicroBatches(size, tokens=tokens), iteration=0, seed=1, extra=extra, beside=beside,
    )  # fmt: skip
    return optimiser.seen, metrics


def plain_gradient(ready, norm=4.0):
    """-mean over episodes of Σ_turns [A·lp - 0.3·k3]/norm, one turn at a time."""
    learned, scored, credits, _ = ready
    parameters = learned.policy.parameters("solver")
    total = 0.0
    with learned.policy.speaking("solver"):
        for credit in credits:
            found = learned.policy.logprobs([(credit.turn.prompt_ids, credit.turn.token_ids)], 1.0).logp[0]
            delta = scored.reference[credit.episode, credit.turn.kind] - found
            k3 = (delta.exp() - delta - 1).sum()
            total = total + (-credit.advantage * found.sum() + 0.3 * k3) / norm
    return torch.autograd.grad(total / 4, parameters)


@pytest.mark.parametrize(("size", "tokens"), [(1, None), (3, None), (8, None), (1, 1), (1, 70), (1, 10_000)])
def test_the_gradient_is_the_formulas_whatever_the_micro_batch(ready, size, tokens):
    wanted = plain_gradient(ready)
    (found,), metrics = run(ready, size, tokens=tokens)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
    assert max(float(g.abs().max()) for g in wanted) > 1e-4
    assert metrics["solver_clipped"] == 0.0


def test_several_optimiser_steps_share_out_the_same_gradient(ready):
    (whole,), _ = run(ready, 8)
    parts, _ = run(ready, 2, step_size=3)
    assert len(parts) == 3
    sizes = [len(rows) for rows in steps(8, 3, 1)]
    mean = [sum(g * n for g, n in zip(gs, sizes, strict=True)) / 8 for gs in zip(*parts, strict=True)]
    for a, b in zip(mean, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)


def test_micro_batches_by_tokens_are_as_many_as_the_tokens_ask_for(ready, monkeypatch):
    """Rows of a piece times its longest row stay within them, whatever `batch_size` is; so do those of scoring within
    four times as many, and what `extra` computes beside a turn counts where it is longer."""
    learned, _, credits, processes = ready
    whole, shapes = learned.policy.logprobs, []

    def watched(rows, temperature):
        shapes.append((len(rows), max(len(p) + len(c) for p, c in rows)))
        return whole(rows, temperature)

    monkeypatch.setattr(learned.policy, "logprobs", watched)
    longest = max(len(c.turn.prompt_ids) + len(c.turn.token_ids) for c in credits)
    run(ready, 1, tokens=3 * longest)
    assert len(shapes) < len(credits) and max(n for n, _ in shapes) >= 3
    assert all(n * width <= 3 * longest for n, width in shapes)
    shapes.clear()
    turns = {(c.episode, c.turn.kind): c.turn for c in credits}
    score(learned.policy, turns, 1.0, MicroBatches(1, tokens=longest), processes)
    assert max(n for n, _ in shapes) >= 4 and all(n * width <= 4 * longest for n, width in shapes)
    shapes.clear()
    run(ready, 1, tokens=3 * longest, beside=[longest, 2 * longest, 3 * longest, 4 * longest])
    assert sorted(n for n, _ in shapes)[:6] == [1] * 6, "turns of episodes 1 to 3 are alone"


def test_out_of_memory_halves_the_micro_batch_and_leaves_the_gradient_alone(ready, monkeypatch):
    learned = ready[0]
    (wanted,), _ = run(ready, 8)
    whole = learned.policy.logprobs

    def small_memory(rows, temperature):
        if len(rows) > 2:
            raise torch.OutOfMemoryError("full")
        return whole(rows, temperature)

    monkeypatch.setattr(learned.policy, "logprobs", small_memory)
    (found,), _ = run(ready, 8)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)


def test_out_of_memory_halves_the_micro_batch_of_scoring_and_changes_no_score(ready, monkeypatch):
    """The second piece fails under the reference, after the first was scored: nothing may be counted twice."""
    learned, _, credits, processes = ready
    turns = {(c.episode, c.turn.kind): c.turn for c in credits}
    wanted = score(learned.policy, turns, 1.0, MicroBatches(4), processes)
    whole, sizes = learned.policy.logprobs, []

    def small_memory(rows, temperature):
        sizes.append(len(rows))
        if len(rows) > 2 and len(sizes) == 4:
            raise torch.OutOfMemoryError("full")
        return whole(rows, temperature)

    monkeypatch.setattr(learned.policy, "logprobs", small_memory)
    said = []
    micro = MicroBatches(4, said.append)
    found = score(learned.policy, turns, 1.0, micro, processes)
    assert (
        sizes == [4] * 4 + [2] * 8
        and micro.halvings == 1
        and said == ["out of memory: the micro-batch is now 2"]
    )
    assert found.kl == pytest.approx(dict(wanted.kl), rel=1e-3, abs=1e-5)
    for name in ("difference", "ratio", "entropy"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-3, abs=1e-5), name
    assert set(found.reference) == set(found.trainer) == set(turns)
    for key in turns:
        torch.testing.assert_close(found.reference[key], wanted.reference[key], rtol=1e-3, atol=1e-5)
        assert found.trainer[key] == pytest.approx(wanted.trainer[key], rel=1e-3, abs=1e-5)


def test_the_reference_kl_is_zero_at_step_0_and_not_after_a_change(base, tokenizer, processes):
    """Stage I's turn-1 reward is -β2·KL: exactly zero for every sample while the policy is the reference."""
    learned = build(base, tokenizer, processes)
    scored = score(
        learned.policy, turns_of(sampled(learned, tokenizer, REWARDS)), 1.0, MicroBatches(3), processes
    )
    assert set(scored.kl.values()) == {0.0} and scored.difference < 1e-5 and abs(scored.ratio - 1) < 1e-4
    change(learned, "solver")
    episodes = sampled(learned, tokenizer, REWARDS)
    moved = score(learned.policy, turns_of(episodes), 1.0, MicroBatches(3), processes)
    assert all(moved.kl[i, Kind.ATTEMPT] != 0 and moved.kl[i, Kind.FEEDBACK] == 0 for i in range(4))
    assert moved.difference < 1e-5, "the sampler's log-probabilities were those of the changed policy"


def test_turns_of_an_untrained_writer_are_the_references_own(base, tokenizer, processes):
    learned = build(base, tokenizer, processes, method="score", train_guidance_model=False)
    change(learned, "solver")
    episodes = sampled(learned, tokenizer, REWARDS)
    assert all(e.feedback.token_ids for e in episodes) and learned.policy.adapters == ("solver",)
    scored = score(learned.policy, turns_of(episodes), 1.0, MicroBatches(3), processes)
    assert all(scored.kl[i, Kind.FEEDBACK] == 0 and scored.kl[i, Kind.ATTEMPT] != 0 for i in range(4))
    assert scored.difference < 1e-5


def test_batches_hold_every_row_once():
    assert longest_first([4, 1, 3], [0, 9, 0, 7, 8]) == [1, 4, 3]
    for count, size in ((8, 3), (7, 7), (5, None), (9, 2)):
        rows = steps(count, size, 3)
        assert sorted(i for step in rows for i in step) == list(range(count))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1
    assert steps(8, 3, 3) == steps(8, 3, 3) != steps(8, 3, 4)
