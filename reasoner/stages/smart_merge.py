"""Adapters as the original kept and merged them: checkpoint folders, and a merge by three names.

Checkpoints of a training hold a path of the machine that made them; here they become adapters with the base's lasting
name and a tokenizer, like the one that a training exports.
"""

import json
from pathlib import Path
from typing import Any

from reasoner.config.smart import ModelConfig
from reasoner.errors import ModelError
from reasoner.home import Home
from reasoner.models import resolve
from reasoner.problems.word_problems import generate
from reasoner.prompts import ChatRenderer, load_template
from reasoner.training.adapter import TRAINING, export_adapter, read_adapter
from reasoner.training.checkpoints import all_checkpoints, is_complete, step_of
from reasoner.training.launch import run_merge
from reasoner.training.runtime import load_tokenizer
from reasoner.training.specs import MergeSpec

PROMPTS = 8
"""Generated questions on which the merged model is compared with base + adapter."""


def export_checkpoints(work: Path, out: Path, base: Path, adapter: Path) -> list[Path]:
    """Every complete checkpoint of `work` as an adapter in `out/checkpoint-N`; `adapter` is what the training gave."""
    name = str(read_adapter(adapter)["base_model_name_or_path"])
    facts = json.loads((adapter / TRAINING).read_text(encoding="utf-8"))
    made = []
    for checkpoint in all_checkpoints(work):
        if is_complete(checkpoint):
            made.append(out / checkpoint.name)
            step = {**facts, "exported_step": step_of(checkpoint)}
            export_adapter(checkpoint, made[-1], load_tokenizer(base), name, step)
    return made


def merge(adapter: Path, base: str, output: Path, log: Path) -> dict[str, Any]:
    """Merge `adapter` into `base` (a folder, a Hub id, a packaged file) as `output`; returns the parity check.

    Raises ModelError where the adapter belongs to another base, TrainingError where the merged model answers otherwise.
    """
    trained_on = str(read_adapter(adapter)["base_model_name_or_path"])
    found = resolve(ModelConfig(path=base), Home.from_environment().path)
    renderer, template = ChatRenderer(found.folder), load_template("smart")
    prompts = tuple(renderer.render(template.messages(p.question)).text for p in generate(PROMPTS, 0))
    spec = MergeSpec(
        base=found.folder, base_name=_name(adapter, trained_on, base, found.fingerprint), adapter=adapter,
        output=output, work=log.parent / "merge", prompts=prompts, base_fingerprint=found.fingerprint,
        add_special_tokens=not renderer.has_chat_template,
    )  # fmt: skip
    return {"model": str(output), "parity": run_merge(spec, log).metrics}


def _name(adapter: Path, trained_on: str, base: str, fingerprint: str) -> str:
    """The base's lasting name, if `base` names it or holds the very weights that the adapter was trained on."""
    try:
        known = json.loads((adapter / TRAINING).read_text(encoding="utf-8"))["base"]["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if trained_on == base or known == fingerprint:
        return trained_on
    raise ModelError(
        f"the adapter {adapter} was trained on {trained_on!r}, and {base!r} holds other weights; give its own base"
    )
