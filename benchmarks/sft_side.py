"""One side of `sft.py`: a trainer in a process of its own that makes optimiser steps on order.

    python benchmarks/sft_side.py ours|ours_compiled|trl|trl_lean|judge SETTINGS_JSON      (started by sft.py)

Orders: {"do": "steps", "steps": N, "profile": bool}, {"do": "save"}, {"do": "end"}. `judge` takes none: it puts each
side's adapter on the base and answers with the loss of every validation record, the bare base's among them.
"""

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paced import Finished, kernel_profiler, longest_kernels, own_memory, run_paced
from turns import Channel, serve

from reasoner.config.training import TrainConfig
from reasoner.prompts import ChatRenderer
from reasoner.training import packing, runtime
from reasoner.training.examples import Encoder, read_examples
from reasoner.training.micro_batch import Batch
from reasoner.training.sft import base_config, encode_rows, with_precision
from reasoner.training.specs import SftSpec
from reasoner.training.trainer import Job


def settings_of(given: dict[str, Any], compiled: bool) -> TrainConfig:
    """The original's settings (METHODS 2.6), in micro-batches of ours."""
    size = given["micro_batch"]
    return TrainConfig(
        batch_size=size, grad_accum=given["effective"] // size, max_length=given["max_length"], min_records=1,
        compile=compiled,
    )  # fmt: skip


def ours(given: dict[str, Any], name: str) -> tuple[Any, dict[str, Any]]:
    """The trainer of our stage, and what it decided."""
    folder, room = Path(given["model"]), Path(given["room"])
    renderer = ChatRenderer(folder)
    spec = SftSpec(
        base=folder, base_name=folder.name, train_rows=room / "train.jsonl", output=room / name,
        work=room / f"{name}-work", end_token=renderer.end_token, train=settings_of(given, name == "ours_compiled"),
        add_special_tokens=not renderer.has_chat_template,
    )  # fmt: skip
    device = runtime.pick_device(spec.device)
    spec = with_precision(spec, device)
    attention = packing.choose(
        spec.train.packing, device, spec.train.precision, base_config(spec), runtime.say
    )
    encoder = Encoder(
        runtime.load_tokenizer(folder), spec.end_token, add_special_tokens=spec.add_special_tokens
    )
    train, _ = encode_rows(spec, encoder)
    job = Job(spec, device, attention, False, encoder, train, None, lambda **_: None, runtime.say)
    trainer = job.trainer(Batch(spec.train.batch_size, spec.train.grad_accum))
    # As many steps as the other side makes, whatever records were too long: the rate of learning falls alike.
    trainer.args.max_steps = given["steps"]
    return trainer, {"packed": attention.packed, "attention": attention.name, "records": train.counts()}


def trl(given: dict[str, Any], lean: bool) -> tuple[Any, dict[str, Any]]:
    """TRL's trainer with its defaults and the original's settings."""
    from datasets import Dataset
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    room, train = Path(given["room"]), TrainConfig()
    rows = [{"prompt": e.prompt, "completion": e.completion} for e in read_examples(room / "train.jsonl")]
    on_cpu = runtime.pick_device("auto") == "cpu"
    config = SFTConfig(
        output_dir=str(room / "trl-work"), per_device_train_batch_size=train.batch_size,
        gradient_accumulation_steps=given["effective"] // train.batch_size, max_steps=given["steps"],
        max_length=given["max_length"], learning_rate=train.lr, lr_scheduler_type=train.scheduler,
        warmup_steps=train.warmup_steps, weight_decay=train.weight_decay, report_to="none", save_strategy="no",
        disable_tqdm=True, use_cpu=on_cpu, **({"bf16": False} if on_cpu else {}),
        **({"gradient_checkpointing": False} if lean else {}),
    )  # fmt: skip
    lora = train.lora
    adapter = LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=list(lora.modules),
        bias="none", task_type="CAUSAL_LM",
    )  # fmt: skip
    trainer = SFTTrainer(
        model=given["model"], args=config, train_dataset=Dataset.from_list(rows), peft_config=adapter
    )
    return trainer, {"records": len(rows), "gradient_checkpointing": config.gradient_checkpointing}


