"""The planner's original trainings in a plain folder: `train-planner` and `train-sft-planner`.

A run leaves what the original left: the adapter, the tokenizer with special_tokens_map.json, training_config.json and
checkpoint-*/ in the output folder. The same command again goes on from the last complete checkpoint.
"""

import importlib.util
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.data import ColumnMap, SourceConfig
from reasoner.config.planner import PlannerGrpoConfig, RewardConfig, WorkerConfig
from reasoner.config.smart import EngineConfig, LoraConfig, ModelConfig, SamplingConfig, TrainConfig
from reasoner.errors import DataError, UsageError
from reasoner.home import Home
from reasoner.methods.planner.training_args import TrainingArgs
from reasoner.models import resolve
from reasoner.problems import load_problems
from reasoner.problems.files import read_file
from reasoner.problems.hub import read_hub
from reasoner.problems.table import Table
from reasoner.prompts import ChatRenderer
from reasoner.records import TrainingExample
from reasoner.store.rows import write_rows
from reasoner.tracking import Tracking
from reasoner.training.launch import run_sft
from reasoner.training.planner.launch import run_grpo
from reasoner.training.planner.spec import PlannerGrpoSpec
from reasoner.training.specs import SftSpec

Progress = Callable[[dict[str, Any]], None]
GSM8K = "openai/gsm8k"
SPRINT = "emilbiju/Planning-Data-Math-Full-Soln"
SPRINT_COLUMNS = ("SystemPrompt", "UserPrompt", "ExpectedOutput")
EXPORT = ".export"


@dataclass(frozen=True, slots=True)
class Beyond:
    """What our command can be told and the original could not."""

    data: str = GSM8K
    """A Hub id in GSM8K's shape, or a file with `question` and `answer`."""
    seed: int = 0
    engine: str = "auto"
    """`auto` is vLLM where it is installed, else transformers; of no account with a 4-bit base."""
    reward_mode: str = "original"
    filter_zero_variance: str = "none"
    prompts: str = "planner"
    worker_max_tokens: int = 512
    worker_temperature: float = 0.0
    gpu_memory_utilization: float = 0.4
    revision: str = ""
    """Of the code, for training_config.json."""


def grpo_config(args: TrainingArgs) -> PlannerGrpoConfig:
    """The original's settings in the terms of ours. Raises UsageError for a step that holds no whole groups."""
    step = args.batch_size * args.grad_accum
    if step % args.num_generations:
        raise UsageError(
            f"--batch-size × --grad-accum = {step} completions a step, no multiple of --num-generations "
            f"{args.num_generations}"
        )
    return PlannerGrpoConfig(
        lr=args.lr, warmup_ratio=args.warmup_ratio, batch_size=args.batch_size, grad_accum=args.grad_accum,
        max_steps=args.max_steps, num_generations=args.num_generations, temperature=args.temperature,
        max_prompt_length=args.max_prompt_length, max_completion_length=args.max_completion_length,
        max_samples=args.max_samples, load_in_4bit=not args.no_4bit, gradient_checkpointing=True,
        lora=LoraConfig(r=args.lora_r, alpha=args.lora_alpha, dropout=args.lora_dropout),
        logging_steps=args.logging_steps, save_steps=args.save_steps, save_total_limit=args.save_total_limit,
    )  # fmt: skip


def train_planner(args: TrainingArgs, beyond: Beyond, home: Home, on_progress: Progress) -> dict[str, Any]:
    """GRPO as the original's script runs it; returns what training.json says. Raises the errors of the parts."""
    grpo = grpo_config(args)  # before anything is downloaded
    base = resolve(ModelConfig(path=args.base_model), home.path)
    out = Path(args.output_dir)
    shown = Tracking.of(not args.no_wandb, args.wandb_project, "", out)
    out.mkdir(parents=True, exist_ok=True)
    loaded = load_problems(_gsm8k(beyond.data))
    if not loaded.problems:
        raise DataError(f"{beyond.data}: no question can be used")
    rows = out / "questions.jsonl"
    write_rows(rows, [p.to_row() for p in loaded.problems])
    spec = PlannerGrpoSpec(
        base=base.folder, base_name=args.base_model, base_fingerprint=base.fingerprint, rows=rows,
        output=_export_folder(out), work=out, engine=_engine(beyond), grpo=grpo,
        worker=WorkerConfig(
            decoding=SamplingConfig(temperature=beyond.worker_temperature, max_tokens=beyond.worker_max_tokens)
        ),
        reward=RewardConfig.model_validate(
            {
                "mode": beyond.reward_mode, "filter_zero_variance": beyond.filter_zero_variance,
                "correctness_weight": args.correctness_weight, "token_weight": args.token_weight,
                "independence_weight": args.independence_weight,
            }
        ),
        prompts=beyond.prompts, seed=beyond.seed, revision=beyond.revision, tracking=shown,
    )  # fmt: skip
    done = run_grpo(spec, out / "train.log", on_progress)
    _move_up(spec.output, out)
    return {"output": str(out), "steps": done.training["steps"], "curves": done.training["curves"],
            "metrics": done.metrics}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SftArgs:
    """The original baseline's in-file configuration (dummy_planner.py), with METHODS 4.6's other values."""

    base_model: str = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
    dataset: str = SPRINT
    """A Hub id, or a file with the columns `SystemPrompt`, `UserPrompt`, `ExpectedOutput`."""
    output_dir: str = "./deepseek-r1-planner-lora"
    max_seq_len: int = 17000
    batch_size: int = 2
    grad_accum: int = 8
    lr: float = 1e-4
    num_epochs: float = 1.0
    lora_r: int = 16
    lora_alpha: int = 32
    warmup_ratio: float = 0.03
    seed: int = 0


