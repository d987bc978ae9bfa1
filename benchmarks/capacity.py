"""What grows with the number of problems: completions, ledger, rows on disk, time, memory, database, bucket.

    python benchmarks/capacity.py [--sizes 1000 3000 9000] [--database FILE.db] [--out capacity.json]

Measured: the generation stage of this project, with the scripted engine, for each of `--sizes` problems, each in a
process of its own; the shared job of the same completions; and, of a Prefect database that is given, rows and bytes a
flow run. Simulated: 10,000 to 10,000,000 problems, by a straight line through the measured sizes, whose fit is told
(`worst_misfit`). Model tokens are counted by assumption (`--prompt-tokens`, `--answer-tokens`), since a scripted engine
has none.

Not covered: what a model costs (see docs/plan.md) and the size of models and checkpoints, which do not grow with the
data.
"""

import argparse
import json
import os
import platform
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from reasoner.config.smart import EngineConfig, SamplingConfig  # noqa: E402
from reasoner.engines.pool import EnginePool  # noqa: E402
from reasoner.engines.protocol import EngineSettings  # noqa: E402
from reasoner.home import Home  # noqa: E402
from reasoner.ledger import Ledger  # noqa: E402
from reasoner.ledger.keys import request_keys  # noqa: E402
from reasoner.records import GenerationRequest, Problem, Sampling  # noqa: E402
from reasoner.shards.complete import shard_size  # noqa: E402
from reasoner.shards.job import Job  # noqa: E402
from reasoner.shards.place import Place  # noqa: E402
from reasoner.stages.generation import Ask, generate  # noqa: E402
from reasoner.workbench import ModelFolder, Workbench  # noqa: E402

SOLUTION = (
    "First there are so many, then so many more come, which together make the number that was asked for. " * 4
)
GROWN = (10_000, 100_000, 1_000_000, 10_000_000)


def answer(request: GenerationRequest) -> str:
    """The scripted model: about 75 words, as long as a worked solution."""
    return f"{SOLUTION} The answer is {request.index}."


def problem(i: int) -> Problem:
    question = f"A shop sells {i} pens on Monday and twice as many on Tuesday. How many pens does it sell on both days?"
    return Problem.make(question, str(3 * i), "capacity")


def stage(folder: Path, problems: int, samples: int) -> dict[str, Any]:
    """The generation stage as a run calls it, then its ledger opened again as the next run does."""
    home, out = Home(folder / "home"), folder / "out"
    out.mkdir(parents=True)
    shots = "Problem: an example with its numbers. Solution: its steps in full sentences. " * 40
    asks = [Ask(p, f"{shots}\nProblem: {p.question}", False, "cot") for p in map(problem, range(problems))]
    engine = EngineConfig(kind="scripted", options={"script": "capacity:answer"})
    started = time.perf_counter()
    with EnginePool(folder / "logs") as engines:
        bench = Workbench(home, engines, folder / "work", folder / "logs", lambda *_: None)
        made = generate(out, bench, asks, ModelFolder(folder, "m", "m"), engine, SamplingConfig(), samples, 0)
    seconds = time.perf_counter() - started
    (journal,) = (path for path in home.ledger.iterdir() if path.is_dir())
    before = time.perf_counter()
    with Ledger(journal, readonly=True) as ledger:
        opened = time.perf_counter() - before
        assert len(ledger) == problems * samples == made["owed"]
    return {
        "completions": made["owed"], "seconds": seconds, "open_seconds": opened,
        "ledger_bytes": size(home.ledger), "rows_bytes": size(out),
    }  # fmt: skip