class Counter:
    """Tokens and places of the batches that are trained on, without asking the card."""

    def __init__(self, trainer: Any) -> None:
        self._ahead: deque[tuple[int, int]] = deque()
        self._collate, trainer.data_collator = trainer.data_collator, self._counted
        self._step, trainer.training_step = trainer.training_step, self._taken
        self.tokens = self.places = 0

    def _counted(self, rows: Any) -> Any:
        batch = self._collate(rows)
        places = batch["input_ids"].numel()
        mask = batch.get("attention_mask")
        self._ahead.append((places if mask is None else int(mask.sum()), places))
        return batch

    def _taken(self, *arguments: Any, **named: Any) -> Any:
        tokens, places = self._ahead.popleft()  # the loader is a batch ahead
        self.tokens, self.places = self.tokens + tokens, self.places + places
        return self._step(*arguments, **named)

    def take(self) -> dict[str, int]:
        """Counts since the last call."""
        found = {"tokens": self.tokens, "places": self.places}
        self.tokens = self.places = 0
        return found


def on_order(trainer: Any, channel: Channel, room: Path, facts: dict[str, Any]) -> Any:
    """A callback that waits for an order and answers when its steps are done."""
    import torch
    from transformers import TrainerCallback

    counter = Counter(trainer)

    def synchronise() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    class OnOrder(TrainerCallback):
        def __init__(self, orders: Iterator[dict[str, Any]]) -> None:
            self.orders, self.left, self.steps, self.profiler = orders, 0, 0, None

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            channel.answer(ready=True, **facts)
            self.wait()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.left -= 1
            if self.left == 0:
                synchronise()
                row: dict[str, Any] = {**counter.take(), "seconds": time.monotonic() - self.began}
                if self.profiler is not None:
                    self.profiler.__exit__(None, None, None)
                    row["kernels"] = longest_kernels(self.profiler, self.steps)
                memory = own_memory()
                channel.answer(**row, memory=memory.get("peak", memory["host_peak"]))
                self.wait()

        def wait(self) -> None:
            for order in self.orders:
                if order["do"] == "steps":
                    self.left = self.steps = order["steps"]
                    self.profiler = kernel_profiler() if order["profile"] else None
                    if self.profiler is not None:
                        self.profiler.__enter__()
                    synchronise()
                    self.began = time.monotonic()
                    return
                trainer.model.save_pretrained(room / "adapter")
                channel.answer(saved=True)
            raise Finished

    return OnOrder(channel.orders())


def judge(given: dict[str, Any], channel: Channel) -> None:
    """The mean loss a token of every validation record, by adapter."""
    import torch
    from peft import PeftModel

    folder, room = Path(given["model"]), Path(given["room"])
    renderer, device = ChatRenderer(folder), runtime.pick_device("auto")
    encoder = Encoder(
        runtime.load_tokenizer(folder), renderer.end_token, add_special_tokens=not renderer.has_chat_template
    )
    rows = encoder.encode_all(read_examples(room / "validation.jsonl"), given["max_length"]).kept
    found: dict[str, list[float]] = {}
    for name in ("base", *given["sides"]):
        model: Any = runtime.load_model(folder, "bfloat16" if device == "cuda" else "float32")
        if name != "base":
            model = PeftModel.from_pretrained(model, str(room / name / "adapter"))
        model = model.to(device).eval()
        found[name] = []
        for row in rows:
            ids, labels = (torch.tensor([x], device=device) for x in (row.input_ids, row.labels))
            with torch.inference_mode():
                found[name].append(float(model(input_ids=ids, labels=labels).loss))
    channel.answer(losses=found)


def run(name: str, given: dict[str, Any], channel: Channel) -> None:
    """A side from its start to its end."""
    if name == "judge":
        return judge(given, channel)
    makers: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
        "ours": lambda: ours(given, name),
        "ours_compiled": lambda: ours(given, name),
        "trl": lambda: trl(given, lean=False),
        "trl_lean": lambda: trl(given, lean=True),
    }
    trainer, facts = makers[name]()
    trainer.add_callback(on_order(trainer, channel, Path(given["room"]) / name, facts))
    run_paced(trainer)
    return None


if __name__ == "__main__":
    runtime.prepare_process(None)
    serve(lambda channel: run(sys.argv[1], json.loads(sys.argv[2]), channel))
