"""TRL's GRPOTrainer on the on-policy loop: policy = base + adapter, completions from an engine.

Precision as in supervised training: adapter weights, gradients and the optimiser's state are float32; `bf16` computes
under autocast. With a 4-bit base (NF4, double quantisation) TRL would hold the adapter in bfloat16, in which steps of
1e-5 are lost to rounding.
"""

import gc
import logging
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.errors import ModelError, TrainingError
from reasoner.ids import derived_seed
from reasoner.onpolicy.parts import Parts
from reasoner.onpolicy.sampler import free_cached_memory
from reasoner.training import runtime
from reasoner.training.callbacks import reporting, sealing
from reasoner.training.checkpoints import all_checkpoints
from reasoner.training.grpo.active import active_trainer
from reasoner.training.grpo.journal import Journal, journal_callback
from reasoner.training.grpo.questions import Questions
from reasoner.training.grpo.spec import GrpoSpec
from reasoner.training.grpo.timing import count_parts
from reasoner.training.micro_batch import Batch
from reasoner.training.trainer import OPTIMISER, present_modules

REFERENCE = "ref"
"""TRL's name of the frozen copy."""
Rollout = Callable[[list[Any], Any], dict[str, Any]]


def grpo_config(spec: GrpoSpec, batch: Batch, device: str) -> Any:
    """TRL's configuration. A step generates once, for all of its micro-steps."""
    from trl import GRPOConfig

    grpo = spec.grpo
    config = GRPOConfig(
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
        ddp_find_unused_parameters=False,
        seed=spec.seed,
        data_seed=spec.seed,
    )
    return runtime.on_one_card(config)


def policy(spec: GrpoSpec, device: str) -> Any:
    """The base with a trainable adapter: a fresh one, or that of `spec.start`."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    half = spec.grpo.precision == "bf16" and (device == "cuda" or spec.grpo.load_in_4bit)
    nf4_on = device if spec.grpo.load_in_4bit else None
    base = runtime.load_model(spec.base, "bfloat16" if half else "float32", nf4_on=nf4_on)
    if spec.start is not None:
        try:
            config = LoraConfig.from_pretrained(str(spec.start), local_files_only=True)
            config.lora_dropout = spec.grpo.lora.dropout  # not that of the warm start's training
            return PeftModel.from_pretrained(
                base, spec.start, is_trainable=True, config=config, local_files_only=True
            )
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
    release: Callable[[], None] = lambda: None
    """Lets go of the trainer of the last attempt, wherever it is still held."""
    parts: Parts = field(default_factory=Parts)
    """Counts where the time goes."""

    @property
    def work(self) -> Path:
        return self.spec.work

    def steps(self, batch: Batch) -> int:
        """Steps are configured, not epochs."""
        return self.spec.grpo.max_steps

    def trainer(self, batch: Batch, done: int) -> Any:
        """A new GRPOTrainer (`active`) on a freshly loaded base; the journal forgets what came after the checkpoint."""
        self.journal.rewind(done)
        self.release()
        gc.collect()
        free_cached_memory()
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # we know that rollout_func may change
        import transformers
        from datasets import Dataset

        logging.getLogger("trl.trainer.grpo_trainer").addFilter(_unmasked)
        spec = self.spec
        model = policy(spec, self.device)
        trainer = active_trainer()(
            model=model,
            reward_funcs=self.reward,
            args=grpo_config(spec, batch, self.device),
            train_dataset=Dataset.from_list(list(self.questions.rows)),
            processing_class=self.tokenizer,
            rollout_func=self.rollout,
            callbacks=[
                reporting(self.report, self.log, spec.grpo.logging_steps),
                journal_callback(self.journal, self.parts),
                leaving_reference_out(spec.work),
                ordering_questions(spec.seed),
                sealing(spec.work, spec.grpo.save_total_limit),
            ],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        count_parts(trainer, self.parts)
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        if not trained or not all("lora_" in name for name in trained):
            raise TrainingError(
                "only the adapter may be trained; other weights of the model would change, too"
            )
        for weight in trained.values():
            weight.data = weight.data.float()
        return trainer


def leaving_reference_out(work: Path) -> Any:
    """A callback that takes TRL's frozen copy of the start (`beta` above 0) out of a checkpoint before it is sealed.

    Every trainer makes that copy anew. Beside it in a checkpoint, transformers 5.17 would load the copy alone and go on
    with a fresh adapter under the old optimiser's state.
    """
    from transformers import TrainerCallback

    class LeavingReferenceOut(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                shutil.rmtree(all_checkpoints(work)[-1] / REFERENCE, ignore_errors=True)

    return LeavingReferenceOut()


def ordering_questions(seed: int) -> Any:
    """A callback that makes the order of an epoch's questions a function of seed and epoch alone.

    TRL draws one order after another, so that a run resumed in a later epoch would begin with the first order again.
    The first epoch keeps TRL's.
    """
    from transformers import TrainerCallback

    class OrderingQuestions(TrainerCallback):
        def on_epoch_begin(
            self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any
        ) -> None:
            order = sampler_of(train_dataloader)
            epoch = int(state.epoch or 0)
            order.generator.manual_seed(derived_seed("question order", seed, epoch) if epoch else seed)

    return OrderingQuestions()


def sampler_of(loader: Any) -> Any:
    """What gives the order of a loader's rows, behind the wrappers of several processes and of a resumed run."""
    batches = loader.batch_sampler
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    return batches.sampler


def _unmasked(record: logging.LogRecord) -> bool:
    """TRL prints a question for every masked group; those are counted in `groups_used` instead."""
    return "All reward functions returned None" not in record.getMessage()
