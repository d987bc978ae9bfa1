"""The sampler as `rollout_func` of TRL's GRPOTrainer (TRL 1.16, experimental there): `use_vllm` stays false.

TRL's own vLLM mode merges the adapter into the base and sends all weights; this sends the adapter alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

from reasoner.onpolicy.gate import Gate
from reasoner.onpolicy.logprobs import token_logprobs
from reasoner.onpolicy.parts import Part
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.records import GenerationRequest, Sampling

POLICY = "policy"


def rollout_func(
    sampler: OnPolicySampler,
    render: Callable[[Any], tuple[str, bool]],
    *,
    max_tokens: int,
    gate: Gate | None = None,
    seed: int = 0,
    last: bool = True,
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """A function that TRL calls with its prompts, each repeated as often as its group is large.

    `render` gives a prompt's text and whether special tokens are to be added. The trainer's temperature is used. With
    `gate`, sampler and trainer are compared each step before the loss; a difference above its limit stops the run.
    `last` says that nothing else is sampled before the loss: on a shared card the engine then sleeps.
    """
    sent = {"step": -1}

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        step = trainer.state.global_step
        if sent["step"] != step:
            sampler.sync(POLICY, trainer.accelerator.unwrap_model(trainer.model))
            sent["step"] = step
        sampling = Sampling(temperature=trainer.temperature, max_tokens=max_tokens)
        samples = sampler.sample(_requests(prompts, render, sampling, derived(seed, step)))
        if last:
            sampler.rest()
        if gate is not None:
            with sampler.parts.part(Part.LOGPROBS):
                _compare(gate, trainer, samples)
        return {
            "prompt_ids": [list(sample.prompt_ids) for sample in samples],
            "completion_ids": [list(sample.token_ids) for sample in samples],
            "logprobs": [list(sample.logprobs) for sample in samples],
            "finish": [sample.finish for sample in samples],
            "text": [sample.text for sample in samples],
        }

    return rollout


def derived(seed: int, step: int) -> int:
    """One seed a step: equal prompts in two steps must not bring equal samples."""
    return seed + 7919 * step


def _requests(
    prompts: Sequence[Any], render: Callable[[Any], tuple[str, bool]], sampling: Sampling, seed: int
) -> list[GenerationRequest]:
    seen: dict[str, int] = {}
    names: dict[str, str] = {}
    requests = []
    for prompt in prompts:
        text, special = render(prompt)
        name = names.setdefault(text, f"prompt-{len(names)}")
        index = seen[text] = seen.get(text, -1) + 1
        requests.append(GenerationRequest(name, text, sampling, seed, index, POLICY, special))
    return requests


def _compare(gate: Gate, trainer: Any, samples: Sequence[Any], rows: int = 8) -> None:
    """Score some samples, of different prompts where there are, as the loss will, and log how far the two are apart."""
    import torch

    given = [sample for sample in samples if sample.token_ids]
    chosen = given[:: max(1, len(given) // rows)][:rows]
    model = trainer.accelerator.unwrap_model(trainer.model)
    training = model.training
    model.eval()  # dropout is noise of the update, not a difference of the policies
    try:
        with torch.no_grad(), trainer.accelerator.autocast():
            scored = token_logprobs(
                model,
                [sample.prompt_ids for sample in chosen],
                [sample.token_ids for sample in chosen],
                temperature=trainer.temperature,
            )
    finally:
        model.train(training)
    own = [row[mask].tolist() for row, mask in zip(scored.logprobs, scored.mask, strict=True)]
    difference = gate.check([sample.logprobs for sample in chosen], own)
    trainer._metrics["train"]["sampler_trainer_difference"].append(difference)
