"""Copies what is worth keeping of the newest run of a pipeline, and nothing that is large, to be carried away.

    python benchmarks/card/collect.py HOME OUT --pipeline smart-epoch2 [--no-adapters] [--no-answers]

OUT gets `run/` (report, configuration, timings, stages, the last lines of each log), `tables/` (what evaluation,
analysis and training wrote), `answers/` (attempts with their verdicts) and `adapters/` (in bfloat16, half of what they
take in training; to go on with one takes the home folder itself). A folder is named after the label of its stage.
"""

import argparse
import gzip
import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from reasoner.records import ArtifactRef  # noqa: E402
from reasoner.store import open_ref  # noqa: E402

LARGEST = 4 * 2**20
"""Bytes of a file that goes to `tables/`."""
LOG_LINES = 200


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--no-adapters", dest="adapters", action="store_false")
    parser.add_argument("--no-answers", dest="answers", action="store_false")
    given = parser.parse_args(arguments)
    runs = sorted((given.home / "runs").glob(f"{given.pipeline}-*"), key=lambda p: p.stat().st_mtime)
    if not runs:
        print(
            f"collect: {given.home / 'runs'} holds no run of {given.pipeline}; give another --pipeline",
            file=sys.stderr,
        )
        return 2
    out = given.out / given.pipeline
    copy_run(runs[-1], out / "run")
    for label, ref in made(runs[-1]):
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", label)
        if ref.kind == "adapter" and given.adapters:
            copy_adapter(open_ref(ref), out / "adapters" / name)
        elif ref.kind == "attempts" and given.answers:
            copy_compressed(open_ref(ref) / "attempts.jsonl", out / "answers" / f"{name}.jsonl.gz")
        elif ref.kind in ("evaluation", "analysis", "adapter", "report"):
            copy_small(open_ref(ref), out / "tables" / name)
    print(out)
    return 0


def made(run: Path) -> list[tuple[str, ArtifactRef]]:
    """The finished stages of a run: label and artifact."""
    rows = [json.loads(line) for line in (run / "stages.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {row["key"]: (row["label"], ArtifactRef.from_row(row["ref"])) for row in rows if row["ref"]}
    return list(found.values())


def copy_run(run: Path, out: Path) -> None:
    """The run's own small files, and the end of each of its logs."""
    copy_small(run, out)
    for log in sorted((run / "logs").glob("*.log")):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        out.joinpath("logs").mkdir(parents=True, exist_ok=True)
        (out / "logs" / log.name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def copy_small(folder: Path, out: Path) -> None:
    """The JSON, JSON Lines and Markdown files of a folder, up to LARGEST bytes each."""
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(folder.iterdir()):
        if file.suffix in (".json", ".jsonl", ".md") and file.stat().st_size <= LARGEST:
            shutil.copyfile(file, out / file.name)


def copy_compressed(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as source, gzip.open(target, "wb") as sink:
        shutil.copyfileobj(source, sink)


def copy_adapter(folder: Path, out: Path) -> None:
    """An adapter with its weights in bfloat16."""
    from safetensors.torch import load_file, save_file

    copy_small(folder, out)
    for file in folder.glob("*.safetensors"):
        weights = {name: tensor.bfloat16() for name, tensor in load_file(file).items()}
        save_file(weights, out / file.name, metadata={"format": "pt"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
