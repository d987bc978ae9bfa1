"""A finished run of SMART without its training: real answers, verdicts and tables; folders where a trained model is.

What a run leaves that a release is made of: problems, answers of the last epoch, their verdicts, the evaluation, and a
report that names them all; `config.json` and `result.json` in the run's folder.
"""

import json
from pathlib import Path
from typing import Any

from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.home import Home
from reasoner.problems.word_problems import generate
from reasoner.records import ArtifactRef
from reasoner.store import Store
from reasoner.store.rows import write_rows
from tasks import smart as stages
from tasks.context import run_context
from tasks.smart import Answered

PROBLEMS = 60


def released_run(home: Home, script: str, name: str = "smart-demo-1") -> Path:
    """The run's folder."""
    overrides = ["model.path=owner/base", "engine=scripted", f"engine.options.script={script}", "epochs=1"]
    config = load("smart-demo", overrides, SmartConfig)
    store = Store(home.artifacts)
    problems = _put(store, "problems", {}, {})
    base = _put(store, "model", {"model": "owner/base", "revision": "abc123"}, {"config.json": "{}"})
    adapter = _put(store, "adapter", {}, {"adapter_config.json": "{}"})
    made = {"arguments": {"adapter": adapter.to_row()}}
    model = _put(store, "model", made, {"config.json": '{"trained": true}'})
    with run_context(name, home=home) as run:
        run.save_config(config)
        bound = stages.answer.bind(problems, model, "eval-held-out", config.answering(1), config.seed, 1)
        turn1 = stages.verify.run(stages.verify.bind(stages.answer.run(bound), config.verify))
        answered = (Answered("epoch 1", "policy", turn1),)
        evaluation = stages.evaluate.run(stages.evaluate.bind("held-out", (), answered, config.evaluation))
        inputs = {
            "problems": problems.to_row(), "base": base.to_row(), "evaluations": [evaluation.to_row()],
            "trained": [{"label": "epoch 1", "records": problems.to_row(), "adapter": adapter.to_row()}],
        }  # fmt: skip
        report = _put(store, "report", {"arguments": inputs}, {"report.md": f"# {name}\n"})
        run.finish(report, model)
        return run.folder


def _put(store: Store, kind: str, metadata: dict[str, Any], files: dict[str, str]) -> ArtifactRef:
    with store.writer(kind, metadata=metadata) as draft:
        for file, text in files.items():
            (draft.path / file).write_text(text)
        if kind == "problems":
            write_rows(draft.path / "eval-held-out.jsonl", [p.to_row() for p in generate(PROBLEMS, 0)])
    return draft.ref


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found
