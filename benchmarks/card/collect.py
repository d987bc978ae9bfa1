"""Copies what is small of a home folder's runs: reports, evaluations, metrics, times, logs, adapters in bfloat16.

    python benchmarks/card/collect.py HOME OUT

OUT/RUN/ gets a run's report, configuration, journal and logs; OUT/stages/STAGE-DIGEST/ what a finished stage left (rows
as .jsonl.gz) and OUT/adapters/STAGE-DIGEST/ its adapters, once however many runs found it there; OUT/unfinished/STAGE/
the metrics of trainings that are not done. Models, checkpoints and files above 32 MiB stay.
"""

import gzip
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reasoner.errors import ArtifactError
from reasoner.home import Home
from reasoner.lineage import journal
from reasoner.store import Store

LARGEST = 32 << 20
KEPT = (".json", ".jsonl", ".md", ".html", ".log")
ADAPTER = "adapter_model.safetensors"
LEFT = ("model", "problems")
"""Kinds of artifacts that stay: they are inputs, or large."""


def main() -> int:
    home, out = Home(Path(sys.argv[1])), Path(sys.argv[2])
    store = Store(home.artifacts)
    for run in sorted(home.runs.glob("*")) if home.runs.is_dir() else ():
        target = out / run.name
        copy(run, target, list(small(run)))
        for row in journal.read(run):
            if row.call.ref is None or row.call.ref.kind in LEFT:
                continue
            try:
                folder = store.open(store.here(row.call.ref))
            except ArtifactError:
                continue  # the home was copied without it
            stage = f"{row.call.name.replace(' ', '-').replace('/', '-')}-{row.call.ref.digest[:8]}"
            copy(folder, out / "stages" / stage, list(small(folder)))
            for weights in folder.rglob(ADAPTER):
                copy(folder, out / "adapters" / stage, [weights.with_name("adapter_config.json")])
                halve(weights, out / "adapters" / stage / weights.relative_to(folder))
    shutil.rmtree(out / "unfinished", ignore_errors=True)  # of an earlier call: it may be done now
    for work in sorted(home.work.glob("*")) if home.work.is_dir() else ():
        copy(work, out / "unfinished" / work.name, [p for p in small(work) if "checkpoint-" not in str(p)])
    return 0


def small(folder: Path) -> Iterator[Path]:
    """Files that are worth their size; a tokenizer is the base's."""
    for path in sorted(folder.rglob("*")):
        kept = path.suffix in KEPT and path.name != "tokenizer.json"
        if kept and path.is_file() and path.stat().st_size <= LARGEST:
            yield path


def copy(source: Path, target: Path, files: list[Path]) -> None:
    """Copy files to the same places below `target`; rows are packed."""
    for path in files:
        copied = target / path.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            copied.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        else:
            shutil.copyfile(path, copied)


def halve(weights: Path, target: Path) -> None:
    """An adapter in bfloat16, as it is served; one that is there already stays, for its name has its digest."""
    import torch
    from safetensors.torch import load_file, save_file

    if target.is_file():
        return
    tensors: dict[str, Any] = load_file(weights)
    part = target.with_name("part")
    save_file({n: t.to(torch.bfloat16) for n, t in tensors.items()}, part, metadata={"format": "pt"})
    part.replace(target)


if __name__ == "__main__":
    sys.exit(main())
