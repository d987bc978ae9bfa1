"""TRL's trainer for one training: base, LoRA adapter, settings, and masks proven before the first step.

Precision: the adapter's weights, their gradients and the optimiser's state are always float32. `bf16`
computes under bfloat16 autocast; the frozen base is then held in float32 on the CPU and in bfloat16 on a
GPU, where memory counts. `fp32` holds and computes everything in float32.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from reasoner.errors import ModelError
from reasoner.preflight.mask import IGNORED, check_batches
from reasoner.training import runtime, zero
from reasoner.training.callbacks import counting_epochs, reporting, sealing
from reasoner.training.examples import EncodedSet, Encoder
from reasoner.training.micro_batch import Batch
from reasoner.training.ordering import FilledSampler, GroupedSampler, random_sampler
from reasoner.training.packing import Attention
from reasoner.training.specs import SftSpec

OPTIMISER = "adamw_torch"
FULLY_SHARDED: dict[str, Any] = {
    "fsdp": True,
    # Whole states, which any number of processes can read again.
    "fsdp_config": {
        "version": 2,
        "state_dict_type": "FULL_STATE_DICT",
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    },
}
"""Arguments of the Trainer: FSDP2, a transformer layer a unit."""


def present_modules(model: Any, wanted: tuple[str, ...]) -> list[str]:
    """Which of the wanted linear layers the model has. Raises `ModelError`, naming those it has, if none."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    layers = {
        name.rsplit(".", 1)[-1] for name, m in model.named_modules() if isinstance(m, nn.Linear | Conv1D)
    }
    layers.discard("lm_head")  # TRL reads its weight directly, so an adapter on it would never be trained
    found = sorted(layers & set(wanted))
    if not found:
        raise ModelError(
            f"The model has none of the layers {', '.join(wanted)} (train.lora.modules); "
            f"it has {', '.join(sorted(layers))}"
        )
    return found


def compile_layers(model: Any) -> None:
    """Have each decoder layer of a PEFT model compiled at its first call, once for records of any length.

    The layers are alike, so the first one's compilation serves the others. Names of weights stay as they are.
    """
    kinds = set(model.get_base_model()._no_split_modules or ())
    layers = [module for module in model.modules() if type(module).__name__ in kinds]
    if not layers:
        raise ModelError("This model does not name its layers, so train.compile=true can't compile them")
    for layer in layers:
        layer.compile(dynamic=True)


def trainer_config(
    spec: SftSpec, batch: Batch, device: str, evaluate: bool, packed: bool, tracked: bool
) -> Any:
    """TRL's configuration. Every step's loss is logged, so that a resumed run has the same log."""
    from trl import SFTConfig

    train = spec.train
    config = SFTConfig(
        output_dir=str(spec.work),
        # Rows come tokenised, with labels: skip TRL's preparation, which would cut at max_length.
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        packing=False,  # TRL's packing would change the records of a step; see packing.py
        padding_free=packed,
        per_device_train_batch_size=batch.size,
        per_device_eval_batch_size=batch.size,
        gradient_accumulation_steps=batch.accum,
        num_train_epochs=train.epochs,
        learning_rate=train.lr,
        lr_scheduler_type=train.scheduler,
        warmup_steps=train.warmup_steps,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        optim=OPTIMISER,
        fp16=False,
        use_cpu=device == "cpu",
        gradient_checkpointing=train.gradient_checkpointing,
        eval_strategy="steps" if evaluate else "no",
        eval_steps=train.eval_steps if evaluate else None,
        prediction_loss_only=True,
        metric_for_best_model="loss" if evaluate else None,
        greater_is_better=False if evaluate else None,
        save_strategy="steps",
        save_steps=train.save_steps,
        save_total_limit=None,  # old checkpoints go after the new one is sealed, see callbacks.sealing
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="wandb" if tracked else "none",
        push_to_hub=False,
        disable_tqdm=True,
        dataloader_pin_memory=device == "cuda",
        ddp_find_unused_parameters=False,
        **division(spec),
        seed=spec.seed,
        data_seed=spec.seed,
    )
    return runtime.on_one_card(config)


def division(spec: SftSpec) -> dict[str, Any]:
    """The Trainer's arguments of who divides what among several processes, and of the precision, which each knows."""
    if zero.divides(spec):
        return zero.arguments(spec.train.precision)
    sharded = FULLY_SHARDED if spec.divides_model else {}
    return {"bf16": spec.train.precision == "bf16", **sharded}


