"""Publishes a model folder: card, scan, push in a child process. Importing this loads no huggingface_hub."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from reasoner.errors import PublishError
from reasoner.hub.push import CARD, RESULT, PushSpec
from reasoner.hub.secrets import PUBLISHED
from reasoner.store.durable import replace_file
from reasoner.training.launch import read_json, run_program

LEFT_OUT = ("manifest.json", "metrics.jsonl", "examples.jsonl", "training.json", "merge.json")
"""Ours, and of no use to who loads the model; the card says what matters of them."""


def token() -> str:
    """The Hub token of the environment, or of `hf auth login`; empty where there is none."""
    if found := os.environ.get("HF_TOKEN"):
        return found
    from huggingface_hub import get_token

    return get_token() or ""


def require_token(repo: str) -> str:
    """The token. Raises PublishError before any work is done."""
    found = token()
    if not found:
        raise PublishError(
            f"no Hub token, so {repo} can't be pushed to; set HF_TOKEN, or keep the model here with --no-push"
        )
    return found


def stage_folder(model: Path, card: str, folder: Path) -> Path:
    """A folder with what is published of `model` and the card; weights are linked where the disk allows it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in sorted(model.iterdir()):
        if path.is_file() and path.name not in (*LEFT_OUT, CARD) and path.name.endswith(PUBLISHED):
            try:
                os.link(path.resolve(), folder / path.name)
            except OSError:
                shutil.copyfile(path, folder / path.name)
    replace_file(folder / CARD, [card.encode()])
    return folder


def publish(
    model: Path, card: str, repo: str, *, private: bool, work: Path, log: Path, message: str = "Upload by reasoner"
) -> dict[str, Any]:  # fmt: skip
    """Push `model` with its card as one commit; returns repo, commit, url, content, and whether it was pushed now.

    Raises PublishError without a token, for a secret in a file, and where the Hub refuses.
    """
    key = require_token(repo)
    folder = stage_folder(model, card, work / "staged")
    spec = PushSpec(folder=folder, repo=repo, work=work / "push", private=private, message=message)
    spec.work.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "reasoner.hub.push", str(spec.save(spec.work / "push.json"))]
    run_program(argv, spec.work, log, env={"HF_TOKEN": key})
    return read_json(spec.work / RESULT)
