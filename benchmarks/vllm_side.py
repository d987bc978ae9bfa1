"""`vllm.LLM` in a process of its own, with our engine's arguments or with vLLM's defaults (started by others here).

    python benchmarks/vllm_side.py SETTINGS_JSON

SETTINGS_JSON: {"model", "ours": bool, "dtype", "options", "profile": bool}. An order is {"do": "generate", "prompts",
"lengths", "temperature", "exact": bool}, where `exact` ignores the end token, so that everybody makes equally many
tokens; `batch` hands over so many prompts after another, and `use_n` draws the samples of a repeated prompt by
`SamplingParams(n=…)`. The answer holds the tokens, counted here, and the seconds.

With `profile` vLLM's engine core runs in this process, and an order is answered with its steps too: how many had a
prompt to read (`mixed`) and how many did not (`decode`), their seconds, and, of a load that is long enough, the longest
kernels of ten of them.
"""

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from paced import kernel_profiler, longest_kernels  # noqa: E402
from turns import Channel, serve  # noqa: E402

KERNEL_STEPS = (150, 160)
"""Steps of an order whose kernels are looked at, the last excluded: by then requests come and go."""


def arguments_of(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `vllm.LLM`; sets the environment, so nothing of vllm may be imported before."""
    from reasoner.engines.vllm_settings import CPU_ENVIRONMENT, is_cpu_build, set_environment, vllm_arguments

    cpu = is_cpu_build()
    if given["profile"]:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if given["ours"]:
        import dataclasses

        from reasoner.engines.protocol import EngineSettings

        set_environment(cpu)
        from vllm import EngineArgs

        settings = EngineSettings("vllm", Path(given["model"]), given["dtype"], options=given["options"])
        return vllm_arguments(settings, cpu, {f.name for f in dataclasses.fields(EngineArgs)})
    # Not of the speed: no messages to its makers, no sampling kernels that have to be compiled first (they serve top-k
    # and top-p only), and no more of the main memory than ours.
    os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_ENVIRONMENT["VLLM_CPU_KVCACHE_SPACE"])
    return {"model": given["model"], **given["options"]}


class Steps:
    """The steps of an engine core in this process: how long each took, told apart by what it had to read."""

    def __init__(self, llm: Any) -> None:
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        self._inner, scheduler.schedule = scheduler.schedule, self._schedule
        self._steps: list[tuple[float, int, int]] = []
        self._profiler: Any = None
        self._found: dict[str, Any] = {}

    def _schedule(self, *arguments: Any, **named: Any) -> Any:
        out = self._inner(*arguments, **named)
        if counts := list(out.num_scheduled_tokens.values()):
            self._steps.append((time.monotonic(), len(counts), sum(counts)))
            self._look()
        return out

    def _look(self) -> None:
        if len(self._steps) == KERNEL_STEPS[0]:
            self._profiler = kernel_profiler()
            self._profiler.__enter__()
        elif len(self._steps) == KERNEL_STEPS[1]:
            self._stop()

    def _stop(self) -> None:
        if self._profiler is not None:
            profiler, self._profiler = self._profiler, None
            profiler.__exit__(None, None, None)
            self._found = longest_kernels(profiler, KERNEL_STEPS[1] - KERNEL_STEPS[0])

    def take(self) -> dict[str, Any]:
        """What happened since the last call. A step lasts until the next one begins; those looked at don't count."""
        self._stop()
        steps, self._steps = self._steps, []
        kernels, self._found = self._found, {}
        kinds: dict[str, dict[str, float]] = {}
        for number, ((began, requests, tokens), (ended, *_)) in enumerate(itertools.pairwise(steps), 1):
            if KERNEL_STEPS[0] <= number <= KERNEL_STEPS[1]:
                continue
            kind = kinds.setdefault("decode" if tokens == requests else "mixed", dict.fromkeys(FIELDS, 0.0))
            row = (1, ended - began, requests, tokens, tokens > GRAPH_TOKENS)
            for name, value in zip(FIELDS, row, strict=True):
                kind[name] += value
        return {"kinds": kinds, "kernels": kernels}


FIELDS = ("steps", "seconds", "requests", "tokens", "above_graphs")
GRAPH_TOKENS = 512
"""vLLM captures CUDA graphs of at most so many tokens unless `max_cudagraph_capture_size` says otherwise."""


def run(given: dict[str, Any], channel: Channel) -> None:
    """Start vLLM and carry orders out."""
    arguments = arguments_of(given)
    started = time.monotonic()
    from vllm import LLM

    llm: Any = LLM(**arguments)
    channel.answer(ready=True, seconds_to_start=round(time.monotonic() - started, 2))
    steps = Steps(llm) if given["profile"] else None
    for order in channel.orders():
        if steps:
            steps.take()
        made = generate(llm, order)
        channel.answer(**made, **({"profile": steps.take()} if steps else {}))
    llm.llm_engine.engine_core.shutdown()


def generate(llm: Any, order: dict[str, Any]) -> dict[str, Any]:
    """Carry an order out."""
    from vllm import SamplingParams

    prompts, lengths, samples = order["prompts"], order["lengths"], 1
    if order.get("use_n"):
        samples = len(prompts) // len(set(prompts))
        prompts, lengths = prompts[::samples], lengths[::samples]
    parameters = [
        SamplingParams(temperature=order["temperature"], max_tokens=n, n=samples, ignore_eos=order["exact"])
        for n in lengths
    ]
    size = order.get("batch") or len(prompts)
    started, outputs = time.monotonic(), []
    for at in range(0, len(prompts), size):
        outputs += llm.generate(prompts[at : at + size], parameters[at : at + size], use_tqdm=False)
    seconds = time.monotonic() - started
    made = sum(len(sample.token_ids) for output in outputs for sample in output.outputs)
    return {
        "tokens": made,
        "prompt_tokens": sum(len(output.prompt_token_ids) for output in outputs),
        "seconds": seconds,
    }


if __name__ == "__main__":
    serve(lambda channel: run(json.loads(sys.argv[1]), channel))