def dataset_of(encoded: EncodedSet, neutral: int = 0) -> Any:
    """The rows as TRL takes them when preparation is skipped: `input_ids` and `labels`, both [T].

    Behind them stand `neutral` rows of one token that the loss leaves out.
    """
    from datasets import Dataset

    ids = [list(e.input_ids) for e in encoded.kept] + [[encoded.kept[0].input_ids[-1]]] * neutral
    labels = [list(e.labels) for e in encoded.kept] + [[IGNORED]] * neutral
    return Dataset.from_dict({"input_ids": ids, "labels": labels})


def ordered_trainer(sampler: Any, **arguments: Any) -> Any:
    """An SFTTrainer that takes its records in `sampler`'s order, or in its own."""
    from trl import SFTTrainer

    class OrderedTrainer(SFTTrainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return sampler if sampler is not None else super()._get_train_sampler(train_dataset)

        def floating_point_ops(self, inputs: Any) -> int:
            """Nothing reads the count, and Transformers walks through all weights for it in each micro-step."""
            return 0

    return OrderedTrainer(**arguments)


@dataclass
class Job:
    """One training: the spec with its encoded rows and whatever else an attempt needs."""

    spec: SftSpec
    device: str
    attention: Attention
    nf4: bool
    """Whether the base is held in 4 bits."""
    encoder: Encoder
    train: EncodedSet
    validation: EncodedSet | None
    report: Callable[..., Any]
    log: Callable[[str], None]
    tracked: bool = False
    """Whether this process has a W&B run."""

    @property
    def work(self) -> Path:
        return self.spec.work

    def trainer(self, batch: Batch, done: int = 0) -> Any:
        """A new SFTTrainer on a freshly loaded base, after its collated batches were checked."""
        from transformers import PrinterCallback

        spec = self.spec
        in_bf16 = self.device == "cuda" and spec.train.precision == "bf16"
        model = runtime.load_model(
            spec.base,
            "bfloat16" if in_bf16 else "float32",
            attention=self.attention.name if self.attention.packed else None,
            nf4_on=self.device if self.nf4 else None,
        )
        tokenizer = self.encoder.tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or self.encoder.end_token
        sampler = self.sampler(batch)
        trainer = ordered_trainer(
            sampler,
            model=model,
            args=trainer_config(
                spec, batch, self.device, self.validation is not None, self.attention.packed, self.tracked
            ),
            train_dataset=dataset_of(self.train, self.neutral(batch)),
            eval_dataset=dataset_of(self.validation) if self.validation else None,
            processing_class=tokenizer,
            peft_config=self._lora(model),
            callbacks=[
                reporting(self.report, self.log, spec.train.logging_steps),
                sealing(spec.work, spec.train.save_total_limit),
                *([counting_epochs(sampler)] if sampler else []),
            ],
        )
        trainer.remove_callback(PrinterCallback)
        for weight in trainer.model.parameters():
            if (
                weight.requires_grad
            ):  # TRL rounds the adapter of a 4-bit base to bfloat16, which would lose small steps
                weight.data = weight.data.float()
        if spec.train.compile:
            compile_layers(trainer.model)
        for rows, data in ((self.train, trainer.train_dataset), (self.validation, trainer.eval_dataset)):
            if rows is not None:
                own = cast(Any, data).select(
                    range(len(data) - (self.neutral(batch) if rows is self.train else 0))
                )
                check_batches(rows.kept, own, trainer.data_collator, self.encoder, batch.size)
        return trainer

    def neutral(self, batch: Batch) -> int:
        """Rows without a label that give every process as many micro-batches as the others."""
        if self.spec.processes == 1:
            return 0
        return -len(self.train.kept) % (batch.size * self.spec.processes)

    def sampler(self, batch: Batch) -> Any:
        """The order by length of a padded training; None where the random order of one Trainer's own is kept."""
        rows, several = len(self.train.kept), self.spec.processes > 1
        order: Any = None
        if not self.attention.packed and self.spec.train.packing != "off":
            lengths = [len(e.input_ids) for e in self.train.kept]
            whole = batch.size * batch.accum * self.spec.processes
            order = GroupedSampler(lengths, whole, self.spec.seed)
        elif several:
            order = random_sampler(rows, self.spec.seed)
        return FilledSampler(order, rows + self.neutral(batch)) if several else order

    def _lora(self, model: Any) -> Any:
        from peft import LoraConfig

        lora = self.spec.train.lora
        return LoraConfig(
            r=lora.r,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=present_modules(model, lora.modules),
            bias="none",
            task_type="CAUSAL_LM",
        )

    def steps(self, batch: Batch) -> int:
        """Optimiser steps in all, counted as the Trainer counts them."""
        per_step = batch.size * batch.accum * self.spec.processes
        return math.ceil(self.spec.train.epochs * math.ceil(len(self.train.kept) / per_step))
