"""What a sampled token with its log-probability costs vLLM's front end: its text token by token, or at the end.

    python benchmarks/late_text.py MODEL_FOLDER [--requests 256] [--steps 60] [--rounds 5] [--out F]

Microseconds of a processor. Random tokens of the model's vocabulary go through what vLLM does for each of them beside
the model: packed as its engine process packs them, unpacked, and processed by its OutputProcessor. `plain` are tokens
without log-probabilities, `by_token` those with, whose text vLLM writes as it goes, `at_the_end` those with, whose text
reasoner/engines/vllm_engine.py makes when a completion is finished, that work included. Rounds run in turns, forwards
and backwards; the first is warm-up.

Does not cover the model, the card, or the way of an answer to the trainer. Needs vLLM; no card, and no weights but a
tokenizer. No bar: exit status 0.
"""

import argparse
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from paced import median_interval, settings_of, software, write  # noqa: E402
from turns import in_turns  # noqa: E402

from reasoner.engines.text import finished, text_behind  # noqa: E402

SIDES = {"plain": (False, True), "by_token": (True, True), "at_the_end": (True, False)}
"""With log-probabilities? Text by vLLM?"""
PARTS = ("pack", "unpack", "process", "text")
PROMPT = 60


class FrontEnd:
    """vLLM's front end without an engine behind it."""

    def __init__(self, tokenizer: Any, requests: int, steps: int, logprobs: bool, by_token: bool) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine import EngineCoreOutputs, EngineCoreRequest
        from vllm.v1.engine.output_processor import OutputProcessor
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        self._tokenizer, self._logprobs, self._late = tokenizer, logprobs, not by_token
        self._prompt, self._said = list(range(500, 500 + PROMPT)), [[0] * steps for _ in range(requests)]
        self._pack, self._unpack = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
        self._processor = OutputProcessor(tokenizer, log_stats=False)
        sampling = SamplingParams(
            temperature=1.0, max_tokens=steps, logprobs=0 if logprobs else None, flat_logprobs=logprobs,
            detokenize=by_token, output_kind=RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip
        known = EngineCoreRequest.__struct_fields__[: -len(EngineCoreRequest.__struct_defaults__)]
        for i in range(requests):
            fields = dict.fromkeys(known) | {
                "request_id": str(i), "external_req_id": str(i), "prompt_token_ids": self._prompt,
                "sampling_params": sampling, "arrival_time": 0.0,
            }  # fmt: skip
            self._processor.add_request(EngineCoreRequest(**fields), None)

    def step(self, at: int, ids: Any) -> dict[str, float]:
        """One token a request, `ids` [requests, 1]; seconds of each part."""
        import numpy
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
        from vllm.v1.outputs import LogprobsLists

        times = [time.perf_counter()]
        values, ranks = numpy.full(ids.shape, -1.0, numpy.float32), numpy.ones(len(ids), numpy.int32)
        made = [
            EngineCoreOutput(
                str(i), [int(ids[i, 0])],
                LogprobsLists(ids[i : i + 1], values[i : i + 1], ranks[i : i + 1], None) if self._logprobs else None,
            )
            for i in range(len(ids))
        ]  # fmt: skip
        sent = self._pack.encode(EngineCoreOutputs(outputs=made))
        times.append(time.perf_counter())
        got = self._unpack.decode(sent)
        times.append(time.perf_counter())
        self._processor.process_outputs(got.outputs)
        times.append(time.perf_counter())
        for i, said in enumerate(self._said):
            said[at] = int(ids[i, 0])
        return dict(zip(PARTS, (after - before for before, after in pairwise(times)), strict=False))

    def end(self) -> float:
        """Seconds for the texts that vLLM has not made."""
        started = time.perf_counter()
        if self._late:
            for said in self._said:
                finished(text_behind(self._tokenizer, self._prompt, said))
        return time.perf_counter() - started


def a_round(tokenizer: Any, given: argparse.Namespace, number: int, side: str) -> dict[str, float]:
    """Microseconds a token by part, and of all."""
    import numpy

    rng = numpy.random.default_rng(number)
    front = FrontEnd(tokenizer, given.requests, given.steps, *SIDES[side])
    seconds = dict.fromkeys(PARTS, 0.0)
    for at in range(given.steps):
        ids = rng.integers(300, len(tokenizer) - 300, (given.requests, 1), dtype=numpy.int32)
        for part, taken in front.step(at, ids).items():
            seconds[part] += taken
    seconds["text"] = front.end()
    row = {part: taken / given.requests / given.steps * 1e6 for part, taken in seconds.items()}
    return {**row, "all": sum(row.values())}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    from vllm.tokenizers import get_tokenizer

    tokenizer = get_tokenizer(str(given.model))
    rows: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for number, side in in_turns(list(SIDES), given.rounds):
        row = a_round(tokenizer, given, number, side)
        if number:
            rows[side].append(row)
    ratios = [b["all"] / a["all"] for b, a in zip(rows["by_token"], rows["at_the_end"], strict=True)]
    result = {
        "benchmark": "late_text", "machine": software(), "settings": settings_of(given),
        "by_token_over_at_the_end": median_interval(ratios),
        "microseconds_a_token": {
            side: {part: median_interval([row[part] for row in found]) for part in (*PARTS, "all")}
            for side, found in rows.items()
        },
        "rounds": rows,
    }  # fmt: skip
    write(result, given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
