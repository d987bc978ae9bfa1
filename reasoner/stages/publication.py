"""The stage that publishes a planner: card from what was measured, scan, push."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasoner.config.planner import PublishConfig
from reasoner.hub.card import CardFacts, planner_card, read_evaluations
from reasoner.hub.publish import publish
from reasoner.stages.smart import write_json
from reasoner.training.adapter import TRAINING
from reasoner.training.launch import read_json
from reasoner.workbench import Workbench

PACKAGES = ("transformers", "peft", "trl", "torch")


def publish_planner(
    out: Path, bench: Workbench, model: Path, base_name: str, adapter: Path, evaluations: Sequence[Path],
    config: PublishConfig, *, digests: dict[str, str], parity: dict[str, Any], command: str,
) -> dict[str, Any]:  # fmt: skip
    """Push the merged model; `publication.json` and the card stay with the run. Raises PublishError."""
    card = planner_card(
        CardFacts(
            repo=config.repo, base_model=base_name, digests=digests, training=read_json(adapter / TRAINING),
            parity=parity, evaluations=read_evaluations(evaluations), commands=(command,),
            versions={name: version(name) for name in PACKAGES},
        )
    )  # fmt: skip
    (out / "README.md").write_text(card, encoding="utf-8")
    done = publish(
        model, card, config.repo, private=config.private, work=bench.work, log=bench.logs / "publish.log"
    )
    write_json(out / "publication.json", {key: done[key] for key in ("repo", "commit", "url", "content")})
    return done
