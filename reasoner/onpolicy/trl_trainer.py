"""A thin subclass of TRL's GRPOTrainer on our sampler (TRL 1.16).

`trl_rollout.rollout_func` alone would do for sampling. The subclass adds what TRL does only for its own vLLM
(`use_vllm`): the comparison of sampler and trainer, at no extra forward pass, and π_old from the sampler. It times the
parts, can hand a shared card over, and repairs the resume of a PeftModel with beta > 0.

`args.use_vllm` must be False: TRL would start a second engine.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

from reasoner.errors import TrainingError, UsageError
from reasoner.onpolicy.diagnosis import Probe
from reasoner.onpolicy.gate import Gate
from reasoner.onpolicy.parts import Part, Parts
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.onpolicy.trl_rollout import rollout_func

PEFT_NAME = "default"
"""The adapter that TRL trains."""
Render = Callable[[Any], tuple[str, bool]]
"""A prompt's text, and whether special tokens are to be added."""


def chat_render(tokenizer: Any) -> Render:
    """Plain prompts as they are, with special tokens; messages through the chat template, without."""

    def render(prompt: Any) -> tuple[str, bool]:
        if isinstance(prompt, str):
            return prompt, True
        return str(tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)), False

    return render


def make_grpo_trainer(
    sampler: OnPolicySampler,
    *,
    gate: Gate | None = None,
    parts: Parts | None = None,
    correction: Literal["behaviour", "none"] = "behaviour",
    render: Render | None = None,
    share_card: bool = False,
    **arguments: Any,
) -> Any:
    """A GRPOTrainer that samples from `sampler`; `arguments` are TRL's (model, args, reward_funcs, peft_config, …).

    `correction` `behaviour` takes the sampler's log-probabilities as π_old; `none` the trainer's own, as TRL does
    without vLLM. Raises UsageError for settings under which the two sides can't agree.
    """
    clock = sampler.parts = parts or sampler.parts
    check_arguments(arguments.get("args"))
    names = getattr(arguments.get("model"), "peft_config", {PEFT_NAME: None})
    if PEFT_NAME not in names or not (
        arguments.get("peft_config") or hasattr(arguments.get("model"), "peft_config")
    ):
        raise UsageError(
            "train a LoRA adapter named 'default': give peft_config, or a PeftModel with that one"
        )
    wanted = grpo_trainer_class(gate, clock, sampler, correction, share_card)
    args = arguments["args"]
    hook: list[Any] = []

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        if not hook:
            text = render or chat_render(trainer.processing_class)
            hook.append(rollout_func(sampler, text, max_tokens=args.max_completion_length, seed=args.seed))
        found: dict[str, Any] = hook[0](prompts, trainer)
        return found

    trainer = wanted(rollout_func=rollout, **arguments)
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
    gate: Gate | None, parts: Parts, sampler: OnPolicySampler, correction: str, share_card: bool
) -> type:
    """The subclass. Made here, since TRL is imported only where a training runs."""
    from trl import GRPOTrainer

    class OnPolicyGRPOTrainer(GRPOTrainer):
        """GRPOTrainer with the step-0 gate, the drift log and timed parts."""

        _seen: Any = None
        _gated_step = -1

        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            trained_on = bool(kwargs.get("compute_entropy"))  # only the pass with a gradient asks for it
            with contextlib.nullcontext() if trained_on else parts.part(Part.LOGPROBS):
                found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            if trained_on:
                self._seen = found[0].detach()
            return found

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            with parts.part(Part.VERDICT):
                return super()._calculate_rewards(*args, **kwargs)

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            inputs = super()._prepare_inputs(generation_batch)
            if share_card:
                sampler.sleep()
            return inputs

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            with parts.part(Part.FORWARD_BACKWARD):  # sampling and verdicts inside are counted apart
                return super().training_step(*args, **kwargs)

        def _load_from_checkpoint(self, resume_from_checkpoint: Any, model: Any = None) -> None:
            """Load the trained adapter, too, where the checkpoint holds TRL's "ref" copy in a sub-folder.

            With a PeftModel and beta > 0 transformers 5.17 reads the sub-folders only, and the training would go on
            from a fresh adapter without a word (the optimiser and the step are restored).
            """
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            unwrapped = self.accelerator.unwrap_model(model or self.model)
            if len(unwrapped.peft_config) > 1:
                unwrapped.load_adapter(str(resume_from_checkpoint), PEFT_NAME, is_trainable=True)
                unwrapped.set_adapter(PEFT_NAME)

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

            mask = (inputs["completion_mask"] * inputs.get("tool_mask", 1)).bool()
            self._gated_step = self.state.global_step

            def rows(values_BT: Any) -> list[list[float]]:
                return [row[kept].tolist() for row, kept in zip(values_BT, mask, strict=True)]

            def bare() -> list[list[float]]:
                whole = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
                attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
                width = inputs["completion_ids"].size(1)
                with torch.no_grad(), self.accelerator.unwrap_model(self.model).disable_adapter():
                    return rows(
                        self._get_per_token_logps_and_entropies(self.model, whole, attention, width)[0]
                    )

            probes: Mapping[str, Probe] = {
                "The sampler serves the bare base: it was never sent the adapter.": bare
            }
            gate.check(rows(sampled), rows(self._seen), probes=probes)
            for name, value in gate.history[-1].metrics().items():
                self._metrics["train"][name].append(value)

    return OnPolicyGRPOTrainer


def timing_callback(parts: Parts, trainer: Any) -> Any:
    """Times the optimiser and puts each step's parts into the trainer's log as `time/…`."""
    from transformers import TrainerCallback

    class Timing(TrainerCallback):
        """One a trainer."""

        def __init__(self) -> None:
            self.steps: list[dict[str, float]] = []
            """The parts of every step so far, in seconds."""
            self._open = contextlib.ExitStack()

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            parts.take()

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._open.enter_context(parts.part(Part.OPTIMISER))

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._open.close()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps.append(parts.take_step().metrics())
            for name, seconds in self.steps[-1].items():
                trainer._metrics["train"][name].append(seconds)

    return Timing()
