"""Supervised fine-tuning of an adapter, GRPO on top of it, and merges into the base, each in a child process."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reasoner.config.smart import (
    Dtype,
    EngineConfig,
    PromptConfig,
    SmartGrpoConfig,
    SmartVerifyConfig,
    TrainConfig,
)
from reasoner.config.training import share_of
from reasoner.errors import TrainingError
from reasoner.methods.smart.records import SolutionRecord
from reasoner.preflight.template import require_prefix
from reasoner.problems.word_problems import generate
from reasoner.prompts import Attempt, ChatRenderer, completion, load_template
from reasoner.records import Problem, TrainingExample
from reasoner.store.rows import read_rows, write_rows
from reasoner.training.grpo.launch import run_grpo
from reasoner.training.launch import run_merge, run_sft
from reasoner.training.smart.spec import PROGRAM, SmartGrpoSpec
from reasoner.training.specs import MergeSpec, SftSpec
from reasoner.workbench import ModelFolder, Workbench

PARITY_PROMPTS = 8
"""Prompts on which the merged model is compared with base + adapter."""


def examples(
    records: Sequence[SolutionRecord], prompt: PromptConfig, renderer: ChatRenderer
) -> list[TrainingExample]:
    """Render records as the policy will see and write them."""
    template, rendered = load_template(prompt.template), []
    for record in records:
        tried = [Attempt(*pair) for pair in zip(record.tried, record.tried_solutions, strict=True)]
        text = renderer.render(template.messages(record.question, tried, prompt.refine_context)).text
        answer = renderer.completion_text(completion(record.strategy, record.solution))
        rendered.append(
            TrainingExample(
                record.problem_id,
                text,
                answer,
                str(record.strategy),
                record.kind,
                tuple(map(str, record.tried)),
            )
        )
    return rendered


def train(
    out: Path,
    bench: Workbench,
    records: Path,
    model: ModelFolder,
    config: TrainConfig,
    prompt: PromptConfig,
    seed: int,
) -> dict[str, Any]:
    """Fine-tune an adapter on `records` into `out`; goes on from the last complete checkpoint in `bench.work`."""
    share_of(config.batch_size * config.grad_accum, bench.compute.processes)
    renderer = ChatRenderer(model.path)
    require_prefix(renderer)
    rows = {}
    for split in ("train", "validation"):
        chosen = [SolutionRecord.from_row(row) for row in read_rows(records / f"{split}.jsonl")]
        rows[split] = examples(chosen, prompt, renderer)
    if len(rows["train"]) < config.min_records:
        raise TrainingError(
            f"only {len(rows['train'])} training records, fewer than train.min_records={config.min_records}: the base "
            "solved too few questions to learn from; use an easier question set, a stronger model or more questions"
        )
    for split, found in rows.items():
        write_rows(bench.work / f"{split}.jsonl", [example.to_row() for example in found])
    spec = SftSpec(
        base=model.path, base_name=model.name, base_fingerprint=model.fingerprint,
        train_rows=bench.work / "train.jsonl",
        validation_rows=bench.work / "validation.jsonl" if rows["validation"] else None,
        output=out, work=bench.work / "sft", end_token=renderer.end_token, train=config, seed=seed,
        add_special_tokens=not renderer.has_chat_template, sizes=bench.home.micro_batches,
        tracking=bench.tracking, processes=bench.compute.processes, sharding=bench.compute.sharding,
    )  # fmt: skip
    with bench.engines.without_engine():
        done = run_sft(spec, bench.logs / f"train-{bench.work.name}.log", bench.child_progress)
    return {"training": done.training, "metrics": done.metrics}


def train_grpo(
    out: Path, bench: Workbench, problems: Sequence[Problem], model: ModelFolder, *, grpo: SmartGrpoConfig,
    prompt: PromptConfig, verify: SmartVerifyConfig, engine: EngineConfig, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Train a fresh adapter on `model` with GRPO; goes on from the last complete checkpoint in `bench.work`."""
    rows = bench.work / "questions.jsonl"
    write_rows(rows, [p.to_row() for p in problems])
    spec = SmartGrpoSpec(
        base=model.path, base_name=model.name, base_fingerprint=model.fingerprint, rows=rows, output=out,
        work=bench.work / "grpo", engine=engine, grpo=grpo, prompt=prompt, verify=verify, seed=seed,
        tracking=bench.tracking, processes=bench.compute.processes, engines=bench.compute.engines,
    )  # fmt: skip
    with bench.engines.without_engine():
        done = run_grpo(PROGRAM, spec, bench.logs / f"grpo-{bench.work.name}.log", bench.child_progress)
    return done.summary


def parity_questions(trained_on: Iterable[str]) -> list[str]:
    """PARITY_PROMPTS distinct questions: of the records, and generated ones where these are too few."""
    generated = (problem.question for problem in generate(PARITY_PROMPTS, 0))
    return list(dict.fromkeys([*trained_on, *generated]))[:PARITY_PROMPTS]


def merge(
    out: Path,
    bench: Workbench,
    model: ModelFolder,
    adapter: Path,
    records: Path,
    prompt: PromptConfig,
    dtype: Dtype,
) -> dict[str, Any]:
    """Merge the adapter into the model that it was trained on; fails where the merged model answers otherwise."""
    renderer = ChatRenderer(model.path)
    template = load_template(prompt.template)
    asked = parity_questions(row["question"] for row in read_rows(records / "train.jsonl"))
    prompts = tuple(renderer.render(template.messages(question)).text for question in asked)
    spec = MergeSpec(
        base=model.path, base_name=model.name, base_fingerprint=model.fingerprint, adapter=adapter, output=out,
        work=bench.work / "merge", prompts=prompts, dtype=dtype, add_special_tokens=not renderer.has_chat_template,
    )  # fmt: skip
    with bench.engines.without_engine():
        done = run_merge(spec, bench.logs / f"merge-{bench.work.name}.log", bench.child_progress)
    return {"model": model.name, "parity": done.metrics}
