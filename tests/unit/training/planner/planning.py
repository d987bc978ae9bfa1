"""A tiny model that has learnt to write plans, and a small GRPO training of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.planner import PlannerGrpoConfig, RewardConfig, WorkerConfig
from reasoner.config.smart import EngineConfig, LoraConfig, SamplingConfig
from reasoner.methods.planner.plan import Plan
from reasoner.methods.planner.prompts import load_prompts
from reasoner.prompts import ChatRenderer
from reasoner.records import Problem
from reasoner.store.rows import write_rows
from reasoner.training.planner.spec import PlannerGrpoSpec
from tests.support.tiny_llama import make_model

LORA = LoraConfig(r=4, alpha=8)
PROMPTS = {
    "planner": "Plan: {{ question }}",
    "solve_subproblem": "Part {{ subproblem }} of {{ question }}",
    "combine": "Join {{ question }}{% for part in parts %} {{ part.subproblem }} {{ part.solution }}{% endfor %}",
    "solve_directly": "Solve: {{ question }}",
}
"""Short, since the tiny tokenizer has hardly more than bytes."""


def problems(count: int = 8) -> list[Problem]:
    return [Problem.make(f"{a} pens and {a + 1} more?", str(2 * a + 1), "pens") for a in range(1, count + 1)]


def write_prompts(folder: Path) -> str:
    path = folder / "prompts.yaml"
    path.write_text(json.dumps(PROMPTS))
    return str(path)


def learnt_to_plan(folder: Path, questions: int = 8) -> tuple[Path, None, str]:
    """A base that has learnt by heart to plan and to work, and its prompts. Sampled, it errs now and then."""
    base, prompts = make_model(folder / "base"), write_prompts(folder)
    teach(base, lessons(base, prompts, questions))
    return base, None, prompts


def lessons(base: Path, prompts: str, questions: int) -> list[tuple[str, str]]:
    """Prompts with what is to be written: two plans for every problem, and right direct answers."""
    renderer, texts = ChatRenderer(base), load_prompts(prompts)
    plans = [Plan(False, (), "add"), Plan(True, ("pens", "more"), "add")]
    pairs = []
    for problem in problems(questions):
        asked = renderer.render(texts.plan(problem.question)).text
        pairs += [(asked, renderer.completion_text(plan.to_json())) for plan in plans]
        direct = renderer.render(texts.direct(problem.question)).text
        pairs.append((direct, renderer.completion_text(f"The answer is {problem.gold}")))
    return pairs


def teach(base: Path, pairs: list[tuple[str, str]], steps: int = 250) -> None:
    """Train all weights of the model in `base` on completions: `steps` of them, and more where it has not learnt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    rows = [(tokenizer.encode(p), tokenizer.encode(c)) for p, c in pairs]
    width = max(len(p) + len(c) for p, c in rows)
    pad = tokenizer.pad_token_id
    ids = torch.tensor([p + c + [pad] * (width - len(p) - len(c)) for p, c in rows])
    labels = torch.tensor([[-100] * len(p) + c + [-100] * (width - len(p) - len(c)) for p, c in rows])
    mask = torch.tensor([[1] * (len(p) + len(c)) + [0] * (width - len(p) - len(c)) for p, c in rows])
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(3 * steps):
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        # Prompts and completions are deterministic but for the choice of plan: ln 2 at one token of each plan.
        if step >= steps and loss.item() < 0.05:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    else:
        pytest.fail(f"the base has not learnt its lessons: a loss of {loss.item():.3f}")
    model.to(torch.bfloat16).save_pretrained(base)


def make_grpo(base: Path, start: Path | None, prompts: str, room: Path, **fields: Any) -> PlannerGrpoSpec:
    """Two steps of 4 groups of 2 plans; settings of `PlannerGrpoConfig` by their names."""
    rows = room / "rows.jsonl"
    room.mkdir(parents=True, exist_ok=True)
    write_rows(rows, fields.pop("rows_of", problems()))
    settings = {name: fields.pop(name) for name in list(fields) if name in PlannerGrpoConfig.model_fields}
    grpo = PlannerGrpoConfig(
        **{
            "lr": 1e-2, "batch_size": 4, "grad_accum": 2, "num_generations": 2, "max_steps": 2, "save_steps": 1,
            "max_prompt_length": 128, "max_completion_length": 64, "lora": LORA, "precision": "fp32",
            "logging_steps": 1, "warmup_ratio": 0.0, **settings,
        }
    )  # fmt: skip
    return PlannerGrpoSpec(
        base=base, base_name="tiny-llama", rows=rows, output=fields.pop("output", room / "adapter"),
        work=room / "work", engine=fields.pop("engine", EngineConfig(kind="transformers", options={"batch_size": 8})),
        grpo=grpo, prompts=prompts, start=start, device="cpu", threads=1,
        worker=fields.pop("worker", WorkerConfig(decoding=SamplingConfig(max_tokens=12))),
        reward=fields.pop("reward", RewardConfig(token_budget=64)),
        **fields,
    )  # fmt: skip
