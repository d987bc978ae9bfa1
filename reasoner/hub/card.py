"""The model card: what it is, what was measured with which uncertainty, how it was made, how to use it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.methods.planner.evaluation import PlannerEvaluation
from reasoner.report.markdown import render_markdown_template
from reasoner.report.planner import ARM_HEADER, arm_cells, notes, pair_sentence

TEMPLATE = "planner-card.md.jinja"


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card of a planner says. `digests` names content hashes, `commands` is what to type, in order."""

    repo: str
    base_model: str
    kind: str = "merged"
    """`merged` or `adapter`."""
    digests: dict[str, str] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    """training.json of the adapter."""
    parity: dict[str, Any] = field(default_factory=dict)
    """Figures of the merge's parity check."""
    evaluations: tuple[PlannerEvaluation, ...] = ()
    commands: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


def planner_card(facts: CardFacts) -> str:
    """The card as Markdown with its YAML header, as the Hub reads it."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="text-generation", dataset_type=found.name, dataset_name=found.name,
            metric_type="accuracy", metric_name=arm.label, metric_value=round(arm.accuracy.value, 4),
        )
        for found in facts.evaluations
        for arm in found.arms
        if arm.name == "trained" and arm.accuracy.value is not None
    ]  # fmt: skip
    options: dict[str, Any] = {"base_model": facts.base_model} if _is_hub_id(facts.base_model) else {}
    if results:
        options |= {"model_name": facts.repo.split("/")[-1], "eval_results": results}
    header = ModelCardData(
        library_name="peft" if facts.kind == "adapter" else "transformers",
        pipeline_tag="text-generation",
        tags=["reasoner", "planner", "grpo" if facts.training.get("method") == "grpo" else "sft"],
        **options,
    ).to_yaml()
    body = render_markdown_template(
        TEMPLATE, facts=facts, arm_header=ARM_HEADER, arm_cells=arm_cells, pair_sentence=pair_sentence,
        notes=notes, settings=_settings(facts.training),
    )  # fmt: skip
    return f"---\n{header}\n---\n\n{body}"


def _is_hub_id(name: str) -> bool:
    """Whether `name` may be OWNER/NAME on the Hub; a folder or a merged model of ours is not."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name


def read_evaluations(paths: Sequence[Path]) -> tuple[PlannerEvaluation, ...]:
    """Evaluations from `evaluation.json` files, folders that hold one, or a run's report.json."""
    import json

    found: list[PlannerEvaluation] = []
    for path in paths:
        files = [path / "evaluation.json", path / "report.json"] if path.is_dir() else [path]
        for file in (f for f in files if f.is_file()):
            data = json.loads(file.read_text(encoding="utf-8"))
            rows = data.get("evaluations", [data])
            found.extend(PlannerEvaluation.from_row(row) for row in rows)
    return tuple(found)


def _settings(training: dict[str, Any]) -> dict[str, Any]:
    """The settings that a reader asks for first."""
    grpo, reward = training.get("grpo") or {}, training.get("reward") or {}
    lora = (grpo or training.get("train") or {}).get("lora") or {}
    shown = {
        "steps": training.get("steps"),
        "seed": training.get("seed"),
        "learning rate": (grpo or training.get("train") or {}).get("lr"),
        "completions a step": grpo["batch_size"] * grpo["grad_accum"] if grpo else None,
        "group size": grpo.get("num_generations"),
        "temperature": grpo.get("temperature"),
        "loss": grpo.get("loss"),
        "LoRA r / alpha": f"{lora['r']} / {lora['alpha']}" if lora else None,
        "reward": reward.get("mode"),
        "prompts": (training.get("prompts") or {}).get("hash"),
    }
    return {name: value for name, value in shown.items() if value is not None}
