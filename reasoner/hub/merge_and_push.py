"""The command `merge-and-push`: adapter into base with a parity check, kept here, pushed to the Hub, or both.

The order is so that nothing is lost: the token is asked for before the merge, and the merged model stays on
the disk when the push fails.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.errors import ModelError, UsageError
from reasoner.home import Home
from reasoner.hub.card import CardFacts, planner_card, read_evaluations
from reasoner.hub.publish import publish, require_token
from reasoner.ids import content_hash, file_hash
from reasoner.methods.planner.prompts import load_prompts
from reasoner.problems.word_problems import generate
from reasoner.prompts import ChatRenderer
from reasoner.serving.own_base import Base, base_of
from reasoner.training.adapter import TRAINING, WEIGHTS
from reasoner.training.launch import read_json, run_merge
from reasoner.training.specs import MergeSpec

PARITY_PROMPTS = 8
SERVER = "python -m vllm.entrypoints.openai.api_server"


@dataclass(frozen=True, slots=True)
class MergeArgs:
    """The original's options. `repo_name` may be empty where nothing is pushed."""

    adapter_path: Path
    base_model: str | None = None
    """Unset: the base that the adapter names."""
    repo_name: str = ""
    model_card: Path | None = None
    local_save_path: Path | None = None
    no_push: bool = False
    private: bool = False
    results: tuple[Path, ...] = ()
    """Evaluations for the card: run folders, report.json or evaluation.json."""
    dtype: str = "bfloat16"


def merge_and_push(
    args: MergeArgs, home: Home, say: Callable[[str], None], on_progress: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Merge, keep, push; returns where the model is, the parity check's figures and the push's result."""
    check(args)
    if not args.no_push:
        require_token(args.repo_name)
    card_text = _own_card(args.model_card)
    evaluations = read_evaluations(args.results)
    base = base_of(args.adapter_path, args.base_model, home)
    key = content_hash([file_hash(args.adapter_path / WEIGHTS), base.name, args.dtype], 16)
    work = home.work / f"merge-and-push-{key}"
    target = args.local_save_path or work / "merged"
    metrics = _merged(args, base, target, work, on_progress)
    say(f"merged into {target}")
    found: dict[str, Any] = {"model": str(target), "parity": metrics}
    if args.no_push:
        return found
    facts = _facts(args, base, target, metrics, evaluations)
    pushed = publish(
        target, card_text or planner_card(facts), args.repo_name, private=args.private, work=work / "hub",
        log=work / "push.log",
    )  # fmt: skip
    say(f"{'pushed to' if pushed['pushed'] else 'already at'} {pushed['url']} ({pushed['commit'][:12]})")
    if args.local_save_path is None:
        shutil.rmtree(work, ignore_errors=True)
        del found["model"]
    return found | {"published": pushed}


def check(args: MergeArgs) -> None:
    """Raises UsageError for options that cannot be meant, before anything is loaded."""
    if not args.no_push and args.repo_name.count("/") != 1:
        raise UsageError("--repo-name must be owner/name; or keep the model here with --no-push")
    if args.no_push and args.local_save_path is None:
        raise UsageError("--no-push needs --local-save-path, or the merged model would be thrown away")
    for path in args.results:
        if not path.exists():
            raise UsageError(f"--results {path}: does not exist")


def _own_card(path: Path | None) -> str:
    if path is None:
        return ""
    if not path.is_file():
        raise UsageError(f"--model-card {path}: does not exist")
    return path.read_text(encoding="utf-8")


def _merged(
    args: MergeArgs, base: Base, target: Path, work: Path, on_progress: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Merge into `target`, unless an earlier call did exactly that."""
    done = work / "done.json"
    mark = {"target": str(target.resolve())}
    if done.is_file() and read_json(done)["mark"] == mark and (target / "merge.json").is_file():
        return dict(read_json(done)["metrics"])
    if args.local_save_path is None:
        shutil.rmtree(target, ignore_errors=True)
    renderer, prompts = ChatRenderer(base.folder), load_prompts()
    asked = tuple(renderer.render(prompts.plan(p.question)).text for p in generate(PARITY_PROMPTS, 0))
    spec = MergeSpec(
        base=base.folder, base_name=base.name, base_fingerprint=base.fingerprint, adapter=args.adapter_path,
        output=target, work=work / "merge", prompts=asked, dtype=args.dtype,  # type: ignore[arg-type]
        add_special_tokens=not renderer.has_chat_template,
    )  # fmt: skip
    result = run_merge(spec, work / "merge.log", on_progress)
    from reasoner.training.checkpoints import write_json

    write_json(done, {"mark": mark, "metrics": result.metrics})
    return result.metrics


def _facts(args: MergeArgs, base: Base, target: Path, metrics: dict[str, Any], evaluations: Any) -> CardFacts:
    from importlib.metadata import version

    training_file = args.adapter_path / TRAINING
    training = read_json(training_file) if training_file.is_file() else {}
    weights = sorted(target.glob("*.safetensors"))
    if not weights:
        raise ModelError(f"{target} holds no safetensors weights")
    digests = {"sha256 of the adapter": file_hash(args.adapter_path / WEIGHTS)}
    digests |= {f"sha256 of {path.name}": file_hash(path) for path in weights}
    command = f"reasoner merge-and-push --base-model {base.name} --repo-name {args.repo_name}"
    return CardFacts(
        repo=args.repo_name, base_model=base.name, digests=digests, training=training, parity=metrics,
        evaluations=evaluations, commands=(command, f"{SERVER} --model {args.repo_name}"),
        versions={name: version(name) for name in ("transformers", "peft", "trl", "torch")},
    )  # fmt: skip
