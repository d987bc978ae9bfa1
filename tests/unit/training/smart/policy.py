"""A tiny policy that names a strategy and solves, now right and now wrong, and a small GRPO training of it."""

from pathlib import Path
from typing import Any

from reasoner.config.smart import EngineConfig, LoraConfig, PromptConfig, SmartGrpoConfig
from reasoner.prompts import ChatRenderer, completion, load_template
from reasoner.records import Problem, Strategy
from reasoner.store.rows import write_rows
from reasoner.training.smart.spec import SmartGrpoSpec
from tests.support.tiny_llama import make_model
from tests.unit.training.planner.planning import teach

PROMPT = PromptConfig(template="demo")


def problems(count: int = 8) -> list[Problem]:
    return [Problem.make(f"{a} pens and {a + 1} more?", str(2 * a + 1), "pens") for a in range(1, count + 1)]


def prompt_of(base: Path, problem: Problem) -> str:
    """As the template and the renderer have it."""
    return ChatRenderer(base).render(load_template(PROMPT.template).messages(problem.question)).text


def right(problem: Problem) -> str:
    return completion(Strategy.POT, f"```python\nanswer = {problem.gold}\n```")


def wrong(problem: Problem) -> str:
    return completion(Strategy.COT, "The answer is 0")


def lessons(base: Path, count: int = 8) -> list[tuple[str, str]]:
    """Each prompt with a right program and wrong prose: drawn at temperature 1, about half are right."""
    end = ChatRenderer(base).end_token
    return [(prompt_of(base, p), say(p) + end) for p in problems(count) for say in (right, wrong)]


def learnt_to_choose(folder: Path) -> Path:
    """A base that has learnt those by heart."""
    base = make_model(folder / "base")
    teach(base, lessons(base))
    return base


def make_grpo(base: Path, room: Path, **fields: Any) -> SmartGrpoSpec:
    """Two steps of 4 questions × 4 responses; settings of `SmartGrpoConfig` by their names."""
    rows = room / "rows.jsonl"
    room.mkdir(parents=True, exist_ok=True)
    write_rows(rows, fields.pop("rows_of", problems()))
    settings = {name: fields.pop(name) for name in list(fields) if name in SmartGrpoConfig.model_fields}
    grpo = SmartGrpoConfig(
        **{
            "lr": 1e-2, "batch_size": 8, "grad_accum": 2, "num_generations": 4, "max_steps": 2, "save_steps": 1,
            "max_prompt_length": 128, "max_completion_length": 48, "lora": LoraConfig(r=4, alpha=8),
            "precision": "fp32", "logging_steps": 1, "warmup_ratio": 0.0, **settings,
        }
    )  # fmt: skip
    return SmartGrpoSpec(
        base=base, base_name="tiny-llama", rows=rows, output=room / "adapter", work=room / "work",
        engine=EngineConfig(kind="transformers", options={"batch_size": 16}), grpo=grpo, prompt=PROMPT, device="cpu",
        threads=1, **fields,
    )  # fmt: skip
