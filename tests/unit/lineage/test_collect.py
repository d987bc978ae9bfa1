"""benchmarks/card/collect.py: what is small of a run, and of a training that was cut short, comes along."""

import gzip
import subprocess
import sys
from pathlib import Path

from reasoner.home import Home
from reasoner.lineage import journal
from reasoner.lineage.calls import Call
from reasoner.store import Store

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "card" / "collect.py"


def test_reports_rows_and_halved_adapters_and_no_weights_else(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    home = Home(tmp_path / "home")
    run = home.runs / "mlmt-code-1"
    (run / "logs").mkdir(parents=True)
    (run / "report.md").write_text("# Report\n")
    (run / "logs" / "times-1.jsonl").write_text('{"step":1}\n')
    store = Store(home.artifacts)
    weights = {"a.lora_A.weight": torch.tensor([0.1, 1.0])}
    with store.writer("policies") as draft:
        (draft.path / "solver").mkdir()
        (draft.path / "solver" / "adapter_config.json").write_text("{}")
        (draft.path / "solver" / "tokenizer.json").write_text("{}")
        save_file(weights, draft.path / "solver" / "adapter_model.safetensors")
        save_file(weights, draft.path / "value.safetensors")
        (draft.path / "metrics.jsonl").write_text('{"acc_t1":0.5}\n')
    with store.writer("model") as merged:
        (merged.path / "config.json").write_text("{}")
    again = home.runs / "mlmt-code-2"  # it was stopped, and found the training finished
    again.mkdir()
    for folder, state in ((run, journal.MADE), (again, journal.CACHED)):
        for stage, ref in (("multiturn-train mlmt", draft.ref), ("planner-merge", merged.ref)):
            journal.append(folder, state, Call(stage, stage, 1, f"{stage}-1", {}, ref=ref))
    checkpoint = home.work / "multiturn-train-1" / "multiturn" / "checkpoint-4"
    checkpoint.mkdir(parents=True)
    (checkpoint / "complete.json").write_text("{}")
    (checkpoint.parent / "metrics.jsonl").write_text('{"step":4}\n')

    out = tmp_path / "out"
    for _ in range(2):  # each part of a run that goes on collects again
        subprocess.run([sys.executable, str(SCRIPT), str(home.path), str(out)], check=True)

    found = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    trained = f"multiturn-train-mlmt-{draft.ref.digest[:8]}"
    assert found == {
        "mlmt-code-1/report.md", "mlmt-code-1/stages.jsonl.gz", "mlmt-code-1/logs/times-1.jsonl.gz",
        "mlmt-code-2/stages.jsonl.gz", f"stages/{trained}/metrics.jsonl.gz", f"stages/{trained}/manifest.json",
        f"stages/{trained}/solver/adapter_config.json", f"adapters/{trained}/solver/adapter_config.json",
        f"adapters/{trained}/solver/adapter_model.safetensors",
        "unfinished/multiturn-train-1/multiturn/metrics.jsonl.gz",
    }  # fmt: skip
    assert (
        gzip.decompress((out / "stages" / trained / "metrics.jsonl.gz").read_bytes()) == b'{"acc_t1":0.5}\n'
    )
    halved = load_file(out / "adapters" / trained / "solver" / "adapter_model.safetensors")["a.lora_A.weight"]
    assert halved.dtype == torch.bfloat16 and torch.allclose(
        halved.float(), weights["a.lora_A.weight"], atol=1e-3
    )
