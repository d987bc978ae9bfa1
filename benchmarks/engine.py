"""What our path costs over bare vLLM: same model, prompts and settings; tokens a second and their ratio.

    python benchmarks/engine.py MODEL_FOLDER [--shape few_shot|sampling] [--prompts N] [--length 1.0] [--rounds 5]
        [--options JSON] [--use-n] [--profile] [--out F]

Ours is a RemoteEngine whose completions are written to a ledger as a stage writes them. Bare is `vllm.LLM.generate` in
a process of its own with our engine's arguments. Both stay loaded; rounds run in the order A B B A with fresh prompts.
An answer ends at the end token or after the longest of the shape's lengths times `--length`. With `--use-n` bare vLLM
draws the samples of a prompt by `SamplingParams(n=…)`. On a card each engine gets half of `--share`.

`--profile` adds one more round of ours with the seconds of this process by function.

Interrupted (Ctrl-C), it writes the rounds that it has.

Covers throughput in bulk. Does not cover start time, adapters or many GPUs. Exit status 1 when even the upper
end of the ratio's bootstrap interval is below the bar of 0.97.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from paced import functions_of, median_interval, settings_of, software, write  # noqa: E402
from shapes import SHAPES, Load  # noqa: E402
from turns import Side, in_turns  # noqa: E402

from reasoner.engines.protocol import EngineSettings  # noqa: E402
from reasoner.engines.remote import RemoteEngine  # noqa: E402
from reasoner.engines.vllm_settings import is_cpu_build  # noqa: E402
from reasoner.hardware import compute_environment  # noqa: E402
from reasoner.ledger.ledger import Ledger  # noqa: E402
from reasoner.ledger.owed import complete  # noqa: E402
from reasoner.records import GenerationRequest, Sampling  # noqa: E402

BAR = 0.97


class Ours:
    """A RemoteEngine and a ledger."""

    def __init__(self, settings: EngineSettings, room: Path) -> None:
        self.engine = RemoteEngine(settings, log=room / "ours.log")
        self.ledger = Ledger(room / "ledger")

    def run(self, load: Load) -> dict[str, Any]:
        """A round; asks the ledger as a stage does."""
        sampling = Sampling(load.temperature, max_tokens=max(load.lengths))
        requests = [GenerationRequest(str(i), p, sampling, index=i) for i, p in enumerate(load.prompts)]
        start = time.monotonic()
        made = complete(requests, ledger=self.ledger, fingerprint="model", engine=lambda: self.engine)
        tokens = sum(completion.completion_tokens for completion in made.completions)
        return {"tokens": tokens, "seconds": time.monotonic() - start}

    def close(self) -> None:
        self.engine.close()
        self.ledger.close()


def options_of(given: argparse.Namespace) -> dict[str, Any]:
    """Our engine's options; on a card with half of the memory."""
    options: dict[str, Any] = json.loads(given.options)
    return options if is_cpu_build() else {"gpu_memory_utilization": given.share / 2, **options}


def measure(given: argparse.Namespace, room: Path) -> dict[str, Any]:
    """Run the rounds; the first pair is warm-up and not counted."""
    shape, options = SHAPES[given.shape].scaled(given.prompts, given.length), options_of(given)
    told = {"model": str(given.model.resolve()), "ours": True, "dtype": given.dtype, "options": options,
            "profile": False}  # fmt: skip
    argv = [str(ROOT / "benchmarks" / "vllm_side.py"), json.dumps(told)]
    bare = Side("bare", argv, room / "bare.log", compute_environment())
    bare.expect("ready")
    ours = Ours(EngineSettings("vllm", given.model.resolve(), given.dtype, options=options), room)
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    result: dict[str, Any] = {}
    try:
        for number, name in in_turns(("ours", "bare"), given.rounds):
            load = shape.load(number)
            if name == "ours":
                row = ours.run(load)
            else:
                lengths = [max(load.lengths)] * len(load.prompts)
                bare.order(do="generate", prompts=load.prompts, lengths=lengths, temperature=load.temperature,
                           exact=False, use_n=given.use_n)  # fmt: skip
                row = bare.expect("tokens")
            rate = row["tokens"] / row["seconds"]
            print(f"round {number} {name}: {rate:.1f} tokens/s", file=sys.stderr, flush=True)
            if number:
                rates[name].append(rate)
        if given.profile:
            result["profile"] = functions_of(lambda: ours.run(shape.load(given.rounds + 1)))
    except KeyboardInterrupt:
        result["interrupted"] = True
    finally:
        ours.close()
        bare.end()
    ratios = [a / b for a, b in zip(rates["ours"], rates["bare"], strict=False)]
    return result | {
        "ratio": median_interval(ratios) if ratios else None,
        "tokens_per_second": {name: median_interval(values) for name, values in rates.items() if values},
        "rounds": rates,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", choices=("few_shot", "sampling"), default="few_shot")
    parser.add_argument("--prompts", type=int, help="unset is the shape's number")
    parser.add_argument("--length", type=float, default=1.0, help="times the shape's answers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--use-n", action="store_true")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--options", default='{"max_model_len": 4096}', help="the engine's options as JSON")
    parser.add_argument(
        "--share", type=float, default=0.85, help="of the card's memory, both engines together"
    )
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        found = measure(given, Path(room))
    write(
        {"benchmark": "engine", **software(), "settings": settings_of(given), "bar": BAR, **found}, given.out
    )
    return int(found["ratio"] is None or found["ratio"]["high"] < BAR)


if __name__ == "__main__":
    raise SystemExit(main())