def shared(folder: Path, problems: int, samples: int) -> dict[str, Any]:
    """The requests of the same work as a job that workers share: what a bucket holds before and after it."""
    sampling = Sampling(max_tokens=256)
    asked = [
        GenerationRequest(p.id, p.question, sampling, 0, i)
        for p in map(problem, range(problems))
        for i in range(samples)
    ]
    owed = dict(zip(request_keys(asked, "m"), asked, strict=True))
    before = time.perf_counter()
    settings = EngineSettings("scripted", folder, options={"script": "capacity:answer"})
    each = shard_size(len(owed), 8)
    job = Job.publish(Place(folder / "shards"), settings, owed, shard_size=each)
    pieces = sum(-(-min(each, len(owed) - first) // 256) for first in range(0, len(owed), each))
    return {
        "publish_seconds": time.perf_counter() - before, "request_bytes": size(folder / "shards"), "shards": job.count,
        "objects": 1 + 2 * job.count + pieces,
    }  # fmt: skip


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def database(file: Path) -> dict[str, Any]:
    """Rows by table, and bytes, a flow run that is no child of another."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:

        def count(table: str) -> int:
            return int(connection.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()[0])

        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        roots = "SELECT COUNT(*) FROM flow_run WHERE parent_task_run_id IS NULL"
        runs = int(connection.execute(roots).fetchone()[0])
        counts = {name: count(name) for name in tables}
    per_run = {name: n / runs for name, n in sorted(counts.items(), key=lambda item: -item[1])[:8]}
    return {"flow_runs": runs, "rows_a_run": per_run, "bytes_a_run": file.stat().st_size / runs}


def line(sizes: list[int], values: list[float]) -> tuple[float, float, float]:
    """Least squares `a + b n`, with the largest relative distance of a measured value from it."""
    n, mean_x, mean_y = len(sizes), sum(sizes) / len(sizes), sum(values) / len(values)
    spread = sum((x - mean_x) ** 2 for x in sizes)
    slope = (
        sum((x - mean_x) * (y - mean_y) for x, y in zip(sizes, values, strict=True)) / spread
        if n > 1
        else mean_y / mean_x
    )
    start = mean_y - slope * mean_x
    misfit = max(abs(start + slope * x - y) / abs(y) for x, y in zip(sizes, values, strict=True) if y)
    return start, slope, misfit


PARTS = {"stage": stage, "shared": shared}


def measure(sizes: list[int], samples: int) -> list[dict[str, Any]]:
    """Every part of every size in a process of its own, so that its peak of memory is its own."""
    found = []
    for problems in sizes:
        row: dict[str, Any] = {"problems": problems}
        for part in PARTS:
            with tempfile.TemporaryDirectory(prefix="reasoner-capacity-") as folder:
                command = [
                    sys.executable,
                    __file__,
                    "--part",
                    part,
                    "--folder",
                    folder,
                    "--samples",
                    str(samples),
                ]
                done = subprocess.run(
                    [*command, "--sizes", str(problems)], check=True, stdout=subprocess.PIPE
                )
            row |= json.loads(done.stdout)
        found.append(row)
    return found


def simulate(rows: list[dict[str, Any]], samples: int, prompt: int, answered: int) -> dict[str, Any]:
    """The lines through what was measured, and what they give for `GROWN`. Nothing of it was run."""
    sizes = [row["problems"] for row in rows]
    names = [name for name in rows[0] if name not in ("problems", "shards", "objects")]
    lines = {name: line(sizes, [row[name] for row in rows]) for name in names}
    grown = []
    for problems in GROWN:
        completions = problems * samples
        each = shard_size(completions, 8)
        job = {
            "shards": -(-completions // each),
            "objects": 1 + 2 * -(-completions // each) + -(-completions // 256),
        }
        values = {name: max(0.0, start + slope * problems) for name, (start, slope, _) in lines.items()}
        tokens = {"prompt_tokens": completions * prompt, "answer_tokens": completions * answered}
        grown.append({"problems": problems, **values, **tokens, **job})
    return {
        "lines": {name: {"at_zero": a, "a_problem": b, "worst_misfit": c} for name, (a, b, c) in lines.items()},
        "rows": grown,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 3000, 9000])
    parser.add_argument("--samples", type=int, default=4, help="completions a problem")
    parser.add_argument("--prompt-tokens", type=int, default=900, help="of a model, a completion: assumed")
    parser.add_argument("--answer-tokens", type=int, default=120, help="of a model, a completion: assumed")
    parser.add_argument("--database", type=Path, help="a Prefect database (SQLite) of finished runs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        found = PARTS[options.part](options.folder, options.sizes[0], options.samples)
        found[f"{options.part}_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(found))
        return
    rows = measure(options.sizes, options.samples)
    report: dict[str, Any] = {
        "samples": options.samples, "python": platform.python_version(), "cpus": os.cpu_count(),
        "load": os.getloadavg()[0], "measured": rows,
        "simulated": simulate(rows, options.samples, options.prompt_tokens, options.answer_tokens),
    }  # fmt: skip
    if options.database:
        report["database"] = database(options.database)
    text = json.dumps(report, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
