"""Example rows and specs for small trainings of the tiny Llama."""

import json
import random
from pathlib import Path
from typing import Any

from reasoner.config.smart import LoraConfig, TrainConfig
from reasoner.records import TrainingExample
from reasoner.training.specs import SftSpec
from tests.support.tiny_llama import CORPUS, END, START, TEMPLATE, make_model, make_tokenizer

__all__ = [
    "CORPUS", "END", "START", "TEMPLATE", "chat_prompt", "make_examples", "make_model", "make_spec", "make_tokenizer",
    "write_examples",
]  # fmt: skip


def chat_prompt(tokenizer: Any, question: str) -> str:
    messages = [{"role": "user", "content": f"Problem: {question}"}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def make_examples(count: int, seed: int = 0, uneven: bool = False) -> list[TrainingExample]:
    """Sums in chat form; the completion ends with the end token. With `uneven`, of many lengths."""
    tokenizer, rng = make_tokenizer(), random.Random(seed)
    examples = []
    for index in range(count):
        a, b = rng.randint(1, 9), rng.randint(1, 9)
        prompt = chat_prompt(tokenizer, f"Ann has {a} pens and buys {b} more.")
        text = f"Chain of Thought: {a} and {b} make {a + b}. The answer is {a + b}."
        text += (" and so" * (7 * index % 19) if uneven else "") + END
        examples.append(TrainingExample(f"p{index}", prompt, text, strategy="cot"))
    return examples


def write_examples(path: Path, examples: list[TrainingExample]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(e.to_row(), sort_keys=True) + "\n" for e in examples), encoding="utf-8"
    )
    return path


def make_spec(base: Path, room: Path, examples: list[TrainingExample], **fields: Any) -> SftSpec:
    """A small training of `base` with everything under `room`; settings of `TrainConfig` by their names."""
    settings = {name: fields.pop(name) for name in list(fields) if name in TrainConfig.model_fields}
    train = TrainConfig(
        **{
            "lr": 5e-3,
            "batch_size": 4,
            "grad_accum": 1,
            "warmup_steps": 1,
            "min_records": 1,
            "logging_steps": 2,
            "precision": "fp32",
            "lora": LoraConfig(r=4, alpha=8),
            **settings,
        }
    )
    return SftSpec(
        base=base,
        base_name=fields.pop("base_name", "tiny-llama"),
        train_rows=write_examples(room / "rows" / "train.jsonl", examples),
        output=fields.pop("output", room / "adapter"),
        work=fields.pop("work", room / "work"),
        end_token=fields.pop("end_token", END),
        train=train,
        device=fields.pop("device", "cpu"),
        **fields,
    )