def train_sft_planner(args: SftArgs, home: Home, on_progress: Progress) -> dict[str, Any]:
    """The supervised baseline; returns what training.json says.

    Departs from the original: the chat template is applied, the loss is taken on `ExpectedOutput` alone, and
    the epochs count (a forgotten `max_steps=5` overrode them).
    """
    table = _sprint_rows(args.dataset)
    base = resolve(ModelConfig(path=args.base_model), home.path)
    out = Path(args.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    renderer = ChatRenderer(base.folder)
    rows = out / "examples.jsonl"
    count = write_rows(rows, [e.to_row() for e in sprint_examples(table, renderer)])
    steps = math.ceil(args.num_epochs * math.ceil(count / (args.batch_size * args.grad_accum)))
    spec = SftSpec(
        base=base.folder, base_name=args.base_model, base_fingerprint=base.fingerprint, train_rows=rows,
        output=_export_folder(out), work=out, end_token=renderer.end_token, seed=args.seed,
        add_special_tokens=not renderer.has_chat_template,
        train=TrainConfig(
            lr=args.lr, epochs=args.num_epochs, batch_size=args.batch_size, grad_accum=args.grad_accum,
            warmup_steps=math.ceil(args.warmup_ratio * steps), max_length=args.max_seq_len,
            lora=LoraConfig(r=args.lora_r, alpha=args.lora_alpha), gradient_checkpointing=True, min_records=1,
            save_steps=100,
        ),
    )  # fmt: skip
    done = run_sft(spec, out / "train.log", on_progress)
    _move_up(spec.output, out)
    return {"output": str(out), "steps": done.training["steps"], "records": done.training["records"],
            "losses": done.training["losses"], "metrics": done.metrics}  # fmt: skip


def sprint_examples(table: Table, renderer: ChatRenderer) -> list[TrainingExample]:
    """Rows of `SystemPrompt`, `UserPrompt`, `ExpectedOutput` as the model will see and write them."""
    examples = []
    for number, row in table.rows:
        system, user, output = (str(row.get(name) or "").strip() for name in SPRINT_COLUMNS)
        if not user or not output:
            continue
        turns = [{"role": "system", "content": system}] if system else []
        text = renderer.render([*turns, {"role": "user", "content": user}]).text
        examples.append(TrainingExample(f"row-{number}", text, renderer.completion_text(output), "sprint"))
    if not examples:
        raise DataError("no row has both a UserPrompt and an ExpectedOutput")
    return examples


def _sprint_rows(dataset: str) -> Table:
    source = SourceConfig(name="plans", path=dataset, kind=_kind(dataset))
    table = read_file(Path(dataset)) if source.kind == "file" else read_hub(source)
    if missing := [name for name in SPRINT_COLUMNS if name not in table.columns]:
        raise DataError(f"{dataset}: has no column {missing[0]}; it has {', '.join(table.columns)}")
    return table


def _gsm8k(data: str) -> SourceConfig:
    is_file = _kind(data) == "file"
    marked = {"answer_format": "hash_marks"} if not is_file or _has_marks(Path(data)) else {}
    return SourceConfig.model_validate(
        {"name": "train", "path": data, "config": None if is_file else "main", "split": "train",
         "kind": _kind(data), "columns": ColumnMap(), **marked}
    )  # fmt: skip


def _has_marks(path: Path) -> bool:
    """Whether a file's answers are in GSM8K's form, behind `####`."""
    rows = [row for _, row in read_file(path).rows[:20]]
    return bool(rows) and all("####" in str(row.get("answer", "")) for row in rows)


def _kind(path: str) -> Any:
    return SourceConfig(name="x", path=path, limit=1).kind  # type: ignore[call-arg]


def _engine(beyond: Beyond) -> EngineConfig:
    """vLLM's share of the card counts on an accelerator only."""
    vllm = importlib.util.find_spec("vllm") is not None
    kind = beyond.engine if beyond.engine != "auto" else "vllm" if vllm else "transformers"
    card = kind == "vllm" and Path("/dev/nvidiactl").exists()
    options = {"gpu_memory_utilization": beyond.gpu_memory_utilization} if card else {}
    return EngineConfig.model_validate({"kind": kind, "options": options})


def _export_folder(out: Path) -> Path:
    """Where the program writes the adapter; what a killed run left there is of no use."""
    folder = out / EXPORT
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _move_up(folder: Path, out: Path) -> None:
    """The adapter's files from the export folder into the output folder."""
    for path in sorted(folder.iterdir()):
        os.replace(path, out / path.name)
    folder.rmdir()
