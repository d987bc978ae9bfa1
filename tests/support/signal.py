"""Toy tasks for the multi-turn methods, a tiny model that is ready for them, and a training spec.

`hint`: the solver never sees the key; the feedback writer does, and must name one of two hints, L or R. The answer is 1
for `left` and 2 for `right`. The base names hints and answers by chance, but follows a hint four times of five.
`again`: the key is shown in the second turn only (SCoRe). `direct`: it is shown at once (ArCHer).
"""

import csv
import functools
import random
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.store.rows import write_rows
from reasoner.training.multiturn.spec import MultiTurnSpec
from tests.unit.training.tiny import END, make_model, make_tokenizer

KEYS = {"left": "1", "right": "2"}
SOLVE, SOLVE_KEY = "Guess.", "Key {{ question }}. Guess."
ASK, TOLD = "Key {{ question }}. Hint.", "Hint {{ feedback }}."
TASKS = {
    "hint": (SOLVE, ASK, TOLD),
    "again": (SOLVE, ASK, "{{ feedback }} Key {{ question }}."),
    "direct": (SOLVE_KEY, ASK, "{{ feedback }} Key {{ question }}."),
}
CORRECTION = "Again."
NUMBERS = 20


def questions() -> list[tuple[str, str]]:
    return [(f"{key} {n}", gold) for n in range(NUMBERS) for key, gold in KEYS.items()]


def write_csv(path: Path) -> Path:
    """The problems in the shape of the original's MATH.csv."""
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["question", "correct_answer", "answer"])
        writer.writerows((question, f"$\\boxed{{{gold}}}$", gold) for question, gold in questions())
    return path


def write_templates(path: Path, task: str) -> Path:
    attempt, feedback, refine = TASKS[task]
    parts = {"attempt": attempt, "feedback": feedback, "refine": refine, "correction": CORRECTION}
    path.write_text("".join(f"{name}: '{text}'\n" for name, text in parts.items()))
    return path


def write_problems(folder: Path) -> Path:
    """train.jsonl and validation.jsonl, as the problems stage leaves them."""
    from reasoner.records import Problem

    folder.mkdir(parents=True, exist_ok=True)
    rows = [Problem.make(question, gold, "toy").to_row() for question, gold in questions()]
    write_rows(folder / "train.jsonl", rows[:24])
    write_rows(folder / "validation.jsonl", rows[24:])
    return folder


def spec(room: Path, base: Path, task: str, **fields: Any) -> MultiTurnSpec:
    """A training of a task; configuration keys by their names."""
    room.mkdir(parents=True, exist_ok=True)
    settings = {
        "policy_lm": str(base), "prompts": str(write_templates(room / "prompts.yaml", task)),
        "problems": {"train": {"name": "toy", "path": str(room / "unused.csv")}},
        "rollout_size": 32, "group_size": 4, "batch_size": 32, "max_tokens": 2, "guidance_max_tokens": 2,
        "lm_lr": 1e-2, "guidance_lr": 1e-2, "value_lr": 1e-2, "critic_lr": 3e-3, "beta1": 0.0, "beta2": 0.01,
        "guidance_kl_coef": 0.0, "token_normalisation": "sum", "eval_freq": 10, "save_freq": 5,
        "lora": {"r": 8, "alpha": 16}, "engine": {"kind": "transformers", "options": {"batch_size": 64}},
        "verify": {"workers": 1}, "checkpoint": "last",
        **fields,
    }  # fmt: skip
    config = MultiTurnConfig.model_validate(settings)
    return MultiTurnSpec(
        base, "tiny-llama", write_problems(room / "problems"), room / "out", room / "work", config, device="cpu",
        threads=1,
    )  # fmt: skip


def make_ready(folder: Path, seed: int = 5, steps: int = 250) -> Path:
    """A tiny Llama that was taught the form of every turn, with answers by chance."""
    import torch
    from transformers import AutoModelForCausalLM

    make_model(folder, seed=seed)
    tokenizer, rng = make_tokenizer(), random.Random(seed)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(steps):
        rows = [_example(rng) for _ in range(32)]
        prompts = [_chat(tokenizer, text) for text, _ in rows]
        ids = [tokenizer(p + answer + END, add_special_tokens=False)["input_ids"] for p, (_, answer) in
               zip(prompts, rows, strict=True)]  # fmt: skip
        width = max(map(len, ids))
        batch = torch.tensor([[*row, *[2] * (width - len(row))] for row in ids])
        labels = torch.tensor(
            [[*[-100] * (len(row) - 2), *row[-2:], *[-100] * (width - len(row))] for row in ids]
        )
        model(input_ids=batch, labels=labels).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    return folder


def _example(rng: random.Random) -> tuple[str, str]:
    """A turn of any kind, and what the base says to it."""
    question, _ = rng.choice(questions())
    kind = rng.randrange(5)
    if kind == 0:
        return SOLVE, rng.choice("12")
    if kind == 1:
        return SOLVE_KEY.replace("{{ question }}", question), rng.choice("12")
    if kind == 2:
        return ASK.replace("{{ question }}", question), rng.choice("LR")
    if kind == 3:
        return f"{CORRECTION} Key {question}.", rng.choice("12")
    hint = rng.choice("LR")
    follows = rng.random() < 0.8
    return f"Hint {hint}.", "1" if (hint == "L") == follows else "2"


@functools.cache
def _template() -> Any:
    return make_tokenizer()


def _chat(tokenizer: Any, text: str) -> str:
    messages = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
