"""The planner's original scripts as commands: their flags and their defaults, and a few of ours behind them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from reasoner.methods.planner.training_args import TrainingArgs

ARGS = TrainingArgs()
Ours = "Ours, not the original's. "


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("train-planner")(train_planner)
    app.command("train-sft-planner")(train_sft_planner)
    app.command("infer")(infer)
    app.command("merge-and-push")(merge_and_push)
    app.command("serve", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(serve)


def train_planner(
    base_model: Annotated[
        str, typer.Option(help="Hub id, folder or package:NAME/FILE.gguf")
    ] = ARGS.base_model,
    lora_r: Annotated[int, typer.Option(help="LoRA rank", min=1)] = ARGS.lora_r,
    lora_alpha: Annotated[int, typer.Option(help="LoRA alpha", min=1)] = ARGS.lora_alpha,
    lr: Annotated[float, typer.Option(help="Learning rate")] = ARGS.lr,
    batch_size: Annotated[int, typer.Option(help="Completions a micro-step", min=1)] = ARGS.batch_size,
    grad_accum: Annotated[int, typer.Option(help="Micro-steps a step", min=1)] = ARGS.grad_accum,
    max_steps: Annotated[int, typer.Option(help="Training steps", min=1)] = ARGS.max_steps,
    num_generations: Annotated[int, typer.Option(help="Plans a question", min=2)] = ARGS.num_generations,
    temperature: Annotated[float, typer.Option(help="The planner's sampling temperature")] = ARGS.temperature,
    correctness_weight: Annotated[
        float, typer.Option(help="Weight of a right answer")
    ] = ARGS.correctness_weight,
    token_weight: Annotated[float, typer.Option(help="Weight of few worker tokens")] = ARGS.token_weight,
    independence_weight: Annotated[
        float, typer.Option(help="Weight of independence")
    ] = ARGS.independence_weight,
    max_samples: Annotated[int, typer.Option(help="Training questions", min=1)] = ARGS.max_samples,
    output_dir: Annotated[str, typer.Option(help="Where the adapter goes")] = ARGS.output_dir,
    wandb_project: Annotated[str, typer.Option(help="W&B project")] = ARGS.wandb_project,
    no_wandb: Annotated[bool, typer.Option("--no-wandb", help="Do not log to W&B")] = False,
    no_4bit: Annotated[bool, typer.Option("--no-4bit", help="bf16 base and vLLM instead of NF4")] = False,
    data: Annotated[str, typer.Option(help=Ours + "Questions: a Hub id or a file")] = "openai/gsm8k",
    seed: Annotated[int, typer.Option(help=Ours + "Seed")] = 0,
    engine: Annotated[str, typer.Option(help=Ours + "auto, vllm or transformers (with --no-4bit)")] = "auto",
    reward_mode: Annotated[str, typer.Option(help=Ours + "original or gated")] = "original",
    filter_groups: Annotated[
        bool, typer.Option("--filter-groups", help=Ours + "Leave out groups of equal correctness")
    ] = False,
    prompts: Annotated[str, typer.Option(help=Ours + "Name or file of the prompts")] = "planner",
    max_prompt_length: Annotated[int, typer.Option(help=Ours + "Longer questions are left out")] = 1024,
    max_completion_length: Annotated[int, typer.Option(help=Ours + "Tokens of a plan")] = 512,
    worker_max_tokens: Annotated[int, typer.Option(help=Ours + "Tokens of a worker's answer")] = 512,
    worker_temperature: Annotated[float, typer.Option(help=Ours + "0 is greedy")] = 0.0,
    logging_steps: Annotated[int, typer.Option(help=Ours + "Steps between printed lines", min=1)] = 10,
    save_steps: Annotated[int, typer.Option(help=Ours + "Steps between checkpoints", min=1)] = 100,
) -> None:
    """Train the planner with GRPO (grpo_training.py); the same command again goes on from its last checkpoint."""
    from reasoner.home import Home
    from reasoner.stages.planner_folder import Beyond, train_planner
    from reasoner.tracking import mode

    args = TrainingArgs(
        base_model=base_model, lora_r=lora_r, lora_alpha=lora_alpha, lr=lr, batch_size=batch_size,
        grad_accum=grad_accum, max_steps=max_steps, num_generations=num_generations, temperature=temperature,
        correctness_weight=correctness_weight, token_weight=token_weight, independence_weight=independence_weight,
        max_samples=max_samples, output_dir=output_dir, wandb_project=wandb_project, no_wandb=no_wandb,
        no_4bit=no_4bit, max_prompt_length=max_prompt_length, max_completion_length=max_completion_length,
        logging_steps=logging_steps, save_steps=save_steps,
    )  # fmt: skip
    beyond = Beyond(
        data=data, seed=seed, engine=engine, reward_mode=reward_mode, prompts=prompts,
        filter_zero_variance="correctness" if filter_groups else "none", worker_max_tokens=worker_max_tokens,
        worker_temperature=worker_temperature, revision=_revision(),
    )  # fmt: skip
    if not no_wandb and mode() == "offline":
        _say("W&B: offline; `wandb sync` sends the run later")
    home = Home.from_environment()
    _print(_shown("train-planner", lambda show: train_planner(args, beyond, home, show)))


def train_sft_planner(
    base_model: Annotated[str, typer.Option(help="BASE_MODEL")] = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    dataset_name: Annotated[
        str,
        typer.Option(help="DATASET_NAME: a Hub id or a file with SystemPrompt, UserPrompt, ExpectedOutput"),
    ] = "emilbiju/Planning-Data-Math-Full-Soln",
    output_dir: Annotated[str, typer.Option(help="OUTPUT_DIR")] = "./deepseek-r1-planner-lora",
    max_seq_len: Annotated[int, typer.Option(help="MAX_SEQ_LEN: longer rows are left out", min=8)] = 17000,
    batch_size: Annotated[int, typer.Option(help="BATCH_SIZE", min=1)] = 2,
    grad_accum: Annotated[int, typer.Option(help="GRAD_ACCUM", min=1)] = 8,
    lr: Annotated[float, typer.Option(help="LR")] = 1e-4,
    num_epochs: Annotated[float, typer.Option(help="NUM_EPOCHS")] = 1.0,
    lora_r: Annotated[int, typer.Option(help="LoRA rank", min=1)] = 16,
    lora_alpha: Annotated[int, typer.Option(help="LoRA alpha", min=1)] = 32,
    seed: Annotated[int, typer.Option(help=Ours + "Seed")] = 0,
) -> None:
    """Fine-tune on planning demonstrations, the original's baseline (dummy_planner.py)."""
    from reasoner.home import Home
    from reasoner.stages.planner_folder import SftArgs, train_sft_planner

    args = SftArgs(
        base_model, dataset_name, output_dir, max_seq_len, batch_size, grad_accum, lr, num_epochs, lora_r,
        lora_alpha, seed=seed,
    )  # fmt: skip
    home = Home.from_environment()
    _print(_shown("train-sft-planner", lambda show: train_sft_planner(args, home, show)))


