"""TRL's GRPOTrainer on our sampler: a `rollout_func` and a thin subclass (TRL 1.16).

`rollout_func` alone would do for sampling. The subclass adds what TRL does only for its own vLLM (`use_vllm`): the
comparison of sampler and trainer, at no extra forward pass, and π_old from the sampler. TRL's own path merges the
adapter and sends all weights each step; this one sends the adapter.

`args.use_vllm` must be False: TRL would start a second engine.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from reasoner.errors import TrainingError, UsageError
from reasoner.ids import content_hash, derived_seed
from reasoner.onpolicy.gate import Gate
from reasoner.onpolicy.sampler import Sampler
from reasoner.onpolicy.timers import Part, Timers
from reasoner.records import GenerationRequest, Sampling

Rollout = Callable[[list[Any], Any], dict[str, list[Any]]]
Render = Callable[[Any], str]
POLICY = "default"


def chat_render(tokenizer: Any) -> Render:
    """Prompts as text: a plain string as it is, messages through the chat template."""

    def render(prompt: Any) -> str:
        if isinstance(prompt, str):
            return prompt
        return str(tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True))

    return render


def sampling_rollout(sampler: Sampler, *, render: Render | None = None, stop: Sequence[str] = ()) -> Rollout:
    """A `rollout_func`: syncs the adapter once a step, samples one completion a prompt that TRL gives.

    TRL repeats each prompt `num_generations` times itself. Temperature and limit are the trainer's.
    """
    synced: dict[int, int] = {}

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        step = int(trainer.state.global_step)
        if synced.get(id(trainer)) != step:
            sampler.sync(trainer.accelerator.unwrap_model(trainer.model), step=step, policies=[POLICY])
            synced.clear()
            synced[id(trainer)] = step
        text = render or chat_render(trainer.processing_class)
        evaluating = not trainer.model.training
        requests = step_requests(
            [text(prompt) for prompt in prompts],
            [isinstance(prompt, str) for prompt in prompts],
            Sampling(trainer.temperature, max_tokens=trainer.max_completion_length, stop=tuple(stop)),
            derived_seed(trainer.args.seed, step, evaluating),
        )
        samples = sampler.sample(requests)
        return {
            "prompt_ids": [list(s.prompt_ids) for s in samples],
            "completion_ids": [list(s.token_ids) for s in samples],
            "logprobs": [list(s.logprobs) for s in samples],
            "finish": [s.finish for s in samples],
        }

    return rollout


def step_requests(
    texts: Sequence[str], special: Sequence[bool], sampling: Sampling, seed: int
) -> list[GenerationRequest]:
    """One request a text; equal texts get different sample indices."""
    counts: dict[str, int] = {}
    requests = []
    for text, add in zip(texts, special, strict=True):
        index = counts[text] = counts.get(text, -1) + 1
        requests.append(
            GenerationRequest(content_hash(text, 16), text, sampling, seed, index, POLICY, add)
        )  # fmt: skip
    return requests


def make_grpo_trainer(
    sampler: Sampler,
    *,
    gate: Gate | None = None,
    timers: Timers | None = None,
    correction: Literal["behaviour", "none"] = "behaviour",
    render: Render | None = None,
    stop: Sequence[str] = (),
    share_card: bool = False,
    **arguments: Any,
) -> Any:
    """A GRPOTrainer that samples from `sampler`; `arguments` are TRL's (model, args, reward_funcs, peft_config, …).

    `correction` `behaviour` takes the sampler's log-probabilities as π_old; `none` the trainer's own, as TRL does
    without vLLM. Raises UsageError for settings under which the two sides can't agree.
    """
    clock = timers or sampler.timers
    sampler.timers = clock
    check_arguments(arguments.get("args"))
    named = getattr(arguments.get("model"), "peft_config", {POLICY: None})
    if POLICY not in named or not (
        arguments.get("peft_config") or hasattr(arguments.get("model"), "peft_config")
    ):
        raise UsageError(
            "train a LoRA adapter named 'default': give peft_config, or a PeftModel with that one"
        )
    wanted = grpo_trainer_class(gate, clock, sampler, correction, share_card)
    trainer = wanted(rollout_func=sampling_rollout(sampler, render=render, stop=stop), **arguments)
    trainer.add_callback(timing_callback(clock, trainer))
    return trainer


def check_arguments(args: Any) -> None:
    """Raises UsageError for a GRPOConfig under which sampler and trainer can't agree."""
    if args is None:
        raise UsageError("give args=GRPOConfig(…)")
    if args.use_vllm:
        raise UsageError("use_vllm=True would start a second engine; leave it off, the sampler is the engine")
    cut = {"top_p": (1.0, None), "top_k": (0, -1, None), "min_p": (None, 0.0), "repetition_penalty": (1.0,)}
    for name, neutral in cut.items():
        if getattr(args, name, neutral[0]) not in neutral:
            raise UsageError(f"{name}={getattr(args, name)} biases the log-probabilities; leave it off")


