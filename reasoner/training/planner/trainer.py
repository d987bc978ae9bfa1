"""TRL's GRPOTrainer for the planner: policy = base + adapter; the sampler and the worker share one engine.

Precision as in supervised training: adapter weights, gradients and the optimiser's state are float32; `bf16` computes
under autocast. With a 4-bit base (NF4, double quantisation) TRL holds the adapter in bfloat16.
"""

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reasoner.errors import ModelError, TrainingError
from reasoner.training import runtime
from reasoner.training.callbacks import reporting, sealing
from reasoner.training.planner.journal import Journal, journal_callback
from reasoner.training.planner.questions import Questions
from reasoner.training.planner.spec import GrpoSpec
from reasoner.training.trainer import OPTIMISER, Batch, present_modules

Rollout = Callable[[list[Any], Any], dict[str, Any]]


def grpo_config(spec: GrpoSpec, batch: Batch, device: str) -> Any:
    """TRL's configuration. A step generates once, for all of its micro-steps."""
    from trl import GRPOConfig

    grpo = spec.grpo
    return GRPOConfig(
        output_dir=str(spec.work),
        per_device_train_batch_size=batch.size,
        gradient_accumulation_steps=batch.accum,
        num_generations=grpo.num_generations,
        max_completion_length=grpo.max_completion_length,
        temperature=grpo.temperature,
        top_p=1.0,
        max_steps=grpo.max_steps,
        learning_rate=grpo.lr,
        lr_scheduler_type=grpo.scheduler,
        warmup_steps=math.ceil(grpo.warmup_ratio * grpo.max_steps),
        weight_decay=grpo.weight_decay,
        max_grad_norm=grpo.max_grad_norm,
        optim=OPTIMISER,
        loss_type=grpo.loss,
        beta=grpo.beta,
        epsilon_high=grpo.epsilon_high,
        scale_rewards=grpo.scale_rewards,
        bf16=grpo.precision == "bf16",
        fp16=False,
        use_cpu=device == "cpu",
        gradient_checkpointing=grpo.gradient_checkpointing,
        use_vllm=False,  # our rollout function samples
        save_strategy="steps",
        save_steps=grpo.save_steps,
        save_total_limit=None,  # old checkpoints go after the new one is sealed
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        push_to_hub=False,
        disable_tqdm=True,
        dataloader_pin_memory=device == "cuda",
        seed=spec.seed,
        data_seed=spec.seed,
    )


def policy(spec: GrpoSpec, device: str) -> Any:
    """The base with a trainable adapter: a fresh one, or that of `spec.start`."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    base = four_bit(spec, device) if spec.grpo.load_in_4bit else _plain(spec, device)
    if spec.start is not None:
        try:
            return PeftModel.from_pretrained(base, spec.start, is_trainable=True, local_files_only=True)
        except (RuntimeError, ValueError, KeyError) as error:
            raise ModelError(
                f"The adapter {spec.start} does not fit {spec.base_name}: {runtime.first_line(error)}"
            ) from error
    lora = spec.grpo.lora
    torch.manual_seed(spec.seed)
    return get_peft_model(
        base,
        LoraConfig(
            r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, bias="none", task_type="CAUSAL_LM",
            target_modules=present_modules(base, lora.modules),
        ),
    )  # fmt: skip


def _plain(spec: GrpoSpec, device: str) -> Any:
    half = device == "cuda" and spec.grpo.precision == "bf16"
    return runtime.load_model(spec.base, "bfloat16" if half else "float32")


def four_bit(spec: GrpoSpec, device: str) -> Any:
    """The base in NF4 with double quantisation, as the original loads it. Raises ModelError."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    compute = torch.bfloat16 if spec.grpo.precision == "bf16" else torch.float32
    quantised = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )  # fmt: skip
    try:
        return AutoModelForCausalLM.from_pretrained(
            spec.base, quantization_config=quantised, dtype=compute, device_map={"": device},
            local_files_only=True, trust_remote_code=False, use_safetensors=True,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise ModelError(f"{spec.base} cannot be loaded in 4 bits: {runtime.first_line(error)}") from error


@dataclass
class GrpoJob:
    """One training: the spec with its questions and whatever else an attempt needs."""

    spec: GrpoSpec
    device: str
    tokenizer: Any
    questions: Questions
    rollout: Rollout
    reward: Any
    journal: Journal
    report: Callable[..., Any]
    log: Callable[[str], None]

    def trainer(self, batch: Batch) -> Any:
        """A new GRPOTrainer on a freshly loaded base."""
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # we know that rollout_func may change
        import transformers
        from datasets import Dataset
        from trl import GRPOTrainer

        logging.getLogger("trl.trainer.grpo_trainer").addFilter(_unmasked)
        spec = self.spec
        model = policy(spec, self.device)
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=self.reward,
            args=grpo_config(spec, batch, self.device),
            train_dataset=Dataset.from_list(list(self.questions.rows)),
            processing_class=self.tokenizer,
            rollout_func=self.rollout,
            callbacks=[
                reporting(self.report, self.log, spec.grpo.logging_steps),
                journal_callback(self.journal),
                sealing(spec.work, spec.grpo.save_total_limit),
            ],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
        if not trained or not all("lora_" in name for name in trained):
            raise TrainingError(
                "only the adapter may be trained; other weights of the model would change, too"
            )
        return trainer


def _unmasked(record: logging.LogRecord) -> bool:
    """TRL prints a question for every masked group; those are counted in `planner/groups_used` instead."""
    return "All reward functions returned None" not in record.getMessage()