def infer(
    file: Annotated[
        Path | None, typer.Argument(help="Questions: .jsonl, .json, .csv, .parquet (`question`) or .txt")
    ] = None,
    base_url: Annotated[str, typer.Option(help="vLLM API URL")] = "http://localhost:8000/v1",
    model: Annotated[str | None, typer.Option(help="Base model's name; asked of the server")] = None,
    lora_adapter: Annotated[str, typer.Option(help="The planner's name")] = "recursive_reasoner",
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer", min=1)] = 512,
    temperature: Annotated[float, typer.Option(help="0 is greedy", min=0)] = 0.7,
    prompts: Annotated[str, typer.Option(help=Ours + "Name or file of the prompts")] = "planner",
    as_json: Annotated[
        bool, typer.Option("--json", help=Ours + "JSON Lines, also when asked by hand")
    ] = False,
) -> None:
    """Answer questions through a server (inference_vllm.py): a file of them, or typed in one by one."""
    from flows.commands.inference import answer_file, answer_interactively
    from reasoner.methods.planner.prompts import load_prompts
    from reasoner.records import Sampling
    from reasoner.serving.client import Server
    from reasoner.serving.infer import Inference, read_questions

    questions = None if file is None else read_questions(file)
    texts, sampling = load_prompts(prompts), Sampling(temperature, max_tokens=max_tokens)
    with Server(base_url, lora_adapter, model) as server:
        inference = Inference(server, texts, sampling)
        if questions is None:
            answer_interactively(inference, as_json)
        else:
            answer_file(inference, questions)


