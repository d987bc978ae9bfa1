"""What our path costs over bare vLLM: same model, prompts and settings; tokens a second and their ratio.

    python benchmarks/engine.py MODEL_FOLDER [--prompts 64] [--tokens 64] [--rounds 5] [--samples 1] [--out F]

Ours is a RemoteEngine whose completions are written to a journal (JSON Lines, fsync at most every 0.2 s), as
the ledger does. Bare is `vllm.LLM.generate` in a process of its own with our engine's arguments. Both stay
loaded; rounds run in the order A B B A with fresh prompts that share worked examples, so that the prefix
cache serves both alike. Greedy, or with `--samples n` n samples at temperature 1.

Covers throughput in bulk. Does not cover start time, adapters or many GPUs. Exit status 1 when even the upper
end of the ratio's bootstrap interval is below the bar of 0.97.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from paced import software  # noqa: E402

from reasoner.engines.protocol import EngineSettings  # noqa: E402
from reasoner.engines.remote import RemoteEngine  # noqa: E402
from reasoner.records import GenerationRequest, Sampling  # noqa: E402

BAR = 0.97
SHOTS = 6


def make_prompts(count: int, seed: int) -> list[str]:
    """Few-shot arithmetic problems; the shots and the questions differ from round to round."""
    draw = random.Random(seed)

    def problem() -> tuple[str, int]:
        a, b, c = draw.randint(2, 60), draw.randint(2, 60), draw.randint(2, 9)
        return f"Problem: A shelf holds {a} red and {b} blue books. How many are on {c} such shelves?", (
            a + b
        ) * c

    shots = "\n\n".join(
        f"{text}\nSolution: The answer is {answer}." for text, answer in (problem() for _ in range(SHOTS))
    )
    return [f"{shots}\n\n{problem()[0]}\nSolution:" for _ in range(count)]


class Ours:
    """RemoteEngine and a journal."""

    def __init__(self, settings: EngineSettings, folder: Path) -> None:
        self.engine = RemoteEngine(settings, log=folder / "ours.log")
        self.journal = (folder / "journal.jsonl").open("a")

    def run(self, prompts: list[str], sampling: Sampling, samples: int) -> tuple[int, float]:
        start = time.monotonic()
        requests = [
            GenerationRequest(str(p), prompt, sampling, index=i)
            for p, prompt in enumerate(prompts)
            for i in range(samples)
        ]
        tokens, unsynced = 0, time.monotonic()
        for i, completion in self.engine.generate(requests):
            tokens += completion.completion_tokens
            row = {"key": requests[i].key("model"), "completion": completion.to_row()}
            self.journal.write(json.dumps(row, sort_keys=True) + "\n")
            if time.monotonic() - unsynced > 0.2:
                self._sync()
                unsynced = time.monotonic()
        self._sync()
        return tokens, time.monotonic() - start

    def _sync(self) -> None:
        self.journal.flush()
        os.fsync(self.journal.fileno())

    def close(self) -> None:
        self.engine.close()
        self.journal.close()


class Bare:
    """`vllm.LLM.generate` in a child that gets a line of JSON a round and answers with one."""

    def __init__(self, settings: EngineSettings, folder: Path, use_n: bool) -> None:
        arguments = {
            "model_path": str(settings.model_path),
            "dtype": settings.dtype,
            "options": dict(settings.options),
        }
        with (folder / "bare.log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--bare", json.dumps({**arguments, "use_n": use_n})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer
        raise SystemExit("the bare vLLM process ended; see its log")

    def run(self, prompts: list[str], sampling: Sampling, samples: int) -> tuple[int, float]:
        assert self.process.stdin
        order = {
            "prompts": prompts,
            "temperature": sampling.temperature,
            "tokens": sampling.max_tokens,
            "n": samples,
        }
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        return answer["tokens"], answer["seconds"]

    def close(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()


def serve_bare(row: dict[str, Any]) -> None:
    """The child of `Bare`."""
    import dataclasses

    from reasoner.engines.vllm_settings import is_cpu_build, set_environment, vllm_arguments

    cpu = is_cpu_build()
    set_environment(cpu)
    from vllm import LLM, EngineArgs, SamplingParams

    settings = EngineSettings("vllm", Path(row["model_path"]), row["dtype"], options=row["options"])
    llm = LLM(**vllm_arguments(settings, cpu, {f.name for f in dataclasses.fields(EngineArgs)}))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        n = order["n"] if row["use_n"] else 1
        prompts = (
            order["prompts"] if row["use_n"] else [p for p in order["prompts"] for _ in range(order["n"])]
        )
        params = SamplingParams(temperature=order["temperature"], max_tokens=order["tokens"], n=n)
        start = time.monotonic()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.monotonic() - start
        tokens = sum(len(sample.token_ids) for output in outputs for sample in output.outputs)
        print(json.dumps({"tokens": tokens, "seconds": seconds}), flush=True)


def interval(ratios: list[float]) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the rounds; the first pair is warm-up and not counted."""
    engine_options = json.loads(options.options)
    settings = EngineSettings("vllm", options.model.resolve(), options.dtype, options=engine_options)
    ours, bare = Ours(settings, folder), Bare(settings, folder, options.use_n)
    sampling = Sampling(temperature=0.0 if options.samples == 1 else 1.0, max_tokens=options.tokens)
    pairs: list[dict[str, float]] = []
    try:
        for number in range(options.rounds + 1):
            prompts = make_prompts(options.prompts, number)
            order: list[tuple[str, Ours | Bare]] = [("ours", ours), ("bare", bare)]
            order = order if number % 2 else order[::-1]
            rates = {}
            for name, path in order:
                tokens, seconds = path.run(prompts, sampling, options.samples)
                rates[name] = tokens / seconds
            if number:
                pairs.append(rates)
            print(
                f"round {number}: ours {rates['ours']:.1f}, bare {rates['bare']:.1f} tokens/s",
                file=sys.stderr,
            )
    finally:
        ours.close()
        bare.close()
    ratios = [pair["ours"] / pair["bare"] for pair in pairs]
    low, high = interval(ratios)
    return {
        "ours_tokens_per_second": statistics.median(pair["ours"] for pair in pairs),
        "bare_tokens_per_second": statistics.median(pair["bare"] for pair in pairs),
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "rounds": pairs,
    }


def context(options: argparse.Namespace) -> dict[str, Any]:
    """What the numbers were measured with."""
    names = ("prompts", "tokens", "samples", "rounds", "dtype", "options", "use_n")
    return {
        "benchmark": "engine",
        **software(),
        "model": options.model.name,
        "bar": BAR,
        **{name: getattr(options, name) for name in names},
    }


def main() -> int:
    if sys.argv[1:2] == ["--bare"]:
        serve_bare(json.loads(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument(
        "--use-n", action="store_true", help="bare vLLM draws samples with SamplingParams(n=…)"
    )
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--options", default='{"max_model_len": 1024}', help="the engine's options as JSON")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {**context(options), **measure(options, Path(folder))}
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return int(result["high"] < BAR)


if __name__ == "__main__":
    raise SystemExit(main())
