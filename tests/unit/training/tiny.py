"""A tiny random Llama with a byte-level BPE tokenizer and a chat template, and example rows."""

import json
import random
from pathlib import Path
from typing import Any

from reasoner.config.smart import LoraConfig, TrainConfig
from reasoner.records import TrainingExample
from reasoner.training.specs import SftSpec

START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "Problem: Ann has 3 pens and buys 4 more. How many pens has she?",
    "Chain of Thought: 3 and 4 make 7. The answer is 7.",
    "Program of Thought: answer = 3 * 4 + 2",
    "Strategies already tried without success: none",
    "system user assistant\n",
]


def make_tokenizer(add_bos: bool = False) -> Any:
    """Byte-level BPE of about 400 tokens; with `add_bos` it puts the start token before every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(CORPUS, trainer)
    if add_bos:
        raw.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=START, eos_token=END, unk_token="<|endoftext|>", pad_token=END
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(folder: Path, layers: int = 2, seed: int = 7, **overrides: Any) -> Path:
    """Save a random Llama (hidden 64, head_dim 32) and its tokenizer in `folder`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=True,
        initializer_range=0.1,
        **overrides,
    )
    model: Any = LlamaForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
