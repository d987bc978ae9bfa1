"""Two adapters on one base: who changes what, and that the reference never changes."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.unit.training.multiturn.conftest import build, change

ROWS = [((5, 6, 7, 8), (9, 10, 11)), ((5, 6), (12,)), ((20, 21, 22, 23, 24, 25), (3, 4))]


def logp(learned, adapter, temperature=1.0):
    with torch.no_grad(), learned.policy.speaking(adapter):
        return learned.policy.logprobs(ROWS, temperature)


def test_log_probabilities_are_the_bare_models_until_an_adapter_moves(base, tokenizer, processes):
    learned = build(base, tokenizer, processes)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    for temperature in (1.0, 0.7):
        for adapter in ("solver", "feedback", None):
            found = logp(learned, adapter, temperature)
            for row, (prompt, completion) in enumerate(ROWS):
                scores = model(torch.tensor([[*prompt, *completion]])).logits[0] / temperature
                wanted = scores.log_softmax(-1)[len(prompt) - 1 : -1].gather(
                    -1, torch.tensor(completion)[:, None]
                )
                torch.testing.assert_close(
                    found.logp[row, : len(completion)], wanted[:, 0], rtol=0, atol=2e-5
                )
                assert found.mask[row].tolist() == [1.0] * len(completion) + [0.0] * (3 - len(completion))


def test_an_adapter_moves_alone_and_the_reference_stays(base, tokenizer, processes):
    learned = build(base, tokenizer, processes)
    before = {a: logp(learned, a).logp for a in ("solver", "feedback", None)}
    change(learned, "solver")
    assert float((logp(learned, "solver").logp - before["solver"]).abs().max()) > 1e-2
    for adapter in ("feedback", None):
        torch.testing.assert_close(logp(learned, adapter).logp, before[adapter], rtol=0, atol=0)


def test_the_two_adapters_have_tensors_of_their_own_and_the_base_none(base, tokenizer, processes):
    learned = build(base, tokenizer, processes)
    solver, feedback = (learned.policy.parameters(a) for a in ("solver", "feedback"))
    assert solver and len(solver) == len(feedback) and not {id(p) for p in solver} & {id(p) for p in feedback}
    with learned.policy.speaking("feedback", train=True):
        learned.policy.logprobs(ROWS, 1.0).logp.sum().backward()
    assert all(p.grad is None for p in solver) and any(p.grad is not None for p in feedback)
    grads = [
        n for n, p in learned.policy.model.named_parameters() if p.grad is not None and ".feedback." not in n
    ]
    assert grads == []


def test_a_saved_adapter_comes_back_and_is_the_same_bytes_each_time(
    base, tokenizer, processes, tmp_path: Path
):
    learned = build(base, tokenizer, processes)
    change(learned, "solver")
    moved = logp(learned, "solver").logp
    for name in ("a", "b"):
        learned.policy.save("solver", tmp_path / name)
    assert {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()
    }
    assert (
        json.loads((tmp_path / "a" / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny"
    )
    assert all("solver" not in name for name in load_file(tmp_path / "a" / "adapter_model.safetensors"))
    other = build(base, tokenizer, processes)
    other.policy.load("solver", tmp_path / "a")
    torch.testing.assert_close(logp(other, "solver").logp, moved, rtol=0, atol=0)


def test_hidden_states_are_those_at_the_asked_positions(base, tokenizer, processes):
    learned = build(base, tokenizer, processes)
    rows = [[5, 6, 7, 8, 9], [5, 6]]
    with torch.no_grad(), learned.policy.speaking("feedback"):
        found = learned.policy.hidden(rows, [[1, 4], [1, 1]])
    torch.testing.assert_close(found[0, 0], found[1, 0], rtol=0, atol=1e-5)  # a causal model: the same prefix
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    wanted = model.model(torch.tensor([rows[0]])).last_hidden_state[0, 4]
    torch.testing.assert_close(found[0, 1], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("on", [False, True])
def test_gradient_checkpointing_is_what_is_configured(base, tokenizer, processes, on):
    learned = build(base, tokenizer, processes, gradient_checkpointing=on)
    assert learned.policy.model.get_base_model().is_gradient_checkpointing is on