def grpo_trainer_class(
    gate: Gate | None, timers: Timers, sampler: Sampler, correction: str, share_card: bool
) -> type:
    """The subclass. Made here, since TRL is imported only where a training runs."""
    from trl import GRPOTrainer

    class OnPolicyGRPOTrainer(GRPOTrainer):
        """GRPOTrainer with the step-0 gate, the drift log and timed parts."""

        _seen: Any = None
        _gated_step = -1

        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            trained_on = bool(kwargs.get("compute_entropy"))  # only the pass with a gradient asks for it
            with contextlib.nullcontext() if trained_on else timers.part(Part.LOGPROBS):
                found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            if trained_on:
                self._seen = found[0].detach()
            return found

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            with timers.part(Part.VERDICT):
                return super()._calculate_rewards(*args, **kwargs)

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            inputs = super()._prepare_inputs(generation_batch)
            if share_card:
                sampler.sleep()
            return inputs

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            with timers.part(Part.FORWARD_BACKWARD):  # sampling and verdicts inside are counted apart
                return super().training_step(*args, **kwargs)

        def _load_from_checkpoint(self, resume_from_checkpoint: Any, model: Any = None) -> None:
            """Load the trained adapter, too, where the checkpoint holds TRL's "ref" copy in a sub-folder.

            With a PeftModel and beta > 0 transformers 5.17 reads the sub-folders only, and the training would go on
            from a fresh adapter without a word (the optimiser and the step are restored).
            """
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            unwrapped = self.accelerator.unwrap_model(model or self.model)
            if len(unwrapped.peft_config) > 1:
                unwrapped.load_adapter(str(resume_from_checkpoint), POLICY, is_trainable=True)
                unwrapped.set_adapter(POLICY)

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            sampled = inputs.get("sampling_per_token_logps")
            if sampled is None:
                raise TrainingError("the rollout returned no log-probabilities")
            if correction == "behaviour":
                inputs = {**inputs, "old_per_token_logps": sampled}
            loss = super()._compute_loss(model, inputs)
            if gate is not None and model.training and self.state.global_step != self._gated_step:
                self._observe(gate, inputs, sampled)
            return loss

        def _observe(self, gate: Gate, inputs: Any, sampled: Any) -> None:
            """Compare the first micro-batch of each step, before its backward pass."""
            import torch

            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
            self._gated_step = self.state.global_step

            def bare() -> Any:
                whole = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
                attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
                unwrapped = self.accelerator.unwrap_model(self.model)
                with torch.no_grad(), unwrapped.disable_adapter():
                    return GRPOTrainer._get_per_token_logps_and_entropies(
                        self, self.model, whole, attention, inputs["completion_ids"].size(1)
                    )[0]

            probes: Mapping[str, Callable[[], Any]] = {
                "the sampler serves the bare base: it was never sent the adapter": bare
            }
            drift = gate.observe(sampled, self._seen, mask, step=int(self.state.global_step), probes=probes)
            for name, value in drift.metrics().items():
                self._metrics["train"][name].append(value)

    return OnPolicyGRPOTrainer


def timing_callback(timers: Timers, trainer: Any) -> Any:
    """Times the optimiser and puts each step's parts into the trainer's log as `time/…`."""
    from transformers import TrainerCallback

    class Timing(TrainerCallback):
        """One a trainer."""

        def __init__(self) -> None:
            self.steps: list[dict[str, float]] = []
            """The parts of every step so far, in seconds."""
            self._open = contextlib.ExitStack()

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            timers.take()

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._open.enter_context(timers.part(Part.OPTIMISER))

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._open.close()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps.append(timers.take().metrics())
            for name, seconds in self.steps[-1].items():
                trainer._metrics["train"][name].append(seconds)

    return Timing()
