"""Toy tasks for the multi-turn methods, a tiny model that is ready for them, and a training spec.

`hint`: the solver never sees the key; the feedback writer does, and must name one of two hints, L or R. The answer is 1
for `left` and 2 for `right`. `again`: the key is shown in the second turn only (SCoRe). `direct`: it is shown at once
(ArCHer). The base reads keys a little (its greedy answer to a key is always the first of the two, so it is right for
every other problem) and follows a hint four times of five.
"""

import csv
import random
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.store.rows import write_rows
from reasoner.training.multiturn.spec import MultiTurnSpec
from tests.support.tiny_llama import make_model

KEYS = {"left": "1", "right": "2"}
HINTS = {"left": "L", "right": "R"}
SOLVE, SOLVE_KEY = "Guess.", "Key {{ question }}. Guess."
ASK, TOLD = "Key {{ question }}. Hint.", "Hint {{ feedback }}."
TASKS = {
    "hint": (SOLVE, ASK, TOLD),
    "again": (SOLVE, ASK, "{{ feedback }} Key {{ question }}."),
    "direct": (SOLVE_KEY, ASK, "{{ feedback }} Key {{ question }}."),
}
CORRECTION = "Again."
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "score": ("again", {"stage1_steps": 5, "stage2_steps": 6}),
    "rl_guided": ("hint", {"stage1_steps": 5, "stage2_steps": 11}),
    "mlmt": ("hint", {"iterations": 14}),
    "archer": ("direct", {"iterations": 11, "epochs": 6, "actor_epochs": 2, "warmup_iter": 2, "beta1": 0.1}),
}
"""The task that shows what a method claims, and the settings with which it learns it (chosen on seeds 100 to 102)."""
LARGER: dict[str, Any] = {
    "rollout_size": 32, "batch_size": 32, "lm_lr": 2e-3, "guidance_lr": 2e-3, "value_lr": 5e-3, "critic_lr": 3e-3,
}  # fmt: skip
"""For a model of 135M parameters, in place of the tiny one's settings."""
READY: dict[str, Any] = {"steps": 50, "lr": 5e-5, "rows": 16}
"""How such a model is made ready."""
NUMBERS = 20
FIRST = {"left": 0.9, "right": 0.6}
"""How often the base gives the first of two answers (1, or L) to a key: what it samples is right 65 times of 100."""
FOLLOWING = 0.8
"""How often the base does what a hint says."""


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


def settings(room: Path, base: Path, task: str, **fields: Any) -> dict[str, Any]:
    """Configuration keys of a training of `task`, with its prompts and its CSV file in `room`."""
    room.mkdir(parents=True, exist_ok=True)
    columns = {"question": ["question"], "answer": "answer", "solution": "correct_answer"}
    source = {"name": "toy", "kind": "file", "path": str(write_csv(room / "MATH.csv")), "columns": columns}
    guided = fields.get("method", "mlmt") in ("mlmt", "rl_guided")
    return {
        "policy_lm": str(base), "prompts": str(write_templates(room / "prompts.yaml", task)),
        "problems": {"train": source, "test_size": 12, "validation_size": 8, "seed": 0},
        "train_guidance_model": guided, "use_smart_corrections": guided,
        "rollout_size": 64, "group_size": 8, "batch_size": 64, "max_tokens": 2, "guidance_max_tokens": 2,
        "lm_lr": 6e-3, "guidance_lr": 6e-3, "value_lr": 1e-2, "critic_lr": 3e-3, "max_grad_norm": 0.3,
        "kl": "reward", "alpha": 1.0, "beta1": 0.01, "beta2": 0.1, "guidance_kl_coef": 0.1,
        "token_normalisation": "sum", "eval_freq": 3, "save_freq": 100, "checkpoint": "last",
        "lora": {"r": 8, "alpha": 16, "modules": ["q_proj", "v_proj", "down_proj"]},
        "engine": {"kind": "transformers", "options": {"batch_size": 64}}, "verify": {"workers": 1},
        **fields,
    }  # fmt: skip


def spec(room: Path, base: Path, task: str, **fields: Any) -> MultiTurnSpec:
    """A training of a task on problems that were prepared; configuration keys by their names."""
    config = MultiTurnConfig.model_validate(settings(room, base, task, **fields))
    return MultiTurnSpec(
        base, "tiny-llama", write_problems(room / "problems"), room / "out", room / "work", config, device="cpu",
        threads=1,
    )  # fmt: skip


def overrides(settings: dict[str, Any], prefix: str = "") -> list[str]:
    """The same keys as dotted overrides of the command line."""
    found = []
    for key, value in settings.items():
        if isinstance(value, dict):
            found += overrides(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            found.append(f"{prefix}{key}=[{','.join(value)}]")
        else:
            found.append(f"{prefix}{key}={str(value).lower() if isinstance(value, bool) else value}")
    return found


def make_ready(
    folder: Path, seed: int = 5, steps: int = 120, start: Path | None = None, lr: float = 5e-3, rows: int = 32
) -> Path:
    """A tiny Llama, or the model in `start`, taught the form of every turn, with answers by the chances above."""
    import torch
    from torch.nn.functional import log_softmax
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if start is None:
        make_model(folder, seed=seed)
    tokenizer, rng = AutoTokenizer.from_pretrained(start or folder), random.Random(seed)
    end = tokenizer.eos_token_id
    model = AutoModelForCausalLM.from_pretrained(start or folder, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr)
    for _ in range(steps):
        texts, places, wanted = [], [], []
        for i, (prompt, pair, first) in enumerate(rng.choices(_turns(), k=rows)):
            ids = tokenizer(_chat(tokenizer, prompt), add_special_tokens=False)["input_ids"]
            answers = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in pair]
            # Soft targets: the two answers by their chances, and the end after either.
            places += [(i, len(ids) - 1), (i, len(ids) - 1), (i, len(ids))]
            wanted += [(answers[0], first), (answers[1], 1 - first), (end, 1.0)]
            texts.append([*ids, answers[rng.random() > first]])
        width = max(map(len, texts))
        batch = torch.tensor([[*text, *[end] * (width - len(text))] for text in texts])
        logp = log_softmax(model(input_ids=batch).logits, -1)
        losses = [
            -chance * logp[row, at, token] for (row, at), (token, chance) in zip(places, wanted, strict=True)
        ]
        (torch.stack(losses).sum() / rows).backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _turns() -> list[tuple[str, str, float]]:
    """Every turn's prompt, its two answers, and how often the first of them is given."""
    found = [(SOLVE, "12", 0.5), ("Hint L.", "12", FOLLOWING), ("Hint R.", "12", 1 - FOLLOWING)] * 8
    for question, _ in questions():
        first = FIRST[question.split()[0]]
        found += [
            (SOLVE_KEY.replace("{{ question }}", question), "12", first),
            (ASK.replace("{{ question }}", question), "LR", first),
            (f"{CORRECTION} Key {question}.", "12", first),
        ]
    return found


def _chat(tokenizer: Any, text: str) -> str:
    messages = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