def merge_and_push(
    base_model: Annotated[
        str | None, typer.Option("--base-model", "--base_model_name", help="Unset: the adapter's own base")
    ] = None,
    adapter_path: Annotated[
        Path, typer.Option("--adapter-path", "--adapter_model_name", help="The adapter's folder")
    ] = Path(ARGS.output_dir),
    repo_name: Annotated[str, typer.Option(help="owner/name on the Hub; needed to push")] = "",
    model_card: Annotated[
        Path | None, typer.Option(help="Your own card instead of the generated one")
    ] = None,
    local_save_path: Annotated[
        Path | None, typer.Option("--local-save-path", "--output_name", help="Keep the merged model here")
    ] = None,
    no_push: Annotated[bool, typer.Option("--no-push", help="Do not push to the Hub")] = False,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private")] = False,
    results: Annotated[
        list[Path] | None,
        typer.Option(help=Ours + "For the card: a run folder, report.json or evaluation.json"),
    ] = None,
) -> None:
    """Merge an adapter into its base, check it, and push it to the Hub (merge_and_push.py, merge_peft_adapter.py)."""
    from reasoner.home import Home
    from reasoner.hub.merge_and_push import MergeArgs, merge_and_push

    # The peft script's call, --output_name without a repository, only merges.
    kept_here = no_push or (not repo_name and local_save_path is not None)
    args = MergeArgs(
        adapter_path, base_model, repo_name, model_card, local_save_path, kept_here, private, tuple(results or ())
    )  # fmt: skip
    home = Home.from_environment()
    _print(_shown("merge-and-push", lambda show: merge_and_push(args, home, _say, show)))


def serve(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="Base model; unset: the adapter's own")] = None,
    lora_modules: Annotated[
        str, typer.Option(help="NAME=FOLDER of the planner's adapter")
    ] = f"recursive_reasoner={ARGS.output_dir}",
    enable_lora: Annotated[
        bool, typer.Option("--enable-lora", help="Always on; taken as vLLM takes it")
    ] = True,
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port")] = 8000,
) -> None:
    """Start vLLM's OpenAI server with base and adapter; further options go to vLLM as they are."""
    from reasoner.home import Home
    from reasoner.serving.serve import Served, parse_adapter
    from reasoner.serving.serve import serve as start

    start(
        Served(parse_adapter(lora_modules), model, host, port, tuple(context.args)), Home.from_environment()
    )


def _shown(label: str, work: Callable[[Callable[[dict[str, Any]], None]], dict[str, Any]]) -> dict[str, Any]:
    """Do the work with a progress display; `work` passes on what its child process reports."""
    from tasks.progress import Progress

    progress = Progress()

    def show(facts: dict[str, Any]) -> None:
        rest = {name: value for name, value in facts.items() if name not in ("done", "total")}
        progress.update(label, int(facts.get("done", 0)), int(facts.get("total", 0)), **rest)

    try:
        return work(show)
    finally:
        progress.close()


def _revision() -> str:
    """The code's commit, where this is a checkout."""
    from tasks.stage import environment

    return str(environment().get("revision") or "")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(facts: dict[str, Any]) -> None:
    json.dump(facts, sys.stdout, indent=1, ensure_ascii=False)
    print()
